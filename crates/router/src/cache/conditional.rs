//! Conditions of requests, held against a stored response (RFC 9110, 13; RFC 9111, 4.3.2). One function for ghost and for all others that
//! answers out of memory.

use super::date::date;

/// What a stored response says of itself.
#[derive(Debug, Default, Clone, Copy)]
pub struct Stored<'a> {
    pub etag: Option<&'a [u8]>,
    pub last_modified: Option<&'a [u8]>,
    pub date: Option<&'a [u8]>,
}

/// What a request asks for. All lines of If-None-Match count; of the others the first.
#[derive(Debug, Default, Clone, Copy)]
pub struct Conditions<'a, I> {
    pub if_none_match: Option<I>,
    pub if_modified_since: Option<&'a [u8]>,
}

/// What a condition says of the stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The client has it already: 304.
    NotModified,
    /// The client gets the response.
    Modified,
}

impl<'a, I: IntoIterator<Item = &'a [u8]>> Conditions<'a, I> {
    /// If-None-Match takes precedence: where it is there, If-Modified-Since is not looked at. A date that is none is no condition.
    pub fn judge(self, stored: &Stored<'_>, now: f64) -> Verdict {
        let is_same = match (self.if_none_match, self.if_modified_since) {
            (Some(lines), _) => lines.into_iter().any(|line| is_in(line, stored.etag)),
            (None, Some(since)) => is_unmodified(since, stored, now),
            (None, None) => false,
        };
        if is_same { Verdict::NotModified } else { Verdict::Modified }
    }
}

/// Without Last-Modified, Date takes its place.
fn is_unmodified(since: &[u8], stored: &Stored<'_>, now: f64) -> bool {
    let modified = stored.last_modified.and_then(|text| date(text, now));
    let modified = modified.or_else(|| stored.date.and_then(|text| date(text, now)));
    let (Some(since), Some(modified)) = (date(since, now), modified) else { return false };
    // RFC 9110 lets a date in the future be ignored. A client that repeats the stored date means this response, even if the clock of
    // the origin is ahead of ours.
    since == modified || since <= now && modified <= since
}

/// Whether a range is asked of this very response: else the client gets the whole. By strong comparison, or by the same date where
/// that is a strong validator: the response was made at least a second after the last change.
pub fn holds_if_range(value: &[u8], stored: &Stored<'_>, now: f64) -> bool {
    let value = value.trim_ascii();
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        return stored.etag.is_some_and(|etag| is_strong(value) && value == etag.trim_ascii());
    }
    let at = |text: Option<&[u8]>| date(text?, now);
    match (at(Some(value)), at(stored.last_modified), at(stored.date)) {
        (Some(asked), Some(modified), Some(made)) => asked == modified && made >= modified + 1.0,
        _ => false,
    }
}

fn is_strong(tag: &[u8]) -> bool {
    matches!(tag, [b'"', .., b'"'] if tag.len() >= 2)
}

/// Whether a list of entity tags has this one, by weak comparison. Commas may stand in tags. What is no tag is compared as it is:
/// some origins forget the quotes.
fn is_in(list: &[u8], etag: Option<&[u8]>) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    let Some(etag) = etag.map(|etag| opaque(etag.trim_ascii())) else { return false };
    let mut rest = list;
    loop {
        rest = rest.trim_ascii_start();
        let (tag, after) = next_tag(rest);
        if !tag.is_empty() && opaque(tag) == etag {
            return true;
        }
        match after {
            Some(after) => rest = after,
            None => return false,
        }
    }
}

/// Without the sign of weakness.
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// A tag, and what follows the comma behind it.
fn next_tag(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let quoted_from = if text.starts_with(b"W/\"") { 2 } else { 0 };
    let mut from = 0;
    if text.get(quoted_from) == Some(&b'"')
        && let Some(length) = text[quoted_from + 1..].iter().position(|b| *b == b'"')
    {
        from = quoted_from + 1 + length + 1;
    }
    match text[from..].iter().position(|b| *b == b',') {
        Some(comma) => (text[..from + comma].trim_ascii(), Some(&text[from + comma + 1..])),
        None => (text.trim_ascii(), None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: f64 = 1_763_000_000.0;
    const EARLY: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATE: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn stored<'a>(etag: Option<&'a str>, modified: Option<&'a str>, date: Option<&'a str>) -> Stored<'a> {
        let bytes = |text: Option<&'a str>| text.map(str::as_bytes);
        Stored { etag: bytes(etag), last_modified: bytes(modified), date: bytes(date) }
    }

    fn not_modified(inm: &[&str], ims: Option<&str>, stored: &Stored<'_>) -> bool {
        let lines = (!inm.is_empty()).then(|| inm.iter().map(|line| line.as_bytes()));
        let conditions = Conditions { if_none_match: lines, if_modified_since: ims.map(str::as_bytes) };
        conditions.judge(stored, NOW) == Verdict::NotModified
    }

    #[test]
    fn tags_are_compared_weakly_in_lists_and_lines() {
        let strong = stored(Some("\"a,b\""), None, None);
        for yes in [
            &["\"a,b\""][..],
            &["W/\"a,b\""],
            &["\"x\", \"a,b\""],
            &["\"x\",W/\"a,b\" , \"y\""],
            &["\"x\"", "\"a,b\""],
            &["*"],
            &[" * "],
            &["", ",, \"a,b\""],
        ] {
            assert!(not_modified(yes, None, &strong), "{yes:?}");
        }
        for no in [&["\"a\""][..], &["\"a\", \"b\""], &["\"A,B\""], &[""], &["\"a,b"], &["w/\"a,b\""]] {
            assert!(!not_modified(no, None, &strong), "{no:?}");
        }
        assert!(not_modified(&["\"a\""], None, &stored(Some("W/\"a\""), None, None)));
        assert!(not_modified(&["abc"], None, &stored(Some("abc"), None, None)));
        assert!(!not_modified(&["\"a\""], None, &stored(None, None, None)));
        assert!(not_modified(&["*"], None, &stored(None, None, None)));
    }

    #[test]
    fn if_none_match_takes_precedence() {
        let both = stored(Some("\"a\""), Some(THEN), None);
        assert!(not_modified(&["\"a\""], Some(EARLY), &both));
        assert!(!not_modified(&["\"b\""], Some(LATE), &both));
        assert!(not_modified(&[], Some(THEN), &both));
        assert!(not_modified(&[], Some(LATE), &both));
        assert!(!not_modified(&[], Some(EARLY), &both));
        assert!(!not_modified(&[], Some("never"), &both));
        assert!(!not_modified(&[], Some("Thu, 18 Aug 2050 02:01:18 GMT"), &both));
        let ahead = "Thu, 18 Aug 2050 02:01:18 GMT";
        assert!(
            not_modified(&[], Some(ahead), &stored(None, Some(ahead), None)),
            "the origin's clock is ahead"
        );
        assert!(not_modified(&[], Some(THEN), &stored(None, None, Some(THEN))));
        assert!(!not_modified(&[], Some(THEN), &stored(None, None, Some(LATE))));
        assert!(!not_modified(&[], None, &both));
    }

    #[test]
    fn a_range_is_of_the_same_response_by_a_strong_validator() {
        let of = |value: &str, stored: &Stored<'_>| holds_if_range(value.as_bytes(), stored, NOW);
        let strong = stored(Some("\"a\""), Some(THEN), Some(LATE));
        assert!(of("\"a\"", &strong) && of(THEN, &strong));
        assert!(!of("W/\"a\"", &strong) && !of("\"b\"", &strong) && !of(LATE, &strong) && !of("a", &strong));
        assert!(!of("W/\"a\"", &stored(Some("W/\"a\""), None, None)));
        assert!(!of("\"a\"", &stored(Some("W/\"a\""), None, None)));
        // Made in the second of its last change: it may have changed again.
        assert!(!of(THEN, &stored(None, Some(THEN), Some(THEN))));
        assert!(!of(THEN, &stored(None, Some(THEN), None)));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_compared(
            list in proptest::collection::vec(any::<u8>(), 0..100),
            etag in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let stored = Stored { etag: Some(&etag), ..Stored::default() };
            let conditions =
                Conditions { if_none_match: Some([list.as_slice()]), if_modified_since: Some(list.as_slice()) };
            conditions.judge(&stored, NOW);
            holds_if_range(&list, &stored, NOW);
        }

        #[test]
        fn a_tag_is_found_wherever_it_stands(before in "(\"[a-z,]{0,5}\", ?){0,4}", after in "(, ?W/\"[a-z,]{0,5}\"){0,4}") {
            let list = format!("{before}\"Found, 1\"{after}");
            let stored = Stored { etag: Some(b"W/\"Found, 1\""), ..Stored::default() };
            let conditions = Conditions { if_none_match: Some([list.as_bytes()]), if_modified_since: None };
            prop_assert_eq!(conditions.judge(&stored, NOW), Verdict::NotModified, "{}", list);
        }
    }
}
