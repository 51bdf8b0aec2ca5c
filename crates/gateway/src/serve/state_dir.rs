//! Where a `serve` works. A temporary directory goes with its `serve`; of one that was killed, with the next.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How temporary state directories begin.
pub(crate) const TEMPORARY_PREFIX: &str = "varnish-gateway-";

/// Locked as long as the `serve` lives.
const LOCK: &str = "serve.lock";

/// A directory of the user's, or one that goes with us.
pub(super) enum StateDir {
    Given(PathBuf),
    Temporary { dir: tempfile::TempDir, _lock: File },
}

impl StateDir {
    pub(super) fn new(given: Option<&Path>) -> io::Result<Self> {
        // varnishd's own user must pass through.
        let passable = fs::Permissions::from_mode(0o755);
        let Some(given) = given else {
            let dir = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).permissions(passable).tempdir()?;
            // Nobody sees it unlocked.
            let aside = dir.path().join("lock");
            let lock = File::create(&aside)?;
            lock.lock()?;
            fs::rename(aside, dir.path().join(LOCK))?;
            return Ok(Self::Temporary { dir, _lock: lock });
        };
        fs::create_dir_all(given)?;
        Ok(Self::Given(std::path::absolute(given)?))
    }

    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Given(dir) => dir.clone(),
            Self::Temporary { dir, .. } => dir.path().to_owned(),
        }
    }
}

/// Temporary state directories of this user's.
pub(crate) fn temporary() -> io::Result<Vec<PathBuf>> {
    let own_user = fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid());
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let own = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == own_user);
        name.starts_with(TEMPORARY_PREFIX) && own
    };
    let entries = fs::read_dir(std::env::temp_dir())?;
    let mut dirs: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(ours).collect();
    dirs.sort();
    Ok(dirs)
}

/// Removes what killed ones have left.
pub(super) fn sweep() {
    for dir in temporary().unwrap_or_default() {
        // Without a lock it is not one of ours, or it is just being made.
        let Ok(lock) = File::open(dir.join(LOCK)) else { continue };
        if lock.try_lock().is_err() {
            continue;
        }
        match fs::remove_dir_all(&dir) {
            Ok(()) => tracing::info!("{}: removed; its `serve` was killed", dir.display()),
            Err(e) => tracing::warn!("{}: {e}; a killed `serve` has left it: remove it", dir.display()),
        }
    }
}
