//! The settings of a Gateway's pods and Service, out of its parameters.

use std::collections::BTreeMap;

use api::{Engine, LogMode, LoggingParameters, ServiceType, TrafficPolicy};
use k8s_openapi::api::core::v1::{
    Affinity, Container, ResourceRequirements, Toleration, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;

use super::{Layers, embedded, quantity, storage};

/// The container that runs chaperone and varnishd.
pub const CONTAINER: &str = "chaperone";
/// The container that writes the log of requests.
pub const LOGGING_CONTAINER: &str = "logging";
/// Private keys that the chaperone keeps for a restart: in memory, mounted into no other container. Its path is the one
/// that the chaperone derives from `WORK_DIR`.
pub const PRIVATE_VOLUME: &str = "gateway-private";
/// The token of the ServiceAccount reads the Secrets with the private keys, so only the chaperone's container has it.
pub const TOKEN_VOLUME: &str = "gateway-token";
/// Kubernetes allows no longer label, and no longer name of a Service.
const LONGEST_NAME: usize = 63;
/// What varnishd's container asks for by default: little, so that many Gateways fit on a small node.
const REQUESTS: [(&str, &str); 2] = [("cpu", "20m"), ("memory", "128Mi")];

/// Volumes and mounts of the gateway itself begin so.
const OWN_PREFIX: &str = "gateway-";
/// Folders that are the gateway's own.
const OWN_FOLDERS: [&str; 5] = [
    "/var/run/varnish",
    "/var/run/varnish-private",
    "/var/run/secrets/kubernetes.io",
    "/tmp",
    "/etc/varnish-gateway",
];
/// Containers that are the gateway's own.
const OWN_CONTAINERS: [&str; 2] = [CONTAINER, LOGGING_CONTAINER];

/// The settings of a Gateway's objects in the cluster. Unused outside of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Workload {
    /// The operator's own choice where absent.
    pub image: Option<String>,
    #[serde(skip_serializing_if = "is_usual_engine", serialize_with = "engine")]
    pub engine: Engine,
    /// Not written where absent.
    pub replicas: Option<i32>,
    pub resources: ResourceRequirements,
    /// What `-s` says in a pod whose arguments have none.
    pub default_storage: String,
    /// The same for the storage of responses that are not cached.
    pub default_transient: String,
    pub logging: Option<Logging>,
    /// Where spans of requests go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_endpoint: Option<String>,
    #[serde(skip_serializing_if = "Dashboard::is_usual")]
    pub dashboard: Dashboard,
    /// How long requests may take to finish.
    pub drain_seconds: u32,
    pub volumes: Vec<Volume>,
    pub volume_mounts: Vec<VolumeMount>,
    pub init_containers: Vec<Container>,
    /// The default where absent.
    pub topology_spread: Option<Vec<TopologySpreadConstraint>>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
    pub affinity: Option<Affinity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class: Option<String>,
    pub disruption_budget: Option<DisruptionBudget>,
    pub service: ServiceSettings,
}

impl Workload {
    /// Does our own program write the log?
    pub(crate) fn writes_json(&self) -> bool {
        self.logging.as_ref().is_some_and(Logging::is_ours)
    }
}

impl Logging {
    /// Our own program, which is in our own image, and has a form of its own.
    pub fn is_ours(&self) -> bool {
        match self.mode {
            LogMode::Json => true,
            LogMode::VarnishlogJson => self.format.is_none() && self.image.is_none(),
            LogMode::Varnishlog | LogMode::Varnishncsa => false,
        }
    }
}

/// Writes requests to standard output: a sidecar, or the front where it carries HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Logging {
    #[serde(serialize_with = "log_mode")]
    pub mode: LogMode,
    pub format: Option<String>,
    pub query: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub query_strings: bool,
    pub extra_args: Vec<String>,
    pub image: Option<String>,
}

/// The dashboard of a pod, which is always on loopback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Dashboard {
    pub off: bool,
    pub allow_actions: bool,
}

impl Dashboard {
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Exactly one of both is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DisruptionBudget {
    pub min_available: Option<IntOrString>,
    pub max_unavailable: Option<IntOrString>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ServiceSettings {
    /// `LoadBalancer`, `NodePort` or `ClusterIP`.
    pub kind: &'static str,
    pub annotations: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub load_balancer_class: Option<String>,
    pub load_balancer_source_ranges: Option<Vec<String>>,
    pub external_traffic_policy: Option<&'static str>,
    /// Those that the Gateway asks for.
    pub addresses: Vec<String>,
}

fn is_usual_engine(engine: &Engine) -> bool {
    *engine == Engine::default()
}

fn engine<S: serde::Serializer>(engine: &Engine, serializer: S) -> Result<S::Ok, S::Error> {
    engine.serialize(serializer)
}

fn log_mode<S: serde::Serializer>(mode: &LogMode, serializer: S) -> Result<S::Ok, S::Error> {
    mode.serialize(serializer)
}

impl Workload {
    /// `drain_seconds` is checked already.
    pub(crate) fn new(layers: Layers<'_>, drain_seconds: f64, problems: &mut Vec<String>) -> Self {
        let resources = resources(layers, problems);
        let volumes = volumes(layers, problems);
        Self {
            image: layers.field(|spec| spec.image.as_ref()).cloned(),
            engine: layers.field(|spec| spec.engine.as_ref()).copied().unwrap_or_default(),
            replicas: replicas(layers, problems),
            default_storage: storage::default_argument(memory_limit(layers)),
            default_transient: storage::default_transient(memory_limit(layers)),
            resources,
            otlp_endpoint: layers.field(|spec| spec.tracing.as_ref()).map(|tracing| tracing.endpoint.clone()),
            logging: layers.field(|spec| spec.logging.as_ref()).map(|given| logging(given, problems)),
            dashboard: dashboard(layers, problems),
            drain_seconds: whole_seconds(drain_seconds),
            volume_mounts: volume_mounts(layers, &volumes, problems),
            volumes,
            init_containers: init_containers(layers, problems),
            topology_spread: layers
                .field(|spec| spec.topology_spread_constraints.as_ref())
                .map(|given| embedded::list("topologySpreadConstraints", Some(given), problems)),
            node_selector: layers.field(|spec| spec.node_selector.as_ref()).cloned().unwrap_or_default(),
            tolerations: layers.field(|spec| spec.tolerations.as_ref()).cloned().unwrap_or_default(),
            affinity: layers
                .field(|spec| spec.affinity.as_ref())
                .and_then(|given| embedded::one("affinity", given, problems)),
            priority_class: layers.field(|spec| spec.priority_class_name.as_ref()).cloned(),
            disruption_budget: disruption_budget(layers, problems),
            service: service(layers, problems),
        }
    }
}

/// What the container may use at most, in bytes.
pub(crate) fn memory_limit(layers: Layers<'_>) -> Option<u64> {
    let resources = layers.field(|spec| spec.resources.as_ref())?;
    let limit = resources.limits.as_ref()?.get("memory")?;
    quantity::bytes(&limit.0)
}

fn resources(layers: Layers<'_>, problems: &mut Vec<String>) -> ResourceRequirements {
    let Some(given) = layers.field(|spec| spec.resources.as_ref()) else {
        let requests = REQUESTS.map(|(name, text)| (name.to_owned(), Quantity(text.to_owned())));
        return ResourceRequirements { requests: Some(requests.into()), ..ResourceRequirements::default() };
    };
    if let Some(memory) = given.limits.as_ref().and_then(|limits| limits.get("memory"))
        && quantity::bytes(&memory.0).is_none()
    {
        problems.push(format!(
            "resources.limits.memory: `{}` is not a valid size: write it as 512Mi or 2Gi",
            memory.0
        ));
    }
    ResourceRequirements { limits: given.limits.clone(), requests: given.requests.clone(), claims: None }
}

fn replicas(layers: Layers<'_>, problems: &mut Vec<String>) -> Option<i32> {
    let replicas = *layers.field(|spec| spec.replicas.as_ref())?;
    if replicas < 0 {
        problems.push(format!("replicas: {replicas} is not valid: write 0 or more (the field is ignored)"));
        return None;
    }
    Some(replicas)
}

/// Rounded up: a pod that ends too early breaks requests, one that ends late does not.
fn whole_seconds(seconds: f64) -> u32 {
    // A cast of a float saturates.
    seconds.ceil() as u32
}

fn dashboard(layers: Layers<'_>, problems: &mut Vec<String>) -> Dashboard {
    let off = layers.dashboard(|dashboard| dashboard.enabled) == Some(false);
    let allow_actions = layers.dashboard(|dashboard| dashboard.allow_actions) == Some(true);
    if off && allow_actions {
        problems.push(
            "dashboard.allowActions needs a dashboard: remove enabled: false, or allowActions (it is off now)"
                .to_owned(),
        );
    }
    Dashboard { off, allow_actions: allow_actions && !off }
}

fn logging(given: &LoggingParameters, problems: &mut Vec<String>) -> Logging {
    let belongs_to_us = |argument: &String| {
        let mut letters = argument.chars();
        letters.next() == Some('-') && letters.next().is_some_and(|letter| "DhnPrtVw".contains(letter))
    };
    let all = given.extra_args.iter().flatten();
    let (refused, extra_args): (Vec<String>, Vec<String>) = all.cloned().partition(belongs_to_us);
    if !refused.is_empty() {
        problems.push(format!(
            "logging.extraArgs: {} belongs to the gateway: remove it (all extraArgs are left out)",
            refused.join(" ")
        ));
    }
    let mut format = given.format.clone();
    if given.mode == LogMode::Varnishlog && format.take().is_some() {
        problems.push("logging.format: varnishlog has none: use mode varnishncsa, or remove it".to_owned());
    }
    let mut logging = Logging {
        mode: given.mode,
        format,
        query: given.query.clone(),
        query_strings: false,
        // Half an option is worse than none.
        extra_args: if refused.is_empty() { extra_args } else { Vec::new() },
        image: given.image.clone(),
    };
    if given.mode == LogMode::Json {
        let others = [
            ("format", logging.format.take().is_some()),
            ("query", logging.query.take().is_some()),
            ("extraArgs", !std::mem::take(&mut logging.extra_args).is_empty()),
            ("image", logging.image.take().is_some()),
        ];
        for (field, _) in others.iter().filter(|(_, is_given)| *is_given) {
            problems.push(format!(
                "logging.{field} is for programs that read varnishd's log: use another mode, or remove it (it is left out)"
            ));
        }
    }
    logging.query_strings = given.query_strings == Some(true) && logging.is_ours();
    if given.query_strings.is_some() && !logging.is_ours() {
        problems.push(
            "logging.queryStrings is for modes json, and varnishlog-json without format and image: remove it (it is left out)"
                .to_owned(),
        );
    }
    logging
}

fn volumes(layers: Layers<'_>, problems: &mut Vec<String>) -> Vec<Volume> {
    let given = layers.field(|spec| spec.extra_volumes.as_ref());
    let mut volumes: Vec<Volume> = embedded::list("extraVolumes", given, problems);
    volumes.retain(|volume| {
        let ours = volume.name.starts_with(OWN_PREFIX);
        if ours {
            problems.push(format!(
                "extraVolumes: names that begin with {OWN_PREFIX} belong to the gateway: rename {}",
                volume.name
            ));
        }
        !ours
    });
    volumes
}

fn volume_mounts(layers: Layers<'_>, volumes: &[Volume], problems: &mut Vec<String>) -> Vec<VolumeMount> {
    let given = layers.field(|spec| spec.extra_volume_mounts.as_ref());
    let mut mounts: Vec<VolumeMount> = embedded::list("extraVolumeMounts", given, problems);
    mounts.retain(|mount| {
        let path = mount.mount_path.trim_end_matches('/');
        let ours = OWN_FOLDERS.iter().find(|own| {
            path == **own || path.strip_prefix(**own).is_some_and(|below| below.starts_with('/'))
        });
        let problem = match ours {
            Some(own) => format!("{own} belongs to the gateway: mount {} elsewhere", mount.name),
            None if volumes.iter().any(|volume| volume.name == mount.name) => return true,
            None => format!("there is no volume {} in extraVolumes: add it, or remove the mount", mount.name),
        };
        problems.push(format!("extraVolumeMounts: {problem}"));
        false
    });
    mounts
}

fn init_containers(layers: Layers<'_>, problems: &mut Vec<String>) -> Vec<Container> {
    let given = layers.field(|spec| spec.extra_init_containers.as_ref());
    let mut containers: Vec<Container> = embedded::list("extraInitContainers", given, problems);
    containers.retain(|container| {
        let ours = OWN_CONTAINERS.contains(&container.name.as_str());
        if ours {
            problems.push(format!(
                "extraInitContainers: {} is the name of a container of the gateway: choose another",
                container.name
            ));
        }
        !ours
    });
    for container in &mut containers {
        let Some(mounts) = &mut container.volume_mounts else { continue };
        mounts.retain(|mount| {
            let secret = [PRIVATE_VOLUME, TOKEN_VOLUME].contains(&mount.name.as_str());
            if secret {
                problems.push(format!(
                    "extraInitContainers: volume {} is for the chaperone alone: remove its mount from {}",
                    mount.name, container.name
                ));
            }
            !secret
        });
    }
    containers
}

fn disruption_budget(layers: Layers<'_>, problems: &mut Vec<String>) -> Option<DisruptionBudget> {
    let given = layers.field(|spec| spec.pod_disruption_budget.as_ref())?;
    if given.min_available.is_some() == given.max_unavailable.is_some() {
        problems.push(
            "podDisruptionBudget: give exactly one of minAvailable and maxUnavailable (there is no budget now)"
                .to_owned(),
        );
        return None;
    }
    Some(DisruptionBudget {
        min_available: given.min_available.clone(),
        max_unavailable: given.max_unavailable.clone(),
    })
}

fn service(layers: Layers<'_>, problems: &mut Vec<String>) -> ServiceSettings {
    let kind = layers.service(|service| service.kind.as_ref()).copied().unwrap_or_default();
    let balanced = kind == ServiceType::LoadBalancer;
    let mut unfit = |field: &str, fits: bool| {
        if !fits {
            problems.push(format!("service.{field}: a Service of type {kind:?} has none: remove it"));
        }
        fits
    };
    let class = layers.service(|service| service.load_balancer_class.as_ref());
    let ranges = layers.service(|service| service.load_balancer_source_ranges.as_ref());
    let policy = layers.service(|service| service.external_traffic_policy.as_ref());
    ServiceSettings {
        kind: match kind {
            ServiceType::LoadBalancer => "LoadBalancer",
            ServiceType::NodePort => "NodePort",
            ServiceType::ClusterIP => "ClusterIP",
        },
        annotations: layers.service(|service| service.annotations.as_ref()).cloned().unwrap_or_default(),
        labels: layers.service(|service| service.labels.as_ref()).cloned().unwrap_or_default(),
        load_balancer_class: class.filter(|_| unfit("loadBalancerClass", balanced)).cloned(),
        load_balancer_source_ranges: ranges.filter(|_| unfit("loadBalancerSourceRanges", balanced)).cloned(),
        external_traffic_policy: policy
            .filter(|_| unfit("externalTrafficPolicy", kind != ServiceType::ClusterIP))
            .map(|policy| match policy {
                TrafficPolicy::Cluster => "Cluster",
                TrafficPolicy::Local => "Local",
            }),
        addresses: Vec::new(),
    }
}

/// The same transactions, without those of ghost's own loopback socket.
pub fn log_query(given: Option<&str>) -> String {
    let ours = r#"not (ReqStart[3] eq "ghost-reload" or BereqURL ~ "^/.varnish-ghost/")"#;
    match given {
        Some(given) => format!("({given}) and {ours}"),
        None => ours.to_owned(),
    }
}

/// A format of varnishncsa or vinylncsa: each engine has its own name for its fields (`%{Varnish:hitmiss}x`, `%{Vinyl:hitmiss}x`), and its
/// program exits at the other's.
pub fn log_format(format: &str, is_vinyl: bool) -> String {
    let names = ["%{Varnish:", "%{Vinyl:"];
    let [from, to] = if is_vinyl { names } else { [names[1], names[0]] };
    format.replace(from, to)
}

/// Whether objects can be named after a Gateway of this name; if not, what to do. The API server takes longer names for a
/// Gateway than for a Service.
pub fn check_name(gateway: &str) -> Result<(), UnfitName> {
    let name = || gateway.to_owned();
    if gateway.len() > LONGEST_NAME {
        return Err(UnfitName::TooLong { name: name() });
    }
    if gateway.contains('.') {
        return Err(UnfitName::Dot { name: name() });
    }
    if !gateway.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(UnfitName::NoLetter { name: name() });
    }
    Ok(())
}

/// Why a Service cannot have the name of a Gateway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitName {
    #[error(
        "The name {name} has {} characters, and a Service may have {LONGEST_NAME}: give the Gateway another name",
        name.len()
    )]
    TooLong { name: String },
    #[error("The name {name} contains a dot, which a Service may not have: give the Gateway another name")]
    Dot { name: String },
    #[error("The name {name} does not begin with a letter, as a Service must: give the Gateway another name")]
    NoLetter { name: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_service_may_have_is_refused() {
        for good in ["gw", "gateway-conformance-infra", "a1"] {
            assert_eq!(check_name(good), Ok(()));
        }
        for (bad, part) in [
            ("a".repeat(64).as_str(), "has 64 characters"),
            ("shop.example", "contains a dot"),
            ("1st", "begin with a letter"),
        ] {
            let message = check_name(bad).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("another name"), "{message}");
        }
    }
}
