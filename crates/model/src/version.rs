//! The version both files carry.

use serde::{Deserialize, Serialize};

/// The version of routing.json and ghost.json that this build writes.
pub const VERSION: u32 = 3;
/// The oldest that it reads: files of the release before, and those that people wrote.
pub const OLDEST_VERSION: u32 = 2;

/// Just the version, so that it can be looked at before the rest of the file is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub version: u32,
}

impl Version {
    /// Of a file that begins with it, as ours do: large ones need not be read twice.
    pub fn at_start(text: &[u8]) -> Option<Self> {
        let rest = text.strip_prefix(b"{\"version\":")?;
        let end = rest.iter().take(11).position(|b| !b.is_ascii_digit())?;
        let number = std::str::from_utf8(&rest[..end]).ok()?;
        Some(Self { version: number.parse().ok().filter(|_| matches!(rest[end], b',' | b'}'))? })
    }
}

/// A file of a version that this build does not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongVersion {
    pub file: &'static str,
    pub found: u32,
}

impl std::fmt::Display for WrongVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, found } = self;
        write!(
            f,
            "{file} has version {found}, but this build reads versions {OLDEST_VERSION} to {VERSION} only: \
             run operator, chaperone and ghost of one release"
        )
    }
}

impl std::error::Error for WrongVersion {}

/// Refuses every version that this build does not read.
pub fn check_version(file: &'static str, found: u32) -> Result<(), WrongVersion> {
    if (OLDEST_VERSION..=VERSION).contains(&found) { Ok(()) } else { Err(WrongVersion { file, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_at_the_start_and_nowhere_else() {
        for (text, version) in [
            (r#"{"version":2,"vhosts":{}}"#, Some(2)),
            (r#"{"version":2}"#, Some(2)),
            (r#"{"version":23"#, None),
            (r#"{"version":2.5}"#, None),
            (r#"{"version":99999999999}"#, None),
            (r#"{"version":"2"}"#, None),
            (r#"{"vhosts":{},"version":2}"#, None),
            (r#"{"version":,"#, None),
        ] {
            assert_eq!(Version::at_start(text.as_bytes()).map(|found| found.version), version, "{text}");
        }
    }
}
