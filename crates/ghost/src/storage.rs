//! How much each storage of this varnishd holds, as whoever started it says.

use std::sync::OnceLock;

use model::names::GHOST_STORAGE_ENV;

static SIZES: OnceLock<Vec<(String, u64)>> = OnceLock::new();

/// In bytes, by the name that VCL has for it, `storage.s0`; `None` where nobody has said.
pub(crate) fn size(storage: &str) -> Option<u64> {
    let sizes = SIZES.get_or_init(|| read(&std::env::var(GHOST_STORAGE_ENV).unwrap_or_default()));
    let storage = storage.strip_prefix("storage.").unwrap_or(storage);
    sizes.iter().find(|(name, _)| name == storage).map(|(_, size)| *size)
}

/// `s0=104857600 disk=21474836480`
fn read(text: &str) -> Vec<(String, u64)> {
    let one = |word: &str| {
        let (name, size) = word.split_once('=')?;
        Some((name.to_owned(), size.parse().ok()?))
    };
    text.split(' ').filter_map(one).collect()
}
