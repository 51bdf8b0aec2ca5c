//! Regular expressions as routes and cache policies use them. They match bytes, and always the whole value.
//!
//! Takes the text of a pattern; guarantees that matching looks once at each byte, allocates nothing and takes no lock, and
//! that a compiled pattern is never larger than [`LIMIT`]. Patterns that cannot keep this are refused.

mod dfa;
mod known;
mod syntax;

use std::sync::Arc;

use self::dfa::Dfa;

/// A compiled pattern takes at most this many bytes.
pub const LIMIT: usize = 64 << 10;

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("regular expression `{pattern}` does not compile: {cause}")]
    Syntax { pattern: String, cause: String },
    #[error(
        "regular expression `{pattern}` needs Unicode for `{part}`, but patterns match bytes: use ASCII classes such as \
         [A-Za-z], and write other characters outside of classes, as in (?:é|è)"
    )]
    Unicode { pattern: String, part: String },
    #[error(
        "regular expression `{pattern}` is too large when compiled (limit {LIMIT} bytes): use smaller repetition counts and \
         fewer alternatives"
    )]
    TooLarge { pattern: String },
}

/// A pattern that matches a whole value. Patterns of the same text share their memory.
#[derive(Debug, Clone)]
pub struct Pattern(Arc<Dfa>);

impl Pattern {
    pub fn compile(pattern: &str) -> Result<Self, Error> {
        known::compiled(pattern).map(Self)
    }

    pub fn is_match(&self, value: &[u8]) -> bool {
        self.0.is_match(value)
    }
}

/// What a pattern costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// Memory of the compiled pattern.
    pub bytes: usize,
    /// Every value that matches begins with these bytes. Other values are refused at their first other byte.
    pub prefix: Arc<[u8]>,
}

/// Whether [`Pattern::compile`] accepts the pattern, and what it costs. The result is remembered: asking again is cheap.
pub fn check(pattern: &str) -> Result<Cost, Error> {
    known::cost(pattern)
}

/// Refuses patterns that would match characters instead of bytes. For regular expressions that are compiled elsewhere.
pub fn check_matches_bytes(pattern: &str) -> Result<(), Error> {
    syntax::parse(pattern).map(drop)
}

fn compile(pattern: &str) -> Result<Dfa, Error> {
    let hir = syntax::parse(pattern)?;
    Dfa::new(hir).ok_or_else(|| Error::TooLarge { pattern: shown(pattern) })
}

/// Statuses have limited space, and patterns may have thousands of characters.
fn shown(pattern: &str) -> String {
    const MOST: usize = 100;
    match pattern.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &pattern[..end]),
        None => pattern.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, value: impl AsRef<[u8]>) -> bool {
        Pattern::compile(pattern).unwrap().is_match(value.as_ref())
    }

    #[test]
    fn the_whole_value_must_match() {
        assert!(matches("/v[0-9]+", "/v12"));
        assert!(!matches("/v[0-9]+", "/v12/x"));
        assert!(!matches("/v[0-9]+", "/x/v12"));
        assert!(matches("a|b", "b"));
        assert!(!matches("a|b", "ab"));
        assert!(matches("a|ab", "ab"));
        assert!(!matches("a", "a\n"));
        assert!(matches("", ""));
        assert!(!matches("", "a"));
        assert!(matches("^/a$", "/a"));
        assert!(matches(r"/a\b.*", "/a-b"));
        assert!(!matches(r"/a\b.*", "/ab"));
        assert!(matches("(?x) a # comment", "a"));
        assert!(!matches("[^\\x00-\\xff]", ""));
    }

    #[test]
    fn any_byte_is_matched() {
        assert!(matches(".*session=.*", b"session=VICTIM; x=\xff"));
        assert!(matches(".*session=.*", b"\xff\xfe; session=VICTIM"));
        assert!(matches(".*session=.*", b"a=\xc3; session=\n1"));
        assert!(matches(r"/files/[^/]+", b"/files/\xe9t\xe9"));
        assert!(matches(r"/files/\W\S\D", b"/files/\xe9\xe9\xe9"));
        for byte in 0..=255_u8 {
            assert!(matches(".", [byte]), "{byte}");
        }
    }

    #[test]
    fn characters_beyond_ascii_stand_for_their_bytes() {
        assert!(matches("/caf(?:é|è)+", "/caféè"));
        assert!(matches("é{2}", "éé"));
        assert!(matches(r"\xe9", b"\xe9"));
        assert!(!matches("é", b"\xe9"));
        // Case is ASCII's.
        assert!(matches("(?i)/CAFÉ", "/cafÉ") && !matches("(?i)/CAFÉ", "/café"));
    }

    #[test]
    fn patterns_that_need_unicode_are_refused() {
        for (pattern, part) in [
            (r"/\p{L}+", r"\p{L}"),
            (r"[\pL]", r"\pL"),
            ("[é]", "é"),
            ("[^à-ü]", "à"),
            ("(?u).*session=.*", "(?u)"),
            ("a(?iu:b)", "(?iu:b)"),
        ] {
            let error = check(pattern).unwrap_err();
            let expected = Error::Unicode { pattern: pattern.to_owned(), part: part.to_owned() };
            assert_eq!(error, expected);
            assert!(Pattern::compile(pattern).is_err());
            assert_eq!(check_matches_bytes(pattern), Err(expected));
        }
        assert!(check(r"(?-u)(?i)a\xff").is_ok());
    }

    #[test]
    fn a_bad_pattern_says_what_is_wrong() {
        let e = check("/(unclosed").unwrap_err().to_string();
        assert_eq!(e, "regular expression `/(unclosed` does not compile: unclosed group");
        assert!(check("a)|(b").is_err());
        assert!(check(&"(".repeat(1000)).is_err());
        let long = check(&format!("{}(", "a".repeat(5000))).unwrap_err().to_string();
        assert!(long.len() < 250, "{long}");
    }

    #[test]
    fn usual_patterns_fit() {
        let words: Vec<String> = (0..100).map(|n| format!("{:x}word{n}ending", n * 7919 % 101)).collect();
        for pattern in [
            ".*",
            ".*session=.*",
            "(?i).*(session|token|auth)[a-z]*=.*",
            "/v[0-9]+/.*",
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "(?i)/[A-Z]{2}-[A-Z]{2}/.*\\.(png|jpe?g|gif|webp|svg|css|js)",
            "[a-z0-9-]{1,63}",
            "([a-z0-9-]{1,63}\\.){1,4}[a-z]{2,20}",
            "[^/]{1,255}",
            ".{0,1000}",
            r".*\bMSIE (\d+)\.\d.*",
            "(^|.*; )(wordpress_logged_in|wp-postpass|comment_author)_[0-9a-f]{32}=[^;]*(;.*)?",
            &format!("/({})/.*", words.join("|")),
            &format!("(?i)/({})/.*", words.join("|")),
        ] {
            let cost = check(pattern);
            assert!(cost.as_ref().is_ok_and(|cost| cost.bytes <= LIMIT), "{pattern}: {cost:?}");
        }
    }

    #[test]
    fn patterns_without_a_small_table_are_refused() {
        for pattern in [
            "[01]*1[01]{6000}",
            "[01]*1[01]{20}",
            ".*a.{30}",
            "((a{100}){100}){100}",
            "(((((a?){30}){30}){30}){30}){30}",
            "(?:){4000000000}(?:(?:a|b?){1,1000}){1,1000}",
            &"a".repeat(100_000),
        ] {
            assert!(matches!(check(pattern), Err(Error::TooLarge { .. })), "{pattern}: {:?}", check(pattern));
        }
    }

    #[test]
    fn patterns_of_the_same_text_share_their_memory() {
        let one = Pattern::compile("/shared/[a-f]+").unwrap();
        let two = Pattern::compile("/shared/[a-f]+").unwrap();
        assert!(Arc::ptr_eq(&one.0, &two.0));
        assert_eq!(check("/shared/[a-f]+").unwrap().bytes, one.0.bytes());
    }

    #[test]
    fn the_prefix_is_what_every_match_begins_with() {
        let prefix = |pattern: &str| String::from_utf8_lossy(&check(pattern).unwrap().prefix).into_owned();
        assert_eq!(prefix("/shop/v[0-9]+"), "/shop/v");
        assert_eq!(prefix("/shop/(cart|care).*"), "/shop/car");
        assert_eq!(prefix("(?i)/shop"), "/");
        assert_eq!(prefix(".*session.*"), "");
        assert_eq!(prefix("/shop"), "/shop");
        assert_eq!(prefix("(/shop)?"), "");
    }

    #[test]
    fn hostile_patterns_stay_linear() {
        assert!(!matches("(a*)*b", [b'a'; 100_000]));
    }
}
