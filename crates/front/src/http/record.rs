//! What is counted of one request, when it is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use router::counters::{OTHER, Way};
use tokio::sync::OwnedSemaphorePermit;

use super::request::Client;
use super::table::{RuleId, Table};

/// One request that is under way. Counted when it is dropped.
#[derive(Debug)]
pub(crate) struct Record {
    client: Arc<Client>,
    began: Instant,
    counted: Option<Counted>,
    way: Way,
    /// The group of the rule that the request is for.
    group: Option<usize>,
    /// On the way past a cache that is not there.
    place: Option<OwnedSemaphorePermit>,
    bytes: u64,
}

#[derive(Debug)]
struct Counted {
    table: Arc<Table>,
    rule: Option<RuleId>,
    status: u16,
    cache: u8,
}

impl Record {
    pub(crate) fn begin(client: &Arc<Client>) -> Self {
        client.http.in_flight.fetch_add(1, Ordering::Relaxed);
        client.movement.begins();
        Self {
            client: Arc::clone(client),
            began: Instant::now(),
            counted: None,
            way: Way::Own,
            group: None,
            place: None,
            bytes: 0,
        }
    }

    /// The request leaves this way. Until it does, the gateway answers itself.
    pub(crate) fn goes(&mut self, way: Way) {
        self.way = way;
    }

    /// The request is for this group of its rule.
    pub(crate) fn is_for(&mut self, group: Option<usize>) {
        self.group = group;
    }

    /// This is its answer. `cache` is a position in [`model::stats::CACHE_RESULTS`].
    pub(crate) fn answered(&mut self, table: &Arc<Table>, rule: Option<RuleId>, status: u16, cache: u8) {
        self.counted = Some(Counted { table: Arc::clone(table), rule, status, cache });
    }

    pub(crate) fn is_tunnel(&mut self, table: &Arc<Table>, rule: Option<RuleId>) {
        // As ghost counts it: a status that is in no class.
        self.answered(table, rule, u16::MAX, OTHER);
    }

    /// Held until the request is over.
    pub(crate) fn holds(&mut self, place: OwnedSemaphorePermit) {
        self.place = Some(place);
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.client.http.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.client.movement.ends();
        let Some(Counted { table, rule, status, cache }) = &self.counted else { return };
        if let Some(counters) = table.counters(*rule) {
            counters.answered(*status, *cache, self.bytes, self.began.elapsed().as_secs_f64());
            counters.took(self.way);
        }
        let group = self.group.filter(|_| self.way != Way::Own);
        for flow in table.flows(&self.client.socket, *rule, group) {
            flow.answered(self.way, *status, *cache);
        }
    }
}
