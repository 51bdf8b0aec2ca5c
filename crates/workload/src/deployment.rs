//! The pods of a Gateway.

use api::Engine;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapProjection, Container, ContainerPort, DownwardAPIProjection,
    DownwardAPIVolumeFile, EmptyDirVolumeSource, EnvVar, EnvVarSource, HTTPGetAction, KeyToPath,
    LocalObjectReference, ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
    ProjectedVolumeSource, SeccompProfile, SecretVolumeSource, SecurityContext,
    ServiceAccountTokenProjection, Sysctl, TopologySpreadConstraint, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use model::names::INFRA_HASH_ANNOTATION;

use super::metadata::Owner;
use super::ports::Ports;
use super::{CONTAINER, Options, admin_secret, logging, storage};
use translate::pods::{PRIVATE_VOLUME, TOKEN_VOLUME, Workload};
use translate::{HotObjects, Infra, sha256};

pub(super) const WORK_VOLUME: &str = "gateway-work";
pub(super) const WORK_DIR: &str = "/var/run/varnish";
/// varnishd's `-n`, as the chaperone makes it.
pub(super) const VARNISHD_DIR: &str = "/var/run/varnish/varnishd";
pub(super) const VARNISHD_FOLDER: &str = "varnishd";
const PRIVATE_DIR: &str = "/var/run/varnish-private";
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the API server asks for where it mounts tokens by itself.
const TOKEN_SECONDS: i64 = 3607;
const TMP_VOLUME: &str = "gateway-tmp";
const ADMIN_VOLUME: &str = "gateway-admin";
const ADMIN_DIR: &str = "/etc/varnish-gateway/admin";
const ADMIN_KEY: &str = "secret";
/// The image's own user.
const USER: i64 = 65532;
/// Load balancers and kube-proxies hear of a pod's end a while after the pod itself.
const DRAIN_DELAY_SECONDS: u32 = 5;
/// For what comes after the last request.
const END_SECONDS: u32 = 5;
/// Old ReplicaSets to go back to.
const HISTORY: i32 = 3;

pub(super) fn deployment(
    owner: &Owner<'_>,
    settings: &Workload,
    infra: &Infra,
    ports: &Ports<'_>,
    options: &Options,
) -> Deployment {
    let mut template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(owner.labels(&Default::default())),
            annotations: owner.annotations(&Default::default()),
            ..ObjectMeta::default()
        }),
        spec: Some(pod(owner, settings, infra, ports, options)),
    };
    let hash = sha256(&template);
    let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
    annotations.insert(INFRA_HASH_ANNOTATION.to_owned(), hash);
    Deployment {
        metadata: owner.own(),
        spec: Some(DeploymentSpec {
            // Absent, so that an autoscaler or a user that scales the Deployment keeps the number.
            replicas: settings.replicas,
            revision_history_limit: Some(HISTORY),
            selector: owner.selector(),
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: Some(IntOrString::String("25%".to_owned())),
                    max_unavailable: Some(IntOrString::Int(0)),
                }),
            }),
            template,
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

pub(super) fn disruption_budget(owner: &Owner<'_>, settings: &Workload) -> Option<PodDisruptionBudget> {
    let budget = settings.disruption_budget.as_ref()?;
    Some(PodDisruptionBudget {
        metadata: owner.own(),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: budget.min_available.clone(),
            max_unavailable: budget.max_unavailable.clone(),
            selector: Some(owner.selector()),
            // A pod that serves nothing must not prevent the draining of a node.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
        }),
        status: None,
    })
}

fn pod(
    owner: &Owner<'_>,
    settings: &Workload,
    infra: &Infra,
    ports: &Ports<'_>,
    options: &Options,
) -> PodSpec {
    let default = match settings.engine {
        Engine::Varnish7 => &options.image,
        Engine::Vinyl9 => &options.vinyl_image,
    };
    let image = settings.image.as_deref().unwrap_or(default);
    // Where the front carries HTTP, it writes the log itself.
    let sidecar = settings.logging.as_ref().filter(|_| !infra.http_in_front);
    let sidecar = sidecar.map(|logging| logging::sidecar(logging, settings.engine, image));
    let init: Vec<Container> = settings.init_containers.iter().cloned().chain(sidecar).collect();
    let pull_secrets: Vec<LocalObjectReference> =
        options.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() }).collect();
    PodSpec {
        service_account_name: Some(owner.name.to_owned()),
        // Mounted by hand, into one container.
        automount_service_account_token: Some(false),
        // Variables of other Services are none of ours.
        enable_service_links: Some(false),
        image_pull_secrets: some(pull_secrets),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            fs_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            // Low ports without a capability.
            sysctls: Some(vec![Sysctl {
                name: "net.ipv4.ip_unprivileged_port_start".to_owned(),
                value: "0".to_owned(),
            }]),
            ..PodSecurityContext::default()
        }),
        init_containers: some(init),
        containers: vec![chaperone(owner, settings, infra, ports, options, image)],
        volumes: Some(volumes(owner, settings)),
        termination_grace_period_seconds: Some(i64::from(
            DRAIN_DELAY_SECONDS.saturating_add(settings.drain_seconds).saturating_add(END_SECONDS),
        )),
        topology_spread_constraints: some(topology_spread(owner, settings)),
        node_selector: Some(settings.node_selector.clone()).filter(|selector| !selector.is_empty()),
        tolerations: some(settings.tolerations.clone()),
        affinity: settings.affinity.clone(),
        priority_class_name: settings.priority_class.clone(),
        ..PodSpec::default()
    }
}

fn chaperone(
    owner: &Owner<'_>,
    settings: &Workload,
    infra: &Infra,
    ports: &Ports<'_>,
    options: &Options,
    image: &str,
) -> Container {
    let mut container_ports: Vec<ContainerPort> =
        ports.varnishd.iter().map(|socket| container_port(&socket.name, socket.port)).collect();
    container_ports.push(container_port("health", ports.health));
    let read_only = |name, path| VolumeMount { read_only: Some(true), ..mount(name, path) };
    let mut mounts = vec![
        mount(WORK_VOLUME, WORK_DIR),
        mount(PRIVATE_VOLUME, PRIVATE_DIR),
        mount(TMP_VOLUME, "/tmp"),
        read_only(ADMIN_VOLUME, ADMIN_DIR),
        read_only(TOKEN_VOLUME, TOKEN_DIR),
    ];
    mounts.extend(settings.volume_mounts.iter().cloned());
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(command(settings.engine)),
        env: Some(environment(owner, settings, infra, ports, options)),
        ports: Some(container_ports),
        resources: Some(settings.resources.clone()),
        liveness_probe: Some(probe("/healthz", ports.health, 10, 3)),
        readiness_probe: Some(probe("/readyz", ports.health, 2, 2)),
        security_context: Some(locked_down()),
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

/// An image without Vinyl Cache does not start where parameters ask for it: pods of before go on serving.
fn command(engine: Engine) -> Vec<String> {
    let words: &[&str] = match engine {
        // As it was before there was a choice: no pod rolls.
        Engine::Varnish7 => &["varnish-gateway", "chaperone"],
        Engine::Vinyl9 => &["varnish-gateway", "chaperone", "--engine", "vinyl"],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn environment(
    owner: &Owner<'_>,
    settings: &Workload,
    infra: &Infra,
    ports: &Ports<'_>,
    options: &Options,
) -> Vec<EnvVar> {
    let mut all = vec![field("NAMESPACE", "metadata.namespace"), field("POD_NAME", "metadata.name")];
    let mut add = |name: &str, value: String| {
        all.push(EnvVar { name: name.to_owned(), value: Some(value), ..EnvVar::default() });
    };
    add("GATEWAY_NAME", owner.name.to_owned());
    add("VARNISH_LISTEN", ports.listen());
    if infra.http_in_front {
        add("HTTP_IN_FRONT", true.to_string());
        let HotObjects { disabled, bytes, max_object_bytes } = infra.hot_objects;
        if disabled {
            add("HOT_OBJECTS", false.to_string());
        }
        if let Some(bytes) = bytes {
            add("HOT_OBJECTS_BYTES", bytes.to_string());
        }
        if let Some(bytes) = max_object_bytes {
            add("HOT_OBJECTS_MAX_OBJECT_BYTES", bytes.to_string());
        }
        if let Some(logging) = &settings.logging {
            add("ACCESS_LOG", "json".to_owned());
            if logging.query_strings {
                add("ACCESS_LOG_QUERY_STRINGS", true.to_string());
            }
        }
    }
    add("VARNISHD_EXTRA_ARGS", varnishd_arguments(settings, infra).join(";"));
    add("VARNISH_SECRET_PATH", format!("{ADMIN_DIR}/{ADMIN_KEY}"));
    add("WORK_DIR", WORK_DIR.to_owned());
    add("HEALTH_ADDR", format!(":{}", ports.health));
    if let Some(port) = ports.admin {
        add("VARNISH_ADMIN_PORT", port.to_string());
    }
    add("UPGRADE_IDLE_SECONDS", infra.upgrade_idle_seconds.to_string());
    add("DRAIN_DELAY", DRAIN_DELAY_SECONDS.to_string());
    add("DRAIN_TIMEOUT", settings.drain_seconds.to_string());
    if let Some(level) = &options.log_level {
        add("LOG_LEVEL", level.clone());
    }
    if settings.dashboard.off {
        add("DASHBOARD_ADDR", "off".to_owned());
    }
    if settings.dashboard.allow_actions {
        add("DASHBOARD_ALLOW_ACTIONS", "true".to_owned());
    }
    if let Some(endpoint) = &settings.otlp_endpoint {
        add("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.clone());
    }
    all
}

/// The user's arguments come last, so that they win.
fn varnishd_arguments(settings: &Workload, infra: &Infra) -> Vec<String> {
    let mut arguments = Vec::new();
    // Two storages of one name would keep varnishd from starting, so the user's replace the default.
    if !storage::names_cache(&infra.varnishd_args) {
        arguments.extend(["-s".to_owned(), settings.default_storage.clone()]);
    }
    if !storage::names_transient(&infra.varnishd_args) {
        arguments.extend(["-s".to_owned(), settings.default_transient.clone()]);
    }
    if let Some(logging) = settings.logging.as_ref().filter(|_| !infra.http_in_front) {
        arguments.extend(logging::varnishd_arguments(logging).into_iter().map(str::to_owned));
    }
    arguments.extend(infra.varnishd_args.iter().cloned());
    arguments
}

fn field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            // The version is what the API server would fill in.
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    }
}

fn container_port(name: &str, port: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

fn probe(path: &str, port: u16, period: i32, failures: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(i32::from(port)),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

/// No privileges, nothing to write to but volumes.
pub(super) fn locked_down() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}

fn volumes(owner: &Owner<'_>, settings: &Workload) -> Vec<Volume> {
    let named = |name: &str| Volume { name: name.to_owned(), ..Volume::default() };
    let work = EmptyDirVolumeSource {
        // varnishd's log is shared memory: on a disk it would be slow.
        medium: Some("Memory".to_owned()),
        // Nothing is taken before it is used. A number that followed the routes would roll the pods with them.
        size_limit: Some(Quantity("1024Mi".to_owned())),
    };
    let admin = SecretVolumeSource {
        secret_name: Some(admin_secret(owner.name)),
        items: Some(vec![KeyToPath { key: ADMIN_KEY.to_owned(), path: ADMIN_KEY.to_owned(), mode: None }]),
        default_mode: Some(0o440),
        optional: None,
    };
    let private = EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit: None };
    let own = [
        Volume { empty_dir: Some(work), ..named(WORK_VOLUME) },
        Volume { empty_dir: Some(private), ..named(PRIVATE_VOLUME) },
        Volume { empty_dir: Some(EmptyDirVolumeSource::default()), ..named(TMP_VOLUME) },
        Volume { secret: Some(admin), ..named(ADMIN_VOLUME) },
        Volume { projected: Some(token()), ..named(TOKEN_VOLUME) },
    ];
    own.into_iter().chain(settings.volumes.iter().cloned()).collect()
}

/// The same files that the API server would mount into every container.
fn token() -> ProjectedVolumeSource {
    let token = ServiceAccountTokenProjection {
        path: "token".to_owned(),
        expiration_seconds: Some(TOKEN_SECONDS),
        audience: None,
    };
    let authority = ConfigMapProjection {
        name: "kube-root-ca.crt".to_owned(),
        items: Some(vec![KeyToPath { key: "ca.crt".to_owned(), path: "ca.crt".to_owned(), mode: None }]),
        optional: None,
    };
    let namespace = DownwardAPIProjection {
        items: Some(vec![DownwardAPIVolumeFile {
            path: "namespace".to_owned(),
            field_ref: Some(ObjectFieldSelector {
                api_version: Some("v1".to_owned()),
                field_path: "metadata.namespace".to_owned(),
            }),
            ..DownwardAPIVolumeFile::default()
        }]),
    };
    ProjectedVolumeSource {
        default_mode: Some(0o644),
        sources: Some(vec![
            VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() },
            VolumeProjection { config_map: Some(authority), ..VolumeProjection::default() },
            VolumeProjection { downward_api: Some(namespace), ..VolumeProjection::default() },
        ]),
    }
}

/// The user's, about the Gateway's own pods where they do not say which; else over zones and nodes, as well as possible.
fn topology_spread(owner: &Owner<'_>, settings: &Workload) -> Vec<TopologySpreadConstraint> {
    if let Some(given) = &settings.topology_spread {
        let with_selector = |constraint: &TopologySpreadConstraint| TopologySpreadConstraint {
            label_selector: constraint.label_selector.clone().or_else(|| Some(owner.selector())),
            ..constraint.clone()
        };
        return given.iter().map(with_selector).collect();
    }
    ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
        .map(|key| TopologySpreadConstraint {
            max_skew: 1,
            topology_key: key.to_owned(),
            when_unsatisfiable: "ScheduleAnyway".to_owned(),
            label_selector: Some(owner.selector()),
            // Pods of the old template do not count while a new one is rolled out.
            match_label_keys: Some(vec!["pod-template-hash".to_owned()]),
            ..TopologySpreadConstraint::default()
        })
        .into()
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
