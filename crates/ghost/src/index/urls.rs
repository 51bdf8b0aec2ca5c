//! Expressions of bans, about URLs.
//!
//! Linear in time, whatever the expression and whatever the URL, which is a client's choice: varnishd's own expressions give up
//! on some, and a ban whose expression gives up ends varnishd.

use regex::bytes::{RegexSet, RegexSetBuilder};

use super::bans::Matches;

/// Of one expression, compiled.
const LARGEST: usize = 64 << 10;
/// Of all that are looked for together.
const LARGEST_SET: usize = 1 << 20;
/// What the search may remember, so that it stays fast.
const MEMORY: usize = 2 << 20;

/// Any of some expressions.
#[derive(Clone)]
pub struct Urls(RegexSet);

impl Urls {
    /// One for all of these, or several where they are too large together. Those that make no sense are left out.
    pub fn all(expressions: &[String]) -> Vec<Self> {
        match build(expressions, LARGEST_SET) {
            Ok(set) => vec![Self(set)],
            Err(_) if expressions.len() < 2 => Vec::new(),
            Err(_) => {
                let (some, others) = expressions.split_at(expressions.len() / 2);
                Self::all(some).into_iter().chain(Self::all(others)).collect()
            }
        }
    }
}

impl Matches for Urls {
    fn matches(&self, url: &[u8]) -> bool {
        self.0.is_match(url)
    }
}

/// Why it makes no sense.
pub fn check(expression: &String) -> Result<(), String> {
    // `(?u)` would not match URLs that are not UTF-8: the ban would leave them in the cache.
    if let Err(error @ router::pattern::Error::Unicode { .. }) =
        router::pattern::check_matches_bytes(expression)
    {
        return Err(format!("Regex compile error: {error}"));
    }
    match build(std::slice::from_ref(expression), LARGEST) {
        Ok(_) => Ok(()),
        Err(regex::Error::CompiledTooBig(_)) => Err("Regex compile error: it is too large".to_owned()),
        Err(e) => {
            // The last of its lines says why, those before it where.
            let text = e.to_string();
            let why = text.lines().last().unwrap_or_default();
            Err(format!("Regex compile error: {}", why.strip_prefix("error: ").unwrap_or(why)))
        }
    }
}

fn build(expressions: &[String], largest: usize) -> Result<RegexSet, regex::Error> {
    RegexSetBuilder::new(expressions)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(largest)
        .dfa_size_limit(MEMORY)
        .build()
}
