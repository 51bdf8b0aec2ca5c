//! TLS of Ingresses: certificates for single names on the listeners that take them. Where there is no HTTPS listener, one is
//! opened.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use k8s_openapi::api::networking::v1::IngressSpec;
use model::ListenerTls;
use model::names::{ANY_HOST, socket_name, socket_parts};
use model::routing::{Routing, Vhost};

use super::attach::takes;
use super::class::Ours;
use super::rules::Host;
use crate::gateway::Gateway;
use crate::hostname;
use crate::listener::Fault;
use crate::snapshot::Key;

/// The names that an Ingress has certificates for, each with its Secret.
pub(super) fn names(ours: &Ours<'_>, hosts: &[Host]) -> Vec<(String, Key)> {
    let empty = IngressSpec::default();
    let spec = ours.object.spec.as_ref().unwrap_or(&empty);
    let mut names = Vec::new();
    for tls in spec.tls.iter().flatten() {
        // Without a Secret: see `without_secret`.
        let Some(secret) = tls.secret_name.as_deref().filter(|name| !name.is_empty()) else { continue };
        let secret = Key::new(ours.key.namespace.as_str(), secret);
        let listed: Vec<String> =
            tls.hosts.iter().flatten().filter_map(|host| hostname::normal(Some(host))).collect();
        match (listed.is_empty(), hosts) {
            (false, _) => names.extend(listed.into_iter().map(|host| (host, secret.clone()))),
            (true, []) => names.push((ANY_HOST.to_owned(), secret)),
            (true, hosts) => names.extend(hosts.iter().map(|host| (host.name.clone(), secret.clone()))),
        }
    }
    names
}

/// Entries without a Secret give no certificate. Their hosts have HTTPS where a listener of the Gateway has a certificate for
/// them; all others are reported.
pub(super) fn without_secret(ours: &Ours<'_>, hosts: &[Host], listeners: &[model::Listener]) -> Vec<Fault> {
    let entries = ours.object.spec.as_ref().and_then(|spec| spec.tls.as_deref()).unwrap_or_default();
    let has_https = |host: &str| {
        listeners.iter().any(|listener| {
            let certificates = listener.tls.as_ref().is_some_and(|tls| !tls.certificates.is_empty());
            certificates && takes(listener.hostname.as_deref(), host).is_some()
        })
    };
    let mut faults = Vec::new();
    for (index, tls) in entries.iter().enumerate() {
        if tls.secret_name.as_deref().is_some_and(|name| !name.is_empty()) {
            continue;
        }
        let listed: Vec<String> =
            tls.hosts.iter().flatten().filter_map(|host| hostname::normal(Some(host))).collect();
        let named: Vec<&str> = match listed.is_empty() {
            false => listed.iter().map(String::as_str).collect(),
            true => hosts.iter().map(|host| host.name.as_str()).collect(),
        };
        let Some(host) = named.into_iter().find(|host| !has_https(host)) else { continue };
        faults.push(Fault {
            reason: "SecretNameMissing",
            message: format!(
                "spec.tls[{index}] has no secretName, and no HTTPS listener has a certificate for {host}, so HTTPS to it is not \
                 served: name a Secret of type kubernetes.io/tls"
            ),
        });
    }
    faults
}

/// One Ingress's certificate for one name.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    pub(super) ingress: &'a Key,
    pub(super) host: String,
    pub(super) secret: Key,
}

/// Those claims that are for names of the Ingress's own namespace; the others are reported. A wildcard without a rule is
/// narrowed to the hosts of the namespace that it covers.
pub(super) fn own<'a>(
    claims: Vec<Claim<'a>>,
    hosts: &HashMap<String, &'a Key>,
    routing: &Routing,
    mut left_out: impl FnMut(&'a Key, String),
) -> Vec<Claim<'a>> {
    let mut below: HashMap<(&str, String), Vec<&String>> = HashMap::new();
    if claims.iter().any(|claim| claim.host.starts_with("*.") && !hosts.contains_key(&claim.host)) {
        for (host, owner) in hosts {
            if let Some(wildcard) = wildcard(host) {
                below.entry((owner.namespace.as_str(), wildcard)).or_default().push(host);
            }
        }
    }
    let mut own = Vec::with_capacity(claims.len());
    for claim in claims {
        let Claim { ingress, host, secret } = &claim;
        let namespace = ingress.namespace.as_str();
        let owner = hosts.get(host).or_else(|| hosts.get(&wildcard(host)?));
        let narrowed = below.get(&(namespace, host.clone())).filter(|_| owner.is_none());
        let foreign = routing.vhosts.get(host).and_then(|vhost| foreign(vhost, namespace));
        let why = match (owner, foreign) {
            _ if host == ANY_HOST => None,
            (_, Some(route)) => Some(format!("which is that of HTTPRoute {route}")),
            (Some(owner), _) if owner.namespace != namespace => {
                Some(format!("which is that of Ingress {owner}"))
            }
            (None, _) if narrowed.is_none() => {
                Some("for which no Ingress of its namespace has a rule".to_owned())
            }
            _ => None,
        };
        if let Some(why) = why {
            left_out(
                ingress,
                format!(
                    "spec.tls names the host {host}, {why}: this certificate is not used for it, and without another one \
                     HTTPS to it is not served; remove the name"
                ),
            );
            continue;
        }
        match narrowed {
            Some(hosts) => {
                let mut hosts = hosts.clone();
                hosts.sort();
                own.extend(hosts.into_iter().map(|host| Claim {
                    ingress,
                    host: host.clone(),
                    secret: secret.clone(),
                }));
            }
            None => own.push(claim),
        }
    }
    own
}

/// An HTTPRoute of another namespace that has the host, too. One of the same namespace may stand beside its Ingress: that is
/// how one is moved to the other.
fn foreign<'a>(vhost: &'a Vhost, namespace: &str) -> Option<&'a str> {
    let own = |route: &str| route.split_once('/').is_some_and(|(of_route, _)| of_route == namespace);
    vhost.routes.iter().map(|route| route.route_name.as_str()).find(|route| !own(route))
}

/// `*.example.com` for `www.example.com`.
fn wildcard(host: &str) -> Option<String> {
    let (label, rest) = host.split_once('.')?;
    (label != "*").then(|| format!("*.{rest}"))
}

/// Puts the certificates where their names are asked for, and says what is wrong with which Ingress. Of two for one name
/// the first counts.
pub(super) fn write<'a>(gateway: &mut Gateway<'_>, claims: &[Claim<'a>]) -> Vec<(&'a Key, Fault)> {
    let mut faults = Vec::new();
    let mut good: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut looked_at: BTreeMap<&Key, Option<String>> = BTreeMap::new();
    for claim in claims {
        if !looked_at.contains_key(&claim.secret) {
            let (name, fault) = gateway.certificate(&claim.secret);
            // A Secret that is there and broken may have been good before.
            let then = match name {
                Some(_) => {
                    format!(
                        "a pair that it had before stays in use; without one, HTTPS to {} is not served by it",
                        claim.host
                    )
                }
                None => format!("HTTPS to {} is not served by it", claim.host),
            };
            let at = |fault: Fault| {
                let message = format!("spec.tls: {} ({then})", fault.message);
                Fault { message, ..fault }
            };
            faults.extend(fault.map(|fault| (claim.ingress, at(fault))));
            looked_at.insert(&claim.secret, name);
        }
        let name = looked_at.get(&claim.secret).and_then(Option::as_ref);
        if let Some(name) = name {
            good.entry(claim.host.as_str()).or_insert_with(|| vec![name.clone()]);
        }
    }
    if good.is_empty() {
        return faults;
    }
    match open(gateway, &good) {
        Ok(()) => {}
        Err(fault) => faults.extend(claims.iter().map(|claim| (claim.ingress, fault.clone()))),
    }
    faults
}

fn open(gateway: &mut Gateway<'_>, good: &BTreeMap<&str, Vec<String>>) -> Result<(), Fault> {
    let https_port = gateway.ingress_options().https_port;
    let passed_on = gateway
        .routing
        .tls_listeners
        .iter()
        .find(|listener| socket_parts(&listener.socket).is_some_and(|(_, port)| port == https_port));
    let passed_on = passed_on.map(|listener| listener.name.clone());
    let validation = gateway.ingress_validation.clone();
    let listeners = &mut gateway.routing.listeners;
    let of_protocol = |listener: &model::Listener, wanted: &str| {
        socket_parts(&listener.socket).is_some_and(|(protocol, _)| protocol == wanted)
    };
    let mut sockets: BTreeSet<String> = listeners
        .iter()
        .filter(|listener| of_protocol(listener, "https") && listener.tls.is_some())
        .map(|listener| listener.socket.clone())
        .collect();
    if sockets.is_empty() {
        let taken = |listener: &&model::Listener| {
            socket_parts(&listener.socket).is_some_and(|(_, port)| port == https_port)
        };
        if let Some(other) = listeners.iter().find(taken).map(|listener| listener.name.clone()).or(passed_on)
        {
            return Err(Fault {
                reason: "PortUnavailable",
                message: format!(
                    "spec.tls: port {https_port} is that of listener {other}, so HTTPS is not served: add an HTTPS listener, \
                     or set ingress.httpsPort in GatewayClassParameters"
                ),
            });
        }
        if let Some(validation) = validation {
            if validation.authorities.is_empty() {
                return Err(Fault {
                    reason: "PortUnavailable",
                    message: format!(
                        "spec.tls: port {https_port} asks clients for certificates, and none of the CA certificates of the \
                         Gateway's tls.frontend is good, so HTTPS is not served: mend them"
                    ),
                });
            }
            gateway.routing.client_validation.insert(https_port, validation);
        }
        sockets.insert(socket_name("https", https_port));
    }
    for socket in sockets {
        for (host, names) in good {
            let listener = position(listeners, &socket, host);
            let at = listener.unwrap_or_else(|| {
                // No listener of a Gateway can have such a name.
                listeners.push(model::Listener {
                    name: format!("ingress/{socket}"),
                    socket: socket.clone(),
                    hostname: None,
                    tls: Some(ListenerTls::default()),
                });
                listeners.len() - 1
            });
            let Some(listener) = listeners.get_mut(at) else { continue };
            // A listener for just this name has the certificate that the Gateway's owner wants.
            if listener.hostname.as_deref() == Some(*host) {
                continue;
            }
            let tls = listener.tls.get_or_insert_default();
            if *host == ANY_HOST {
                if tls.certificates.is_empty() {
                    tls.certificates.clone_from(names);
                }
            } else {
                tls.hosts.insert((*host).to_owned(), names.clone());
            }
        }
    }
    Ok(())
}

/// The listener of the socket that takes the name: the one with the most specific hostname.
fn position(listeners: &[model::Listener], socket: &str, host: &str) -> Option<usize> {
    let fitting = listeners.iter().enumerate().filter(|(_, listener)| {
        listener.socket == socket
            && listener.tls.is_some()
            && (listener.hostname.is_none()
                || takes(listener.hostname.as_deref(), host).as_deref() == Some(host))
    });
    fitting.max_by_key(|(_, listener)| listener.hostname.as_ref().map_or(0, String::len)).map(|(at, _)| at)
}
