//! What is wrong with the files, in words for the person who wrote them.

use std::fmt;

/// Whether something that was meant to serve does not, or was only left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Skipped, and nothing was lost that the gateway could have used.
    Warning,
    /// An object, or a whole file, is not used as it is written.
    Error,
}

/// One thing that is wrong. `Eq` and `Hash`, so that a caller who loads again prints only what is new.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// The file as it was named or found.
    pub file: String,
    /// Counted from 1; `None` where the file has only one document, or the problem is the whole file's.
    pub document: Option<usize>,
    /// `HTTPRoute default/shop`, as far as it could be read.
    pub object: Option<String>,
    pub severity: Severity,
    /// What is wrong and what to do, without the names above.
    pub message: String,
}

impl Problem {
    /// A problem of a whole file.
    pub(crate) fn of_file(file: impl Into<String>, severity: Severity, message: impl Into<String>) -> Self {
        Self { file: file.into(), document: None, object: None, severity, message: message.into() }
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(object) = &self.object {
            write!(f, "{object} in ")?;
        }
        f.write_str(&self.file)?;
        if let Some(document) = self.document {
            write!(f, ", document {document}")?;
        }
        write!(f, ": {}", self.message)
    }
}
