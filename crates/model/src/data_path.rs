//! Which process carries HTTP for a Gateway, and why. All programs that show it use the words of this file.

use serde::{Deserialize, Serialize};

/// Why every request of a Gateway goes through varnishd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ThroughVarnishd {
    /// The parameters choose it.
    DataPath,
    UserVcl,
    Logging,
    /// `serve` itself reads varnishd's log.
    LogReader,
}

/// The arrangement of one Gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrangement {
    /// The front owns all ports and carries HTTP. Otherwise, varnishd owns the plain HTTP ports.
    pub http_in_front: bool,
    pub through_varnishd: Option<ThroughVarnishd>,
    /// The parameters switch hot objects off.
    pub hot_objects_off: bool,
}

impl Arrangement {
    /// `Front` or `Varnish`.
    pub fn name(self) -> &'static str {
        if self.http_in_front { "Front" } else { "Varnish" }
    }

    /// The reason, in a few words.
    pub fn why(self) -> &'static str {
        if self.http_in_front {
            return "dataPath: Auto";
        }
        match self.through_varnishd {
            Some(ThroughVarnishd::DataPath) => "dataPath: Varnish",
            Some(ThroughVarnishd::UserVcl) => "user VCL",
            Some(ThroughVarnishd::Logging) => "logging reads varnishd's log",
            Some(ThroughVarnishd::LogReader) => "--access-log or --otlp-endpoint reads varnishd's log",
            None => "dataPath is not set",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_counts_only_where_requests_go_through_varnishd() {
        let through_varnishd = Some(ThroughVarnishd::UserVcl);
        let of = |http_in_front| Arrangement { http_in_front, through_varnishd, hot_objects_off: false };
        assert_eq!((of(false).name(), of(false).why()), ("Varnish", "user VCL"));
        // While pods roll, a pod of the other arrangement reads the same routing.json.
        assert_eq!((of(true).name(), of(true).why()), ("Front", "dataPath: Auto"));
    }
}
