use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// One storage of varnishd: an `-s` argument.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    ("self.type != 'file' || has(self.path)", "a storage of type file needs a path on a volume"),
    ("self.type == 'file' || !has(self.path)", "only a storage of type file has a path"),
])))]
pub struct StorageParameters {
    /// What VCL knows it by: `storage.NAME`. `Transient` is the one that short-lived and passed objects go to.
    #[schemars(length(min = 1, max = 32), extend("pattern" = "^[A-Za-z][A-Za-z0-9_]*$"))]
    pub name: String,
    #[serde(rename = "type")]
    pub kind: StorageType,
    /// `512Mi`, `20Gi`. All of type malloc together must be smaller than resources.limits.memory.
    #[schemars(length(max = 20), extend("pattern" = schema::SIZE))]
    pub size: String,
    /// The file, on a volume out of extraVolumeMounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), extend("pattern" = "^/[^,; ]+$"))]
    pub path: Option<String>,
}

/// In memory, or in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StorageType {
    #[default]
    Malloc,
    File,
}
