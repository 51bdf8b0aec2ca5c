//! The last events: a ring of bounded length. Listeners get the events that follow.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use chaperone::Severity;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

/// The most entries that are kept.
pub(crate) const KEPT: usize = 500;
/// The longest text of one: a compiler may have much to say.
const LONGEST: usize = 4096;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Grows by one.
    pub id: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    /// `namespace/name`; empty where it concerns no single one.
    pub gateway: String,
    /// `info`, `warning` or `error`.
    pub severity: String,
    /// One word: `reloaded`, `refused`, `endpoints`, …
    pub kind: String,
    pub text: String,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milliseconds: Option<f64>,
}

/// Clones share the ring.
#[derive(Debug, Clone)]
pub struct Journal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ring: Mutex<Ring>,
    news: broadcast::Sender<Arc<Entry>>,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<Arc<Entry>>,
    next: u64,
}

impl Default for Journal {
    fn default() -> Self {
        let ring = Mutex::new(Ring { entries: VecDeque::new(), next: 1 });
        Self(Arc::new(Inner { ring, news: broadcast::Sender::new(256) }))
    }
}

impl Journal {
    pub fn record(&self, gateway: &str, severity: Severity, kind: &str, text: &str) {
        self.push(gateway, severity, kind, text, None);
    }

    pub(crate) fn push(
        &self,
        gateway: &str,
        severity: Severity,
        kind: &str,
        text: &str,
        milliseconds: Option<f64>,
    ) {
        let mut ring = self.0.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = Arc::new(Entry {
            id: ring.next,
            at: now(),
            gateway: gateway.to_owned(),
            severity: severity.name().to_owned(),
            kind: kind.to_owned(),
            text: text[..text.floor_char_boundary(LONGEST)].to_owned(),
            milliseconds,
        });
        ring.next += 1;
        ring.entries.push_back(Arc::clone(&entry));
        if ring.entries.len() > KEPT {
            ring.entries.pop_front();
        }
        // Under the lock, so that all listeners get them in the same order. No listener is no error.
        let _ = self.0.news.send(entry);
    }

    /// Those after `id` that are still there, and all that come.
    pub(crate) fn follow(&self, id: u64) -> (Vec<Arc<Entry>>, broadcast::Receiver<Arc<Entry>>) {
        let ring = self.0.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // An id of an earlier process: everything is new.
        let after = if id >= ring.next { 0 } else { id };
        let entries = ring.entries.iter().filter(|entry| entry.id > after).cloned().collect();
        (entries, self.0.news.subscribe())
    }

    /// The last ones, oldest first.
    pub fn last(&self, count: usize) -> Vec<Arc<Entry>> {
        let ring = self.0.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = ring.entries.len().saturating_sub(count);
        ring.entries.iter().skip(skip).cloned().collect()
    }
}

/// Milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_bounded_and_can_be_taken_up_where_one_was() {
        let journal = Journal::default();
        for n in 0..KEPT + 10 {
            journal.record("a/b", Severity::Info, "test", &n.to_string());
        }
        assert_eq!(journal.last(usize::MAX).len(), KEPT);
        let last = journal.last(2);
        assert_eq!((last[0].text.as_str(), last[1].text.as_str()), ("508", "509"));
        let (missed, mut news) = journal.follow(last[0].id);
        assert_eq!(missed.iter().map(|entry| entry.id).collect::<Vec<_>>(), [last[1].id]);
        journal.record("a/b", Severity::Info, "test", "new");
        assert_eq!(news.try_recv().unwrap().text, "new");
        assert_eq!(journal.follow(1 << 40).0.len(), KEPT, "an id of another life");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let journal = Journal::default();
        journal.record("", Severity::Error, "test", &"ä".repeat(LONGEST));
        assert_eq!(journal.last(1)[0].text.len(), LONGEST);
    }
}
