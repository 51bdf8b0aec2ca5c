//! What is counted of one request, when it is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use router::counters::OTHER;
use tokio::sync::OwnedSemaphorePermit;

use super::request::Client;
use super::table::{RuleId, Table};

/// One request that is under way. Counted when it is dropped, unless varnishd counts it.
#[derive(Debug)]
pub(crate) struct Record {
    client: Arc<Client>,
    began: Instant,
    counted: Option<Counted>,
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
        Self { client: Arc::clone(client), began: Instant::now(), counted: None, place: None, bytes: 0 }
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
        if let Some(Counted { table, rule, status, cache }) = &self.counted
            && let Some(counters) = table.counters(*rule)
        {
            counters.answered(*status, *cache, self.bytes, self.began.elapsed().as_secs_f64());
        }
    }
}
