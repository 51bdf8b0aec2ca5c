//! How words are written so that varnishd's tokenizer (`VAV_Parse`) reads the same words.
//!
//! By backslash escapes, never in quotes: since 7.0 the tokenizer refuses a quoted word next to another one
//! ("Missing separator between arguments"), blanks between them or not.
//!
//! One thing cannot be said at all. A command that the manager passes on to the child (`ban`, `backend.list` and
//! others) is written again by the manager, and 7.1 forgets to quote blanks there and drops empty words: the child
//! sees `ban obj.http.x == a b`. And `<<` before the last word starts a here-document in manager and child alike,
//! quoted or not. The child then waits for its end until the manager kills it for not answering.

use crate::error::{Error, Result};

/// A command as it goes over the wire, and what logs and errors call it.
#[derive(Debug)]
pub(crate) struct Command {
    bytes: Vec<u8>,
    label: String,
}

impl Command {
    pub(crate) fn words(words: &[&str]) -> Result<Self> {
        let refuse = |why: &str| Error::Argument { command: label(words), why: why.to_owned() };
        if words.first().is_none_or(|name| name.is_empty()) {
            return Err(refuse("there is no command"));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(refuse("varnishd's strings end at a NUL byte, and an argument has one"));
        }
        if words.windows(2).any(|pair| pair == ["", ""]) {
            return Err(refuse("varnishd takes no two empty arguments in a row"));
        }
        let seen_by_child: Vec<_> = words.iter().flat_map(|word| word.split_whitespace()).collect();
        if seen_by_child.len() > 1 && seen_by_child[seen_by_child.len() - 2] == "<<" {
            return Err(refuse(
                "varnishd would take << before the last word for the start of a here-document",
            ));
        }
        let mut bytes = Vec::new();
        for word in words {
            quote(word, &mut bytes);
            bytes.push(b' ');
        }
        bytes.pop();
        bytes.push(b'\n');
        Ok(Self { bytes, label: label(words) })
    }

    pub(crate) fn authenticate(response: &str) -> Self {
        Self { bytes: format!("auth {response}\n").into_bytes(), label: "auth".to_owned() }
    }

    /// The text becomes the last argument, with a newline at its end. Sent as a here-document, so that varnishd's
    /// log of CLI traffic (syslog_cli_traffic) stays free of it.
    pub(crate) fn with_text(words: &[&str], text: &str) -> Result<Self> {
        let mut command = Self::words(words)?;
        command.label = format!("{} <{} bytes>", command.label, text.len());
        if text.contains('\0') {
            let why = "varnishd's strings end at a NUL byte, and the text has one".to_owned();
            return Err(Error::Argument { command: command.label, why });
        }
        let token = token(text);
        command.bytes.pop();
        command.bytes.extend_from_slice(format!(" << {token}\n{text}").as_bytes());
        // The end token counts anywhere, not only at the start of a line, but varnishd misses it right after a
        // part of itself (`ENEND`). A newline makes sure.
        if !text.ends_with('\n') {
            command.bytes.push(b'\n');
        }
        command.bytes.extend_from_slice(token.as_bytes());
        command.bytes.push(b'\n');
        Ok(command)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn label(&self) -> &str {
        &self.label
    }
}

fn quote(word: &str, out: &mut Vec<u8>) {
    if word.is_empty() {
        out.extend_from_slice(b"\"\"");
    }
    for byte in word.bytes() {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            _ if byte.is_ascii_graphic() => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}

/// A word that the text does not contain. There is one among the first `text.len()` candidates.
fn token(text: &str) -> String {
    let mut number = 0_usize;
    loop {
        let token = format!("END_OF_TEXT_{number}");
        if !text.contains(&token) {
            return token;
        }
        number += 1;
    }
}

/// A VCL passed as an argument has no place in a log.
fn label(words: &[&str]) -> String {
    const SHOWN: usize = 120;
    let show = |word: &&str| match word.len() > SHOWN || word.contains(['\n', '\r']) {
        true => format!("<{} bytes>", word.len()),
        false => (*word).to_owned(),
    };
    words.iter().map(show).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
