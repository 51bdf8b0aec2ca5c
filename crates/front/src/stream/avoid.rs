//! Endpoints that refused lately.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an endpoint is tried last after it refused.
const TIME: Duration = Duration::from_secs(10);

/// More are not remembered.
const MOST: usize = 1024;

/// The endpoints of one listener to try last. While none has refused, asking reads one flag.
#[derive(Debug, Default)]
pub(super) struct Avoided {
    any: AtomicBool,
    until: Mutex<Vec<(SocketAddr, Instant)>>,
}

impl Avoided {
    pub(super) fn add(&self, endpoint: SocketAddr) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        until.retain(|(other, ends)| *other != endpoint && *ends > now);
        if until.len() < MOST {
            until.push((endpoint, now + TIME));
        }
        self.any.store(true, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, endpoint: SocketAddr) {
        if self.any.load(Ordering::Relaxed) {
            let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
            until.retain(|(other, _)| *other != endpoint);
            self.any.store(!until.is_empty(), Ordering::Relaxed);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Relaxed)
    }

    /// Puts endpoints that refused lately behind the others.
    pub(super) fn put_last(&self, endpoints: &mut [SocketAddr]) {
        if self.is_empty() {
            return;
        }
        let now = Instant::now();
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.retain(|(_, ends)| *ends > now);
        self.any.store(!until.is_empty(), Ordering::Relaxed);
        // Stable: the others keep their random order.
        endpoints.sort_by_key(|endpoint| until.iter().any(|(avoided, _)| avoided == endpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_that_refused_come_last_until_they_answer() {
        let of = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let avoided = Avoided::default();
        let ordered = |avoided: &Avoided| {
            let mut all = [of(1), of(2), of(3)];
            avoided.put_last(&mut all);
            all.map(|one| one.port())
        };
        assert_eq!(ordered(&avoided), [1, 2, 3]);
        avoided.add(of(1));
        avoided.add(of(1));
        assert_eq!(ordered(&avoided), [2, 3, 1]);
        avoided.add(of(2));
        assert_eq!(ordered(&avoided), [3, 1, 2]);
        avoided.remove(of(1));
        avoided.remove(of(2));
        assert_eq!(ordered(&avoided), [1, 2, 3]);
    }
}
