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
/// The same of expressions that are kept: each thread that uses one has its own.
const MEMORY_OF_KEPT: usize = 32 << 10;
/// Sizes of compiled expressions that are distinguished: there is no way to ask for the size.
const SIZES: [usize; 3] = [16 << 10, 128 << 10, LARGEST_SET];

/// Any of some expressions.
pub struct Urls(RegexSet);

/// The same ones, for answers that come later: small rather than fast.
pub struct Kept {
    /// `None` stands for every URL.
    set: Option<RegexSet>,
    bytes: usize,
}

impl Urls {
    /// One for all of these, or several where they are too large together. Those that make no sense are left out.
    pub fn all(expressions: &[String]) -> Vec<Self> {
        match build(expressions, LARGEST_SET, MEMORY) {
            Ok(set) => vec![Self(set)],
            Err(_) if expressions.len() < 2 => Vec::new(),
            Err(_) => {
                let (some, others) = expressions.split_at(expressions.len() / 2);
                Self::all(some).into_iter().chain(Self::all(others)).collect()
            }
        }
    }

    pub fn matches(&self, url: &[u8]) -> bool {
        self.0.is_match(url)
    }

    pub fn kept(&self) -> Kept {
        let built = SIZES
            .into_iter()
            .find_map(|size| Some((build(self.0.patterns(), size, MEMORY_OF_KEPT).ok()?, size)));
        let size = built.as_ref().map_or(0, |(_, size)| *size);
        // Compiled forwards and backwards, and the memory of two threads.
        Kept { set: built.map(|(set, _)| set), bytes: 2 * size + 2 * MEMORY_OF_KEPT }
    }
}

impl Matches for Kept {
    fn matches(&self, url: &[u8]) -> bool {
        self.set.as_ref().is_none_or(|set| set.is_match(url))
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Why it is invalid.
pub fn check(expression: &String) -> Result<(), String> {
    // `(?u)` would not match URLs that are not UTF-8: the ban would leave them in the cache.
    if let Err(error @ router::pattern::Error::Unicode { .. }) =
        router::pattern::check_matches_bytes(expression)
    {
        return Err(format!("Regex compile error: {error}"));
    }
    match build(std::slice::from_ref(expression), LARGEST, MEMORY) {
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

fn build(expressions: &[String], largest: usize, memory: usize) -> Result<RegexSet, regex::Error> {
    RegexSetBuilder::new(expressions)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(largest)
        .dfa_size_limit(memory)
        .build()
}
