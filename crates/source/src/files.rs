//! Manifests from files and directories.
//!
//! Takes paths; gives a snapshot of admitted objects and a list of problems, at every [`Files::load`] again. Guarantees
//! that one bad object harms only itself, that a file that breaks keeps what it last held, and that an object that has
//! not changed is the same `Arc` as before. Never stops for bad input.

pub(crate) mod admission;
mod document;
mod kind;
mod listing;
mod load;
mod object;
mod problem;
mod read;
mod schema;
mod watch;

use k8s_openapi::jiff::Timestamp;
use translate::snapshot::Snapshot;

pub use admission::format::{is_dns_name, millis};
pub use listing::READ_LATER;
pub use load::{Files, Loaded};
pub use problem::{Problem, Severity};
pub use watch::Watch;

/// Reads one text as if it were the file `origin` (JSON if that ends in `.json`). For tests and tools: objects
/// without `creationTimestamp` get the beginning of 1970, so that the same text always gives the same snapshot.
pub fn parse_str(origin: &str, text: &str) -> (Snapshot, Vec<Problem>) {
    let mut file = read::File::default();
    file.read(origin, text.as_bytes());
    let mut snapshot = Snapshot::default();
    for (id, object) in file.objects_mut() {
        object.stamp(Timestamp::UNIX_EPOCH, None);
        object.insert_into(id.key.clone(), &mut snapshot);
    }
    (snapshot, file.problems().to_vec())
}
