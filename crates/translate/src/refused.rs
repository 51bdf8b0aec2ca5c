//! Stand-ins: what a snapshot holds in the place of an object that could not be used and has no earlier good version.
//!
//! A stand-in says what can still be read of the object: its identity, what it is for, and which requests it matches. It
//! never makes anything wider than the object itself would: routes answer 500, policies keep their targets out of the
//! cache or out of plain text.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// On a stand-in: why the object is refused. A user who writes it on their own object only closes that object.
pub const REFUSED_ANNOTATION: &str = "gateway.varnish-software.com/refused";

/// Why the object is refused, if it is a stand-in.
pub(crate) fn why(metadata: &ObjectMeta) -> Option<&str> {
    metadata.annotations.as_ref()?.get(REFUSED_ANNOTATION).map(String::as_str)
}
