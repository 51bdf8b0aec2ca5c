//! Statuses of routes that stand there as they should.

use std::collections::HashMap;
use std::sync::Arc;

use translate::{Key, RouteStatus, Statuses};

use super::to_value;

/// What was found to be as desired, so that thousands of routes are not compared for each that changes.
#[derive(Default)]
pub(super) struct Settled {
    /// The statuses of the last look, and how many there were before them.
    of: Arc<Statuses>,
    count: u64,
    pub(super) routes: HashMap<Key, SettledRoute>,
}

pub(super) struct SettledRoute {
    /// Of the route.
    version: String,
    /// Of the desired status.
    digest: u64,
    /// The statuses that it was last compared with.
    count: u64,
}

impl Settled {
    pub(super) fn begin(&mut self, statuses: &Arc<Statuses>) {
        if !Arc::ptr_eq(&self.of, statuses) {
            self.of = Arc::clone(statuses);
            self.count += 1;
        }
    }

    /// Is nothing to be done for this route?
    pub(super) fn is(&mut self, key: &Key, version: &str, status: &RouteStatus) -> bool {
        let count = self.count;
        let Some(known) = self.routes.get_mut(key).filter(|known| known.version == version) else {
            return false;
        };
        if known.count != count {
            if known.digest != digest(status) {
                return false;
            }
            known.count = count;
        }
        true
    }

    pub(super) fn note(&mut self, key: Key, version: String, status: &RouteStatus) {
        let settled = SettledRoute { version, digest: digest(status), count: self.count };
        self.routes.insert(key, settled);
    }
}

fn digest(status: &RouteStatus) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    to_value(status).to_string().hash(&mut hasher);
    hasher.finish()
}
