//! Manifests from files and directories.
mod admission;
mod document;
mod kind;
mod object;
mod problem;
mod read;
mod schema;

use k8s_openapi::jiff::Timestamp;
use translate::snapshot::Snapshot;

pub use problem::{Problem, Severity};

/// Reads one text as if it were the file `origin` (JSON if that ends in `.json`). For tests and tools: objects
/// without `creationTimestamp` get the beginning of 1970, so that the same text always gives the same snapshot.
pub fn parse_str(origin: &str, text: &str) -> (Snapshot, Vec<Problem>) {
    let mut file = read::File::default();
    file.read(origin, text.as_bytes());
    let mut snapshot = Snapshot::default();
    for (id, object) in file.objects() {
        object.stamped(Timestamp::UNIX_EPOCH, None).insert_into(id.key.clone(), &mut snapshot);
    }
    (snapshot, file.problems().to_vec())
}
