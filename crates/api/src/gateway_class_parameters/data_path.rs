//! Which process owns the ports of a Gateway.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DataPath {
    Auto,
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
