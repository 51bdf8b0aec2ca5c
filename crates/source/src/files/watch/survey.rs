//! Where changes would show, and what the files look like from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::super::listing;

/// One look at the paths.
#[derive(Debug)]
pub(super) struct Survey {
    /// Over names, sizes, times and identities of all files.
    pub(super) fingerprint: u64,
    /// The directories to watch, by their real path: one directory under two names would be watched as one.
    pub(super) directories: BTreeMap<PathBuf, Directory>,
}

#[derive(Debug, Clone)]
pub(super) struct Directory {
    pub(super) identity: Identity,
    pub(super) interest: Interest,
}

/// Device, inode and birth: inode numbers are used again.
pub(super) type Identity = (u64, u64, Option<SystemTime>);

/// The names in a directory whose change matters.
#[derive(Debug, Clone, Default)]
pub(super) struct Interest {
    manifests: bool,
    names: BTreeSet<OsString>,
}

impl Interest {
    pub(super) fn includes(&self, name: &OsStr) -> bool {
        // `..data` is the link that the kubelet swaps to replace all files of a mounted ConfigMap or Secret at once.
        self.manifests && listing::is_manifest(name)
            || self.names.contains(name)
            || name.as_encoded_bytes().starts_with(b"..")
    }
}

impl Survey {
    pub(super) fn of(paths: &[PathBuf]) -> Self {
        let mut survey = Self { fingerprint: 0, directories: BTreeMap::new() };
        let mut hasher = DefaultHasher::new();
        for path in paths {
            survey.watch_name(path);
            if path.is_dir() {
                survey.watch(path, |interest| interest.manifests = true);
            }
        }
        for file in listing::list(paths).files {
            file.hash(&mut hasher);
            if let Ok(metadata) = std::fs::metadata(&file) {
                let times =
                    (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec());
                // One that stays empty changes by that.
                let being_written = listing::is_being_written(&metadata);
                (metadata.dev(), metadata.ino(), metadata.len(), times, being_written).hash(&mut hasher);
            }
            if file.is_symlink()
                && let Ok(target) = file.canonicalize()
            {
                survey.watch_name(&target);
            }
        }
        survey.fingerprint = hasher.finish();
        survey
    }

    /// Notices when the path itself comes, goes or is replaced; if its directory does not exist yet, when the first
    /// missing part of it comes.
    fn watch_name(&mut self, path: &Path) {
        let mut path = path;
        while let Some(name) = path.file_name() {
            let parent =
                path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if parent.is_dir() {
                self.watch(parent, |interest| {
                    interest.names.insert(name.to_owned());
                });
                return;
            }
            path = parent;
        }
    }

    fn watch(&mut self, directory: &Path, add: impl FnOnce(&mut Interest)) {
        let Ok(real) = directory.canonicalize() else { return };
        let Ok(metadata) = std::fs::metadata(&real) else { return };
        let new = || Directory { identity: identity(&metadata), interest: Interest::default() };
        add(&mut self.directories.entry(real).or_insert_with(new).interest);
    }
}

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino(), metadata.created().ok())
}
