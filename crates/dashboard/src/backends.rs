//! What varnishd's own counters say: how full the cache is, and whether endpoints can be reached.

use std::collections::HashMap;
use std::net::SocketAddr;

use chaperone::varnishstat::Counter;

use crate::view::{Cache, Health};

/// Stevedores, by the names of their counters.
const STORES: [&str; 4] = ["SMA", "SMF", "SMU", "MSE"];
/// The storage of short-lived objects, and of uncached responses under way.
const TRANSIENT: &str = "Transient";

/// Of one varnishd.
#[derive(Debug, Default)]
pub(crate) struct Backends {
    endpoints: HashMap<SocketAddr, Seen>,
    pub(crate) cache: Option<Cache>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    requests: u64,
    failures: u64,
    health: Health,
}

impl Backends {
    /// All counters of now. Endpoints that varnishd has no more are forgotten.
    pub(crate) fn take(&mut self, counters: &[Counter]) {
        let mut now: HashMap<SocketAddr, (u64, u64)> = HashMap::new();
        for counter in counters.iter().filter(|counter| counter.group == "VBE") {
            let Some(address) = address(&counter.instance) else { continue };
            // Several VCLs may have the same endpoint.
            let (requests, failures) = now.entry(address).or_default();
            match counter.name.as_str() {
                "req" => *requests += counter.value,
                // `fail`, and one for each reason: fail_econnrefused, fail_etimedout…
                name if name.starts_with("fail") => *failures += counter.value,
                _ => {}
            }
        }
        self.endpoints.retain(|address, _| now.contains_key(address));
        for (address, (requests, failures)) in now {
            let seen = self.endpoints.entry(address).or_default();
            // A new child counts from zero.
            let before = if requests < seen.requests || failures < seen.failures {
                (0, 0)
            } else {
                (seen.requests, seen.failures)
            };
            if failures > before.1 {
                seen.health = Health::Failing;
            } else if requests > before.0 {
                seen.health = Health::Up;
            }
            (seen.requests, seen.failures) = (requests, failures);
        }
        self.cache = cache(counters);
    }

    pub(crate) fn health(&self, address: SocketAddr) -> Health {
        self.endpoints.get(&address).map_or(Health::Untried, |seen| seen.health)
    }
}

/// `boot.10.0.0.1:80`, `boot.[::1]:80+tls:profile`
fn address(instance: &str) -> Option<SocketAddr> {
    let (_, name) = instance.split_once('.')?;
    name.split('+').next()?.parse().ok()
}

/// varnishd counts objects of all storages together, so the bytes that belong to them are those of all storages.
fn cache(counters: &[Counter]) -> Option<Cache> {
    let of_stores = |name: &str, transient: bool| -> u64 {
        let stores = counters.iter().filter(|c| STORES.contains(&c.group.as_str()));
        stores.filter(|c| (c.instance == TRANSIENT) == transient && c.name == name).map(|c| c.value).sum()
    };
    let main = |name: &str| counters.iter().find(|c| c.group == "MAIN" && c.name == name).map(|c| c.value);
    // varnishd reports no free space where a storage has no limit.
    let with_limit = |transient: bool| {
        let (used, free) = (of_stores("g_bytes", transient), of_stores("g_space", transient));
        (used, if free == 0 && transient { 0 } else { used.saturating_add(free) })
    };
    let ((stored, limit), (transient, transient_limit)) = (with_limit(false), with_limit(true));
    Some(Cache {
        used: stored.saturating_add(transient),
        objects: main("n_object")?,
        stored,
        limit,
        transient,
        transient_limit,
        evicted: main("n_lru_nuked").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests;
