//! Where a `serve` works. A temporary directory goes with its `serve`; of one that was killed, with the next. A directory
//! has one `serve` at a time: it is claimed before anything in it is touched.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// How temporary state directories begin.
pub(crate) const TEMPORARY_PREFIX: &str = "varnish-gateway-";

/// Locked as long as the `serve` lives.
const LOCK: &str = "serve.lock";

/// The same in a directory of the user's, which is not removed. A chaperone's work directory has one of this name, too.
const CLAIM: &str = "lock";

/// A directory of the user's, or one that goes with us.
pub(super) enum StateDir {
    Given { dir: PathBuf, _claim: File },
    Temporary { dir: tempfile::TempDir, _lock: File },
}

impl StateDir {
    pub(super) fn new(given: Option<&Path>) -> anyhow::Result<Self> {
        match given {
            Some(dir) => Self::given(dir),
            None => Self::temporary()
                .with_context(|| format!("no state directory at {}", std::env::temp_dir().display())),
        }
    }

    fn temporary() -> io::Result<Self> {
        // varnishd's own user must pass through.
        let passable = fs::Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).permissions(passable).tempdir()?;
        // No process sees it unlocked.
        let aside = dir.path().join("aside");
        let lock = File::create(&aside)?;
        lock.lock()?;
        fs::rename(aside, dir.path().join(LOCK))?;
        Ok(Self::Temporary { dir, _lock: lock })
    }

    fn given(dir: &Path) -> anyhow::Result<Self> {
        let no_directory = || format!("no state directory at {}", dir.display());
        fs::create_dir_all(dir).with_context(no_directory)?;
        let dir = std::path::absolute(dir).with_context(no_directory)?;
        let path = dir.join(CLAIM);
        let claim = File::options().create(true).truncate(false).write(true).open(&path);
        let claim = claim.with_context(|| format!("{} cannot be written", path.display()))?;
        match claim.try_lock() {
            Ok(()) => Ok(Self::Given { dir, _claim: claim }),
            Err(TryLockError::WouldBlock) => bail!(
                "the state directory {} is used by another process, which is left alone: end that one, or choose \
                 another --state-dir",
                dir.display()
            ),
            Err(TryLockError::Error(e)) => {
                Err(e).with_context(|| format!("{} cannot be locked", path.display()))
            }
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Given { dir, .. } => dir.clone(),
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
