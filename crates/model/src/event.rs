//! What ghost reports to the front beside the requests that pass between them: one datagram each, on [`EVENTS_SOCKET`].
//!
//! A datagram has the proof of this start of varnishd ([`crate::names::FRONT_PROOF_ENV`]) in its first line, and JSON behind it. The socket's
//! file is open to all users: without the proof a datagram counts for nothing. A report that does not fit, or that comes too late, is lost.

use serde::{Deserialize, Serialize};

/// Beside ghost.json.
pub const EVENTS_SOCKET: &str = "events.sock";
/// Longer datagrams are not sent.
pub const LARGEST_EVENT: usize = 32 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// An origin has sent 103 Early Hints before its answer to a miss.
    Hints {
        /// As the front has numbered the request, in [`crate::names::HINTS_HEADER`].
        request: u64,
        /// Values of `Link`.
        links: Vec<String>,
    },
    /// varnishd has carried a request with an unsafe method, and ghost has invalidated what it changed.
    Write(Write),
}

/// What an unsafe method has changed, for others who store the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// In lower case, without port.
    pub host: String,
    /// Path and query of the request itself, where they can be told.
    pub url: Option<String>,
    /// The namespace of the route. What its origin named is about its objects alone.
    pub owner: String,
    /// Paths with their queries, of this host, and groups.
    pub named: Vec<String>,
    pub groups: Vec<String>,
}

/// Longer URLs and groups are not told to others.
const LONGEST_TOLD: usize = 2048;

impl Write {
    /// The bytes as a part of a message to others, where they can be one.
    pub fn text(bytes: &[u8]) -> Option<String> {
        if bytes.contains(&b' ') { None } else { Self::group(bytes) }
    }

    /// The same for a group, whose name may have blanks.
    pub fn group(bytes: &[u8]) -> Option<String> {
        let is_plain =
            bytes.len() <= LONGEST_TOLD && bytes.iter().all(|b| b.is_ascii_graphic() || *b == b' ');
        std::str::from_utf8(bytes).ok().filter(|_| is_plain).map(str::to_owned)
    }
}

impl Event {
    /// As one datagram; `None` where it is too large for one.
    pub fn datagram(&self, proof: &[u8]) -> Option<Vec<u8>> {
        let mut datagram = [proof, b"\n"].concat();
        serde_json::to_writer(&mut datagram, self).ok()?;
        (datagram.len() <= LARGEST_EVENT).then_some(datagram)
    }

    /// `None` for anything that ghost would not have sent with this proof.
    pub fn read(datagram: &[u8], proof: &[u8]) -> Option<Self> {
        let end = datagram.iter().position(|byte| *byte == b'\n')?;
        let (given, json) = (&datagram[..end], &datagram[end + 1..]);
        let differs = proof.iter().zip(given).fold(0, |differs, (a, b)| differs | (a ^ b));
        let is_ours = !proof.is_empty() && proof.len() == given.len() && std::hint::black_box(differs) == 0;
        if is_ours { serde_json::from_slice(json).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_datagrams_with_the_proof_are_read() {
        let event = Event::Hints { request: u64::MAX, links: vec!["</a.css>; rel=preload".to_owned()] };
        let datagram = event.datagram(b"proof").unwrap();
        assert_eq!(Event::read(&datagram, b"proof"), Some(event));
        for other in [&b"proo"[..], b"prooF", b"", b"proof2"] {
            assert_eq!(Event::read(&datagram, other), None);
        }
        assert_eq!(Event::read(b"", b""), None);
        assert_eq!(Event::read(b"\n{}", b""), None);
        assert_eq!(Event::read(b"proof\nnonsense", b"proof"), None);
        let long = Event::Hints { request: 1, links: vec!["x".repeat(LARGEST_EVENT)] };
        assert_eq!(long.datagram(b"proof"), None);
    }

    #[test]
    fn what_needs_an_escape_or_is_long_is_not_told() {
        assert_eq!(Write::text(b"/a?b=%20").as_deref(), Some("/a?b=%20"));
        for no in [&b"/a b"[..], b"/\xc3\xa9", b"/\n", "/".repeat(2049).as_bytes()] {
            assert_eq!(Write::text(no), None);
        }
        assert_eq!(Write::group(b"a b").as_deref(), Some("a b"));
        assert_eq!(Write::group(b"a\n"), None);
    }
}
