//! The results, for people or, with `--log json`, as one JSON object a line.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::cli::LogFormat;

/// One cache, or one invalidation of a cluster.
pub(super) struct Report {
    pub(super) object: String,
    pub(super) message: String,
    pub(super) good: bool,
    /// Lines of their own below it, for people.
    pub(super) details: Vec<String>,
    /// The same in full, for machines: more fields of the object.
    pub(super) fields: Value,
}

impl Report {
    pub(super) fn print(&self, log: LogFormat) -> io::Result<()> {
        let mut to = io::stdout().lock();
        if log == LogFormat::Json {
            return writeln!(to, "{}", self.json());
        }
        writeln!(to, "{}: {}", self.object, self.message)?;
        self.details.iter().try_for_each(|line| writeln!(to, "  {line}"))
    }

    /// With the names that `serve` has for the same.
    fn json(&self) -> Value {
        let (level, event) = if self.good { ("INFO", "invalidated") } else { ("WARN", "not-invalidated") };
        let mut all = json!({
            "level": level, "event": event, "object": self.object, "message": format!("{}: {}", self.object, self.message),
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut all, &self.fields) {
            all.extend(more.clone());
        }
        all
    }
}
