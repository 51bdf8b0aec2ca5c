//! Several ranges of one request, out of what the cache has: multipart/byteranges (RFC 9110, 15.3.7.2).
//!
//! varnishd gives one range. It is asked for the one that has all of them in it, and what lies between them is left out here, while it
//! passes. Which ranges are answered so is `router`'s to say; all others get the whole, as before.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, response};
use router::cache::Ranges;
use router::random;

use super::varnishd::Reply;

/// What a client has asked for, and what varnishd was asked for instead.
#[derive(Debug)]
pub(crate) struct Asked {
    ranges: Ranges,
    /// As the client sent it.
    value: HeaderValue,
}

impl Asked {
    /// Where the request has several ranges that can be answered: its Range becomes one, or goes.
    pub(crate) fn take(parts: &mut Parts) -> Option<Self> {
        let mut values = parts.headers.get_all(header::RANGE).iter();
        let value = values.next()?;
        if values.next().is_some() || parts.method != Method::GET {
            return None;
        }
        let ranges = Ranges::read(value.as_bytes())?;
        let value = value.clone();
        match ranges.cover().and_then(|cover| HeaderValue::try_from(cover).ok()) {
            Some(cover) => parts.headers.insert(header::RANGE, cover),
            // By the length only the front would know which bytes these are, and whether they are still the same ones.
            None if parts.headers.contains_key(header::IF_RANGE) => return None,
            None => parts.headers.remove(header::RANGE),
        };
        Some(Self { ranges, value })
    }

    /// The request is to be as the client sent it.
    pub(crate) fn put_back(self, headers: &mut HeaderMap) {
        headers.insert(header::RANGE, self.value);
    }

    /// Makes the head of varnishd's answer that of the parts, and says how its body becomes theirs; `None` where it stays as it is.
    pub(crate) fn answer(self, head: &mut response::Parts) -> Option<Steps> {
        let (begins, ends, length) = match head.status {
            StatusCode::PARTIAL_CONTENT => content_range(&head.headers)?,
            StatusCode::OK if self.ranges.cover().is_none() => {
                let length = content_length(&head.headers)?;
                (0, length.checked_sub(1)?, length)
            }
            _ => return None,
        };
        let parts = self.ranges.satisfied_by(length)?;
        // An origin may send another part than it was asked for.
        if parts.first()?.0 < begins || parts.last()?.1 > ends {
            return None;
        }
        let kind = head.headers.get(header::CONTENT_TYPE).cloned();
        let mut steps = Steps::default();
        let mut at = begins;
        if let [(first, last)] = parts[..] {
            head.headers.insert(header::CONTENT_RANGE, range(first, last, length)?);
            steps.part(&mut at, (first, last));
        } else {
            let boundary = format!("{:016x}{:016x}", random::next(), random::next());
            for (number, part) in parts.iter().enumerate() {
                let mut text = Vec::with_capacity(192);
                text.extend_from_slice(if number == 0 { b"--" } else { b"\r\n--" });
                text.extend_from_slice(boundary.as_bytes());
                if let Some(kind) = &kind {
                    text.extend_from_slice(b"\r\nContent-Type: ");
                    text.extend_from_slice(kind.as_bytes());
                }
                text.extend_from_slice(b"\r\nContent-Range: ");
                text.extend_from_slice(range(part.0, part.1, length)?.as_bytes());
                text.extend_from_slice(b"\r\n\r\n");
                steps.text(text);
                steps.part(&mut at, *part);
            }
            steps.text(format!("\r\n--{boundary}--\r\n").into_bytes());
            let kind = format!("multipart/byteranges; boundary={boundary}");
            head.headers.insert(header::CONTENT_TYPE, HeaderValue::try_from(kind).ok()?);
            head.headers.remove(header::CONTENT_RANGE);
        }
        head.status = StatusCode::PARTIAL_CONTENT;
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(steps.length));
        head.headers.remove(header::TRANSFER_ENCODING);
        Some(steps)
    }
}

fn range(first: u64, last: u64, length: u64) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("bytes {first}-{last}/{length}")).ok()
}

/// The first and the last byte, and the length of the whole.
fn content_range(headers: &HeaderMap) -> Option<(u64, u64, u64)> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, length) = value.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?, length.parse().ok()?))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[derive(Debug)]
enum Step {
    Text(Bytes),
    Skip(u64),
    Copy(u64),
}

/// How a body becomes that of the parts.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    steps: VecDeque<Step>,
    /// Bytes of all that is sent.
    length: u64,
}

impl Steps {
    fn text(&mut self, text: Vec<u8>) {
        self.length += text.len() as u64;
        self.steps.push_back(Step::Text(text.into()));
    }

    /// `at`: the byte that comes next.
    fn part(&mut self, at: &mut u64, (first, last): (u64, u64)) {
        self.steps.push_back(Step::Skip(first - *at));
        self.steps.push_back(Step::Copy(last - first + 1));
        self.length += last - first + 1;
        *at = last + 1;
    }
}

/// The body of the parts.
#[derive(Debug)]
pub(crate) struct Sliced {
    reply: Reply,
    /// Read, and not looked at yet.
    held: Bytes,
    steps: Steps,
}

impl Sliced {
    pub(crate) fn new(reply: Reply, steps: Steps) -> Self {
        Self { reply, held: Bytes::new(), steps }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.steps.steps.is_empty()
    }

    /// Of what is left.
    pub(crate) fn length(&self) -> u64 {
        self.steps.length
    }

    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let sent = match self.steps.steps.front_mut() {
                None => return Poll::Ready(None),
                Some(Step::Text(text)) => std::mem::take(text),
                Some(Step::Skip(0) | Step::Copy(0)) => Bytes::new(),
                Some(Step::Skip(left) | Step::Copy(left)) => {
                    if self.held.is_empty() {
                        self.held = match ready!(self.reply.poll_data(cx)) {
                            Some(Ok(data)) => data,
                            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                            None => return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                        };
                    }
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(self.held.len());
                    *left -= count as u64;
                    let (is_over, taken) = (*left == 0, self.held.split_to(count));
                    let is_sent = matches!(self.steps.steps.front(), Some(Step::Copy(_)));
                    if is_over {
                        self.steps.steps.pop_front();
                    }
                    if !is_sent || taken.is_empty() {
                        continue;
                    }
                    self.steps.length -= taken.len() as u64;
                    return Poll::Ready(Some(Ok(taken)));
                }
            };
            self.steps.steps.pop_front();
            if !sent.is_empty() {
                self.steps.length -= sent.len() as u64;
                return Poll::Ready(Some(Ok(sent)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(range: &str) -> Asked {
        let mut parts = http::Request::new(()).into_parts().0;
        parts.headers.insert(header::RANGE, HeaderValue::from_str(range).unwrap());
        Asked::take(&mut parts).unwrap()
    }

    fn head(status: u16, name: header::HeaderName, value: &str) -> response::Parts {
        let mut head = http::Response::new(()).into_parts().0;
        head.status = StatusCode::from_u16(status).unwrap();
        head.headers.insert(name, HeaderValue::from_str(value).unwrap());
        head
    }

    #[test]
    fn only_an_answer_that_has_all_parts_is_cut() {
        let range = header::CONTENT_RANGE;
        let cuts = |status, name: &header::HeaderName, value| {
            asked("bytes=5-9,1000-1009").answer(&mut head(status, name.clone(), value)).is_some()
        };
        assert!(cuts(206, &range, "bytes 5-1009/5000"));
        assert!(cuts(206, &range, "bytes 0-1009/5000"));
        for other in [
            "bytes 5-1008/5000",
            "bytes 6-1009/5000",
            "bytes 5-1009/*",
            "bytes */5000",
            "bytes 0-9/10/1",
            "x",
        ] {
            assert!(!cuts(206, &range, other), "{other}");
        }
        assert!(!cuts(200, &header::CONTENT_LENGTH, "5000"), "If-Range did not hold");
        assert!(!cuts(304, &range, "bytes 5-1009/5000"));
        assert!(asked("bytes=5-9,-10").answer(&mut head(200, header::CONTENT_LENGTH, "5000")).is_some());
        assert!(asked("bytes=5-9,-10").answer(&mut head(200, header::CONTENT_LENGTH, "0")).is_none());
    }

    #[test]
    fn a_request_is_as_it_was_where_nobody_answers() {
        let mut parts = http::Request::new(()).into_parts().0;
        parts.headers.insert(header::RANGE, HeaderValue::from_static("bytes=5-9,1000-1009"));
        let asked = Asked::take(&mut parts).unwrap();
        assert_eq!(parts.headers[header::RANGE], "bytes=5-1009");
        asked.put_back(&mut parts.headers);
        assert_eq!(parts.headers[header::RANGE], "bytes=5-9,1000-1009");
    }
}
