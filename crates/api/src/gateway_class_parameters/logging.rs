use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// How requests are logged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::rules(&[
    (
        "!has(self.format) || self.mode != 'varnishlog'",
        "varnishlog has no format: use mode varnishncsa, or remove it",
    ),
    (
        "!has(self.queryStrings) || self.mode == 'json' || (self.mode == 'varnishlog-json' && !has(self.format) && !has(self.image))",
        "queryStrings is for modes json, and varnishlog-json without format and image: elsewhere the program or its format says what is logged",
    ),
    (
        "self.mode != 'json' || (!has(self.format) && !has(self.query) && !has(self.extraArgs) && !has(self.image))",
        "format, query, extraArgs and image are for programs that read varnishd's log: use another mode, or remove them",
    ),
])))]
pub struct LoggingParameters {
    pub mode: LogMode,
    /// The line of varnishncsa (its `-F`), also for varnishlog-json, whose lines must be JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub format: Option<String>,
    /// Only transactions that this VSL query matches: `RespStatus >= 500`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub query: Option<String>,
    /// Whether json and varnishlog-json show what comes behind `?` in URLs, too, which may be secret. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_strings: Option<bool>,
    /// Further arguments for the program, one element an argument.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 32),
        inner(length(max = 1024)),
        extend("x-kubernetes-validations" = schema::rules(&[(
            "!self.exists(a, a.matches('^-[DhnPrtVw]'))",
            "-D, -h, -n, -P, -r, -t, -V and -w belong to the gateway: the log goes to standard output",
        )]))
    )]
    pub extra_args: Option<Vec<String>>,
    /// The image that the program is in, the pods' own by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), extend("pattern" = "^\\S+$"))]
    pub image: Option<String>,
}

/// The form of the log, and who writes it: `json` is one JSON object a request, from the gateway itself. The others read varnishd's
/// log, so that varnishd must see all requests: `varnishlog` writes everything that varnishd records, `varnishlog-json` one JSON
/// object a request, `varnishncsa` one line a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogMode {
    #[serde(rename = "json")]
    Json,
    #[default]
    #[serde(rename = "varnishlog")]
    Varnishlog,
    #[serde(rename = "varnishlog-json")]
    VarnishlogJson,
    #[serde(rename = "varnishncsa")]
    Varnishncsa,
}
