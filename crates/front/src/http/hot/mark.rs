//! What ghost says of a response that may be hot: `<ttl in ms> <hash of the key> <slots> [names of Vary]`.

use std::time::Duration;

use page::Slot;

/// Of its host, its URL, its tags, and its tags with the host and their owners: more is no mark of ghost's.
const MOST_SLOTS: usize = 96;
const MOST_NAMES: usize = 8;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The object is fresh for so long.
    pub(crate) ttl: Duration,
    pub(crate) key: u64,
    pub(crate) slots: Vec<Slot>,
    /// In lower case.
    pub(crate) vary: Vec<Box<str>>,
}

impl Mark {
    /// `None` for anything that ghost does not write.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(text).ok()?.split(' ');
        let (ttl, key, slots, vary) = (parts.next()?, parts.next()?, parts.next()?, parts.next());
        if parts.next().is_some() || key.len() != 16 {
            return None;
        }
        let number = |text: &str| {
            let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            is_plain.then(|| text.parse::<u64>().ok()).flatten()
        };
        let slots = slots.split(',').map(|slot| number(slot).and_then(|n| u16::try_from(n).ok()));
        let slots: Vec<Slot> = slots.map(|slot| slot.map(Slot::from_number)).collect::<Option<_>>()?;
        let names = vary.into_iter().flat_map(|names| names.split(','));
        let vary: Vec<Box<str>> = names.filter(|name| *name != "accept-encoding").map(Into::into).collect();
        let is_name = |name: &str| !matches!(name, "" | "*") && router::cache::may_vary_by(name.as_bytes());
        if slots.len() > MOST_SLOTS || vary.len() > MOST_NAMES || !vary.iter().all(|name| is_name(name)) {
            return None;
        }
        let key = u64::from_str_radix(key, 16).ok()?;
        Some(Self { ttl: Duration::from_millis(number(ttl)?), key, slots, vary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_ghost_writes_them_and_in_no_other_way() {
        let mark = Mark::parse(b"9000 00000000000000ff 1,65535 accept-language,accept-encoding").unwrap();
        assert_eq!((mark.ttl, mark.key), (Duration::from_secs(9), 255));
        assert_eq!(mark.slots, [Slot::from_number(1), Slot::from_number(65535)]);
        assert_eq!(mark.vary, ["accept-language".into()]);
        assert!(Mark::parse(b"9000 00000000000000ff 1").unwrap().vary.is_empty());
        for bad in [
            "",
            "9000",
            "9000 ff 1",
            "9000 00000000000000ff",
            "9000 00000000000000ff ",
            "9000 00000000000000ff 65536",
            "9000 00000000000000ff 1, 2",
            "-1 00000000000000ff 1",
            "+1 00000000000000ff 1",
            "9000 00000000000000fg 1",
            "9000 00000000000000ff 1 *",
            "9000 00000000000000ff 1 authorization",
            "9000 00000000000000ff 1 x-forwarded-proto",
            "9000 00000000000000ff 1 a,,b",
            "9000 00000000000000ff 1 a b",
            "9000 00000000000000ff 1 a,b,c,d,e,f,g,h,i",
        ] {
            assert_eq!(Mark::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
