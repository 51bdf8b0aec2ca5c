//! Cache-Control of responses and requests (RFC 9111, 5.2; RFC 5861), as a shared cache reads it. Total: any bytes have a reading.
//!
//! Directives are read in any case, quoted or not. Of several with one name the first counts. A number that is none makes the
//! response stale; names that are not known are ignored.

use smallvec::SmallVec;

use super::number::delta_seconds;

/// What a message says in all its lines of Cache-Control.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Directives<'a> {
    pub no_store: bool,
    /// Without field names. Those of `private="a, b"` are in `private_fields`.
    pub private: bool,
    /// Without field names.
    pub no_cache: bool,
    pub public: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub must_understand: bool,
    /// Seconds; 0 where the number is not valid.
    pub max_age: Option<u64>,
    pub s_maxage: Option<u64>,
    pub stale_while_revalidate: Option<u64>,
    pub stale_if_error: Option<u64>,
    /// Of requests.
    pub min_fresh: Option<u64>,
    /// Of requests; without a number any staleness will do.
    pub max_stale: Option<u64>,
    pub only_if_cached: bool,
    /// Lists of field names.
    pub private_fields: SmallVec<[&'a [u8]; 1]>,
    pub no_cache_fields: SmallVec<[&'a [u8]; 1]>,
}

/// The argument of a directive.
#[derive(Clone, Copy)]
enum Argument<'a> {
    None,
    /// Without its quotes.
    Given(&'a [u8]),
    /// White space around `=`, or quotes that do not close.
    Malformed,
}

impl<'a> Directives<'a> {
    /// Reads one more line.
    pub fn read(&mut self, line: &'a [u8]) {
        for part in parts(line) {
            let (name, argument) = split(part);
            self.take(name, argument);
        }
    }

    fn take(&mut self, name: &'a [u8], argument: Argument<'a>) {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        // By their length: nearly all lines have few and short names.
        match name.len() {
            6 if is("public") => self.public = true,
            7 if is("max-age") => first(&mut self.max_age, argument, 0),
            7 if is("private") => match fields(argument) {
                Some(names) => self.private_fields.push(names),
                None => self.private = true,
            },
            8 if is("no-store") => self.no_store = true,
            8 if is("no-cache") => match fields(argument) {
                Some(names) => self.no_cache_fields.push(names),
                None => self.no_cache = true,
            },
            8 if is("s-maxage") => first(&mut self.s_maxage, argument, 0),
            9 if is("min-fresh") => first(&mut self.min_fresh, argument, u64::MAX),
            9 if is("max-stale") => match argument {
                Argument::None => self.max_stale = self.max_stale.or(Some(u64::MAX)),
                _ => first(&mut self.max_stale, argument, 0),
            },
            14 if is("stale-if-error") => first(&mut self.stale_if_error, argument, 0),
            14 if is("only-if-cached") => self.only_if_cached = true,
            15 if is("must-revalidate") => self.must_revalidate = true,
            15 if is("must-understand") => self.must_understand = true,
            16 if is("proxy-revalidate") => self.proxy_revalidate = true,
            22 if is("stale-while-revalidate") => first(&mut self.stale_while_revalidate, argument, 0),
            _ => {}
        }
    }
}

/// Of several, the first counts.
fn first(place: &mut Option<u64>, argument: Argument<'_>, instead: u64) {
    if place.is_none() {
        let number = match argument {
            Argument::Given(text) => delta_seconds(text),
            Argument::None | Argument::Malformed => None,
        };
        *place = Some(number.unwrap_or(instead));
    }
}

/// The names of `private="a, b"`. `None` where there is none, or one that is no name: then the directive is about all of the response.
fn fields(argument: Argument<'_>) -> Option<&[u8]> {
    let Argument::Given(list) = argument else { return None };
    let mut names = field_names(list).peekable();
    names.peek()?;
    names.all(is_token).then_some(list)
}

/// The names in a list of them.
pub fn field_names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty())
}

pub(super) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b))
}

fn split(part: &[u8]) -> (&[u8], Argument<'_>) {
    let Some(equals) = part.iter().position(|b| *b == b'=') else { return (part, Argument::None) };
    let (name, given) = (&part[..equals], &part[equals + 1..]);
    if name.trim_ascii() != name || given.trim_ascii() != given {
        return (name.trim_ascii(), Argument::Malformed);
    }
    match given {
        [b'"', inner @ .., b'"'] => (name, Argument::Given(inner)),
        [b'"', ..] | [.., b'"'] => (name, Argument::Malformed),
        _ => (name, Argument::Given(given)),
    }
}

/// The directives of a line.
pub(super) fn parts(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    Parts(line)
}

/// Separated by commas that are not in quotes. Where quotes do not close, every comma separates: nothing that forbids is hidden by
/// them.
struct Parts<'a>(&'a [u8]);

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if self.0.is_empty() {
                return None;
            }
            let end = end_of_part(self.0, b',');
            let part = self.0[..end].trim_ascii();
            self.0 = self.0.get(end + 1..).unwrap_or_default();
            if !part.is_empty() {
                return Some(part);
            }
        }
    }
}

/// Where the first `separator` is that is not in quotes.
pub(super) fn end_of_part(text: &[u8], separator: u8) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    let ends = |b: &u8| {
        let was_escaped = std::mem::replace(&mut escaped, false);
        match *b {
            _ if was_escaped => false,
            b'\\' if quoted => {
                escaped = true;
                false
            }
            b'"' => {
                quoted = !quoted;
                false
            }
            other => other == separator && !quoted,
        }
    };
    let end = text.iter().position(ends);
    match end {
        Some(end) => end,
        None if quoted => text.iter().position(|b| *b == separator).unwrap_or(text.len()),
        None => text.len(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(value: &str) -> Directives<'_> {
        let mut directives = Directives::default();
        directives.read(value.as_bytes());
        directives
    }

    #[test]
    fn directives_are_told_apart() {
        assert_eq!(read("public, stale-while-revalidate=60, ,").max_age, None);
        assert_eq!(read("public, stale-while-revalidate=60, ,").stale_while_revalidate, Some(60));
        assert_eq!(read("Max-Age=60 , s-maxage=\"5\"").max_age, Some(60));
        assert_eq!(read("max-age=1,s-maxage=\"5\"").s_maxage, Some(5));
        assert_eq!(read("max-age=1, max-age=9").max_age, Some(1));
        assert!(read("max-age=1, PRIVATE").private);
        assert_eq!(read("private=\"max-age=1\"").max_age, None);
        assert!(!read("x-private, privately, no-storex").private);
        assert!(read("no-store").no_store && read("no-store=1").no_store && read("no-store = 1").no_store);
        assert!(read("proxy-revalidate").proxy_revalidate && read("must-revalidate").must_revalidate);
        assert_eq!(read("extension=\"max-age=3600\", max-age=1").max_age, Some(1));
        assert_eq!(read("extension=\"a\\\", max-age=3600\", max-age=1").max_age, Some(1));
        let request = read("max-stale, min-fresh=5, only-if-cached");
        assert_eq!(
            (request.max_stale, request.min_fresh, request.only_if_cached),
            (Some(u64::MAX), Some(5), true)
        );
    }

    #[test]
    fn field_names_limit_private_and_no_cache() {
        let named = read("private=\"x-a, x-b\", no-cache=set-cookie, max-age=5");
        assert!(!named.private && !named.no_cache);
        assert_eq!(named.private_fields.as_slice(), [b"x-a, x-b"]);
        assert_eq!(named.no_cache_fields.as_slice(), [b"set-cookie"]);
        assert_eq!(named.max_age, Some(5));
        // A list without names, or with something else in it, is about the whole.
        for whole in [
            "private=\"\"",
            "private=",
            "private=\" , \"",
            "private=\"a b\"",
            "private =\"a\"",
            "private=\"a",
        ] {
            assert!(read(whole).private, "{whole}");
        }
    }

    #[test]
    fn numbers_that_are_not_valid_are_zero_and_large_ones_large() {
        for value in [
            "max-age",
            "max-age=",
            "max-age=soon",
            "max-age=-1",
            "max-age=1.5",
            "max-age=\"\"",
            "max-age='3600'",
            "max-age =3600",
            "max-age= 3600",
            "max-age=3600a",
            "max-age=\"3600",
        ] {
            assert_eq!(read(value).max_age, Some(0), "{value}");
        }
        assert_eq!(read("max-age=99999999999999999999999").max_age, Some(u64::MAX));
        assert_eq!(read("max-age=003600").max_age, Some(3600));
    }

    #[test]
    fn quotes_that_do_not_close_hide_nothing() {
        assert!(read("extension=\"a, no-store").no_store);
        assert!(read("\"\"\", private, max-age=5").private);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_reading(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            Directives::default().read(&line);
        }

        /// Whatever stands before it, a directive of its own is seen.
        #[test]
        fn no_store_is_seen_behind_anything(before in "[a-z=\", \\\\0-9-]{0,40}") {
            let line = format!("{before}, no-store");
            let mut directives = Directives::default();
            directives.read(line.as_bytes());
            // Unless it stands within quotes that close, which it cannot: nothing follows it.
            prop_assert!(directives.no_store, "{line}");
        }
    }
}
