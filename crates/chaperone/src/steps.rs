//! The steps of a change and their durations.

use std::time::{Duration, Instant, SystemTime};

/// The parts of one change so far. They do not count where configurations are compared.
#[derive(Debug, Clone, Default)]
pub struct Steps {
    observed: Option<Instant>,
    done: Vec<(&'static str, Instant)>,
}

impl PartialEq for Steps {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A change that is served.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    observed: Instant,
    /// When it was served.
    pub at: SystemTime,
    pub took: Duration,
    /// Each part, and how long it took after the one before.
    pub steps: Vec<(&'static str, Duration)>,
}

impl Steps {
    /// Of a change that is seen now.
    pub fn observed() -> Self {
        Self { observed: Some(Instant::now()), done: Vec::new() }
    }

    pub fn done(&mut self, what: &'static str) {
        self.done.push((what, Instant::now()));
    }

    /// The change is served. `None`: it was served before, or its beginning is unknown.
    pub(crate) fn end(mut self, last: Option<&Change>) -> Option<Change> {
        let observed = self.observed?;
        if last.is_some_and(|last| last.observed == observed) {
            return None;
        }
        self.done("swapped");
        let mut before = observed;
        let since =
            |(what, then): (&'static str, Instant)| (what, then - std::mem::replace(&mut before, then));
        let steps: Vec<_> = self.done.into_iter().map(since).collect();
        Some(Change { observed, at: SystemTime::now(), took: before - observed, steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_with_its_parts() {
        let mut steps = Steps::observed();
        steps.done("translated");
        let change = steps.clone().end(None).unwrap();
        assert_eq!(change.steps.iter().map(|(what, _)| *what).collect::<Vec<_>>(), ["translated", "swapped"]);
        assert_eq!(change.steps.iter().map(|(_, took)| *took).sum::<Duration>(), change.took);
        // varnishd was started again, with the same configuration.
        assert_eq!(steps.end(Some(&change)), None);
        assert_eq!(Steps::default().end(None), None);
        assert!(Steps::observed().end(Some(&change)).is_some());
    }
}
