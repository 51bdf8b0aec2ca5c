//! Requests that the cache was asked for and did not answer alone: the last one of each URL, with what Cache-Status said. For `explain`.
//!
//! Hits are not noted, and pay nothing. Bounded: a table by the hash of host and URL, where the last one counts.

use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use foldhash::fast::RandomState;

const PLACES: usize = 512;
/// Longer URLs and values are not noted.
const LONGEST: usize = 2048;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncached {
    pub seconds_ago: u64,
    /// What this gateway said in Cache-Status.
    pub said: String,
}

#[derive(Debug)]
struct Noted {
    host: Vec<u8>,
    url: Vec<u8>,
    at: Instant,
    said: String,
}

#[derive(Debug)]
pub(crate) struct Recent {
    places: Box<[Mutex<Option<Noted>>]>,
    seed: RandomState,
}

impl Default for Recent {
    fn default() -> Self {
        Self { places: (0..PLACES).map(|_| Mutex::default()).collect(), seed: RandomState::default() }
    }
}

impl Recent {
    fn place(&self, host: &[u8], url: &[u8]) -> &Mutex<Option<Noted>> {
        &self.places[self.seed.hash_one((host, url)) as usize % PLACES]
    }

    pub(crate) fn note(&self, host: &[u8], url: &[u8], said: &[u8]) {
        let Ok(said) = std::str::from_utf8(said) else { return };
        if host.len() + url.len() + said.len() > LONGEST {
            return;
        }
        let noted = Noted { host: host.into(), url: url.into(), at: Instant::now(), said: said.to_owned() };
        let before = self.place(host, url).lock().unwrap_or_else(PoisonError::into_inner).replace(noted);
        drop(before);
    }

    pub(crate) fn find(&self, host: &[u8], url: &[u8]) -> Option<Uncached> {
        let place = self.place(host, url).lock().unwrap_or_else(PoisonError::into_inner);
        let noted = place.as_ref().filter(|noted| noted.host == host && noted.url == url)?;
        Some(Uncached { seconds_ago: noted.at.elapsed().as_secs(), said: noted.said.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_request_of_a_url_is_known() {
        let recent = Recent::default();
        recent.note(b"a.com", b"/x", b"first");
        recent.note(b"a.com", b"/x", b"second");
        recent.note(b"a.com", &[b'u'; LONGEST], b"long");
        assert_eq!(recent.find(b"a.com", b"/x").unwrap().said, "second");
        assert_eq!(recent.find(b"a.com", b"/y"), None);
        assert_eq!(recent.find(b"b.com", b"/x"), None);
        for n in 0..10_000 {
            recent.note(b"a.com", format!("/{n}").as_bytes(), b"many");
        }
        let known = (0..10_000).filter(|n| recent.find(b"a.com", format!("/{n}").as_bytes()).is_some());
        assert!(known.count() <= PLACES);
    }
}
