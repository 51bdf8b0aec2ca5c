//! One line of JSON, written piece by piece: without a tree of values, and without an allocation for each field.

use std::cell::Cell;
use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::Offset;
use router::trace::Trace;

/// Writes an object, and ends its line.
pub(crate) struct Line<'a> {
    to: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> Line<'a> {
    pub(crate) fn new(to: &'a mut Vec<u8>) -> Self {
        to.push(b'{');
        Self { to, is_first: true }
    }

    pub(crate) fn end(self) {
        self.to.extend_from_slice(b"}\n");
    }

    fn name(&mut self, name: &str) {
        self.to.extend_from_slice(if self.is_first { b"\"" } else { b",\"" });
        self.is_first = false;
        self.to.extend_from_slice(name.as_bytes());
        self.to.extend_from_slice(b"\":");
    }

    /// Words of our own, which need no escape.
    pub(crate) fn word(&mut self, name: &str, word: &str) {
        self.name(name);
        self.to.push(b'"');
        self.to.extend_from_slice(word.as_bytes());
        self.to.push(b'"');
    }

    /// Any bytes, of which `most` are shown. Nothing where there are none.
    pub(crate) fn text(&mut self, name: &str, bytes: &[u8], most: usize) {
        if bytes.is_empty() {
            return;
        }
        self.name(name);
        self.to.push(b'"');
        escape(cut(bytes, most), self.to);
        self.to.push(b'"');
    }

    pub(crate) fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        digits(number, self.to);
    }

    /// Milliseconds, of which microseconds are shown.
    pub(crate) fn time(&mut self, name: &str, time: Duration) {
        self.name(name);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        digits(micros / 1000, self.to);
        let rest = micros % 1000;
        if rest > 0 {
            let digit = |of: u64| b'0' + (of % 10) as u8;
            let all = [b'.', digit(rest / 100), digit(rest / 10), digit(rest)];
            let zeros = all.iter().rev().take_while(|byte| **byte == b'0').count();
            self.to.extend_from_slice(&all[..all.len() - zeros]);
        }
    }

    /// Values whose text has no character to be escaped: addresses.
    pub(crate) fn plain(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        self.to.push(b'"');
        // A Vec takes everything.
        let _ = write!(self.to, "{value}");
        self.to.push(b'"');
    }

    /// RFC 3339 in UTC. The clock shows seconds that were written before, most of the time.
    pub(crate) fn date(&mut self, name: &str, micros: u64) {
        thread_local! {
            static LAST: Cell<(u64, [u8; 20])> = const { Cell::new((u64::MAX, [0; 20])) };
        }
        let (second, micros) = (micros / 1_000_000, micros % 1_000_000);
        let (last, mut text) = LAST.try_with(Cell::get).unwrap_or((u64::MAX, [0; 20]));
        if last != second {
            text = civil(second);
            let _ = LAST.try_with(|last| last.set((second, text)));
        }
        self.name(name);
        self.to.push(b'"');
        self.to.extend_from_slice(&text);
        let mut fraction = *b"000000Z\"";
        let mut rest = micros;
        for place in fraction[..6].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.to.extend_from_slice(&fraction);
    }

    pub(crate) fn trace(&mut self, trace: &Trace) {
        let (high, low) = trace.trace;
        self.name("trace_id");
        let _ = write!(self.to, "\"{high:016x}{low:016x}\"");
        self.name("span_id");
        let _ = write!(self.to, "\"{:016x}\"", trace.span);
        if trace.parent != 0 {
            self.name("parent_span_id");
            let _ = write!(self.to, "\"{:016x}\"", trace.parent);
        }
    }
}

fn digits(number: u64, to: &mut Vec<u8>) {
    let mut text = [0; 20];
    let (mut at, mut rest) = (text.len(), number);
    loop {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    to.extend_from_slice(&text[at..]);
}

/// The first bytes, not within a character.
pub(crate) fn cut(bytes: &[u8], most: usize) -> &[u8] {
    let Some(first) = bytes.get(..most) else { return bytes };
    let is_within = bytes.get(most).is_some_and(|next| next & 0xc0 == 0x80);
    // A character has four bytes at most.
    let begun = first.iter().rev().take(3).position(|byte| byte & 0xc0 == 0xc0);
    match begun.filter(|_| is_within) {
        Some(behind) => &first[..most - behind - 1],
        None => first,
    }
}

/// As a string of JSON wants it. Bytes that are no UTF-8 are replaced; control characters of every kind are escaped, since people
/// read these lines in terminals.
fn escape(mut bytes: &[u8], to: &mut Vec<u8>) {
    loop {
        let plain = bytes.iter().position(|byte| !matches!(byte, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~'));
        let Some(plain) = plain else { return to.extend_from_slice(bytes) };
        to.extend_from_slice(&bytes[..plain]);
        bytes = &bytes[plain..];
        let special = bytes.iter().position(|byte| matches!(byte, b' ' | b'!' | b'#'..=b'[' | b']'..=b'~'));
        let (odd, rest) = bytes.split_at(special.unwrap_or(bytes.len()));
        for chunk in odd.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '"' => to.extend_from_slice(b"\\\""),
                    '\\' => to.extend_from_slice(b"\\\\"),
                    '\n' => to.extend_from_slice(b"\\n"),
                    '\r' => to.extend_from_slice(b"\\r"),
                    '\t' => to.extend_from_slice(b"\\t"),
                    // Also U+2028 and U+2029, which some take for the end of a line.
                    c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                        let _ = write!(to, "\\u{:04x}", u32::from(c));
                    }
                    c => to.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
            if !chunk.invalid().is_empty() {
                to.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
        bytes = rest;
    }
}

/// `2026-11-16T00:20:59.` in UTC. A time that no calendar has is the first one.
fn civil(seconds: u64) -> [u8; 20] {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let time = Offset::UTC.to_datetime(time.unwrap_or_default());
    let mut text = *b"0000-00-00T00:00:00.";
    let mut put = |end: usize, digits: usize, number: i16| {
        let mut number = number.unsigned_abs();
        for place in text[end - digits..end].iter_mut().rev() {
            *place = b'0' + (number % 10) as u8;
            number /= 10;
        }
    };
    put(4, 4, time.year());
    put(7, 2, time.month().into());
    put(10, 2, time.day().into());
    put(13, 2, time.hour().into());
    put(16, 2, time.minute().into());
    put(19, 2, time.second().into());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(write: impl FnOnce(&mut Line<'_>)) -> String {
        let mut to = Vec::new();
        let mut line = Line::new(&mut to);
        write(&mut line);
        line.end();
        String::from_utf8(to).unwrap()
    }

    fn text(bytes: &[u8], most: usize) -> String {
        line(|line| line.text("a", bytes, most))
    }

    #[test]
    fn hostile_values_stay_within_their_quotes() {
        assert_eq!(text(b"\"},{\\", 99), "{\"a\":\"\\\"},{\\\\\"}\n");
        assert_eq!(
            text(b"a\r\nb\tc\x00\x1b[31m\x7f", 99),
            "{\"a\":\"a\\r\\nb\\tc\\u0000\\u001b[31m\\u007f\"}\n"
        );
        assert_eq!(
            text("\u{e9}\u{85}\u{2028}\u{1f600}".as_bytes(), 99),
            "{\"a\":\"\u{e9}\\u0085\\u2028\u{1f600}\"}\n"
        );
        assert_eq!(text(b"a\xff\xc3(\xe2\x82", 99), "{\"a\":\"a\u{fffd}\u{fffd}(\u{fffd}\"}\n");
        assert_eq!(text(b"", 99), "{}\n");
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(cut(b"abc", 3), b"abc");
        assert_eq!(cut(b"abcd", 3), b"abc");
        for (most, left) in [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3), (6, 6)] {
            assert_eq!(
                cut("a\u{e9}\u{20ac}b".as_bytes(), most),
                &"a\u{e9}\u{20ac}b".as_bytes()[..left],
                "{most}"
            );
        }
        // Bytes that are no text are cut anywhere.
        assert_eq!(cut(&[0x80; 9], 5).len(), 5);
    }

    #[test]
    fn numbers_times_and_dates_are_those_of_json_and_of_the_calendar() {
        let micros = |micros: u64| line(|line| line.time("t", Duration::from_micros(micros)));
        assert_eq!(micros(0), "{\"t\":0}\n");
        assert_eq!(micros(1), "{\"t\":0.001}\n");
        assert_eq!(micros(12_500), "{\"t\":12.5}\n");
        assert_eq!(micros(1_000_000), "{\"t\":1000}\n");
        assert_eq!(line(|line| line.number("n", u64::MAX)), "{\"n\":18446744073709551615}\n");
        for (at, shown) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_794_788_459_123_456, "2026-11-16T00:20:59.123456Z"),
            (1_794_788_459_000_001, "2026-11-16T00:20:59.000001Z"),
        ] {
            assert_eq!(line(|line| line.date("d", at)), format!("{{\"d\":\"{shown}\"}}\n"));
        }
    }
}
