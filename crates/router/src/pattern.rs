//! Regular expressions as routes use them: linear in time, capped in size, matched against the whole value.

use regex::bytes::{Regex, RegexBuilder};

/// A compiled pattern may take this many bytes.
const SIZE_LIMIT: usize = 1 << 20;
/// Every thread that matches keeps a cache of this size for each pattern: varnishd has hundreds of threads.
const CACHE_LIMIT: usize = 256 << 10;

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("regular expression `{pattern}` does not compile: {cause}")]
    Syntax { pattern: String, cause: String },
    #[error(
        "regular expression `{pattern}` is too large when compiled (limit {SIZE_LIMIT} bytes): \
         use smaller repetition counts, or (?-u) where only ASCII is meant"
    )]
    TooLarge { pattern: String },
}

/// A pattern that matches a whole value.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl Pattern {
    pub fn compile(pattern: &str) -> Result<Self, Error> {
        // By itself first: `a)|(b` would compile once it stands in parentheses.
        build(pattern, pattern)?;
        build(pattern, &format!(r"\A(?:{pattern})\z")).map(Self)
    }

    pub fn is_match(&self, value: &[u8]) -> bool {
        self.0.is_match(value)
    }
}

/// Would [`Pattern::compile`] take it? For whoever writes statuses.
pub fn check(pattern: &str) -> Result<(), Error> {
    Pattern::compile(pattern).map(drop)
}

fn build(shown: &str, pattern: &str) -> Result<Regex, Error> {
    RegexBuilder::new(pattern).size_limit(SIZE_LIMIT).dfa_size_limit(CACHE_LIMIT).build().map_err(|e| match e
    {
        regex::Error::CompiledTooBig(_) => Error::TooLarge { pattern: shown.to_owned() },
        other => Error::Syntax { pattern: shown.to_owned(), cause: last_line(&other.to_string()) },
    })
}

/// The crate's message draws the pattern with a marker below it; its last line says what is wrong.
fn last_line(message: &str) -> String {
    message.lines().last().unwrap_or(message).trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_value_must_match() {
        let p = Pattern::compile("/v[0-9]+").unwrap();
        assert!(p.is_match(b"/v12"));
        assert!(!p.is_match(b"/v12/x"));
        assert!(!p.is_match(b"/x/v12"));
        assert!(Pattern::compile("a|b").unwrap().is_match(b"b"));
        assert!(!Pattern::compile("a|b").unwrap().is_match(b"ab"));
        assert!(!Pattern::compile("a").unwrap().is_match(b"a\n"));
    }

    #[test]
    fn a_bad_pattern_says_what_is_wrong() {
        let e = check("/(unclosed").unwrap_err().to_string();
        assert_eq!(e, "regular expression `/(unclosed` does not compile: unclosed group");
        assert!(check("a)|(b").is_err());
        assert!(matches!(check(r"(\w{1000}){50}"), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn hostile_patterns_stay_linear() {
        let p = Pattern::compile("(a*)*b").unwrap();
        assert!(!p.is_match(&[b'a'; 100_000]));
    }
}
