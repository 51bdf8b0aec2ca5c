//! What is known of URLs before their objects are looked up: one bit for each, by its hash. A bit that two URLs share costs the other one
//! some speed, and nothing else.

use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::fast::RandomState;

const WORDS: usize = 1024;

/// URLs whose objects are validated on each use: requests for them do not wait for each other, since none can use what another one
/// fetches.
pub(crate) static VALIDATED: Urls = Urls::new();
/// URLs whose stale objects have taken the place of a failure since their last response: to Varnish they are in grace as long as they are
/// kept, so requests must not ask for what the object itself allows.
pub(crate) static RESCUED: Urls = Urls::new();

static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

pub(crate) struct Urls {
    bits: [AtomicU64; WORDS],
    /// Most gateways never have one: then a hit costs one look at this.
    any: AtomicBool,
}

impl Urls {
    const fn new() -> Self {
        Self { bits: [const { AtomicU64::new(0) }; WORDS], any: AtomicBool::new(false) }
    }

    fn place(&self, host: &[u8], url: &[u8]) -> (&AtomicU64, u64) {
        let mut hasher = SEED.build_hasher();
        hasher.write(host);
        hasher.write_u8(0xff);
        hasher.write(url);
        let hash = hasher.finish();
        (&self.bits[(hash >> 32) as usize % WORDS], 1 << (hash & 63))
    }

    /// Says whether a URL is one of these from now on.
    pub(crate) fn note(&self, host: &[u8], url: &[u8], is_one: bool) {
        if is_one {
            let (word, bit) = self.place(host, url);
            word.fetch_or(bit, Ordering::Relaxed);
            self.any.store(true, Ordering::Relaxed);
        } else if self.has(host, url) {
            let (word, bit) = self.place(host, url);
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    pub(crate) fn has(&self, host: &[u8], url: &[u8]) -> bool {
        self.any.load(Ordering::Relaxed) && {
            let (word, bit) = self.place(host, url);
            word.load(Ordering::Relaxed) & bit != 0
        }
    }
}
