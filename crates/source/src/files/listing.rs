//! Which files the paths on the command line stand for.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::problem::{Problem, Severity};

/// The files in order, and what is wrong with the paths themselves.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) files: Vec<PathBuf>,
    /// Directories that are there but cannot be listed: their files are kept as they were.
    pub(crate) unlisted: Vec<PathBuf>,
    pub(crate) problems: Vec<Problem>,
}

/// Files as given, in the order given; of a directory its manifests, by name. A file that is meant twice is taken once.
pub(crate) fn list(paths: &[PathBuf]) -> Listing {
    let mut listing = Listing::default();
    let mut seen = HashSet::new();
    for path in paths {
        let mut problem = |message: String| {
            let shown = path.display().to_string();
            listing.problems.push(Problem::of_file(shown, Severity::Error, message));
        };
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                let place = path.canonicalize().unwrap_or_else(|_| path.clone());
                match manifests(path) {
                    Ok(names) => {
                        let new = names.into_iter().filter(|name| seen.insert(place.join(name)));
                        listing.files.extend(new.map(|name| path.join(name)));
                    }
                    Err(error) if is_gone(&error) => problem(missing("directory")),
                    Err(error) => {
                        problem(format!(
                            "the directory cannot be listed: {error}; its files are used as they were"
                        ));
                        listing.unlisted.push(path.clone());
                    }
                }
            }
            Ok(metadata) if metadata.is_file() => {
                if seen.insert(place_of(path)) {
                    listing.files.push(path.clone());
                }
            }
            Ok(_) => problem(
                "is neither a file nor a directory; give a manifest or a directory of manifests".to_owned(),
            ),
            Err(error) if is_gone(&error) => problem(missing("file or directory")),
            // Reading it will say what is wrong, and keep what it held.
            Err(_) => listing.files.push(path.clone()),
        }
    }
    listing
}

/// How the message of a missing file ends, where the file is watched for.
pub const READ_LATER: &str = "; it is read as soon as it appears";

fn missing(what: &str) -> String {
    format!("there is no such {what}{READ_LATER}")
}

/// Whether the error means that the file is not there (any more).
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// `program > file` empties the file first, and writes it when the program has something to say.
const EMPTY_FOR: Duration = Duration::from_secs(3);

/// Whether it has just become empty. A file that stays so holds nothing.
pub(crate) fn is_being_written(file: &Metadata) -> bool {
    let age = || file.modified().ok()?.elapsed().ok();
    file.len() == 0 && age().is_some_and(|age| age < EMPTY_FOR)
}

/// Whether a file of this name in a directory is meant. Hidden files are not: editors and the kubelet keep theirs so.
pub(crate) fn is_manifest(name: &OsStr) -> bool {
    let path = Path::new(name);
    let known =
        path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|&e| extension == e));
    known && !name.as_encoded_bytes().starts_with(b".")
}

fn manifests(directory: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // A directory, socket or pipe with such a name is left alone. Links are followed, dangling ones reported.
        let wanted = match entry.file_type() {
            Ok(kind) if kind.is_symlink() => std::fs::metadata(entry.path()).map_or(true, |to| to.is_file()),
            Ok(kind) => kind.is_file(),
            Err(_) => true,
        };
        if wanted && is_manifest(&entry.file_name()) {
            names.push(entry.file_name());
        }
    }
    names.sort();
    Ok(names)
}

/// The same for every way to write the path; links to files stay apart from their targets.
fn place_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (parent.canonicalize(), path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}
