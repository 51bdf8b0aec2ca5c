//! Growing pauses between tries.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    last: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, last: None }
    }

    /// The pause before the next try. After a quiet time twice as long as the longest pause it starts again with the shortest.
    pub(crate) fn pause(&mut self) -> Duration {
        if self.last.is_some_and(|last| last.elapsed() > self.longest * 2) {
            self.reset();
        }
        self.last = Some(Instant::now());
        let pause = self.next;
        self.next = (self.next * 2).min(self.longest).max(Duration::from_millis(500));
        pause
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::ZERO, Duration::from_secs(3));
        let pauses: Vec<_> = (0..6).map(|_| backoff.pause().as_millis()).collect();
        assert_eq!(pauses, [0, 500, 1000, 2000, 3000, 3000]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::ZERO);
    }
}
