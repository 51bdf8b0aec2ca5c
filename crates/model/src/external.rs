//! Services of type ExternalName: names that the data plane looks up by DNS.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// All that a Gateway's routes lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ExternalNames {
    /// Addresses that are not public are refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub public_only: bool,
    /// By `namespace/name` of the Service.
    pub services: BTreeMap<String, ExternalName>,
}

/// One Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ExternalName {
    /// An absolute name in lower case, without the dot at its end.
    pub host: String,
    /// The ports that routes name. The same number is used at the host.
    pub ports: BTreeSet<ExternalPort>,
}

/// One port of the Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ExternalPort {
    pub port: u16,
    /// Empty for a port without name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub udp: bool,
}
