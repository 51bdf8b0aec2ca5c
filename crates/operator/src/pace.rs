//! How often a writer writes: at once where it was idle, and then no more often than its interval.

use std::time::Duration;

use tokio::time::Instant;

/// The pace of one writer.
#[derive(Debug)]
pub(crate) struct Pace {
    interval: Duration,
    last: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, last: None }
    }

    /// It has written.
    pub(crate) fn written(&mut self) {
        self.last = Some(Instant::now());
    }

    /// When it may write again: now where it was idle for long enough.
    pub(crate) fn next(&self) -> Instant {
        let now = Instant::now();
        self.last.map_or(now, |last| (last + self.interval).max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_at_once_and_the_next_waits() {
        let mut pace = Pace::new(Duration::from_secs(60));
        let begun = Instant::now();
        assert!(pace.next() < begun + Duration::from_secs(1));
        pace.written();
        assert!(pace.next() >= begun + Duration::from_secs(60));
        let mut short = Pace::new(Duration::ZERO);
        short.written();
        assert!(short.next() <= Instant::now());
    }
}
