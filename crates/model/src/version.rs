//! The version both files carry.

use serde::{Deserialize, Serialize};

/// The only version of routing.json and ghost.json that this build reads and writes.
pub const VERSION: u32 = 2;

/// Just the version, so that it can be looked at before the rest of the file is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub version: u32,
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
            "{file} has version {found}, but this build reads version {VERSION} only: \
             run operator, chaperone and ghost of one release"
        )
    }
}

impl std::error::Error for WrongVersion {}

/// Refuses every version but ours.
pub fn check_version(file: &'static str, found: u32) -> Result<(), WrongVersion> {
    if found == VERSION { Ok(()) } else { Err(WrongVersion { file, found }) }
}
