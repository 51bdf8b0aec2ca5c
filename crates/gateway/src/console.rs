//! What people and machines read: one line an event, on standard output; on standard error where that is for an answer.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::cli::LogFormat;

/// `LOG_LEVEL` is debug, info (the default), warn or error. A word that is none of these must not silence errors.
/// `aside`: on standard error.
pub(crate) fn init(format: LogFormat, aside: bool) {
    let given = std::env::var("LOG_LEVEL").unwrap_or_default();
    let level = level(&given);
    let mut filter = EnvFilter::new(level.unwrap_or("info"));
    if aside && matches!(level, Some("info" | "warn" | "error") | None) {
        // The client tells of its errors in its own words, and we in ours.
        filter = filter.add_directive("kube_client=off".parse().unwrap_or_default());
    }
    // A reader that goes away (`| head`) is no error worth a word.
    let to = if aside { BoxMakeWriter::new(std::io::stderr) } else { BoxMakeWriter::new(std::io::stdout) };
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false).with_writer(to);
    match format {
        LogFormat::Text => builder.event_format(Line).init(),
        LogFormat::Json => builder.json().flatten_event(true).with_target(false).init(),
    }
    if level.is_none() {
        tracing::warn!(
            "LOG_LEVEL=`{given}` is not a log level: write debug, info, warn or error; using info"
        );
    }
}

fn level(given: &str) -> Option<&'static str> {
    match given.trim().to_ascii_lowercase().as_str() {
        "" | "info" => Some("info"),
        "trace" => Some("trace"),
        "debug" => Some("debug"),
        "warn" | "warning" => Some("warn"),
        "error" => Some("error"),
        _ => None,
    }
}

/// The message, after `warning:` or `error:` where it is one. Fields are for machines.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut message = Message::default();
        event.record(&mut message);
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            Level::INFO => "",
            Level::DEBUG => "debug: ",
            Level::TRACE => "trace: ",
        };
        writeln!(to, "{level}{}", message.0)
    }
}

#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
