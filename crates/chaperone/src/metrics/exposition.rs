//! Prometheus' text format: each name with its HELP and TYPE once, in any order of the samples.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug)]
struct Family {
    kind: Kind,
    help: String,
    lines: String,
}

/// Names and their samples.
#[derive(Debug, Default)]
pub(crate) struct Families {
    by_name: BTreeMap<String, Family>,
    /// On every sample from now on.
    pub(crate) common: Vec<(String, String)>,
}

pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Families {
    /// The name is there, even if nothing has a value for it.
    fn family(&mut self, name: &str, kind: Kind, help: &str) -> &mut Family {
        let new = || Family { kind, help: help.to_owned(), lines: String::new() };
        self.by_name.entry(name.to_owned()).or_insert_with(new)
    }

    fn line(
        &mut self,
        family: &str,
        suffix: &str,
        labels: Labels<'_>,
        more: Option<(&str, &str)>,
        value: &dyn Display,
    ) {
        let common = self.common.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all = common.chain(labels.iter().copied()).chain(more);
        let mut text = String::new();
        for (name, value) in all {
            let begin = if text.is_empty() { '{' } else { ',' };
            text.push(begin);
            text.push_str(name);
            text.push_str("=\"");
            escape(value, true, &mut text);
            text.push('"');
        }
        if !text.is_empty() {
            text.push('}');
        }
        if let Some(of) = self.by_name.get_mut(family) {
            // Writing to a string cannot fail.
            let _ = writeln!(of.lines, "{family}{suffix}{text} {value}");
        }
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str, labels: Labels<'_>, value: u64) {
        self.family(name, Kind::Counter, help);
        self.line(name, "", labels, None, &value);
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, labels: Labels<'_>, value: impl Display) {
        self.family(name, Kind::Gauge, help);
        self.line(name, "", labels, None, &value);
    }

    /// `counts` are not cumulated, and one more than `bounds`.
    pub(crate) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
        bounds: &[f64],
        (counts, sum): (&[u64], f64),
    ) {
        self.family(name, Kind::Histogram, help);
        let mut below = 0;
        for (bound, count) in bounds.iter().zip(counts) {
            below += count;
            self.line(name, "_bucket", labels, Some(("le", &bound.to_string())), &below);
        }
        let all: u64 = counts.iter().sum();
        self.line(name, "_bucket", labels, Some(("le", "+Inf")), &all);
        self.line(name, "_sum", labels, None, &sum);
        self.line(name, "_count", labels, None, &all);
    }

    /// A name without samples.
    pub(crate) fn announce(&mut self, name: &str, kind: Kind, help: &str) {
        self.family(name, kind, help);
    }

    pub(crate) fn text(self) -> String {
        let mut text = String::new();
        for (name, Family { kind, help, lines }) in self.by_name {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            text.push_str("# HELP ");
            text.push_str(&name);
            text.push(' ');
            escape(&help, false, &mut text);
            text.push_str("\n# TYPE ");
            text.push_str(&name);
            text.push(' ');
            text.push_str(kind);
            text.push('\n');
            text.push_str(&lines);
        }
        text
    }
}

fn escape(text: &str, quotes: bool, to: &mut String) {
    for c in text.chars() {
        match c {
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '"' if quotes => to.push_str("\\\""),
            c => to.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_described_once_and_values_are_escaped() {
        let mut all = Families::default();
        all.counter("a_total", "A \\ b\nc", &[("x", "say \"hi\"\\\n")], 1);
        all.gauge("b", "B", &[], 0.5);
        all.counter("a_total", "other", &[], 2);
        all.histogram("h", "H", &[], &[0.1, 1.0], (&[1, 2, 3], 4.5));
        all.announce("z", Kind::Gauge, "Z");
        assert_eq!(
            all.text(),
            "# HELP a_total A \\\\ b\\nc\n# TYPE a_total counter\na_total{x=\"say \\\"hi\\\"\\\\\\n\"} 1\na_total 2\n\
             # HELP b B\n# TYPE b gauge\nb 0.5\n\
             # HELP h H\n# TYPE h histogram\nh_bucket{le=\"0.1\"} 1\nh_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 6\nh_sum 4.5\nh_count 6\n\
             # HELP z Z\n# TYPE z gauge\n"
        );
    }
}
