//! The chaperone in a pod: fed by the API server, and telling the operator what it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use certificate::Pem;
use chaperone::{Desired, Event, Feeder as DesiredFeeder, FrontPart, Ghost, LastGood, Reporter, Source};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use model::Report;
use model::routing::{Routing, Vhost};
use serde::{Deserialize, Serialize};
use serde_json::json;
use source::kubernetes::{Pod, Stored};
use tokio::sync::watch;
use translate::{EndpointIndex, TlsGroups, packing, workload};

use crate::external::Externals;

/// Between tries to tell the operator something.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
/// After something could not be read.
const FEED_RETRY: Duration = Duration::from_secs(2);
/// Somebody may have deleted what we told.
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
                            self.reporter.tell(&Event::Mended);
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
        let begun = Instant::now();
        let read = self.pod.stored().await.map_err(anyhow::Error::from);
        let mut trouble = read.and_then(|stored| last.take(stored, &self.namespace)).err();
        // Where something newer cannot be read, endpoints and certificates of what is served are followed all the same.
        if last.text.is_none()
            && let Some(e) = trouble.take()
        {
            return Err(e);
        }
        let taken = begun.elapsed();
        let slices = self.pod.endpoint_slices(&last.namespaces()).await;
        let external = last.routing.as_ref().and_then(|routing| routing.external_names.as_ref());
        self.externals.want(external);
        if !last.complete {
            self.externals.settle().await;
        }
        let slices = self.externals.beside(external, slices);
        let certificates = certificates(&self.pod.certificates().await);
        // A pod that starts without endpoints would be ready, answer 500, and take the place of a good pod. One that starts again
        // serves what it kept, and would lose it. Later on, a namespace that is new holds nobody else's changes back.
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
        let (made, certificates, given_back) = tokio::task::spawn_blocking(move || {
            let made = making.desired(&slices, &certificates, None, idle);
            (made, certificates, making)
        })
        .await
        .unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
        *last = given_back;
        let (desired, tls) = made?;
        tracing::debug!("routing.json read in {taken:?}, ghost.json made in {:?}", begun.elapsed() - taken);
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
        *old = desired;
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
            *hosts_in.entry(namespace.clone()).or_default() += 1;
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
fn namespaces_of(host: &Vhost) -> BTreeSet<&String> {
    let routes = host.routes.iter().chain(&host.default_route);
    routes.filter(|route| route.service.is_some()).filter_map(|route| route.namespace.as_ref()).collect()
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
        self.routing = serde_json::from_str(&kept.routing).ok();
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

/// A configuration on disk: in the pod's memory, and gone with it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptConfiguration {
    #[serde(skip)]
    tag: Option<Arc<str>>,
    vcl: String,
    routing: String,
    ghost: String,
    /// Both of its files. The base is in one of its own: it is large, and seldom another.
    #[serde(skip)]
    files: Option<Ghost>,
    #[serde(default)]
    base_name: Option<String>,
    /// What a base and the rest say to the front.
    #[serde(default)]
    front: Option<Routing>,
    /// Endpoints of TLSRoutes.
    #[serde(default)]
    tls: TlsGroups,
    /// In a file of their own, which varnishd cannot read.
    #[serde(skip)]
    certificates: BTreeMap<String, (String, String)>,
}

impl KeptConfiguration {
    fn certificates(&self) -> BTreeMap<String, Pem> {
        let pem = |(chain, key): &(String, String)| Pem {
            chain: chain.clone().into_bytes(),
            key: key.clone().into_bytes(),
        };
        self.certificates.iter().map(|(name, pair)| (name.clone(), pem(pair))).collect()
    }
}

/// The files of it: in the work directory, and private keys where neither varnishd nor the log sidecar can read them.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    configuration: PathBuf,
    certificates: PathBuf,
    /// Those that were written last.
    written: Arc<BTreeMap<String, (String, String)>>,
}

impl Kept {
    pub(super) fn new(work_dir: &Path) -> Self {
        Self {
            configuration: work_dir.join("last-configuration.json"),
            certificates: super::private_dir(work_dir).join("last-certificates.json"),
            written: Arc::default(),
        }
    }

    /// It must be there before varnishd starts, to be hidden from it.
    pub(super) fn prepare(&self) {
        let Some(dir) = self.certificates.parent() else { return };
        if let Err(e) = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir) {
            tracing::warn!("{}: {e}; a restart without API server would have no certificates", dir.display());
        }
    }

    /// The VCL that was last in use.
    pub(super) fn last_good(&self) -> LastGood {
        self.read().map_or_else(LastGood::default, |kept| LastGood::of(&kept.vcl))
    }

    fn read(&self) -> Option<KeptConfiguration> {
        let json = std::fs::read(&self.configuration).ok()?;
        let mut kept: KeptConfiguration = serde_json::from_slice(&json).ok()?;
        // Without them, plain HTTP is served all the same.
        let pairs = std::fs::read(&self.certificates).ok();
        kept.certificates = pairs.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
        let base = match &kept.base_name {
            Some(name) => Some((name.as_str(), std::fs::read(self.base(name)).ok()?.into())),
            None => None,
        };
        kept.files = Some(Ghost::read(kept.ghost.as_bytes().into(), base).ok()?);
        Some(kept)
    }

    fn base(&self, name: &str) -> PathBuf {
        self.configuration.with_file_name(format!("last-{name}"))
    }

    /// [`Self::write`] aside from all tasks. Gives itself back, as it knows what it wrote.
    async fn write_aside(&self, configuration: KeptConfiguration) -> Self {
        let mut kept = self.clone();
        let writing = tokio::task::spawn_blocking(move || {
            kept.write(configuration);
            kept
        });
        // A writer that panicked knows nothing.
        writing.await.unwrap_or_else(|_| Self { written: Arc::default(), ..self.clone() })
    }

    /// Whole or not at all. Without it, a restart waits for the API server. What is there already is not written again.
    fn write(&mut self, mut configuration: KeptConfiguration) {
        let certificates = std::mem::take(&mut configuration.certificates);
        let base = configuration.files.as_ref().and_then(|files| files.base.as_ref());
        let written = serde_json::to_vec(&configuration).map_err(std::io::Error::other).and_then(|json| {
            if let Some(base) = base
                && !self.base(&base.name).exists()
            {
                put(&self.base(&base.name), &base.bytes)?;
            }
            if certificates != *self.written || !self.certificates.exists() {
                put(&self.certificates, &serde_json::to_vec(&certificates)?)?;
            }
            put(&self.configuration, &json)
        });
        match written {
            Ok(()) => {
                self.written = Arc::new(certificates);
                self.tidy(base.map(|base| &*base.name));
            }
            Err(e) => tracing::warn!(
                "{}: {e}; a restart without API server would have nothing to serve",
                self.configuration.display()
            ),
        }
    }

    /// Takes bases away that nothing names any more.
    fn tidy(&self, kept: Option<&str>) {
        let Some(files) = self.configuration.parent().and_then(|dir| std::fs::read_dir(dir).ok()) else {
            return;
        };
        for file in files.flatten() {
            let name = file.file_name();
            let base = name.to_str().and_then(|name| name.strip_prefix("last-ghost-base-"));
            let is_kept = kept.is_some_and(|kept| self.base(kept) == file.path());
            if base.is_some() && !is_kept {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let beside = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes).and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
        // Half a file takes room that a full directory needs.
        let _ = std::fs::remove_file(&beside);
    })
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
mod tests {
    use model::ghost::Config;
    use model::routing::{Route, Vhost};

    use super::*;

    fn routing(hosts: &[impl AsRef<str>]) -> Routing {
        let host = |name: &str| {
            let route = Route {
                service: Some("shop".to_owned()),
                namespace: Some("default".to_owned()),
                port: Some(80),
                route_name: format!("default/{name}"),
                ..Route::default()
            };
            (name.to_owned(), Vhost { routes: vec![route], ..Vhost::default() })
        };
        let listeners = vec![model::Listener {
            name: "http".to_owned(),
            socket: "http-80".to_owned(),
            hostname: None,
            tls: None,
        }];
        Routing {
            listeners,
            vhosts: hosts.iter().map(|name| host(name.as_ref())).collect(),
            ..Routing::default()
        }
    }

    fn hosts(numbers: std::ops::Range<usize>) -> Vec<String> {
        numbers.map(|number| format!("h{number}")).collect()
    }

    fn slice(address: &str) -> Arc<EndpointSlice> {
        let slice = json!({
            "metadata": {"name": "s", "namespace": "default", "labels": {"kubernetes.io/service-name": "shop"}},
            "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": [address]}],
        });
        Arc::new(serde_json::from_value(slice).unwrap())
    }

    fn stored(new: &Routing, base: &Routing) -> Stored {
        let bytes = serde_json::to_vec(base).unwrap().into();
        Stored {
            main_vcl: Some("vcl 4.1;".to_owned()),
            routing: Some(serde_json::to_string(&new.since(base, "abc")).unwrap()),
            base: Some(source::kubernetes::Base { sha256: "abc".to_owned(), bytes }),
        }
    }

    #[test]
    fn ports_of_the_pod_itself_are_no_endpoints() {
        let on = |address: &str, port: u16| {
            let slice = json!({
                "metadata": {"name": format!("s-{port}"), "namespace": "default", "labels": {"kubernetes.io/service-name": "shop"}},
                "addressType": "IPv4", "ports": [{"port": port}], "endpoints": [{"addresses": [address]}],
            });
            Arc::new(serde_json::from_value::<EndpointSlice>(slice).unwrap())
        };
        let mut routing = routing(&["a"]);
        let listener = |name: &str| json!({"name": name, "socket": name});
        routing.listeners =
            serde_json::from_value(json!([listener("http-80"), listener("https-443")])).unwrap();
        let text = serde_json::to_string(&routing).unwrap();
        let mut last = Last { own_ports: vec![8081, 6082, 9000], ..Last::default() };
        last.take(Stored { main_vcl: None, routing: Some(text), base: None }, "default").unwrap();
        let own = [8081, 6082, 9000, 80, 443].map(|port| on("127.0.0.1", port));
        let slices: Vec<_> = own.into_iter().chain([on("10.0.0.1", 8081), on("127.0.0.1", 8080)]).collect();
        let desired = last.desired(&slices, &BTreeMap::new(), None, false).unwrap().0;
        let ghost: Config = serde_json::from_slice(&desired.ghost.as_ref().unwrap().bytes).unwrap();
        let backends = &ghost.vhosts["a"].routes[0].backend_groups[0].backends;
        let used: Vec<String> = backends.iter().map(|one| format!("{}:{}", one.address, one.port)).collect();
        assert_eq!(used, ["10.0.0.1:8081", "127.0.0.1:8080"]);
    }

    #[test]
    fn what_has_changed_since_a_base_is_told_to_ghost_with_the_same_base() {
        let (base, new) = (routing(&hosts(0..100)), routing(&hosts(1..101)));
        let mut last = Last::default();
        let mut fed = |new: &Routing, slice: &Arc<EndpointSlice>| {
            last.take(stored(new, &base), "default").unwrap();
            assert!(last.namespaces().contains("default") && !last.is_idle());
            let slices = [Arc::clone(slice)];
            let desired = last.desired(&slices, &BTreeMap::new(), None, false).unwrap().0;
            let ghost = desired.ghost.unwrap();
            let ghost_base = ghost.base.clone().unwrap();
            let head: Config = serde_json::from_slice(&ghost.bytes).unwrap();
            assert_eq!(head.base.as_deref(), Some(&*ghost_base.name));
            let (whole, _) = translate::resolve(new, &EndpointIndex::new([&**slice]));
            assert_eq!(ghost.config().unwrap(), whole);
            (ghost_base.name, desired.tag, head.vhosts.len())
        };
        let slice_one = slice("10.0.0.1");
        let (first, one, _) = fed(&base, &slice_one);
        let (second, two, changed) = fed(&new, &slice_one);
        assert_eq!((&first, changed), (&second, 1));
        assert_ne!(one, two);
        // Other endpoints of all hosts make another base.
        let (third, again, _) = fed(&new, &slice("10.0.0.2"));
        assert_ne!(second, third);
        assert_eq!(two, again);
    }

    #[test]
    fn namespaces_of_hosts_that_are_gone_are_not_watched() {
        let mut base = routing(&["a", "b", "c"]);
        for (host, namespace) in [("b", "second"), ("c", "third")] {
            base.vhosts.get_mut(host).unwrap().routes[0].namespace = Some(namespace.to_owned());
        }
        let mut last = Last::default();
        let mut namespaces = |new: &Routing| {
            last.take(stored(new, &base), "default").unwrap();
            Vec::from_iter(last.namespaces()).join(" ")
        };
        assert_eq!(namespaces(&base), "default second third");
        let mut fewer = base.clone();
        fewer.vhosts.remove("b");
        fewer.vhosts.get_mut("c").unwrap().routes[0].namespace = Some("other".to_owned());
        assert_eq!(namespaces(&fewer), "default other");
    }

    #[test]
    fn names_of_listeners_are_those_of_base_and_rest() {
        let with = |names: &[&str]| {
            let hosts = names.iter().map(|name| ((*name).to_owned(), vec!["default/pair".to_owned()]));
            let tls = model::ListenerTls { hosts: hosts.collect(), ..Default::default() };
            let mut routing = routing(&["a", "b"]);
            routing.listeners[0].socket = "https-443".to_owned();
            routing.listeners[0].tls = Some(tls);
            routing
        };
        let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        let pem =
            Pem { chain: made.cert.pem().into_bytes(), key: made.signing_key.serialize_pem().into_bytes() };
        let pairs = BTreeMap::from([("default/pair".to_owned(), pem)]);
        let names = |desired: &Desired| -> Vec<String> {
            let hosts = desired.tls.listeners.iter().flat_map(|listener| &listener.hosts);
            hosts.filter_map(|host| host.hostname.clone()).collect()
        };
        let mut last = Last::default();
        last.take(stored(&with(&["b", "c"]), &with(&["a", "b"])), "default").unwrap();
        let (desired, tls) = last.desired(&[slice("10.0.0.1")], &pairs, None, false).unwrap();
        assert_eq!(names(&desired), ["b", "c"]);
        // And a start without API server has them, too.
        let dir = tempfile::tempdir().unwrap();
        let work_dir = dir.path().join("varnish");
        let mut kept = Kept::new(&work_dir);
        kept.write(last.keep(&desired, tls, &pairs).unwrap());
        let found = kept.read().unwrap();
        let mut restored = Last::default();
        restored.restore(&found);
        let (again, _) = restored.desired(&[], &found.certificates(), Some(&found), false).unwrap();
        assert_eq!(names(&again), ["b", "c"]);
        // varnishd reads the work directory: no private key is in there.
        for file in std::fs::read_dir(&work_dir).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(!text.contains("PRIVATE KEY"), "{text}");
        }
    }

    /// While pods are replaced, those of both arrangements read the same routing.json.
    #[test]
    fn the_pods_arrangement_decides_who_opens_plain_ports() {
        let base = routing(&["a"]);
        for (http_in_front, written) in [(true, true), (true, false), (false, true), (false, false)] {
            let new = Routing { http_in_front: written, ..routing(&["a", "b"]) };
            let mut last = Last { http_in_front, ..Last::default() };
            last.take(stored(&new, &base), "default").unwrap();
            let (desired, tls) = last.desired(&[slice("10.0.0.1")], &BTreeMap::new(), None, false).unwrap();
            let open = |desired: &Desired| {
                let sockets: Vec<_> = desired.tls.listeners.iter().map(|one| one.socket.clone()).collect();
                (desired.tls.http, sockets)
            };
            let expected = if http_in_front { vec!["http-80".to_owned()] } else { Vec::new() };
            assert_eq!(open(&desired), (http_in_front, expected));
            // So it is after a restart without API server.
            let kept = last.keep(&desired, tls, &BTreeMap::new()).unwrap();
            let mut restored = Last { http_in_front, ..Last::default() };
            restored.restore(&kept);
            let (again, _) = restored.desired(&[], &BTreeMap::new(), Some(&kept), false).unwrap();
            assert_eq!(open(&again), open(&desired));
        }
    }

    #[test]
    fn a_base_that_is_not_the_files_is_refused() {
        let base = routing(&["a"]);
        let wrong = Stored { base: None, ..stored(&base, &base) };
        let error = Last::default().take(wrong, "default").unwrap_err();
        assert!(error.to_string().contains("another base"), "{error}");
    }

    #[test]
    fn a_full_directory_keeps_what_was_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last-configuration.json");
        put(&path, b"good").unwrap();
        let beside = path.with_extension("new");
        std::os::unix::fs::symlink("/dev/full", &beside).unwrap();
        let error = put(&path, b"newer").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read(&path).unwrap(), b"good");
        assert!(beside.symlink_metadata().is_err(), "half a file is left");
        put(&path, b"newer").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"newer");
    }

    #[test]
    fn what_was_served_is_kept_with_its_base() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = Kept::new(&dir.path().join("varnish"));
        let base = routing(&hosts(0..100));
        let mut last = Last::default();
        last.take(stored(&routing(&hosts(0..99)), &base), "default").unwrap();
        let (desired, tls) = last.desired(&[slice("10.0.0.1")], &BTreeMap::new(), None, false).unwrap();
        kept.write(last.keep(&desired, tls, &BTreeMap::new()).unwrap());
        let found = kept.read().unwrap();
        let mut restored = Last::default();
        restored.restore(&found);
        let (again, _) = restored.desired(&[], &BTreeMap::new(), Some(&found), false).unwrap();
        assert_eq!(again, desired);
        // Before its base is read, the rest of it is not the whole.
        assert!(restored.desired(&[], &BTreeMap::new(), None, false).is_err());
    }
}
