//! Messages about objects that have no status to hold them.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Severity {
    /// Requests fail, or an object has no effect.
    Warning,
    /// Good to know.
    Info,
}

/// One sentence about one object. Displayed as `{object} {message}`, so a message begins with a verb.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Notice {
    /// Kind and name, as `Service default/shop`.
    pub object: String,
    pub severity: Severity,
    pub message: String,
}

impl Notice {
    pub fn warning(object: impl Into<String>, message: impl Into<String>) -> Self {
        Self { object: object.into(), severity: Severity::Warning, message: message.into() }
    }

    pub fn info(object: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Info, ..Self::warning(object, message) }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.object, self.message)
    }
}

/// The same notices in the same order, without repetition.
pub fn each_once<'n>(notices: impl IntoIterator<Item = &'n Notice>) -> Vec<Notice> {
    let mut seen = HashSet::new();
    notices.into_iter().filter(|notice| seen.insert(*notice)).cloned().collect()
}
