//! The chaperone in a pod: fed by the API server, and telling the operator what it serves.

mod kept;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use certificate::Pem;
use chaperone::{Desired, Event, Feeder as DesiredFeeder, FrontPart, Ghost, Reporter, Source, Steps};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use model::Report;
use model::routing::{Route, Routing, Vhost};
use resolve::{EndpointIndex, TlsGroups};
use serde_json::json;
use source::kubernetes::{Pod, Stored};
use tokio::sync::watch;
use workload::packing;

pub(super) use self::kept::Kept;
use self::kept::KeptConfiguration;
use crate::external::Externals;

/// Between tries to tell the operator something.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
/// After something could not be read.
const FEED_RETRY: Duration = Duration::from_secs(2);
/// A user may have deleted what we reported.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// The longest name that the API server takes for a field manager.
pub(super) const LONGEST_MANAGER: usize = 128;
/// Without changes for so long, the pod has time for what makes later ones cheaper.
const IDLE: Duration = Duration::from_secs(2);

/// Feeds varnishd with what the operator wrote, and with the endpoints that belong to it.
pub(super) struct Feeder {
    pub(super) pod: Pod,
    pub(super) namespace: String,
    /// Ports of this pod that trust connections by loopback: no route leads to them.
    pub(super) own_ports: Vec<u16>,
    pub(super) reporter: Reporter,
    /// Where the last configuration is kept, for a container that starts while the API server is away.
    pub(super) kept: Kept,
    /// `HTTP_IN_FRONT`
    pub(super) http_in_front: bool,
    pub(super) externals: Externals,
}

impl Feeder {
    pub(super) async fn run(mut self, to_varnishd: watch::Sender<Desired>) -> anyhow::Result<()> {
        let mut changed = self.pod.changed();
        let mut looked_up = self.externals.changes();
        let mut state = self.reporter.state();
        let mut last =
            Last { http_in_front: self.http_in_front, own_ports: self.own_ports.clone(), ..Last::default() };
        if let Some(kept) = self.kept.read() {
            tracing::info!("serving the configuration of the last start until the API server answers");
            last.restore(&kept);
            let (desired, _) = last.desired(&[], &kept.certificates(), Some(&kept), false)?;
            send(&to_varnishd, desired);
        }
        self.pod.synced().await;
        let (mut failed, mut feed, mut idle) = (false, true, false);
        let mut pending: Option<KeptConfiguration> = None;
        loop {
            if feed {
                changed.mark_unchanged();
                looked_up.mark_unchanged();
                match self.feed(&mut last, &to_varnishd, std::mem::take(&mut idle)).await {
                    Ok(keep) => {
                        pending = keep;
                        if std::mem::take(&mut failed) {
                            self.reporter.tell(&Event::Recovered);
                        }
                    }
                    Err(why) => {
                        failed = true;
                        let serving = self.reporter.state().borrow().serving;
                        self.reporter.tell(&Event::Refused { why: format!("{why:#}"), serving });
                    }
                }
            }
            // Only what varnishd has taken is worth keeping.
            let served = state.borrow_and_update().served.clone();
            if let Some(keep) = pending.take_if(|keep| served.is_some() && keep.tag == served) {
                self.kept = self.kept.write_aside(keep).await;
            }
            feed = tokio::select! {
                // The signal lives as long as the pod's watches.
                done = changed.changed() => match done {
                    Ok(()) => true,
                    Err(_) => return Ok(()),
                },
                // As long as `externals` lives.
                _ = looked_up.changed() => true,
                _ = state.changed() => false,
                () = tokio::time::sleep(FEED_RETRY), if failed => true,
                () = tokio::time::sleep(IDLE), if last.feeder.wants_idle() => {
                    idle = true;
                    true
                }
            };
        }
    }

    /// What to keep of it once it is served.
    async fn feed(
        &mut self,
        last: &mut Last,
        to_varnishd: &watch::Sender<Desired>,
        idle: bool,
    ) -> anyhow::Result<Option<KeptConfiguration>> {
        let (begun, mut steps) = (Instant::now(), Steps::observed());
        let known = last.base.as_ref().map(|base| base.sha256.clone());
        let read = self.pod.stored(known.as_deref()).await.map_err(anyhow::Error::from);
        let mut trouble = read.and_then(|stored| last.take(stored, &self.namespace)).err();
        // Where something newer cannot be read, endpoints and certificates of what is served are followed all the same.
        if last.text.is_none()
            && let Some(e) = trouble.take()
        {
            return Err(e);
        }
        let taken = begun.elapsed();
        steps.done("read");
        let slices = self.pod.endpoint_slices(&last.namespaces()).await;
        let external = last.routing.as_ref().and_then(|routing| routing.external_names.as_ref());
        self.externals.want(external);
        if !last.complete {
            self.externals.settle().await;
        }
        let slices = self.externals.beside(external, slices);
        let certificates = certificates(&self.pod.certificates().await);
        // A pod that starts without endpoints would be ready, answer 500, and take the place of a good pod. One that starts again
        // serves what it kept, and would lose it. Later on, a namespace that is new does not delay changes of others.
        if !last.complete {
            let unanswered = self.pod.unanswered();
            anyhow::ensure!(
                unanswered.is_empty(),
                "not read yet: {}; this configuration is served once the API server has answered",
                unanswered.join(", ")
            );
            last.complete = last.text.is_some();
        }
        self.reporter.set_idle(last.is_idle());
        let mut making = std::mem::take(last);
        // Many hosts take their time.
        let made = tokio::task::spawn_blocking(move || {
            let made = making.desired(&slices, &certificates, None, idle);
            (made, certificates, making)
        });
        let (made, certificates, given_back) = match made.await {
            Ok(made) => made,
            Err(e) => match e.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends.
                Err(e) => return Err(e.into()),
            },
        };
        *last = given_back;
        let (desired, tls) = made?;
        steps.done("compiled");
        // An idle look at the sources is no change.
        let desired = if idle { desired } else { desired.after(steps) };
        tracing::debug!(
            event = "change.received",
            configuration = desired.tag.as_deref(),
            "routing.json read in {taken:?}, ghost.json made in {:?}",
            begun.elapsed() - taken
        );
        send(to_varnishd, desired.clone());
        match trouble {
            Some(e) => Err(e),
            None => Ok(last.keep(&desired, tls, &certificates)),
        }
    }
}

fn send(to_varnishd: &watch::Sender<Desired>, desired: Desired) {
    to_varnishd.send_if_modified(|old| {
        let new = *old != desired;
        if new {
            *old = desired;
        }
        new
    });
}

/// What was last good.
#[derive(Default)]
struct Last {
    vcl: Option<Arc<str>>,
    text: Option<Arc<str>>,
    /// The whole, or what has changed since the base.
    routing: Option<Routing>,
    base: Option<Base>,
    /// All but the hosts, of both.
    front: Option<Routing>,
    feeder: DesiredFeeder,
    /// The newest endpoints.
    index: EndpointIndex,
    /// What varnishd was started for. routing.json may say otherwise while pods are replaced by pods of the other arrangement.
    http_in_front: bool,
    /// Of the pod itself, but for those of listeners.
    own_ports: Vec<u16>,
    /// All endpoints and certificates of a configuration that the operator wrote were read since we started.
    complete: bool,
}

/// A large routing.json that later ones name: it is read once.
struct Base {
    sha256: String,
    routing: Arc<Routing>,
    /// How many hosts have Services in a namespace.
    hosts_in: BTreeMap<String, usize>,
}

impl Base {
    fn read(from: source::kubernetes::Base, namespace: &str) -> anyhow::Result<Self> {
        let routing = read(&from.bytes, namespace)?;
        let mut hosts_in = BTreeMap::new();
        for namespace in routing.vhosts.values().flat_map(namespaces_of) {
            *hosts_in.entry(namespace.to_owned()).or_default() += 1;
        }
        Ok(Self { sha256: from.sha256, routing: Arc::new(routing), hosts_in })
    }

    /// Where the Services of its hosts are, but for those that are no more or other ones above.
    fn namespaces(&self, above: &Routing) -> BTreeSet<String> {
        let mut hosts_in = self.hosts_in.clone();
        let changed = above.removed.iter().chain(above.vhosts.keys());
        for namespace in changed.filter_map(|name| self.routing.vhosts.get(name)).flat_map(namespaces_of) {
            if let Some(hosts) = hosts_in.get_mut(namespace) {
                *hosts -= 1;
            }
        }
        hosts_in.into_iter().filter(|(_, hosts)| *hosts > 0).map(|(namespace, _)| namespace).collect()
    }
}

/// Where the Services of a host are, each once.
fn namespaces_of(host: &Vhost) -> BTreeSet<&str> {
    let routes = host.routes.iter().chain(&host.default_route);
    routes.flat_map(Route::services).map(|(namespace, _)| namespace).collect()
}

fn read(bytes: &[u8], namespace: &str) -> anyhow::Result<Routing> {
    let mut unknown = Vec::new();
    let routing = super::parse_routing(bytes, namespace, "routing.json", &mut unknown)?;
    for message in unknown {
        tracing::warn!("{message}");
    }
    Ok(routing)
}

impl Last {
    /// The new for the old, where it is good. routing.json is large, and mostly the same: it is read once.
    fn take(&mut self, stored: Stored, namespace: &str) -> anyhow::Result<()> {
        let Stored { main_vcl, routing, base } = stored;
        if let Some(vcl) = main_vcl
            && self.vcl.as_deref() != Some(&vcl)
        {
            self.vcl = Some(vcl.into());
        }
        let Some(text) = routing.filter(|text| self.text.as_deref() != Some(text)) else { return Ok(()) };
        let routing = read(text.as_bytes(), namespace)?;
        if routing.base.as_ref() != base.as_ref().map(|base| &base.sha256) {
            return Err(packing::Error::WrongBase.into());
        }
        let known = |known: &Base| routing.base.as_ref() == Some(&known.sha256);
        if !self.base.as_ref().is_some_and(known) {
            self.base = base.map(|base| Base::read(base, namespace)).transpose()?;
        }
        self.front = self.base.as_ref().map(|base| routing.front_over(&base.routing));
        (self.routing, self.text) = (Some(routing), Some(text.into()));
        self.set_arrangement();
        Ok(())
    }

    /// This pod's own arrangement counts, not the one that new pods will have.
    fn set_arrangement(&mut self) {
        for routing in self.routing.iter_mut().chain(&mut self.front) {
            routing.http_in_front = self.http_in_front;
        }
    }

    fn is_idle(&self) -> bool {
        let Some(routing) = &self.routing else { return false };
        let below = self.base.as_ref().is_some_and(|base| base.routing.vhosts.len() > routing.removed.len());
        !below && super::is_idle(routing)
    }

    /// Where the Services of all routes are.
    fn namespaces(&self) -> BTreeSet<String> {
        let of_base = self.base.as_ref().zip(self.routing.as_ref());
        let mut all = of_base.map(|(base, above)| base.namespaces(above)).unwrap_or_default();
        all.extend(self.routing.iter().chain(&self.front).flat_map(Routing::service_namespaces));
        all
    }

    fn restore(&mut self, kept: &KeptConfiguration) {
        self.vcl = Some(kept.vcl.as_str().into());
        self.routing = Routing::read(kept.routing.as_bytes()).ok();
        self.front = kept.front.clone();
        self.set_arrangement();
        // It is read, with its base, once the API server answers.
        self.text = None;
    }

    fn keep(
        &self,
        desired: &Desired,
        tls: TlsGroups,
        certificates: &BTreeMap<String, Pem>,
    ) -> Option<KeptConfiguration> {
        let (ghost, vcl, routing) = (desired.ghost.clone()?, desired.vcl.as_ref()?, self.text.as_ref()?);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(KeptConfiguration {
            tag: desired.tag.clone(),
            vcl: vcl.as_ref().to_owned(),
            routing: routing.as_ref().to_owned(),
            ghost: text(&ghost.bytes),
            base_name: ghost.base.as_ref().map(|base| base.name.as_ref().to_owned()),
            files: Some(ghost),
            front: self.front.clone(),
            tls,
            certificates: certificates
                .iter()
                .map(|(name, pem)| (name.clone(), (text(&pem.chain), text(&pem.key))))
                .collect(),
        })
    }

    /// `idle`: nothing waits for it.
    fn desired(
        &mut self,
        slices: &[Arc<EndpointSlice>],
        certificates: &BTreeMap<String, Pem>,
        kept: Option<&KeptConfiguration>,
        idle: bool,
    ) -> anyhow::Result<(Desired, TlsGroups)> {
        let Some(routing) = &self.routing else {
            return Ok((Desired { vcl: self.vcl.clone(), ..Desired::default() }, TlsGroups::new()));
        };
        let frame = self.front.as_ref().unwrap_or(routing);
        let below = self.base.as_ref().map(|base| &base.routing);
        let source = Source { routing, below, frame, certificates, bind: None };
        let (ghost, mut front): (Option<Ghost>, FrontPart) = match kept {
            Some(kept) => {
                let front = self.feeder.front(source, &EndpointIndex::default(), Some(kept.tls.clone()));
                (kept.files.clone(), front)
            }
            None => {
                if routing.base.is_some() && self.base.is_none() {
                    anyhow::bail!(
                        "the base of the routing.json that was kept is not there: what was kept is served on"
                    );
                }
                let listeners = frame.listener_ports();
                let in_pod = listeners.iter().map(|port| frame.pod_port(*port));
                let own_ports = in_pod.chain(listeners.iter().copied()).chain(self.own_ports.iter().copied());
                self.index = self.index.following(slices);
                let index = self.index.clone().refusing(own_ports);
                let (ghost, notices) = self.feeder.ghost(source, &index, idle, |_| {})?;
                let front = self.feeder.front(source, &index, None);
                for notice in notices.iter().chain(&front.of_endpoints) {
                    tracing::debug!("{notice}");
                }
                (Some(ghost), front)
            }
        };
        front.listeners.open_on(|port| frame.pod_port(port));
        for notice in &front.of_listeners {
            tracing::warn!("{notice}");
        }
        let tag = match (&self.vcl, &self.text, kept) {
            (Some(vcl), Some(text), _) => Some(packing::hash(vcl, text.as_bytes()).into()),
            (_, None, Some(kept)) => Some(packing::hash(&kept.vcl, kept.routing.as_bytes()).into()),
            _ => None,
        };
        let groups = std::mem::take(&mut front.groups);
        Ok((Desired::new(ghost, self.vcl.clone(), front, tag), groups))
    }
}

/// Pairs out of Secrets `{gateway}-varnish-tls`: keys `{namespace}.{name}.crt` and `.key`.
fn certificates(data: &BTreeMap<String, ByteString>) -> BTreeMap<String, Pem> {
    let pairs = data.iter().filter_map(|(file, chain)| {
        let name = model::names::certificate_name(file)?;
        let key = data.get(&model::names::certificate_keys(&name)?.1)?;
        Some((name, Pem { chain: chain.0.clone(), key: key.0.clone() }))
    });
    pairs.collect()
}

/// Tells the operator, under the pod's name, whatever changes in what is served.
pub(super) async fn report(
    client: Client,
    namespace: String,
    gateway: String,
    pod: String,
    reporter: Reporter,
) {
    let api: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(client, &namespace);
    let name = workload::pods_config_map(&gateway);
    let manager = &pod[..pod.floor_char_boundary(LONGEST_MANAGER)];
    let mut state = reporter.state();
    let mut told = None;
    loop {
        let report = {
            let state = state.borrow_and_update();
            Report {
                serving: state.served.as_deref().map(str::to_owned),
                refused: state.refused.clone(),
                engine: chaperone::engine::chosen().map(ToString::to_string),
            }
        };
        let mut pause = RETRY.0;
        while told.as_ref() != Some(&report) && !state.has_changed().unwrap_or(true) {
            let text = serde_json::to_string(&report).unwrap_or_default();
            let patch = Patch::Apply(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": name, "namespace": namespace },
                "data": { &pod: text },
            }));
            match api.patch(&name, &PatchParams::apply(manager).force(), &patch).await {
                Ok(_) => told = Some(report.clone()),
                Err(e) => {
                    tracing::debug!("ConfigMap {name}: {e}");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY.1);
                }
            }
        }
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(TELL_AGAIN) => told = None,
        }
    }
}

#[cfg(test)]
mod starting;

#[cfg(test)]
mod tests;
