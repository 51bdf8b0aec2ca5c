//! The chaperone in a pod: fed by the API server, and telling the operator what it serves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use certificate::Pem;
use chaperone::{Desired, Event, LastGood, Pairs, Reporter};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use model::Report;
use model::routing::Routing;
use serde::{Deserialize, Serialize};
use serde_json::json;
use source::kubernetes::{Pod, Stored};
use tokio::sync::watch;
use translate::{EndpointIndex, TlsGroups, packing, resolve, resolve_tls, workload};

/// Between tries to tell the operator something.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(15));
/// After something could not be read.
const FEED_RETRY: Duration = Duration::from_secs(2);
/// Somebody may have deleted what we told.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// The longest name that the API server takes for a field manager.
pub(super) const LONGEST_MANAGER: usize = 128;

/// Feeds varnishd with what the operator wrote, and with the endpoints that belong to it.
pub(super) struct Feeder {
    pub(super) pod: Pod,
    pub(super) namespace: String,
    pub(super) reporter: Reporter,
    /// Where the last configuration is kept, for a container that starts while the API server is away.
    pub(super) kept: Kept,
}

impl Feeder {
    pub(super) async fn run(self, to_varnishd: watch::Sender<Desired>) -> anyhow::Result<()> {
        let mut changed = self.pod.changed();
        let mut state = self.reporter.state();
        let mut last = Last::default();
        if let Some(kept) = self.kept.read() {
            tracing::info!("serving the configuration of the last start until the API server answers");
            last.restore(&kept);
            let (desired, _) = last.desired(&[], &kept.certificates(), Some((&kept.ghost, &kept.tls)))?;
            send(&to_varnishd, desired);
        }
        self.pod.synced().await;
        let (mut failed, mut feed) = (false, true);
        let mut pending = None;
        loop {
            if feed {
                changed.mark_unchanged();
                match self.feed(&mut last, &to_varnishd).await {
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
            if let Some((_, keep)) = pending.take_if(|(tag, _)| served.is_some() && *tag == served) {
                self.kept.write(&keep);
            }
            feed = tokio::select! {
                // The signal lives as long as the pod's watches.
                done = changed.changed() => match done {
                    Ok(()) => true,
                    Err(_) => return Ok(()),
                },
                _ = state.changed() => false,
                () = tokio::time::sleep(FEED_RETRY), if failed => true,
            };
        }
    }

    /// What to keep of it once it is served, and its tag.
    async fn feed(
        &self,
        last: &mut Last,
        to_varnishd: &watch::Sender<Desired>,
    ) -> anyhow::Result<Option<(Option<Arc<str>>, KeptConfiguration)>> {
        let Stored { main_vcl, routing } = self.pod.stored().await?;
        last.take(main_vcl, routing, &self.namespace)?;
        self.reporter.set_idle(last.routing.as_ref().is_some_and(super::is_idle));
        let namespaces = last.routing.as_ref().map(Routing::service_namespaces).unwrap_or_default();
        let slices = self.pod.endpoint_slices(&namespaces).await;
        let certificates = certificates(&self.pod.certificates());
        let (desired, tls) = last.desired(&slices, &certificates, None)?;
        send(to_varnishd, desired.clone());
        let (Some(ghost), Some(vcl), Some(routing)) = (&desired.ghost, &desired.vcl, &last.bytes) else {
            return Ok(None);
        };
        Ok(Some((desired.tag.clone(), KeptConfiguration::new(vcl, routing, ghost, tls, &certificates))))
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
    bytes: Option<Arc<[u8]>>,
    routing: Option<Routing>,
    pairs: Pairs,
}

impl Last {
    /// The new for the old, where it is good. routing.json is large, and mostly the same: it is read once.
    fn take(&mut self, vcl: Option<String>, bytes: Option<Arc<[u8]>>, namespace: &str) -> anyhow::Result<()> {
        if let Some(vcl) = vcl
            && self.vcl.as_deref() != Some(&vcl)
        {
            self.vcl = Some(vcl.into());
        }
        let Some(bytes) = bytes.filter(|bytes| self.bytes.as_ref() != Some(bytes)) else { return Ok(()) };
        let mut unknown = Vec::new();
        let routing = super::parse_routing(&bytes, namespace, "routing.json", &mut unknown)?;
        for message in unknown {
            tracing::warn!("{message}");
        }
        (self.routing, self.bytes) = (Some(routing), Some(bytes));
        Ok(())
    }

    fn restore(&mut self, kept: &KeptConfiguration) {
        self.vcl = Some(kept.vcl.as_str().into());
        self.routing = serde_json::from_str(&kept.routing).ok();
        self.bytes = Some(kept.routing.as_bytes().into());
    }

    fn desired(
        &mut self,
        slices: &[Arc<EndpointSlice>],
        certificates: &BTreeMap<String, Pem>,
        resolved: Option<(&str, &TlsGroups)>,
    ) -> anyhow::Result<(Desired, TlsGroups)> {
        let Some(routing) = &self.routing else {
            return Ok((Desired { vcl: self.vcl.clone(), ..Desired::default() }, TlsGroups::new()));
        };
        let (ghost, groups): (Arc<[u8]>, TlsGroups) = match resolved {
            Some((ghost, groups)) => (ghost.as_bytes().into(), groups.clone()),
            None => {
                let index = EndpointIndex::new(slices.iter().map(AsRef::as_ref));
                let (ghost, notices) = resolve(routing, &index);
                let (groups, of_tls) = resolve_tls(routing, &index);
                for notice in notices.iter().chain(&of_tls) {
                    tracing::debug!("{notice}");
                }
                (serde_json::to_vec(&ghost)?.into(), groups)
            }
        };
        let found = self.pairs.tls(routing, certificates, &groups, None);
        for notice in found.notices {
            tracing::warn!("{notice}");
        }
        let tag = match (&self.vcl, &self.bytes) {
            (Some(vcl), Some(bytes)) => Some(packing::hash(vcl, bytes).into()),
            _ => None,
        };
        let (tls, backends) = (Arc::new(found.front), Arc::new(found.backends));
        Ok((Desired { ghost: Some(ghost), vcl: self.vcl.clone(), tls, backends, tag }, groups))
    }
}

/// Pairs out of Secret `{gateway}-varnish-tls`: keys `{namespace}.{name}.crt` and `.key`.
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
    vcl: String,
    routing: String,
    ghost: String,
    /// Endpoints of TLSRoutes.
    #[serde(default)]
    tls: TlsGroups,
    certificates: BTreeMap<String, (String, String)>,
}

impl KeptConfiguration {
    fn new(
        vcl: &str,
        routing: &[u8],
        ghost: &[u8],
        tls: TlsGroups,
        certificates: &BTreeMap<String, Pem>,
    ) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            vcl: vcl.to_owned(),
            routing: text(routing),
            ghost: text(ghost),
            tls,
            certificates: certificates
                .iter()
                .map(|(name, pem)| (name.clone(), (text(&pem.chain), text(&pem.key))))
                .collect(),
        }
    }

    fn certificates(&self) -> BTreeMap<String, Pem> {
        let pem = |(chain, key): &(String, String)| Pem {
            chain: chain.clone().into_bytes(),
            key: key.clone().into_bytes(),
        };
        self.certificates.iter().map(|(name, pair)| (name.clone(), pem(pair))).collect()
    }
}

/// The file of it, for our own eyes.
#[derive(Debug)]
pub(super) struct Kept(pub(super) PathBuf);

impl Kept {
    pub(super) fn new(work_dir: &Path) -> Self {
        Self(work_dir.join("last-configuration.json"))
    }

    /// The VCL that was last in use.
    pub(super) fn last_good(&self) -> LastGood {
        self.read().map_or_else(LastGood::default, |kept| LastGood::of(&kept.vcl))
    }

    fn read(&self) -> Option<KeptConfiguration> {
        serde_json::from_slice(&std::fs::read(&self.0).ok()?).ok()
    }

    /// Whole or not at all. Without it, a restart waits for the API server.
    fn write(&self, configuration: &KeptConfiguration) {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let beside = self.0.with_extension("new");
        let written = serde_json::to_vec(configuration).map_err(std::io::Error::other).and_then(|json| {
            if let Some(dir) = self.0.parent() {
                std::fs::create_dir_all(dir)?;
            }
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
            file.write_all(&json)?;
            std::fs::rename(&beside, &self.0)
        });
        if let Err(e) = written {
            tracing::warn!(
                "{}: {e}; a restart without API server would have nothing to serve",
                self.0.display()
            );
        }
    }
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
            Report { serving: state.served.as_deref().map(str::to_owned), refused: state.refused.clone() }
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
