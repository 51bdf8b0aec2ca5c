//! Which counter stands for a host, a URL or a tag.

use std::hash::Hasher;

use crate::SLOTS;

/// One of the counters of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

const _: () = assert!(SLOTS == 1 << u16::BITS);

/// What a slot is of: equal bytes of two kinds have two slots.
#[derive(Clone, Copy)]
enum Kind {
    Host = 1,
    Url,
    Tag,
    HostTag,
}

impl Slot {
    pub fn from_number(number: u16) -> Self {
        Self(number)
    }

    pub fn number(self) -> u16 {
        self.0
    }
}

/// Says which slot something has. By a hash with a key of the page: a client cannot choose names that meet in one slot, and so end the hot
/// objects of others. Hosts are in lower case and have no port.
#[derive(Clone, Copy, Default)]
pub struct Slots {
    key: (u64, u64),
}

/// Without the key.
impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").finish_non_exhaustive()
    }
}

impl Slots {
    pub(crate) fn with_key(key: (u64, u64)) -> Self {
        Self { key }
    }

    pub fn of_host(&self, host: &[u8]) -> Slot {
        self.of(Kind::Host, host, b"")
    }

    /// `url` is the client's URL as the cache keeps it: without query parameters that do not count.
    pub fn of_url(&self, host: &[u8], url: &[u8]) -> Slot {
        self.of(Kind::Url, host, url)
    }

    pub fn of_tag(&self, tag: &[u8]) -> Slot {
        self.of(Kind::Tag, tag, b"")
    }

    pub fn of_host_tag(&self, host: &[u8], tag: &[u8]) -> Slot {
        self.of(Kind::HostTag, host, tag)
    }

    #[expect(deprecated, reason = "std has no other hash with a key that two processes can share")]
    fn of(&self, kind: Kind, first: &[u8], second: &[u8]) -> Slot {
        let mut hash = std::hash::SipHasher::new_with_keys(self.key.0, self.key.1);
        hash.write_u8(kind as u8);
        // With their lengths: the parts cannot be cut elsewhere.
        hash.write_usize(first.len());
        hash.write(first);
        hash.write(second);
        Slot((hash.finish() >> 48) as u16)
    }
}
