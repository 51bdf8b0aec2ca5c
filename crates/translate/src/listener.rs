//! One listener of a Gateway: what it takes, whether it can be served, and what its status says.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use gateway_api::gateways::{GatewayListeners, GatewayListenersTlsMode};

use model::TlsOptions;

use crate::certificates::{Certificates, ListenerCertificates};
use crate::claims::Claims;
use crate::hostname;
use crate::snapshot::Key;
use crate::status::{
    ACCEPTED, CONFLICTED, Condition, ListenerStatus, OVERLAPPING_TLS, RESOLVED_REFS, RouteGroupKind,
};
use crate::tls_options;

pub(crate) use model::RouteKind;
pub(crate) use model::names::GATEWAY_API_GROUP;
/// Of one Gateway, those of its ListenerSets included.
const MOST_LISTENERS: usize = 1024;
/// Of ListenerSets of one namespace: another one's listeners must find a place, too.
const MOST_OF_NAMESPACE: usize = 256;
/// Listeners that a status names.
const MOST_NAMED: usize = 16;

/// The protocols of the Gateway API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Https,
    Tls,
    Tcp,
    Udp,
    /// Of another implementation's domain.
    Other,
}

impl Protocol {
    fn parse(protocol: &str) -> Self {
        match protocol {
            "HTTP" => Self::Http,
            "HTTPS" => Self::Https,
            "TLS" => Self::Tls,
            "TCP" => Self::Tcp,
            "UDP" => Self::Udp,
            _ => Self::Other,
        }
    }

    /// Why it is not served, if so.
    fn unsupported(self) -> Option<&'static str> {
        match self {
            Self::Http | Self::Https | Self::Tls | Self::Tcp | Self::Udp => None,
            Self::Other => Some("is not known to this gateway: use HTTP, HTTPS, TLS, TCP or UDP"),
        }
    }

    /// The kinds of routes that fit the protocol, supported or not.
    fn route_kinds(self) -> &'static [RouteKind] {
        match self {
            Self::Http | Self::Https => &[RouteKind::HttpRoute, RouteKind::GrpcRoute],
            Self::Tls => &[RouteKind::TlsRoute],
            Self::Tcp => &[RouteKind::TcpRoute],
            Self::Udp => &[RouteKind::UdpRoute],
            Self::Other => &[],
        }
    }

    /// As in socket names.
    pub(crate) fn lower_case(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tls => "tls",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Other => "other",
        }
    }
}

/// A reason of the Gateway API, and a message for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// A listener with everything decided but the routes that attach to it.
#[derive(Debug)]
pub(crate) struct Listener<'a> {
    pub(crate) spec: &'a GatewayListeners,
    /// The ListenerSet that it is of; none: the Gateway's own.
    pub(crate) set: Option<&'a Key>,
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
    pub(crate) hostname: Option<String>,
    /// Kinds of routes that may attach.
    pub(crate) kinds: Vec<RouteKind>,
    /// Kinds in its allowedRoutes that may not.
    unknown_kinds: Vec<String>,
    conflict: Option<Fault>,
    /// HTTPS listeners of the same port that take some of its hosts, too.
    overlaps: Vec<String>,
    /// Why it is not accepted, if so.
    pub(crate) fault: Option<Fault>,
    /// Of a ListenerSet that cannot be used: it keeps its place, so that no wider listener gets its requests, and serves nothing.
    pub(crate) closed: Option<Fault>,
    /// Invalid references to CA certificates for clients.
    untrusted: Option<Fault>,
    /// Of a listener that ends TLS.
    pub(crate) certificates: Option<ListenerCertificates>,
    /// Of a listener that ends TLS.
    pub(crate) tls_options: TlsOptions,
    /// Routes that are attached and accepted.
    pub(crate) attached_routes: i32,
    /// Hosts that HTTPRoutes and GRPCRoutes have here.
    pub(crate) claims: Claims,
}

impl<'a> Listener<'a> {
    /// All listeners of a Gateway, in its order.
    pub(crate) fn all(specs: &'a [GatewayListeners]) -> Vec<Self> {
        let mut listeners: Vec<_> = specs.iter().map(Self::new).collect();
        let others =
            |one: &Listener<'_>| conflict(one, listeners.iter().filter(|other| !std::ptr::eq(*other, one)));
        let conflicts: Vec<_> = listeners.iter().map(others).collect();
        for (listener, conflict) in listeners.iter_mut().zip(conflicts) {
            if let Some(conflict) = &conflict
                && listener.fault.is_none()
            {
                listener.fault = Some(Fault { reason: "Invalid", message: conflict.message.clone() });
            }
            listener.conflict = conflict;
        }
        overlap(&mut listeners);
        listeners
    }

    /// Adds the listeners of ListenerSets behind those that are there. The first of a conflict is served.
    ///
    /// Those that are not served are compared with nothing and count towards no limit: a user that adds many of them costs others
    /// little time and no place.
    pub(crate) fn join(
        listeners: &mut Vec<Self>,
        sets: impl Iterator<Item = (&'a Key, &'a [GatewayListeners], Option<&'a Fault>)>,
    ) {
        let mut in_the_way: Vec<usize> = (0..listeners.len()).collect();
        let mut by_namespace: HashMap<&str, usize> = HashMap::new();
        let each = |(set, specs, closed): (&'a Key, &'a [GatewayListeners], Option<&'a Fault>)| {
            specs.iter().map(move |spec| (set, spec, closed))
        };
        for (set, spec, closed) in sets.flat_map(each) {
            let mut listener = Self { set: Some(set), closed: closed.cloned(), ..Self::new(spec) };
            let of_namespace = by_namespace.entry(&set.namespace).or_default();
            let too_many = if in_the_way.len() >= MOST_LISTENERS {
                Some(format!("the Gateway has {MOST_LISTENERS} listeners already: remove some"))
            } else if *of_namespace >= MOST_OF_NAMESPACE {
                Some(format!(
                    "ListenerSets of namespace {} have {MOST_OF_NAMESPACE} listeners at the Gateway already: remove some",
                    set.namespace
                ))
            } else {
                listener.conflict =
                    conflict(&listener, in_the_way.iter().filter_map(|at| listeners.get(*at)));
                None
            };
            if listener.fault.is_none() {
                let too_many = too_many.map(|message| Fault { reason: "TooManyListeners", message });
                listener.fault = too_many.or_else(|| listener.conflict.clone());
            }
            if listener.fault.is_none() {
                in_the_way.push(listeners.len());
                *of_namespace += 1;
            }
            listeners.push(listener);
        }
        overlap(listeners);
    }

    fn new(spec: &'a GatewayListeners) -> Self {
        let protocol = Protocol::parse(&spec.protocol);
        let port = u16::try_from(spec.port).ok().filter(|port| *port > 0);
        let fault = match (protocol.unsupported(), port) {
            (Some(why), _) => Some(Fault {
                reason: "UnsupportedProtocol",
                message: format!("protocol {} {why}", spec.protocol),
            }),
            (None, None) => Some(Fault {
                reason: "PortUnavailable",
                message: format!("port {} does not exist: use one from 1 to 65535", spec.port),
            }),
            (None, Some(_)) if protocol == Protocol::Https && passes_through(spec) => Some(Fault {
                reason: "UnsupportedValue",
                message: "tls.mode Passthrough needs protocol TLS: use that, or Terminate".to_owned(),
            }),
            (None, Some(_)) => None,
        };
        let (kinds, unknown_kinds) = kinds(spec, protocol);
        Self {
            spec,
            set: None,
            port: port.unwrap_or_default(),
            protocol,
            hostname: hostname::normal(spec.hostname.as_deref()),
            kinds,
            unknown_kinds,
            conflict: None,
            overlaps: Vec::new(),
            fault,
            closed: None,
            untrusted: None,
            certificates: None,
            tls_options: TlsOptions::default(),
            attached_routes: 0,
            claims: Claims::default(),
        }
    }

    pub(crate) fn name(&self) -> &'a str {
        &self.spec.name
    }

    /// Its name in routing.json, where names of listeners are unique: those of ListenerSets begin with that of their set.
    pub(crate) fn routing_name(&self) -> String {
        match self.set {
            Some(set) => format!("{set}/{}", self.spec.name),
            None => self.spec.name.clone(),
        }
    }

    /// Text for messages.
    pub(crate) fn shown(&self) -> String {
        match self.set {
            Some(set) => format!("{} of ListenerSet {set}", self.spec.name),
            None => self.spec.name.clone(),
        }
    }

    pub(crate) fn socket(&self) -> String {
        model::names::socket_name(self.protocol.lower_case(), self.port)
    }

    /// Are its connections decrypted here?
    pub(crate) fn ends_tls(&self) -> bool {
        self.protocol == Protocol::Https || (self.protocol == Protocol::Tls && !passes_through(self.spec))
    }

    /// What clients must show cannot be checked: no client may get in.
    pub(crate) fn distrust(&mut self, unresolved: Fault, none_is_valid: bool) {
        if none_is_valid && self.fault.is_none() {
            let message = format!("No CA certificate for clients can be used: {}", unresolved.message);
            self.fault = Some(Fault { reason: "NoValidCACertificate", message });
        }
        self.untrusted = Some(unresolved);
    }

    /// Finds the certificates that an HTTPS listener needs.
    pub(crate) fn find_certificates(&mut self, certificates: &mut Certificates<'_>) {
        if self.ends_tls() && self.closed.is_some() {
            self.certificates = Some(ListenerCertificates::default());
        } else if self.ends_tls() {
            self.certificates = Some(certificates.of_listener(self.spec, self.set));
        }
    }

    /// Reads `tls.options`. A listener whose options cannot be carried out is not served: TLS would be weaker than asked for.
    pub(crate) fn read_tls_options(&mut self) {
        let options = self.spec.tls.as_ref().and_then(|tls| tls.options.as_ref()).filter(|o| !o.is_empty());
        let read = if self.ends_tls() || options.is_none() {
            tls_options::read("tls.options", options)
        } else {
            Err("tls.options have no effect where TLS is passed through: remove them".to_owned())
        };
        match read {
            Ok(options) => self.tls_options = options,
            Err(message) if self.fault.is_none() => {
                self.fault = Some(Fault { reason: "UnsupportedValue", message });
            }
            Err(_) => {}
        }
    }

    /// Has it a place in the routing? Also without any certificate: its names are then refused, and not another listener's to
    /// take.
    pub(crate) fn is_routed(&self) -> bool {
        self.fault.is_none()
    }

    /// Have its routes one? Also with certificates that have all broken: the last good ones stay in use.
    pub(crate) fn takes_requests(&self) -> bool {
        self.refusal().is_none() && self.certificates.as_ref().is_none_or(|found| !found.names.is_empty())
    }

    /// Why it takes no routes, if so.
    pub(crate) fn refusal(&self) -> Option<&Fault> {
        self.fault.as_ref().or(self.closed.as_ref())
    }

    /// Is there all that it takes to serve it?
    pub(crate) fn is_served(&self) -> bool {
        self.refusal().is_none() && self.certificates.as_ref().is_none_or(|found| found.usable)
    }

    /// Why it is not served, if so.
    pub(crate) fn why_not_served(&self) -> Option<String> {
        match (self.refusal(), &self.certificates) {
            (Some(fault), _) => Some(fault.message.clone()),
            (None, Some(found)) if !found.usable => Some(messages(&found.faults)),
            (None, _) => None,
        }
    }

    /// What keeps `ResolvedRefs` from being true, if so.
    fn unresolved(&self) -> Option<Fault> {
        let of_kinds = (!self.unknown_kinds.is_empty()).then(|| Fault {
            reason: "InvalidRouteKinds",
            message: format!(
                "allowedRoutes.kinds names {}, which a listener of protocol {} does not take here: \
                 use {} of group {GATEWAY_API_GROUP}",
                self.unknown_kinds.join(", "),
                self.spec.protocol,
                self.protocol.route_kinds().iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or "),
            ),
        });
        let of_certificates = self.certificates.iter().flat_map(|found| &found.faults).cloned();
        let all: Vec<Fault> = self.untrusted.iter().cloned().chain(of_certificates).chain(of_kinds).collect();
        let first = all.first()?;
        Some(Fault { reason: first.reason, message: messages(&all) })
    }

    pub(crate) fn status(&self, generation: i64) -> ListenerStatus {
        let condition = |kind: &str, good: bool, fault: Option<&Fault>, fine: &str, message: &str| match fault
        {
            Some(fault) => Condition::new(kind, !good, fault.reason, &fault.message, generation),
            None => Condition::new(kind, good, fine, message, generation),
        };
        let mut conditions = vec![
            condition(ACCEPTED, true, self.refusal(), "Accepted", "The listener is valid"),
            condition(
                CONFLICTED,
                false,
                self.conflict.as_ref(),
                "NoConflicts",
                "No other listener is in its way",
            ),
        ];
        let supported = self.protocol.unsupported().is_none();
        // Of a protocol that we do not read, we cannot say that all references are good.
        if supported {
            conditions.push(condition(
                RESOLVED_REFS,
                true,
                self.unresolved().as_ref(),
                "ResolvedRefs",
                "All references are resolved",
            ));
        }
        if !self.overlaps.is_empty() {
            let message = format!(
                "Hosts of this listener are also hosts of listener {} on port {}: the most specific hostname counts, and a \
                 request on a connection that was opened for another host may get 421",
                self.overlaps.join(", "),
                self.port
            );
            conditions.push(Condition::new(
                OVERLAPPING_TLS,
                true,
                "OverlappingHostnames",
                message,
                generation,
            ));
        }
        let kinds = if supported { self.kinds.as_slice() } else { &[] };
        let supported_kinds = kinds
            .iter()
            .map(|kind| RouteGroupKind { group: GATEWAY_API_GROUP.to_owned(), kind: kind.name().to_owned() })
            .collect();
        ListenerStatus {
            name: self.name().to_owned(),
            attached_routes: self.attached_routes,
            supported_kinds,
            conditions,
            served: self.is_served(),
        }
    }
}

fn messages(faults: &[Fault]) -> String {
    faults.iter().map(|fault| fault.message.as_str()).collect::<Vec<_>>().join("; ")
}

fn passes_through(spec: &GatewayListeners) -> bool {
    let mode = spec.tls.as_ref().and_then(|tls| tls.mode.as_ref());
    mode.is_some_and(|mode| *mode == GatewayListenersTlsMode::Passthrough)
}

/// The kinds that may attach, and those that allowedRoutes lists but the protocol does not support.
fn kinds(spec: &GatewayListeners, protocol: Protocol) -> (Vec<RouteKind>, Vec<String>) {
    let fitting = protocol.route_kinds();
    let asked = spec.allowed_routes.as_ref().and_then(|routes| routes.kinds.as_deref()).unwrap_or_default();
    if asked.is_empty() {
        return (fitting.to_vec(), Vec::new());
    }
    let mut found = Vec::new();
    let mut unknown = Vec::new();
    for one in asked {
        let group = one.group.as_deref().unwrap_or(GATEWAY_API_GROUP);
        match fitting.iter().find(|kind| group == GATEWAY_API_GROUP && kind.name() == one.kind) {
            Some(kind) if found.contains(kind) => {}
            Some(kind) => found.push(*kind),
            None if group == GATEWAY_API_GROUP => unknown.push(one.kind.clone()),
            None => unknown.push(format!("{} of group {group}", one.kind)),
        }
    }
    (found, unknown)
}

/// Why requests for this listener could not be distinguished from those of another one, if so. All listeners of a
/// conflict get it: none of them may win.
fn conflict<'l, 'a: 'l>(one: &Listener<'_>, all: impl Iterator<Item = &'l Listener<'a>>) -> Option<Fault> {
    let others: Vec<_> = all.filter(|other| other.port == one.port && one.port > 0).collect();
    let name = |other: &Listener<'_>| other.shown();
    let by_protocol = others.iter().find(|other| match (one.protocol, other.protocol) {
        (Protocol::Http, Protocol::Https | Protocol::Tls)
        | (Protocol::Https | Protocol::Tls, Protocol::Http) => true,
        // The name in the TLS handshake distinguishes these two: the most specific hostname takes it.
        (Protocol::Https, Protocol::Tls) | (Protocol::Tls, Protocol::Https) => one.hostname == other.hostname,
        // Ports of TCP are not those of UDP.
        (Protocol::Udp, _) | (_, Protocol::Udp) => false,
        (Protocol::Tcp, other) | (other, Protocol::Tcp) => {
            matches!(other, Protocol::Http | Protocol::Https | Protocol::Tls)
        }
        // The spec: protocols that an implementation does not support do not conflict with those it does.
        _ => false,
    });
    if let Some(other) = by_protocol {
        return Some(Fault {
            reason: "ProtocolConflict",
            message: format!(
                "listener {} has protocol {} on the same port {}: give one of them another port",
                name(other),
                other.spec.protocol,
                one.port
            ),
        });
    }
    let by_hostname = others.iter().find(|other| {
        one.protocol != Protocol::Other && one.protocol == other.protocol && one.hostname == other.hostname
    })?;
    if matches!(one.protocol, Protocol::Tcp | Protocol::Udp) {
        return Some(Fault {
            reason: "HostnameConflict",
            message: format!(
                "listener {} has the same port {} and protocol {}: give one of them another port",
                name(by_hostname),
                one.port,
                one.spec.protocol,
            ),
        });
    }
    Some(Fault {
        reason: "HostnameConflict",
        message: format!(
            "listener {} has the same port {} and {}: give one of them another hostname or port",
            name(by_hostname),
            one.port,
            one.hostname.as_ref().map_or("no hostname either".to_owned(), |host| format!("hostname {host}")),
        ),
    })
}

fn overlap(listeners: &mut [Listener<'_>]) {
    let may_count = |one: &&Listener<'_>| one.set.is_none() || one.fault.is_none();
    let all: Vec<_> = listeners.iter().filter(may_count).collect();
    let of = |one: &Listener<'_>| if may_count(&one) { overlaps(one, &all) } else { Vec::new() };
    let overlaps: Vec<_> = listeners.iter().map(of).collect();
    for (listener, overlaps) in listeners.iter_mut().zip(overlaps) {
        listener.overlaps = overlaps;
    }
}

/// Other HTTPS listeners of the port whose hostname takes some of the same hosts. The spec requires a condition for it: clients reuse
/// a connection for every name that its certificate has.
fn overlaps(one: &Listener<'_>, all: &[&Listener<'_>]) -> Vec<String> {
    let overlapping = |other: &&&Listener<'_>| {
        !std::ptr::eq(**other, one)
            && (one.protocol, other.protocol) == (Protocol::Https, Protocol::Https)
            && one.port == other.port
            && one.hostname != other.hostname
            && hostname::intersect(one.hostname.as_deref(), other.hostname.as_deref()).is_some()
    };
    all.iter().filter(overlapping).map(|other| other.shown()).take(MOST_NAMED).collect()
}
