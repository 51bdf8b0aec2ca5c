//! Request headers of which one value is left, so that responses with Vary need few variants.
//!
//! A header is read as a list with q values, as Accept-Language and Accept are; one that is no list is a list of one. Total: any bytes have
//! a reading.

/// A header, and the values that may be left of it.
#[derive(Debug, Clone)]
pub struct Normal {
    name: Box<str>,
    values: Box<[Box<str>]>,
}

/// Items of one header that are looked at: a client's list may be long.
const MOST_ITEMS: usize = 32;

/// How well an item of the request fits a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// `*`, `*/*`, `text/*`
    Any,
    /// `de` is asked for, and `de-CH` is there.
    Narrower,
    /// `de-CH` is asked for, and `de` is there.
    Wider,
    Same,
}

impl Normal {
    pub(super) fn new(from: &model::Normalize) -> Self {
        Self {
            name: from.header.as_str().into(),
            values: from.values.iter().map(|value| value.as_str().into()).collect(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value that is left of all lines of the header, which `lines` shows; `None` where none fits.
    pub fn choose<'a, I: Iterator<Item = &'a [u8]>>(&self, lines: impl Fn() -> I) -> Option<&str> {
        let items = || {
            let items = lines().flat_map(|line| line.split(|b| *b == b','));
            items.map(item).filter(|(text, _)| !text.is_empty()).take(MOST_ITEMS)
        };
        let mut best: Option<(u16, usize, &str)> = None;
        for value in &self.values {
            // What fits best says how much the client wants it.
            let mut found: Option<(Fit, u16, usize)> = None;
            for (at, (text, q)) in items().enumerate() {
                if let Some(fit) = fit(text, value.as_bytes())
                    && found.is_none_or(|(known, most, _)| (fit, q) > (known, most))
                {
                    found = Some((fit, q, at));
                }
            }
            if let Some((_, q, at)) = found.filter(|(_, q, _)| *q > 0)
                && best.is_none_or(|(most, first, _)| q > most || (q == most && at < first))
            {
                best = Some((q, at, value));
            }
        }
        best.map(|(_, _, value)| value)
    }
}

/// An item without parameters, and its q in thousandths. One that cannot be read counts as 1.
fn item(text: &[u8]) -> (&[u8], u16) {
    let mut parts = text.split(|b| *b == b';').map(<[u8]>::trim_ascii);
    let name = parts.next().unwrap_or_default();
    let q = parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
    (name, q.map_or(1000, thousandths))
}

fn thousandths(text: &[u8]) -> u16 {
    match text {
        [b'0'] => 0,
        [b'0', b'.', digits @ ..] if digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit) => {
            let padded = digits.iter().chain(b"000").take(3);
            padded.fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
        }
        _ => 1000,
    }
}

fn fit(asked: &[u8], value: &[u8]) -> Option<Fit> {
    let begins = |long: &[u8], short: &[u8]| {
        long.get(..short.len()).is_some_and(|start| start.eq_ignore_ascii_case(short))
    };
    let is_part = |long: &[u8], short: &[u8]| long.get(short.len()) == Some(&b'-') && begins(long, short);
    if asked.eq_ignore_ascii_case(value) {
        Some(Fit::Same)
    } else if matches!(asked, b"*" | b"*/*")
        || asked.strip_suffix(b"*").is_some_and(|s| s.ends_with(b"/") && begins(value, s))
    {
        Some(Fit::Any)
    } else if is_part(asked, value) {
        Some(Fit::Wider)
    } else {
        is_part(value, asked).then_some(Fit::Narrower)
    }
}

/// Whether a header says which variant of a response is wanted, and nothing else. Accept-Encoding is normalized always.
pub fn may_be_normalized(name: &[u8]) -> bool {
    const NAMES: [&str; 15] = [
        "accept-encoding",
        "authorization",
        "cache-control",
        "connection",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "origin",
        "range",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
    ];
    const BEGINNINGS: [&str; 7] =
        ["access-control-", "content-", "if-", "proxy-", "x-forwarded-", "x-gateway-", "x-ghost-"];
    let begins = |start: &&str| {
        name.get(..start.len()).is_some_and(|first| first.eq_ignore_ascii_case(start.as_bytes()))
    };
    !NAMES.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())) && !BEGINNINGS.iter().any(begins)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chosen(values: &[&str], line: &str) -> Option<String> {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        let normal = Normal::new(&model::Normalize { header: "accept-language".to_owned(), values });
        normal.choose(|| std::iter::once(line.as_bytes())).map(str::to_owned)
    }

    #[test]
    fn the_value_that_the_client_prefers_is_left() {
        for (line, left) in [
            ("de", Some("de")),
            ("DE-at, en;q=0.9", Some("de")),
            ("fr", Some("fr-CH")),
            ("fr-FR", None),
            ("it, pt;q=0.5", None),
            ("it, *;q=0.1", Some("en")),
            ("en;q=0.5, de;q=0.8", Some("de")),
            ("de, en", Some("de")),
            ("en, de", Some("en")),
            ("*;q=0.5, en;q=0", Some("de")),
            ("de;q=0, de-AT", None),
            ("de;q=0", None),
            ("de;q=0.001, en;q=0.0001", Some("en")),
            ("", None),
            (",;q=1, ,", None),
        ] {
            assert_eq!(chosen(&["en", "de", "fr-CH"], line).as_deref(), left, "{line}");
        }
        assert_eq!(chosen(&["text/html", "application/json"], "*/*").as_deref(), Some("text/html"));
        assert_eq!(
            chosen(&["text/html", "application/json"], "text/*;q=0.1, application/json").as_deref(),
            Some("application/json")
        );
        assert_eq!(chosen(&["mobile", "desktop"], "Desktop").as_deref(), Some("desktop"));
        assert_eq!(chosen(&["mobile"], "mobiles"), None);
    }

    #[test]
    fn headers_that_say_more_are_not_normalized() {
        for name in ["Accept-Language", "Accept", "X-Device", "Sec-CH-UA-Mobile", "User-Agent"] {
            assert!(may_be_normalized(name.as_bytes()), "{name}");
        }
        for name in ["Accept-Encoding", "COOKIE", "Host", "If-None-Match", "X-Ghost-Pass", "content-type"] {
            assert!(!may_be_normalized(name.as_bytes()), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_reading(line in proptest::collection::vec(any::<u8>(), 0..100)) {
            let values = vec!["en".to_owned(), "de".to_owned()];
            let normal = Normal::new(&model::Normalize { header: "a".to_owned(), values });
            let left = normal.choose(|| std::iter::once(line.as_slice()));
            prop_assert!(left.is_none_or(|value| value == "en" || value == "de"));
        }
    }
}
