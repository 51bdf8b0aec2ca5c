//! Which cache engine the pods run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Engine {
    #[default]
    #[serde(rename = "varnish-7")]
    Varnish7,
    #[serde(rename = "vinyl-9")]
    Vinyl9,
}
