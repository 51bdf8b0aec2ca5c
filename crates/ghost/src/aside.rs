//! What is known of URLs before their objects are looked up: one bit for each, by its hash. A bit that two URLs share costs the other one
//! some speed, and nothing else. The routes of a namespace have a window of bits: an origin that sets all it can leaves those of most others
//! as they are. And when clients have had their way with a URL last: [`Pace`].

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use foldhash::fast::RandomState;

/// Windows, by a hash of the namespace, and words of 64 bits in each.
const WINDOWS: usize = 64;
const WORDS: usize = 64;

/// URLs whose objects are validated on each use: requests for them do not wait for each other, since none can use what another one
/// fetches.
pub(crate) static VALIDATED: Urls = Urls::new();
/// URLs whose stale objects have taken the place of a failure since their last response: to Varnish they are in grace as long as they are
/// kept, so requests must not ask for what the object itself allows.
pub(crate) static RESCUED: Urls = Urls::new();

/// Stored responses that clients refuse by Cache-Control: one request a second for each URL goes to the origin for it.
pub(crate) static REFUSED: Pace = Pace::new();

static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

fn hash(host: &[u8], url: &[u8]) -> u64 {
    let mut hasher = SEED.build_hasher();
    hasher.write(host);
    hasher.write_u8(0xff);
    hasher.write(url);
    hasher.finish()
}

pub(crate) struct Urls {
    bits: [AtomicU64; WINDOWS * WORDS],
    /// Most gateways never have one: then a hit costs one look at this.
    any: AtomicBool,
}

impl Urls {
    const fn new() -> Self {
        Self { bits: [const { AtomicU64::new(0) }; WINDOWS * WORDS], any: AtomicBool::new(false) }
    }

    fn place(&self, owner: &str, host: &[u8], url: &[u8]) -> (&AtomicU64, u64) {
        let window = (hash(b"", owner.as_bytes()) >> 32) as usize % WINDOWS;
        let hash = hash(host, url);
        (&self.bits[window * WORDS + (hash >> 32) as usize % WORDS], 1 << (hash & 63))
    }

    /// Says whether a URL is one of these from now on. `owner` is the namespace of its route.
    pub(crate) fn note(&self, owner: &str, host: &[u8], url: &[u8], is_one: bool) {
        if is_one {
            let (word, bit) = self.place(owner, host, url);
            word.fetch_or(bit, Ordering::Relaxed);
            self.any.store(true, Ordering::Relaxed);
        } else if self.has(owner, host, url) {
            let (word, bit) = self.place(owner, host, url);
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn has(&self, owner: &str, host: &[u8], url: &[u8]) -> bool {
        self.any.load(Ordering::Relaxed) && {
            let (word, bit) = self.place(owner, host, url);
            word.load(Ordering::Relaxed) & bit != 0
        }
    }
}

const PLACES: usize = 8192;

/// The second in which something was done last, by the hash of host and URL. Two URLs that share a place share its pace.
pub(crate) struct Pace {
    seconds: [AtomicU32; PLACES],
}

/// Of one URL.
#[derive(Clone, Copy)]
pub(crate) struct Place(u16);

impl Pace {
    const fn new() -> Self {
        Self { seconds: [const { AtomicU32::new(0) }; PLACES] }
    }

    pub(crate) fn place(host: &[u8], url: &[u8]) -> Place {
        Place((hash(host, url) >> 40) as u16 % PLACES as u16)
    }

    /// True once in each second of the clock.
    pub(crate) fn permits(&self, place: Place, now: f64) -> bool {
        let (now, last) = (now as u32, &self.seconds[usize::from(place.0)]);
        let before = last.load(Ordering::Relaxed);
        before != now && last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_namespace_sets_no_bits_of_most_others() {
        static URLS: Urls = Urls::new();
        for number in 0..100_000 {
            URLS.note("hostile", b"a", format!("/{number}").as_bytes(), true);
        }
        assert!(URLS.has("hostile", b"b", b"/any"), "all of its own are set");
        let others = (0..100).filter(|n| URLS.has(&format!("namespace-{n}"), b"b", b"/any"));
        assert!(others.count() < 20);
        URLS.note("shop", b"b", b"/x", true);
        assert!(URLS.has("shop", b"b", b"/x"));
        URLS.note("shop", b"b", b"/x", false);
        assert!(!URLS.has("shop", b"b", b"/x") || URLS.has("shop", b"b", b"/any"));
    }

    #[test]
    fn a_second_has_one_permit_for_each_url() {
        static PACE: Pace = Pace::new();
        let place = Pace::place(b"shop.example.com", b"/a");
        assert!(PACE.permits(place, 1000.2));
        assert!(!PACE.permits(place, 1000.3) && !PACE.permits(place, 1000.9));
        assert!(PACE.permits(place, 1001.0));
        // A clock that was set back.
        assert!(PACE.permits(place, 900.0));
        let others = (0..100)
            .filter(|n| PACE.permits(Pace::place(b"shop.example.com", format!("/{n}").as_bytes()), 900.5));
        assert!(others.count() > 90);
    }
}
