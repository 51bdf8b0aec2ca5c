//! Text into documents: YAML (several of them, `---` between) or JSON.
//!
//! YAML is cut at the document markers before it is parsed. A line that begins with `---` or `...` ends a document
//! wherever it stands, even inside a scalar (YAML 1.2, 9.1.4), so the cut is exact; it lets an unchanged document of
//! a large file be recognised by its text alone.

use serde_json::Value;

use crate::Error;

/// Larger files are refused.
pub(crate) const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// The events that aliases may stand for in one document: enough for shared parentRefs, too few for a bomb.
const MAX_ALIAS_EVENTS: usize = 200_000;

/// The text of one document and the number of lines before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Document<'a> {
    pub(crate) text: &'a str,
    pub(crate) lines_before: u64,
}

/// Cuts YAML at its document markers. A part that has only comments is not a document.
pub(crate) fn split(text: &str) -> Vec<Document<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    let (mut start, mut start_line, mut offset) = (0, 0, 0);
    // Directives and comments before a `---` belong to the document that it opens.
    let mut opened = false;
    let mut content = false;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let end = offset + line.len();
        let opens = is_marker(line, "---");
        let closes = is_marker(line, "...");
        if opens && (opened || content) {
            if content {
                documents.push(Document { text: &text[start..offset], lines_before: start_line });
            }
            (start, start_line) = (offset, number as u64);
            content = false;
        }
        if opens {
            opened = true;
            content |= has_content(&line[3..]);
        } else if closes {
            if content {
                documents.push(Document { text: &text[start..offset], lines_before: start_line });
            }
            (start, start_line) = (end, number as u64 + 1);
            opened = false;
            content = false;
        } else {
            content |= has_content(line) && (opened || !line.starts_with('%'));
        }
        offset = end;
    }
    if content {
        documents.push(Document { text: &text[start..], lines_before: start_line });
    }
    documents
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn has_content(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

/// One YAML document as a value; line and column of an error count in the whole file.
pub(crate) fn parse_yaml(document: Document<'_>) -> Result<Value, Error> {
    serde_saphyr::from_str_with_options(document.text, options()).map_err(|error| {
        let location = error.location();
        let reason = error.without_snippet().render_with_formatter(&serde_saphyr::UserMessageFormatter);
        // The parser adds places of its own, which count in the document and not in the file.
        let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
        Error::Syntax {
            line: location.map_or(1, |at| at.line()) + document.lines_before,
            column: location.map_or(1, |at| at.column()),
            reason,
        }
    })
}

/// The values of a JSON file: one, or several after each other.
pub(crate) fn parse_json(text: &str) -> Result<Vec<Value>, Error> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    values.collect::<Result<_, _>>().map_err(|error| {
        let reason = error.to_string();
        let reason = reason.split(" at line ").next().unwrap_or_default().to_owned();
        Error::Syntax { line: error.line() as u64, column: error.column() as u64, reason }
    })
}

/// Limits that a manifest of 64 MiB stays within and an alias bomb does not.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 40_000_000,
            max_nodes: 20_000_000,
            max_total_scalar_bytes: 2 * MAX_FILE_BYTES as usize,
            // One anchor and thousands of aliases of it is how a List shares its parentRefs.
            enforce_alias_anchor_ratio: false,
            max_recorded_anchor_events: MAX_ALIAS_EVENTS,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_ALIAS_EVENTS,
        },
        emit_comments: false,
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests;
