//! Which process owns the ports of a Gateway.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who carries HTTP between clients and backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DataPath {
    /// The front owns all ports, unless the Gateway has user VCL or reads varnishd's log of requests.
    Auto,
    /// varnishd owns the plain HTTP ports, and every request goes through VCL.
    Varnish,
}

impl FromStr for DataPath {
    type Err = String;

    /// The values of the field.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "Auto" => Ok(Self::Auto),
            "Varnish" => Ok(Self::Varnish),
            _ => Err(format!("`{text}` is not a data path: write `Auto` or `Varnish`")),
        }
    }
}
