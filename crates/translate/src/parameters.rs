//! GatewayClassParameters as one Gateway sees them: those of its class, overridden field by field by its own.

mod embedded;
mod hot_objects;
mod limits;
pub mod pods;
pub(crate) mod quantity;
pub mod storage;

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use api::{
    DashboardParameters, DataPath, ExternalNames, GatewayClassParameters, GatewayClassParametersSpec,
    LogMode, ServiceParameters, TimeoutParameters, TlsParameters, UserVclConfigMapRef,
};
use model::names::API_GROUP;
use model::{
    Arrangement, ClientLimits, DotSegments, DuplicateSlashes, EncodedSeparators, Paths, ProxyProtocol,
    ThroughVarnishd, Timeouts, TlsLimits,
};
use serde::{Deserialize, Serialize};

use self::pods::Workload;
use crate::infra::HotObjects;
use crate::snapshot::{Key, Snapshot};
use crate::varnishd_args;

/// The kind that parametersRefs may name.
const KIND: &str = "GatewayClassParameters";
/// Where user VCL stands in its ConfigMap unless the reference says otherwise.
const USER_VCL_KEY: &str = "user.vcl";
/// A WebSocket may be silent for five minutes.
const UPGRADE_IDLE_SECONDS: f64 = 300.0;
/// The data path of Gateways whose parameters do not choose one.
pub const DEFAULT_DATA_PATH: DataPath = DataPath::Auto;
/// For requests to finish when their pod ends.
const DRAIN_SECONDS: f64 = 30.0;

/// A parametersRef of a GatewayClass or a Gateway.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) name: &'a str,
}

/// The parameters that `reference` names. GatewayClassParameters are cluster-wide, so a namespace is ignored.
/// An error goes on where the name of the field leaves off.
pub(crate) fn find<'a>(
    reference: Reference<'_>,
    snapshot: &'a Snapshot,
) -> Result<&'a Arc<GatewayClassParameters>, String> {
    let Reference { group, kind, name } = reference;
    if group != API_GROUP || kind != KIND {
        let group = if group.is_empty() { "the core group".to_owned() } else { format!("group {group}") };
        return Err(format!(
            "names {kind} {name} of {group}, which this controller does not read: \
             use kind {KIND} of group {API_GROUP}"
        ));
    }
    snapshot.parameters.get(&Key::cluster(name)).ok_or_else(|| {
        format!("names {KIND} {name}, which does not exist: create it, or correct the reference")
    })
}

/// The parameters of a Gateway, in the form in which they are kept for the time when some are missing.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Former<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own: Option<Cow<'a, GatewayClassParametersSpec>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<Cow<'a, GatewayClassParametersSpec>>,
    /// The Gateway has no object: it was made for an IngressClass of its name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    made: bool,
}

impl Former<'_> {
    fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The Gateway that was made for an IngressClass before its parameters went missing, and the parameters.
pub(crate) fn former_of_class<'a>(
    class: &str,
    snapshot: &'a Snapshot,
) -> Option<(&'a Key, GatewayClassParametersSpec)> {
    let named = snapshot.former_parameters.iter().filter(|(key, _)| key.name == class);
    let mut made =
        named.filter_map(|(key, text)| Some((key, Former::read(text).filter(|former| former.made)?)));
    made.find_map(|(key, former)| Some((key, former.own?.into_owned())))
}

/// What the parameters come to for one Gateway.
#[derive(Debug)]
pub(crate) struct Parameters<'a> {
    pub(crate) timeouts: Option<Timeouts>,
    pub(crate) upgrade_idle_seconds: f64,
    pub(crate) hot_objects: HotObjects,
    pub(crate) tls_limits: Option<TlsLimits>,
    pub(crate) client_limits: Option<ClientLimits>,
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    pub(crate) external_names: ExternalNames,
    pub(crate) trusted_proxies: Vec<String>,
    pub(crate) cache_status_header: bool,
    pub(crate) route_metrics: bool,
    /// Where spans are exported: of the requests that bring no trace along, this share.
    pub(crate) trace_sampling: Option<f64>,
    pub(crate) paths: Option<Paths>,
    /// The front owns all ports and carries HTTP.
    pub(crate) http_in_front: bool,
    /// Why it does not, where the parameters are the reason.
    pub(crate) through_varnishd: Option<ThroughVarnishd>,
    pub(crate) varnishd_args: Vec<String>,
    pub(crate) user_vcl: UserVclText<'a>,
    /// For the process that runs the Gateway in pods.
    pub(crate) workload: Workload,
    pub(crate) ingress: crate::ingress::Options,
    /// There is at least one reference to parameters.
    pub(crate) given: bool,
    /// Invalid references. With one of these, it is unknown with which arguments varnishd should be started; the rest is
    /// as it was last, where that is known.
    pub(crate) unresolved: Vec<String>,
    /// What to come back to once some are missing. `None`: they are, and nothing is known.
    pub(crate) kept: Option<Arc<str>>,
    /// Fields that are not used as they stand, each with what to do.
    pub(crate) problems: Vec<String>,
    /// Fields that are in use, and dangerous.
    pub(crate) warnings: Vec<String>,
}

/// The user's VCL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UserVclText<'a> {
    None,
    Found {
        origin: String,
        text: &'a str,
    },
    /// The user VCL is missing. It may have access rules, so the Gateway must not run without it.
    Missing(String),
}

impl<'a> Parameters<'a> {
    /// `class` and `own` are the references of GatewayClass and Gateway, each with the field that it stands in.
    pub(crate) fn new(
        class: Option<(&str, Reference<'_>)>,
        own: Option<(&str, Reference<'_>)>,
        gateway: &Key,
        made: bool,
        snapshot: &'a Snapshot,
    ) -> Self {
        let found = |reference: Option<(&str, Reference<'_>)>| {
            let (whose, reference) = reference?;
            Some(find(reference, snapshot).map_err(|problem| format!("{whose} {problem}")))
        };
        let (found_own, found_class) = (found(own), found(class));
        let mut unresolved: Vec<String> =
            [&found_own, &found_class].into_iter().flatten().filter_map(|one| one.clone().err()).collect();
        // Its defaults could be wider than what the Gateway was given.
        let former = snapshot.former_parameters.get(gateway).filter(|_| !unresolved.is_empty());
        let former = former.and_then(|text| Former::read(text));
        if former.is_some() {
            for problem in &mut unresolved {
                problem.push_str(" (until then, the last known parameters stay in use)");
            }
        }
        let known = former.is_some() || unresolved.is_empty();
        let Former { own: former_own, class: former_class, .. } = former.unwrap_or_default();
        let layer = |found: Option<Result<&'a Arc<GatewayClassParameters>, String>>, former| match found? {
            Ok(parameters) => Some(Cow::Borrowed(&parameters.spec)),
            Err(_) => former,
        };
        let both =
            Former { own: layer(found_own, former_own), class: layer(found_class, former_class), made };
        let kept = known.then(|| serde_json::to_string(&both).ok()).flatten().map(Arc::from);
        let layers = Layers { own: both.own.as_deref(), class: both.class.as_deref() };

        let arrangement = arrangement(layers, snapshot);
        let (mut problems, mut warnings) = (Vec::new(), Vec::new());
        let timeouts = timeouts(layers, &mut problems);
        let upgrade_idle = layers.timeout(|t| t.upgrade_idle.as_ref());
        let (extra_args, refused) = varnishd_args::check(
            layers.field(|spec| spec.varnishd_extra_args.as_ref()).map_or(&[][..], Vec::as_slice),
        );
        problems.extend(refused.into_iter().map(|argument| format!("varnishdExtraArgs: {argument}")));
        let mut varnishd_args = storage::arguments(
            layers.field(|spec| spec.storage.as_ref()),
            pods::memory_limit(layers),
            &mut problems,
        );
        varnishd_args.extend(extra_args);
        let drain = seconds("drain", layers.timeout(|t| t.drain.as_ref()), DRAIN_SECONDS, &mut problems);
        let workload = Workload::new(layers, drain, &mut problems);
        Self {
            timeouts,
            upgrade_idle_seconds: seconds("upgradeIdle", upgrade_idle, UPGRADE_IDLE_SECONDS, &mut problems),
            hot_objects: hot_objects::hot_objects(
                layers,
                arrangement.http_in_front,
                pods::memory_limit(layers),
                &mut problems,
            ),
            tls_limits: tls_limits(layers, &mut problems),
            client_limits: limits::client_limits(layers, arrangement.http_in_front, &mut problems),
            proxy_protocol: limits::proxy_protocol(
                layers,
                arrangement.http_in_front,
                &mut problems,
                &mut warnings,
            ),
            external_names: layers.field(|spec| spec.external_names.as_ref()).copied().unwrap_or_default(),
            trusted_proxies: trusted_proxies(layers, &mut problems),
            cache_status_header: layers
                .field(|spec| spec.cache_status_header.as_ref())
                .copied()
                .unwrap_or(true),
            route_metrics: layers
                .field(|spec| spec.metrics.as_ref()?.per_route.as_ref())
                .copied()
                .unwrap_or(true),
            trace_sampling: trace_sampling(layers, &mut problems),
            paths: paths(layers),
            http_in_front: arrangement.http_in_front,
            through_varnishd: arrangement.through_varnishd,
            varnishd_args,
            // It is unknown which VCL is wanted where parameters are missing.
            user_vcl: layers
                .field(|spec| spec.user_vcl_config_map_ref.as_ref())
                .filter(|_| unresolved.is_empty())
                .map_or(UserVclText::None, |reference| user_vcl(reference, &gateway.namespace, snapshot)),
            workload,
            ingress: crate::ingress::Options::new(layers),
            given: class.is_some() || own.is_some(),
            unresolved,
            kept,
            problems,
            warnings,
        }
    }

    /// Why the Gateway cannot run as configured, if so.
    pub(crate) fn fatal(&self) -> Option<String> {
        let missing = match &self.user_vcl {
            UserVclText::Missing(why) => Some(why),
            _ => None,
        };
        let all: Vec<&str> = self.unresolved.iter().chain(missing).map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// The Gateway's parameters before those of its class.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'a> {
    own: Option<&'a GatewayClassParametersSpec>,
    class: Option<&'a GatewayClassParametersSpec>,
}

impl<'a> Layers<'a> {
    pub(crate) fn field<T>(
        &self,
        of: impl Fn(&'a GatewayClassParametersSpec) -> Option<&'a T>,
    ) -> Option<&'a T> {
        self.own.and_then(&of).or_else(|| self.class.and_then(&of))
    }

    /// Each timeout is a field of its own: a Gateway that sets one keeps the others of its class.
    fn timeout(&self, of: impl Fn(&'a TimeoutParameters) -> Option<&'a String>) -> Option<&'a str> {
        self.field(|spec| spec.timeouts.as_ref().and_then(&of)).map(String::as_str)
    }

    fn tls<T>(&self, of: impl Fn(&'a TlsParameters) -> Option<&'a T>) -> Option<&'a T> {
        self.field(|spec| spec.tls.as_ref().and_then(&of))
    }

    pub(crate) fn dashboard(&self, of: impl Fn(&'a DashboardParameters) -> Option<bool>) -> Option<bool> {
        let asked = |spec: Option<&'a GatewayClassParametersSpec>| spec?.dashboard.as_ref().and_then(&of);
        asked(self.own).or_else(|| asked(self.class))
    }

    /// So is each setting of the Service.
    pub(crate) fn service<T>(&self, of: impl Fn(&'a ServiceParameters) -> Option<&'a T>) -> Option<&'a T> {
        self.field(|spec| spec.service.as_ref().and_then(&of))
    }
}

fn timeouts(layers: Layers<'_>, problems: &mut Vec<String>) -> Option<Timeouts> {
    let connect = layers.timeout(|t| t.connect.as_ref());
    let first_byte = layers.timeout(|t| t.first_byte.as_ref());
    let idle = layers.timeout(|t| t.idle.as_ref());
    if connect.is_none() && first_byte.is_none() && idle.is_none() {
        return None;
    }
    let default = Timeouts::default();
    Some(Timeouts {
        connect_seconds: seconds("connect", connect, default.connect_seconds, problems),
        first_byte_seconds: seconds("firstByte", first_byte, default.first_byte_seconds, problems),
        idle_seconds: seconds("idle", idle, default.idle_seconds, problems),
    })
}

/// Each limit is a field of its own, too.
fn tls_limits(layers: Layers<'_>, problems: &mut Vec<String>) -> Option<TlsLimits> {
    let duration = |name: &str, text: Option<&String>, problems: &mut Vec<String>| {
        let text = text?;
        let parsed = gateway_api::Duration::from_str(text).ok();
        let seconds = parsed.map(|d| Duration::new(d.as_secs(), d.subsec_nanos()).as_secs_f64());
        let seconds = seconds.filter(|seconds| *seconds > 0.0);
        if seconds.is_none() {
            problems.push(format!(
                "tls.{name}: `{text}` is not a valid duration: write it as 3s500ms or 1m (the default is in use)"
            ));
        }
        seconds
    };
    let count = |name: &str, value: Option<&i32>, range: RangeInclusive<i32>, problems: &mut Vec<String>| {
        let value = value?;
        let fits = u32::try_from(*value).ok().filter(|_| range.contains(value));
        if fits.is_none() {
            let (least, most) = range.into_inner();
            problems.push(format!(
                "tls.{name}: {value} is refused: write a number between {least} and {most} (the default is in use)"
            ));
        }
        fits
    };
    let connections = limits::connections(layers, problems);
    let limits = TlsLimits {
        handshake_seconds: duration(
            "handshakeTimeout",
            layers.tls(|tls| tls.handshake_timeout.as_ref()),
            problems,
        ),
        handshakes: count(
            "maxHandshakes",
            layers.tls(|tls| tls.max_handshakes.as_ref()),
            1..=1_000_000,
            problems,
        ),
        connections,
        client_hello_bytes: count(
            "maxClientHelloBytes",
            layers.tls(|tls| tls.max_client_hello_bytes.as_ref()),
            512..=65_536,
            problems,
        ),
        idle_seconds: duration("idleTimeout", layers.tls(|tls| tls.idle_timeout.as_ref()), problems),
    };
    (limits != TlsLimits::default()).then_some(limits)
}

fn seconds(field: &str, text: Option<&str>, default: f64, problems: &mut Vec<String>) -> f64 {
    let Some(text) = text else { return default };
    let parsed = gateway_api::Duration::from_str(text);
    match parsed.map(|duration| Duration::new(duration.as_secs(), duration.subsec_nanos()).as_secs_f64()) {
        Ok(seconds) if seconds > 0.0 => seconds,
        // varnishd takes zero for "not set", which is not what the user means.
        Ok(_) => {
            problems.push(format!(
                "timeouts.{field}: `{text}` is refused, since varnishd always has a limit: \
                 write a long time ({default}s is in use)"
            ));
            default
        }
        Err(_) => {
            problems.push(format!(
                "timeouts.{field}: `{text}` is not a duration: write it as 3s500ms or 1m ({default}s is in use)"
            ));
            default
        }
    }
}

/// Of the requests that bring no trace along, by default.
const TRACE_SAMPLING: f64 = 0.01;

fn trace_sampling(layers: Layers<'_>, problems: &mut Vec<String>) -> Option<f64> {
    let tracing = layers.field(|spec| spec.tracing.as_ref())?;
    let ratio = tracing.sampling_ratio.unwrap_or(TRACE_SAMPLING);
    if (0.0..=1.0).contains(&ratio) {
        return Some(ratio);
    }
    problems.push(format!(
        "tracing.samplingRatio: {ratio} is refused: write a number from 0 to 1 ({TRACE_SAMPLING} is in use)"
    ));
    Some(TRACE_SAMPLING)
}

/// Does the front carry HTTP? User VCL must see every request, and so must programs that read varnishd's log.
///
/// Decided by the parameters alone, not by whether the ConfigMap with user VCL is there: pods would roll whenever it comes or
/// goes.
fn arrangement(layers: Layers<'_>, snapshot: &Snapshot) -> Arrangement {
    let chosen = layers.field(|spec| spec.data_path.as_ref()).copied();
    let data_path = chosen.or(snapshot.default_data_path).unwrap_or(DEFAULT_DATA_PATH);
    let needed = if layers.field(|spec| spec.user_vcl_config_map_ref.as_ref()).is_some() {
        Some(ThroughVarnishd::UserVcl)
    } else if layers.field(|spec| spec.logging.as_ref()).is_some_and(|logging| logging.mode != LogMode::Json)
    {
        Some(ThroughVarnishd::Logging)
    } else if snapshot.reads_varnishd_log {
        Some(ThroughVarnishd::LogReader)
    } else {
        None
    };
    let through_varnishd = match data_path {
        DataPath::Auto => needed,
        DataPath::Varnish => chosen.map(|_| ThroughVarnishd::DataPath),
    };
    Arrangement {
        http_in_front: data_path == DataPath::Auto && needed.is_none(),
        through_varnishd,
        ..Arrangement::default()
    }
}

/// Each setting is a field of its own, too. Nothing is written where all are the defaults.
fn paths(layers: Layers<'_>) -> Option<Paths> {
    let dots = layers.field(|spec| spec.paths.as_ref()?.dot_segments.as_ref());
    let slashes = layers.field(|spec| spec.paths.as_ref()?.duplicate_slashes.as_ref());
    let separators = layers.field(|spec| spec.paths.as_ref()?.encoded_separators.as_ref());
    let paths = Paths {
        dot_segments: match dots.copied().unwrap_or_default() {
            api::DotSegments::Resolve => DotSegments::Resolve,
            api::DotSegments::Reject => DotSegments::Reject,
            api::DotSegments::Keep => DotSegments::Keep,
        },
        duplicate_slashes: match slashes.copied().unwrap_or_default() {
            api::DuplicateSlashes::Merge => DuplicateSlashes::Merge,
            api::DuplicateSlashes::Keep => DuplicateSlashes::Keep,
        },
        encoded_separators: match separators.copied().unwrap_or_default() {
            api::EncodedSeparators::RejectAmbiguous => EncodedSeparators::RejectAmbiguous,
            api::EncodedSeparators::Reject => EncodedSeparators::Reject,
            api::EncodedSeparators::Keep => EncodedSeparators::Keep,
        },
    };
    (paths != Paths::default()).then_some(paths)
}

fn trusted_proxies(layers: Layers<'_>, problems: &mut Vec<String>) -> Vec<String> {
    let mut networks = Vec::new();
    for text in layers.field(|spec| spec.trusted_proxies.as_ref()).into_iter().flatten() {
        match network(text) {
            Some(network) if networks.contains(&network) => {}
            Some(network) => networks.push(network),
            None => problems.push(format!(
                "trustedProxies: `{text}` is neither a network nor an address, and left out: write it as 10.0.0.0/8, \
                 fd00::/8 or 192.0.2.1"
            )),
        }
    }
    networks
}

/// `10.1.2.3/8` as `10.0.0.0/8`, and an address as the network of just that address.
fn network(text: &str) -> Option<String> {
    let (address, length) = match text.trim().split_once('/') {
        Some((address, length)) if length.bytes().all(|b| b.is_ascii_digit()) => (address, Some(length)),
        Some(_) => return None,
        None => (text.trim(), None),
    };
    let address = IpAddr::from_str(address).ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length: u32 = length.map_or(Some(longest), |length| length.parse().ok())?;
    let host_bits = longest.checked_sub(length)?;
    let address = match address {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & u32::MAX.checked_shl(host_bits).unwrap_or(0)).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & u128::MAX.checked_shl(host_bits).unwrap_or(0)).into()),
    };
    Some(format!("{address}/{length}"))
}

fn user_vcl<'a>(reference: &UserVclConfigMapRef, namespace: &str, snapshot: &'a Snapshot) -> UserVclText<'a> {
    let config_map = Key::new(reference.namespace.as_deref().unwrap_or(namespace), &reference.name);
    let key = reference.key.as_deref().unwrap_or(USER_VCL_KEY);
    let Some(found) = snapshot.config_maps.get(&config_map) else {
        return UserVclText::Missing(format!(
            "userVCLConfigMapRef names ConfigMap {config_map}, which does not exist: create it with your VCL under \
             the key {key}, or remove the reference"
        ));
    };
    if let Some(text) = found.data.as_ref().and_then(|data| data.get(key)) {
        return UserVclText::Found { origin: format!("ConfigMap {config_map}, key {key}"), text };
    }
    let there: Vec<&str> = found.data.iter().flat_map(|data| data.keys()).map(String::as_str).collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    UserVclText::Missing(format!(
        "userVCLConfigMapRef names the key {key} of ConfigMap {config_map}, which has no such key in its data \
         (keys: {there}): put your VCL there, or set userVCLConfigMapRef.key"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_written_in_one_form() {
        for (text, expected) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("10.1.2.3/8", Some("10.0.0.0/8")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("192.0.2.7", Some("192.0.2.7/32")),
            (" 192.0.2.7/32 ", Some("192.0.2.7/32")),
            ("fd00::1/8", Some("fd00::/8")),
            ("::/0", Some("::/0")),
            ("2001:db8::1", Some("2001:db8::1/128")),
            ("10.0.0.0/33", None),
            ("fd00::/129", None),
            ("10.0.0.0/-1", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.0/", None),
            ("10.0.0", None),
            ("proxy.example.com", None),
            ("", None),
        ] {
            assert_eq!(network(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_those_of_the_gateway_api() {
        let mut problems = vec![];
        assert_eq!(seconds("idle", Some("3s500ms"), 60.0, &mut problems), 3.5);
        assert_eq!(seconds("idle", Some("1m"), 60.0, &mut problems), 60.0);
        assert_eq!(seconds("idle", None, 7.0, &mut problems), 7.0);
        assert_eq!(problems, [""; 0]);
        for bad in ["5", "1.5s", "-1s", "forever", "", "0s"] {
            problems.clear();
            assert_eq!(seconds("idle", Some(bad), 60.0, &mut problems), 60.0);
            assert!(problems[0].starts_with(&format!("timeouts.idle: `{bad}`")), "{problems:?}");
        }
    }
}
