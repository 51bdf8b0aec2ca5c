//! The routing decision: compiled ghost.json in, a request in, one [`Decision`] out.
//!
//! Takes a [`model::ghost::Config`]; guarantees that a decision allocates nothing, takes no lock and reads no clock;
//! never does IO and never knows who carries the request: ghost inside varnishd, or a front of our own.
//!
//! The listener narrows first, then the host, then the path. A connection that was made for one listener carries no
//! requests for another. Paths are read in one way only, before all else ([`Router::route`]). What remains is ordered by the Gateway API's
//! precedence, field by field, and the first rule whose method, headers and query parameters fit takes the request.

pub mod answer;
pub mod budget;
pub mod cache;
mod certificates;
mod compile;
pub mod cors;
pub mod counters;
mod decision;
mod dictionary;
mod digest;
pub mod edit;
mod explain;
pub mod forwarded;
mod group;
mod header;
mod host;
mod normalize;
mod path;
pub mod pattern;
mod precedence;
mod query;
pub mod random;
mod redirect;
mod rewrite;
mod rule;
pub mod sent;
mod table;
pub mod trace;
mod upstream;

pub use compile::{Compiled, Problem};
pub use decision::{Action, Decision, TooLong};
pub use explain::{Candidate, Explanation, Verdict};
pub use group::Group;
pub use host::{HostTable, NormalHost, is_host};
pub use normalize::{Normal, Refusal, normalize};
pub use rewrite::Url;
pub use rule::Rule;
pub use table::{Listener, Routed, Router};
pub use upstream::Mirror;

/// What the router asks of a request. The carrier lends its bytes; nothing is copied.
pub trait Request {
    /// Name of the socket that the request came in by, `http-80`.
    fn socket(&self) -> &[u8];
    /// The name that the client gave in its TLS handshake, if any.
    fn server_name(&self) -> Option<&[u8]> {
        None
    }
    /// The Host header as it came; empty where there is none.
    fn host(&self) -> &[u8];
    fn method(&self) -> &[u8];
    /// Path and query.
    fn url(&self) -> &[u8];
    /// Shows every value of a header to `seen`, until it answers true. Names compare without case.
    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool;
}
