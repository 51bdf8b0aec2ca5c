//! `/metrics`: what varnishd, ghost, the front and the chaperone have counted, in Prometheus' words.

mod exposition;
mod requests;
mod routes;
mod streams;
mod varnish;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use certificate::Pair;
use model::stats::Stats;
use tokio::sync::{Mutex, watch};

use self::exposition::{Families, Kind};
use crate::tally::{BOUNDS_MILLIS, Reloads};
use crate::varnishstat::{self, Counter};
use crate::{State, engine, stats};

/// A scrape within this time gets the same text as the last one.
const FRESH: Duration = Duration::from_secs(1);
/// The longest wait for another scrape, and for one's own. Prometheus waits 10 seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The label `gateway`, where there are several, and the varnishd.
pub type Source = (Option<String>, watch::Receiver<State>);

/// Scrapes, one at a time: each starts a program and reads a lot. Requests that come in between wait, and get the same text.
#[derive(Debug, Default)]
pub struct Scrapes {
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl Scrapes {
    /// The whole text; `None` where it does not come in time.
    pub async fn text(&self, of: &[Source]) -> Option<Bytes> {
        let reading = async {
            let mut last = self.last.lock().await;
            if let Some((_, text)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
                return Some(text.clone());
            }
            let text = Bytes::from(text(of).await?);
            *last = Some((Instant::now(), text.clone()));
            Some(text)
        };
        tokio::time::timeout(PATIENCE, reading).await.ok().flatten()
    }
}

/// Thousands of routes and endpoints take their while to be written: not where others wait.
async fn text(of: &[Source]) -> Option<String> {
    let mut read = Vec::new();
    for (gateway, state) in of {
        let now = state.borrow().clone();
        let (counted, counters) =
            tokio::join!(stats::read(state), async { varnishstat::read(now.varnishd_dir.as_deref()?).await });
        read.push((gateway.clone(), now, counted, counters));
    }
    let written = tokio::task::spawn_blocking(move || {
        let mut all = Families::default();
        for (gateway, now, counted, counters) in &read {
            let label = gateway.as_ref().map(|name| ("gateway".to_owned(), name.clone()));
            all.common = label.into_iter().collect();
            one(&mut all, now, counted.as_ref().map(|sample| &*sample.stats), counters.as_deref());
        }
        all.common.clear();
        names(&mut all);
        all.text()
    });
    written.await.ok()
}

/// Of the process: several Gateways may have the same names.
fn names(to: &mut Families) {
    let counts = dns::counts();
    to.gauge(
        "varnish_gateway_dns_names",
        "Names of ExternalName Services that are looked up",
        &[],
        counts.names,
    );
    let lookups = "Lookups of these names by their results";
    for (result, count) in
        [("answered", counts.answered), ("no_address", counts.no_address), ("failed", counts.failed)]
    {
        to.counter("varnish_gateway_dns_lookups_total", lookups, &[("result", result)], count);
    }
    to.counter(
        "varnish_gateway_dns_addresses_refused_total",
        "Addresses in answers that are not used: loopback, link-local and the like",
        &[],
        counts.refused,
    );
}

fn one(to: &mut Families, state: &State, counted: Option<&Stats>, counters: Option<&[Counter]>) {
    let flag = |to: &mut Families, name: &str, help: &str, value: bool| {
        to.gauge(name, help, &[], u8::from(value));
    };
    flag(to, "varnish_gateway_ready", "1 while /readyz says so", state.ready());
    flag(
        to,
        "varnish_gateway_draining",
        "1 while it drains: requests finish before it exits",
        state.draining,
    );
    flag(
        to,
        "varnish_gateway_configuration_refused",
        "1 while an older configuration than the newest is served",
        state.refused.is_some(),
    );
    flag(
        to,
        "varnish_gateway_varnishstat_up",
        "1 where varnishd's own counters could be read",
        counters.is_some(),
    );
    if let Some(engine) = engine::chosen() {
        to.gauge(
            "varnish_gateway_engine_info",
            "The cache engine and its version; always 1",
            &[("engine", &engine.product), ("version", &engine.version)],
            1,
        );
    }
    own(to, state, counted);
    spans(to, state);
    certificates(to, &state.tally.shown());
    front(to, state);
    streams::add(to, &state.tally.clients);
    requests::add(to, state.tally.http().as_deref());
    routes::add(to, counted);
    varnish::add(to, counters.unwrap_or_default());
}

fn own(to: &mut Families, state: &State, counted: Option<&Stats>) {
    let tally = &state.tally;
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let bounds = BOUNDS_MILLIS.map(|millis| millis as f64 / 1e3);
    let mut reloads = |kind: &str, of: &Reloads| {
        let (counts, sum) = of.read();
        let labels = [("kind", kind)];
        let all = counts.iter().sum();
        to.counter("varnish_gateway_reloads_total", "Successful reloads of ghost or of VCL", &labels, all);
        to.histogram(
            "varnish_gateway_reload_seconds",
            "Duration of successful reloads",
            &labels,
            &bounds,
            (&counts, sum),
        );
    };
    reloads("ghost", &tally.ghost);
    reloads("vcl", &tally.vcl);
    to.counter(
        "varnish_gateway_reload_errors_total",
        "Failed reloads; each try counts",
        &[],
        read(&tally.refused),
    );
    to.gauge(
        "varnish_gateway_last_reload_timestamp_seconds",
        "Time of the last successful reload",
        &[],
        read(&tally.last_reload_millis) as f64 / 1e3,
    );
    to.gauge("varnish_gateway_rules", "Matches of rules that ghost routes by", &[], read(&tally.rules));
    to.gauge("varnish_gateway_endpoints", "Endpoints that ghost knows", &[], read(&tally.endpoints));
    to.counter(
        "varnish_gateway_varnishd_deaths_total",
        "Times that varnishd or its child exited unexpectedly and was started again",
        &[],
        read(&tally.deaths),
    );
    to.counter(
        "varnish_gateway_varnishd_failed_starts_total",
        "Times that varnishd could not be started",
        &[],
        read(&tally.failed_starts),
    );
    for (result, counter) in [("done", &tally.invalidated), ("failed", &tally.not_invalidated)] {
        to.counter(
            "varnish_gateway_invalidations_total",
            "Paths and tags to remove from the cache",
            &[("result", result)],
            read(counter),
        );
    }
    let dropped = tally.http().map_or(0, |http| http.writes_not_told());
    let dropped = dropped + counted.map_or(0, |stats| stats.writes_lost);
    for (result, count) in [
        ("told", read(&tally.peers_told)),
        ("failed", read(&tally.peers_not_told)),
        ("dropped", dropped),
        ("heard", read(&tally.peers_heard)),
        ("refused", read(&tally.peers_refused)),
    ] {
        to.counter(
            "varnish_gateway_peer_invalidations_total",
            "Changes by unsafe methods, sent to other pods and received from them",
            &[("result", result)],
            count,
        );
    }
}

/// Spans of requests.
fn spans(to: &mut Families, state: &State) {
    let tally = &state.tally;
    let of_front = tally.http().and_then(|http| http.observer().map(|observer| observer.spans_dropped()));
    let dropped = tally.spans_dropped.load(Ordering::Relaxed) + of_front.unwrap_or_default();
    let exported = tally.spans_exported.load(Ordering::Relaxed);
    for (result, count) in [("exported", exported), ("dropped", dropped)] {
        to.counter(
            "varnish_gateway_spans_total",
            "Spans of requests by result",
            &[("result", result)],
            count,
        );
    }
}

fn certificates(to: &mut Families, tls: &front::Config) {
    let name = "varnish_gateway_certificate_expiry_timestamp_seconds";
    let help = "Expiry of a certificate that is shown to clients; of several with the same name the earliest";
    to.announce(name, Kind::Gauge, help);
    let mut pairs: HashSet<*const Pair> = HashSet::new();
    let mut first: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for listener in &tls.listeners {
        for host in &listener.hosts {
            for pair in host.certificates() {
                let hostname = pair.names().first().map_or("", String::as_str);
                let ends = first.entry((&listener.socket, hostname)).or_insert(i64::MAX);
                *ends = (*ends).min(pair.not_after());
                pairs.insert(Arc::as_ptr(pair));
            }
        }
    }
    to.gauge("varnish_gateway_certificates", "Certificates that are shown to clients", &[], pairs.len());
    for ((socket, hostname), ends) in first {
        to.gauge(name, help, &[("socket", socket), ("hostname", hostname)], ends);
    }
}

fn front(to: &mut Families, state: &State) {
    let (clients, backends) = (&state.tally.clients, &state.tally.backends);
    let total = |to: &mut Families, name: &str, help: &str, value: u64| to.counter(name, help, &[], value);
    total(
        to,
        "varnish_gateway_tls_connections_total",
        "Connections accepted by the front",
        clients.accepted(),
    );
    to.gauge("varnish_gateway_tls_connections", "Connections open now", &[], clients.open());
    total(
        to,
        "varnish_gateway_tls_handshakes_total",
        "Handshakes with clients that succeeded",
        clients.handshakes(),
    );
    total(
        to,
        "varnish_gateway_tls_resumed_total",
        "Handshakes that resumed an earlier session",
        clients.resumed(),
    );
    for why in front::Failure::ALL {
        to.counter(
            "varnish_gateway_tls_handshake_failures_total",
            "Handshakes with clients that failed",
            &[("reason", why.name())],
            clients.failures(why),
        );
    }
    total(
        to,
        "varnish_gateway_tls_passed_through_total",
        "Connections passed through without decryption",
        clients.passed(),
    );
    for why in front::UpstreamFailure::ALL {
        to.counter(
            "varnish_gateway_tls_upstream_failures_total",
            "Connections closed because varnishd, or an endpoint of a TLSRoute or TCPRoute, was not reached",
            &[("reason", why.name())],
            clients.upstream_failures(why),
        );
    }
    for why in front::Refusal::ALL {
        to.counter(
            "varnish_gateway_front_refused_connections_total",
            "Connections closed because of a limit, or of a PROXY header",
            &[("reason", why.name())],
            clients.refusals(why),
        );
    }
    total(to, "varnish_gateway_backend_tls_handshakes_total", "Backends verified", backends.handshakes());
    for why in front::BackendFailure::ALL {
        to.counter(
            "varnish_gateway_backend_tls_failures_total",
            "Backends not reached or not verified",
            &[("reason", why.name())],
            backends.failures(why),
        );
    }
    to.gauge(
        "varnish_gateway_backend_tls_connections",
        "Connections to backends open now",
        &[],
        backends.open(),
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::stats::RouteStats;

    use super::*;
    use crate::Reporter;

    fn full() -> String {
        let state = Reporter::new(|_| {}).state().borrow().clone();
        let mut stats = Stats { per_route: true, ..Stats::default() };
        let mut route = RouteStats { route: "shop/web".to_owned(), ..RouteStats::default() };
        (route.counts.codes[1], route.counts.cache[0], route.counts.backend.buckets[0]) = (3, 3, 1);
        stats.routes.push(route);
        let counter = |group: &str, instance: &str, name: &str| Counter {
            group: group.to_owned(),
            instance: instance.to_owned(),
            name: name.to_owned(),
            description: "What \"it\" is".to_owned(),
            grows: name != "g_bytes",
            value: 3,
        };
        let counters = [
            counter("MAIN", "", "cache_hit"),
            counter("SMA", "s0", "g_bytes"),
            counter("SMA", "Transient", "g_bytes"),
            counter("VBE", "vg_1.127.0.0.1:80", "happy"),
            counter("VBE", "vg_1.127.0.0.1:80", "req"),
        ];
        let mut all = Families::default();
        for gateway in ["a/one", "a/two"] {
            all.common = vec![("gateway".to_owned(), gateway.to_owned())];
            one(&mut all, &state, Some(&stats), Some(&counters));
        }
        all.common.clear();
        names(&mut all);
        all.text()
    }

    #[tokio::test]
    async fn many_scrapes_at_a_time_are_one() {
        let (scrapes, reporter) = (Arc::new(Scrapes::default()), Reporter::new(|_| {}));
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let (scrapes, of) = (Arc::clone(&scrapes), vec![(None, reporter.state())]);
            asking.spawn(async move { scrapes.text(&of).await.unwrap().as_ptr() as usize });
        }
        let texts: HashSet<usize> = asking.join_all().await.into_iter().collect();
        assert_eq!(texts.len(), 1, "all have the same bytes");
    }

    #[test]
    fn names_are_described_once_and_samples_are_never_twice() {
        let text = full();
        let (mut described, mut seen, mut now) = (BTreeSet::new(), BTreeSet::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                now = rest.split(' ').next().unwrap().to_owned();
                // varnishstat's own names stay as they are.
                if now.starts_with("varnish_gateway_") {
                    assert_eq!(rest.ends_with(" counter"), now.ends_with("_total"), "{rest}");
                    let help = format!("# HELP {now} ");
                    assert!(
                        text.lines().any(|line| line.starts_with(&help) && line.len() > help.len()),
                        "{now}"
                    );
                    assert!(!["_ms", "_millis", "_kb"].iter().any(|unit| now.contains(unit)), "{now}");
                }
                assert!(described.insert(now.clone()), "{now} is described twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                assert!(series.starts_with(&now), "{line} stands below {now}");
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(seen.insert(series.to_owned()), "{series} comes twice");
            }
        }
        for line in [
            "varnish_gateway_tls_handshake_failures_total{gateway=\"a/one\",reason=\"timeout\"} 0",
            "varnish_gateway_route_requests_total{gateway=\"a/two\",kind=\"HTTPRoute\",namespace=\"shop\",name=\"web\",rule=\"0\",code=\"2xx\"} 3",
            "varnish_main_cache_hit{gateway=\"a/one\"} 3",
            "varnish_sma_g_bytes{gateway=\"a/one\",stevedore=\"s0\"} 3",
            "varnish_backend_up{gateway=\"a/one\",vcl=\"vg_1\",backend=\"127.0.0.1:80\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn the_reference_names_every_metric_and_no_other() {
        let page = include_str!("../../../docs/reference/metrics.md");
        let of_pods = page.split("## The operator").next().unwrap();
        let written = |text: &str| -> BTreeSet<String> {
            let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            // Commands in it name the beginning of names.
            let names = words.filter(|word| word.starts_with("varnish_gateway_") && !word.ends_with('_'));
            names.map(str::to_owned).collect()
        };
        // So that it is named, too.
        let _ = engine::choose(None, None);
        let text = full();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let there: BTreeSet<String> = types.map(|rest| rest.split(' ').next().unwrap().to_owned()).collect();
        let there: BTreeSet<String> =
            there.into_iter().filter(|name| name.starts_with("varnish_gateway_")).collect();
        assert_eq!(written(of_pods), there, "docs/reference/metrics.md and /metrics differ");
    }
}
