//! Whether Services of type ExternalName are backends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a Service of type ExternalName may lead to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalNames {
    /// Nothing: a backendRef to such a Service is refused.
    #[default]
    Deny,
    /// Public addresses.
    PublicOnly,
    /// Public and private addresses.
    Allow,
}
