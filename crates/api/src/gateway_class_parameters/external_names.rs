//! Whether Services of type ExternalName are backends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which addresses of a Service of type ExternalName are used. The field describes the values: comments of variants would take its place in
/// the CRD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalNames {
    // None: a backendRef to such a Service is refused.
    #[default]
    Deny,
    // Public addresses.
    PublicOnly,
    // Public and private addresses.
    Allow,
}
