//! Waiting, with an end to it.

use std::time::{Duration, Instant};

/// Long, since the machine may be busy; a test that waits in vain says for what.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
const BETWEEN: Duration = Duration::from_millis(20);

/// Asks again and again until there is something.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain: {what}");
        std::thread::sleep(BETWEEN);
    }
}

/// Asks again and again until it is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}
