//! How much each storage of this varnishd holds, as its chaperone says.

use std::sync::OnceLock;

use model::names::GHOST_STORAGE_ENV;

/// Varnish's name for the storage of what is not kept, or only for seconds.
pub(crate) const TRANSIENT: &str = "Transient";

static SIZES: OnceLock<Vec<(String, u64)>> = OnceLock::new();

/// In bytes, by the name that VCL has for it, `storage.s0`; `None` where it is unknown.
pub(crate) fn size(storage: &str) -> Option<u64> {
    let sizes = sizes();
    let storage = storage.strip_prefix("storage.").unwrap_or(storage);
    sizes.iter().find(|(name, _)| name == storage).map(|(_, size)| *size)
}

/// Of all together, without the one for what is not kept.
pub(crate) fn sum() -> u64 {
    sizes().iter().filter(|(name, _)| name != TRANSIENT).map(|(_, size)| *size).sum()
}

fn sizes() -> &'static [(String, u64)] {
    SIZES.get_or_init(|| read(&std::env::var(GHOST_STORAGE_ENV).unwrap_or_default()))
}

/// `s0=104857600 disk=21474836480`
fn read(text: &str) -> Vec<(String, u64)> {
    let one = |word: &str| {
        let (name, size) = word.split_once('=')?;
        Some((name.to_owned(), size.parse().ok()?))
    };
    text.split(' ').filter_map(one).collect()
}
