//! Where the VMOD is.

use std::path::{Path, PathBuf};

const FILE: &str = "libvmod_ghost.so";

/// As asked, else beside this program, else `None`: in varnishd's own vmod path.
pub(crate) fn find(asked: Option<&Path>) -> Option<PathBuf> {
    if let Some(asked) = asked {
        return Some(asked.to_owned());
    }
    let program = std::env::current_exe().ok()?;
    let beside = program.parent()?.join(FILE);
    beside.exists().then_some(beside)
}
