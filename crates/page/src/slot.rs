//! Which counter stands for a host, a URL or a tag.

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

/// Hosts are in lower case and have no port. The hash is the same in every process, and has no secret: two keys that meet in one slot
/// end each other's hot objects early, and nothing else.
impl Slot {
    pub fn of_host(host: &[u8]) -> Self {
        Self::of(Kind::Host, host, b"")
    }

    /// `url` is the client's URL as the cache keeps it: without query parameters that do not count.
    pub fn of_url(host: &[u8], url: &[u8]) -> Self {
        Self::of(Kind::Url, host, url)
    }

    pub fn of_tag(tag: &[u8]) -> Self {
        Self::of(Kind::Tag, tag, b"")
    }

    pub fn of_host_tag(host: &[u8], tag: &[u8]) -> Self {
        Self::of(Kind::HostTag, host, tag)
    }

    pub fn from_number(number: u16) -> Self {
        Self(number)
    }

    pub fn number(self) -> u16 {
        self.0
    }

    /// FNV-1a, with the upper bits mixed into the lower ones.
    fn of(kind: Kind, first: &[u8], second: &[u8]) -> Self {
        let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let mut hash = add(0xcbf2_9ce4_8422_2325, kind as u8);
        hash = first.iter().copied().fold(hash, add);
        // No host has a zero byte: the parts cannot be cut elsewhere.
        hash = add(hash, 0);
        hash = second.iter().copied().fold(hash, add);
        hash ^= hash >> 32;
        hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self((hash >> 48) as u16)
    }
}
