//! Limits for clients, and PROXY protocol.
//!
//! Most of them need a front that carries HTTP. Fields that are not in use are named in status, so that users do not rely on them.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use api::{LimitParameters, ProxyProtocolMode};
use model::{ClientLimits, ProxyProtocol};

use super::{Layers, network};
use crate::parameters::quantity;

/// Why the front does not carry HTTP, and what to do.
pub(super) const NEEDS_FRONT: &str = "since varnishd owns the plain HTTP ports: set dataPath: Auto and remove userVCLConfigMapRef, logging \
                           and tracing";

/// UDP sessions are silent for this time at most.
const LONGEST_UDP_SECONDS: f64 = 3600.0;

/// Each limit is a field of its own. `http_in_front`: the front carries HTTP.
pub(super) fn client_limits(
    layers: Layers<'_>,
    http_in_front: bool,
    problems: &mut Vec<String>,
) -> Option<ClientLimits> {
    let mut read = Reader { layers, http_in_front, unused: Vec::new(), problems };
    let limits = ClientLimits {
        connections_per_address: read.any_count(
            "maxConnectionsPerAddress",
            |limits| limits.max_connections_per_address.as_ref(),
            1..=10_000_000,
        ),
        header_bytes: read.count("maxHeaderBytes", |l| l.max_header_bytes.as_ref(), 1024..=1_048_576),
        headers: read.count("maxHeaders", |l| l.max_headers.as_ref(), 8..=1024),
        url_bytes: read.count("maxUrlBytes", |l| l.max_url_bytes.as_ref(), 64..=65_535),
        body_bytes: read.size("maxBodySize", |l| l.max_body_size.as_ref()),
        header_seconds: read.time("headerTimeout", |l| l.header_timeout.as_ref()),
        idle_seconds: read.time("idleTimeout", |l| l.idle_timeout.as_ref()),
        stall_seconds: read.time("stallTimeout", |l| l.stall_timeout.as_ref()),
        streams: read.count("maxConcurrentStreams", |l| l.max_concurrent_streams.as_ref(), 1..=10_000),
        resets: read.count("maxResetsPerSecond", |l| l.max_resets_per_second.as_ref(), 1..=100_000),
        udp_sessions: read.any_count("maxUdpSessions", |l| l.max_udp_sessions.as_ref(), 1..=20_480),
        udp_idle_seconds: read.udp_time("udpIdleTimeout", |l| l.udp_idle_timeout.as_ref()),
        udp_established_seconds: read
            .udp_time("udpEstablishedTimeout", |l| l.udp_established_timeout.as_ref()),
    };
    let unused = read.unused;
    if !unused.is_empty() {
        problems.push(format!("{}: not in use, {NEEDS_FRONT}", unused.join(", ")));
    }
    (limits != ClientLimits::default()).then_some(limits)
}

/// Open connections: of `limits`, or of `tls`, whose field is older. Those of a Gateway go before those of its class.
pub(super) fn connections(layers: Layers<'_>, problems: &mut Vec<String>) -> Option<u32> {
    let value = layers.field(|spec| {
        let of_limits = spec.limits.as_ref().and_then(|limits| limits.max_connections.as_ref());
        of_limits.or_else(|| spec.tls.as_ref().and_then(|tls| tls.max_connections.as_ref()))
    })?;
    in_range("maxConnections", *value, 1..=10_000_000, problems)
}

fn in_range(name: &str, value: i32, range: RangeInclusive<i32>, problems: &mut Vec<String>) -> Option<u32> {
    let fits = u32::try_from(value).ok().filter(|_| range.contains(&value));
    if fits.is_none() {
        let (least, most) = range.into_inner();
        problems.push(format!(
            "limits.{name}: {value} is refused: write a number between {least} and {most} (the default is in use)"
        ));
    }
    fits
}

/// As a whole: networks of a Gateway and of its class are not mixed.
pub(super) fn proxy_protocol(
    layers: Layers<'_>,
    http_in_front: bool,
    problems: &mut Vec<String>,
    warnings: &mut Vec<String>,
) -> Option<ProxyProtocol> {
    let given = layers.field(|spec| spec.proxy_protocol.as_ref())?;
    if !http_in_front {
        problems.push(format!("proxyProtocol: not in use, {NEEDS_FRONT}"));
        return None;
    }
    let mut networks = Vec::new();
    for text in &given.trusted_sources {
        match network(text) {
            Some(network) if networks.contains(&network) => {}
            Some(network) => networks.push(network),
            None => problems.push(format!(
                "proxyProtocol.trustedSources: `{text}` is neither a network nor an address, and left out: write it as \
                 10.0.0.0/8, fd00::/8 or 192.0.2.1"
            )),
        }
    }
    if networks.is_empty() {
        problems.push(
            "proxyProtocol: not in use, since trustedSources has no network: write those of your load balancers"
                .to_owned(),
        );
        return None;
    }
    let all: Vec<&str> =
        networks.iter().filter(|network| network.ends_with("/0")).map(String::as_str).collect();
    if !all.is_empty() {
        warnings.push(format!(
            "proxyProtocol.trustedSources has {}: every client that reaches the ports can claim any address",
            all.join(" and ")
        ));
    }
    let optional = given.mode.unwrap_or_default() == ProxyProtocolMode::Optional;
    Some(ProxyProtocol { trusted_sources: networks, optional })
}

struct Reader<'a, 'p> {
    layers: Layers<'a>,
    http_in_front: bool,
    /// Fields that are set, and have no effect.
    unused: Vec<String>,
    problems: &'p mut Vec<String>,
}

impl<'a> Reader<'a, '_> {
    fn field<T>(&self, of: impl Fn(&'a LimitParameters) -> Option<&'a T>) -> Option<&'a T> {
        self.layers.field(|spec| spec.limits.as_ref().and_then(&of))
    }

    /// Whether a field that is set is of HTTP, and HTTP is not the front's.
    fn is_unused(&mut self, name: &str) -> bool {
        if !self.http_in_front {
            self.unused.push(format!("limits.{name}"));
        }
        !self.http_in_front
    }

    fn any_count(
        &mut self,
        name: &str,
        of: impl Fn(&'a LimitParameters) -> Option<&'a i32>,
        range: RangeInclusive<i32>,
    ) -> Option<u32> {
        let value = self.field(of)?;
        in_range(name, *value, range, self.problems)
    }

    fn count(
        &mut self,
        name: &str,
        of: impl Fn(&'a LimitParameters) -> Option<&'a i32>,
        range: RangeInclusive<i32>,
    ) -> Option<u32> {
        self.field(&of)?;
        if self.is_unused(name) { None } else { self.any_count(name, of, range) }
    }

    fn time(&mut self, name: &str, of: impl Fn(&'a LimitParameters) -> Option<&'a String>) -> Option<f64> {
        let text = self.field(of)?;
        if self.is_unused(name) {
            return None;
        }
        let parsed = gateway_api::Duration::from_str(text).ok();
        let seconds = parsed.map(|d| Duration::new(d.as_secs(), d.subsec_nanos()).as_secs_f64());
        let seconds = seconds.filter(|seconds| *seconds > 0.0);
        if seconds.is_none() {
            self.problems.push(format!(
                "limits.{name}: `{text}` is not a duration, or zero: write it as 3s500ms or 1m (the default is in use)"
            ));
        }
        seconds
    }

    /// Of UDP sessions, in both arrangements. One that stays for long takes a port from new clients.
    fn udp_time(
        &mut self,
        name: &str,
        of: impl Fn(&'a LimitParameters) -> Option<&'a String>,
    ) -> Option<f64> {
        let text = self.field(of)?;
        let parsed = gateway_api::Duration::from_str(text).ok();
        let seconds = parsed.map(|d| Duration::new(d.as_secs(), d.subsec_nanos()).as_secs_f64());
        let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST_UDP_SECONDS);
        if seconds.is_none() {
            self.problems.push(format!(
                "limits.{name}: `{text}` is not a duration between 1ms and 1h: write it as 45s or 5m (the default is in use)"
            ));
        }
        seconds
    }

    fn size(&mut self, name: &str, of: impl Fn(&'a LimitParameters) -> Option<&'a String>) -> Option<u64> {
        let text = self.field(of)?;
        if self.is_unused(name) {
            return None;
        }
        let bytes = quantity::bytes(text).filter(|bytes| *bytes > 0);
        if bytes.is_none() {
            // Without a limit the backend would get bodies that the owner wants to refuse.
            self.problems.push(format!(
                "limits.{name}: `{text}` is not a size: write it as 512Ki, 10Mi or 1Gi (1Mi is in use)"
            ));
        }
        Some(bytes.unwrap_or(1 << 20))
    }
}
