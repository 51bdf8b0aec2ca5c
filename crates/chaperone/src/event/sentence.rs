//! Events in words: for logs, the dashboard and the command line alike.

use std::time::Duration;

use crate::event::Event;

/// How serious an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Info,
    Warning,
    Error,
}

impl Severity {
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Event {
    /// One word for programs that read the log.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Serving { .. } | Self::Listening { .. } => "listening",
            Self::Closed { .. } => "closed",
            Self::BackendTls { .. } => "backend-tls",
            Self::Reloaded { .. } => "reloaded",
            Self::VclReloaded { .. } => "vcl-reloaded",
            Self::Refused { .. } => "refused",
            Self::Recovered => "recovered",
            Self::NotListening { .. } => "not-listening",
            Self::CannotStart { .. } => "cannot-start",
            Self::Died { .. } => "died",
            Self::Restarted => "restarted",
            Self::Restarting { .. } => "restarting",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
        }
    }

    pub fn severity(&self) -> Severity {
        match self {
            Self::Refused { .. } | Self::BackendTls { .. } => Severity::Warning,
            Self::NotListening { .. } | Self::CannotStart { .. } | Self::Died { .. } => Severity::Error,
            _ => Severity::Info,
        }
    }

    /// How long it took, where it took time.
    pub fn took(&self) -> Option<Duration> {
        match self {
            Self::Reloaded { took, .. } | Self::VclReloaded { took } => Some(*took),
            _ => None,
        }
    }

    /// What happened, as text for users, without the name of the Gateway.
    pub fn sentence(&self) -> String {
        let ms = |took: &Duration| took.as_secs_f64() * 1000.0;
        match self {
            Self::Serving { sockets } => {
                let all: Vec<String> =
                    sockets.iter().map(|(socket, at)| format!("{at} ({socket})")).collect();
                format!("listening on {}", all.join(", "))
            }
            Self::Listening { socket, address } => format!("listening on {address} ({socket})"),
            Self::Closed { socket } => format!("{socket} takes no more connections"),
            Self::BackendTls { why } => why.clone(),
            Self::Reloaded { rules, backends, took } => {
                format!("reloaded {rules} routes, {backends} endpoints in {:.0} ms", ms(took))
            }
            Self::VclReloaded { took } => format!("reloaded the VCL in {:.0} ms", ms(took)),
            Self::Refused { why, serving: true } => {
                format!("{why}\n  what was served before is still served")
            }
            Self::Refused { why, serving: false } => {
                format!("{why}\n  nothing is served until this is corrected")
            }
            Self::Recovered => "the configuration is accepted again".to_owned(),
            Self::NotListening { why, .. } => {
                format!("{why} (the other listeners serve, and this one is tried again)")
            }
            Self::CannotStart { why, .. } => format!("{why} (it is tried again)"),
            Self::Died { why, again_in } if again_in.is_zero() => format!("{why}; it is started again"),
            Self::Died { why, again_in } => {
                format!("{why}; it is started again in {} s", again_in.as_secs_f64())
            }
            Self::Restarted => "varnishd's child runs again".to_owned(),
            Self::Restarting { socket } => format!("restarting varnishd, since {socket} is free now"),
            Self::Draining => "draining".to_owned(),
            Self::Stopped => "stopped".to_owned(),
        }
    }
}
