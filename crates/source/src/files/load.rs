//! Loads all files into one snapshot, and reloads them.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use translate::snapshot::Snapshot;

use super::document::MAX_FILE_BYTES;
use super::listing::{self, Listing};
use super::object::{Object, ObjectId};
use super::problem::{Problem, Severity};
use super::read::File;
use super::watch::Watch;
use crate::Error;

/// What the files hold at one moment.
#[derive(Debug)]
pub struct Loaded {
    pub snapshot: Snapshot,
    /// Everything that is wrong now, whether or not it was before.
    pub problems: Vec<Problem>,
    /// Whether the snapshot differs from that of the load before. The first load is a change.
    pub changed: bool,
}

/// Manifests in files and directories, with their last valid content.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    files: HashMap<PathBuf, File>,
    /// Those of the last load, in the order in which they were read.
    order: Vec<PathBuf>,
    /// The objects of the last load, with age and generation.
    objects: Option<HashMap<ObjectId, Object>>,
}

impl Files {
    /// `paths` are files and directories. A directory means its `*.yaml`, `*.yml` and `*.json`, without hidden ones
    /// and without those of directories in it. Nothing is read yet, and nothing needs to exist yet.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Self { paths, files: HashMap::new(), order: Vec::new(), objects: None }
    }

    /// Reads everything again; never fails as a whole. Blocks for as long as reading takes.
    pub fn load(&mut self) -> Loaded {
        // The API server's times have whole seconds.
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        let Listing { files: mut paths, unlisted, mut problems } = listing::list(&self.paths);
        for path in &paths {
            self.read(path);
        }
        for directory in unlisted {
            let mut known: Vec<_> =
                self.files.keys().filter(|path| path.parent() == Some(&directory)).cloned().collect();
            known.sort();
            paths.extend(known);
        }
        let mut before = std::mem::take(&mut self.files);
        let mut objects = HashMap::new();
        let mut snapshot = Snapshot::default();
        let mut owners: HashMap<ObjectId, usize> = HashMap::new();
        let mut changed = self.objects.is_none();
        let earlier = self.objects.take().unwrap_or_default();
        for (index, path) in paths.iter().enumerate() {
            let Some(mut file) = before.remove(path) else { continue };
            problems.extend_from_slice(file.problems());
            for (id, object) in file.objects_mut() {
                if let Some(&owner) = owners.get(id) {
                    problems.push(duplicate(path, &paths[owner], id));
                    continue;
                }
                let previous = earlier.get(id);
                if previous.is_none_or(|previous| !previous.is(object)) {
                    // Kept in the file too, so that an unchanged object is the same one at the next load.
                    object.stamp(now, previous);
                    changed |= previous.is_none_or(|previous| !previous.is(object));
                }
                object.insert_into(id.key.clone(), &mut snapshot);
                owners.insert(id.clone(), index);
                objects.insert(id.clone(), object.clone());
            }
            self.files.insert(path.clone(), file);
        }
        changed |= objects.len() != earlier.len();
        self.objects = Some(objects);
        self.order = paths;
        Loaded { snapshot, problems, changed }
    }

    /// The file that an object of the last load stands in: `ConfigMap default/vcl`.
    pub fn file_of(&self, object: &str) -> Option<&Path> {
        let holds = |file: &File| file.objects().iter().any(|(id, _)| id.to_string() == object);
        // Of several, the first one is in use.
        self.order.iter().find(|path| self.files.get(*path).is_some_and(holds)).map(PathBuf::as_path)
    }

    /// Begins to watch the paths. Do so before the first [`Files::load`]: what changes in between is then noticed.
    /// Needs a tokio runtime only once it is awaited.
    pub fn watch(&self) -> Result<Watch, Error> {
        Watch::new(self.paths.clone())
    }

    fn read(&mut self, path: &Path) {
        let origin = path.display().to_string();
        match content(path) {
            // Not yet: what it held stays.
            Ok(Some(bytes)) if bytes.is_empty() && is_not_empty_for_good(path) => {
                self.files.entry(path.to_owned()).or_default();
            }
            Ok(Some(bytes)) => self.files.entry(path.to_owned()).or_default().read(&origin, &bytes),
            Ok(None) => {
                self.files.remove(path);
                // A dangling link is not a file that was just deleted.
                if path.is_symlink() {
                    let error = Error::DanglingLink;
                    self.files.entry(path.to_owned()).or_default().unreadable(&origin, &error);
                }
            }
            Err(error) => self.files.entry(path.to_owned()).or_default().unreadable(&origin, &error),
        }
    }
}

/// For a file that was read and is empty.
fn is_not_empty_for_good(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|it| it.len() > 0 || listing::is_being_written(&it))
}

/// The bytes of a file; none if it has gone since it was listed.
fn content(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match read_at_most(path, MAX_FILE_BYTES) {
        Ok(Ok(bytes)) => Ok(Some(bytes)),
        Ok(Err(bytes)) => Err(Error::TooLarge { bytes, limit: MAX_FILE_BYTES }),
        Err(error) if listing::is_gone(&error) => Ok(None),
        Err(error) => Err(Error::Read { reason: error.to_string() }),
    }
}

/// The content, or the size of what is larger than the limit.
fn read_at_most(path: &Path, limit: u64) -> std::io::Result<Result<Vec<u8>, u64>> {
    let file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    if length > limit {
        return Ok(Err(length));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    // It may grow while it is read.
    file.take(limit + 1).read_to_end(&mut bytes)?;
    let length = bytes.len() as u64;
    Ok(if length > limit { Err(length) } else { Ok(bytes) })
}

fn duplicate(path: &Path, owner: &Path, id: &ObjectId) -> Problem {
    let message =
        format!("the same object is in {}, which comes first and is used; remove one", owner.display());
    let problem = Problem::of_file(path.display().to_string(), Severity::Error, message);
    Problem { object: Some(id.to_string()), ..problem }
}
