//! Routes and listeners find each other: parentRefs, allowedRoutes, hostnames.

use gateway_api::experimental::httproutes::HttpRouteParentRefs;
use model::names::ANY_HOST;

use crate::gateway::Gateway;
use crate::hostname;
use crate::listener::{Fault, GATEWAY_API_GROUP, Listener, RouteKind};
use crate::listener_set;
use crate::namespaces;
use crate::snapshot::{Key, Snapshot};

/// The parts of a route of any kind that decide about its attachment.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) kind: RouteKind,
    pub(crate) namespace: &'a str,
    /// Normal; empty for every host.
    pub(crate) hostnames: Vec<String>,
}

/// Which listeners of its Gateway a parentRef asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    /// Those of this ListenerSet; none: the Gateway's own.
    pub(crate) set: Option<Set<'a>>,
    pub(crate) name: Option<&'a str>,
    pub(crate) port: Option<i32>,
}

impl<'a> Section<'a> {
    /// `namespace` is the route's.
    pub(crate) fn new(parent: &'a HttpRouteParentRefs, namespace: &'a str) -> Self {
        let set = (parent.kind.as_deref() == Some("ListenerSet"))
            .then(|| Set { namespace: parent.namespace.as_deref().unwrap_or(namespace), name: &parent.name });
        Self { set, name: parent.section_name.as_deref(), port: parent.port }
    }
}

/// A ListenerSet that is named by a parentRef.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Set<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl std::fmt::Display for Set<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ListenerSet {}/{}", self.namespace, self.name)
    }
}

/// The Gateway that a parentRef of a route leads to, by itself or by a ListenerSet. `None`: it leads to something else.
pub(crate) fn gateway_of(parent: &HttpRouteParentRefs, namespace: &str, snapshot: &Snapshot) -> Option<Key> {
    if parent.group.as_deref().is_some_and(|group| group != GATEWAY_API_GROUP) {
        return None;
    }
    let named = Key::new(parent.namespace.as_deref().unwrap_or(namespace), &parent.name);
    match parent.kind.as_deref().unwrap_or("Gateway") {
        "Gateway" => Some(named),
        "ListenerSet" => {
            let set = snapshot.listener_sets.get(&named)?;
            listener_set::gateway(&named, set)
        }
        _ => None,
    }
}

/// A route's success with one parentRef. Listeners are positions in the Gateway's list.
#[derive(Debug, Default)]
pub(crate) struct Attachment {
    /// Listeners that take the route, also those that are not served: the route counts for their status.
    pub(crate) listeners: Vec<usize>,
    /// Hosts, each with the served listener that receives its requests. A host of one listener is not served by another one.
    pub(crate) hosts: Vec<(String, usize)>,
}

/// Attaches a route to the listeners of `gateway` that its parentRef selects, or says why to none.
pub(crate) fn attach(
    candidate: &Candidate<'_>,
    section: Section<'_>,
    gateway: &Gateway<'_>,
    snapshot: &Snapshot,
) -> Result<Attachment, Fault> {
    let selected: Vec<usize> = (0..gateway.listeners.len())
        .filter(|at| {
            let listener = &gateway.listeners[*at];
            let of_set = listener.set.map(|set| Set { namespace: &set.namespace, name: &set.name });
            // The API server writes an absent name as an empty one.
            let named = section.name.is_none_or(|name| name.is_empty() || name == listener.name());
            of_set == section.set && named && section.port.is_none_or(|port| port == listener.spec.port)
        })
        .collect();
    if selected.is_empty() {
        return Err(no_matching_parent(section, gateway));
    }

    let mut why_not = Vec::new();
    let selected = keep(selected, gateway, &mut why_not, |listener| match &listener.closed {
        None => Ok(()),
        Some(fault) => Err(format!("is not served ({})", fault.message)),
    });
    if selected.is_empty() {
        return Err(Fault { reason: "NoReadyListeners", message: why_not.join("; ") });
    }
    let allowing: Vec<usize> =
        keep(selected, gateway, &mut why_not, |listener| allow(candidate, listener, gateway, snapshot));
    if allowing.is_empty() {
        return Err(Fault { reason: "NotAllowedByListeners", message: why_not.join("; ") });
    }

    let listeners = keep(allowing, gateway, &mut why_not, |listener| {
        if hosts(candidate, listener).next().is_some() {
            Ok(())
        } else {
            Err(no_common_host(candidate, listener))
        }
    });
    if listeners.is_empty() {
        return Err(Fault { reason: "NoMatchingListenerHostname", message: why_not.join("; ") });
    }

    let listeners = keep(listeners, gateway, &mut why_not, |listener| {
        let conflict =
            hosts(candidate, listener).find_map(|host| listener.claims.conflict(candidate.kind, host));
        match conflict {
            None => Ok(()),
            Some((kind, host, route)) => Err(format!(
                "has {} {route} for {}, which is older, and a hostname cannot have both HTTPRoutes and GRPCRoutes: change the \
                 hostnames of one of them",
                kind.name(),
                if host == ANY_HOST { "every hostname".to_owned() } else { format!("hostname {host}") },
            )),
        }
    });
    if listeners.is_empty() {
        return Err(Fault { reason: "HostnameConflict", message: why_not.join("; ") });
    }

    let accepted = keep(listeners.clone(), gateway, &mut why_not, |listener| match &listener.fault {
        None => Ok(()),
        Some(fault) => Err(format!("is not served ({})", fault.message)),
    });
    if accepted.is_empty() {
        return Err(Fault { reason: "NoReadyListeners", message: why_not.join("; ") });
    }
    // A listener that waits for its certificate has routes already, and nothing to serve them by.
    let hosts = accepted
        .iter()
        .filter(|at| gateway.listeners[**at].takes_requests())
        .flat_map(|at| hosts(candidate, &gateway.listeners[*at]).map(|host| (host.to_owned(), *at)))
        .collect();
    Ok(Attachment { listeners, hosts })
}

/// Those of `listeners` that pass; for each of the others, why not.
fn keep(
    mut listeners: Vec<usize>,
    gateway: &Gateway<'_>,
    why_not: &mut Vec<String>,
    test: impl Fn(&Listener<'_>) -> Result<(), String>,
) -> Vec<usize> {
    listeners.retain(|at| {
        let listener = &gateway.listeners[*at];
        test(listener)
            .map_err(|why| {
                why_not.push(match listener.set {
                    Some(set) => format!("listener {} of ListenerSet {set} {why}", listener.name()),
                    None => format!("listener {} of Gateway {} {why}", listener.name(), gateway.key),
                });
            })
            .is_ok()
    });
    listeners
}

fn allow(
    candidate: &Candidate<'_>,
    listener: &Listener<'_>,
    gateway: &Gateway<'_>,
    snapshot: &Snapshot,
) -> Result<(), String> {
    if !listener.kinds.contains(&candidate.kind) {
        return Err(format!(
            "does not take routes of kind {}: change its allowedRoutes.kinds",
            candidate.kind.name()
        ));
    }
    let own = listener.set.unwrap_or(gateway.key);
    namespaces::allow(listener, &own.namespace, candidate.namespace, snapshot)
}

/// Gives a route its hosts on the listeners that it is attached to.
pub(crate) fn claim(candidate: &Candidate<'_>, route: &Key, listeners: &[usize], gateway: &mut Gateway<'_>) {
    for at in listeners {
        let listener = &mut gateway.listeners[*at];
        let mut claims = std::mem::take(&mut listener.claims);
        claims.add(candidate.kind, route, hosts(candidate, listener));
        listener.claims = claims;
    }
}

/// The hosts that a route serves on a listener, as keys of the host table; may repeat.
fn hosts<'a>(candidate: &'a Candidate<'_>, listener: &'a Listener<'_>) -> impl Iterator<Item = &'a str> {
    let of_listener = listener.hostname.as_deref();
    let every_host = candidate.hostnames.is_empty().then_some(None);
    every_host
        .into_iter()
        .chain(candidate.hostnames.iter().map(|name| Some(name.as_str())))
        .filter_map(move |of_route| hostname::intersect(of_listener, of_route))
}

fn no_common_host(candidate: &Candidate<'_>, listener: &Listener<'_>) -> String {
    format!(
        "takes hostname {} only, and the route has {}: change the hostnames of one of them",
        listener.hostname.as_deref().unwrap_or("*"),
        candidate.hostnames.join(", ")
    )
}

fn no_matching_parent(section: Section<'_>, gateway: &Gateway<'_>) -> Fault {
    let name = section.name.filter(|name| !name.is_empty());
    let asked = match (name, section.port) {
        (Some(name), Some(port)) => format!("named {name} on port {port}"),
        (Some(name), None) => format!("named {name}"),
        (None, Some(port)) => format!("on port {port}"),
        (None, None) => "at all".to_owned(),
    };
    let of_section = |listener: &&Listener<'_>| {
        listener.set.map(|set| Set { namespace: &set.namespace, name: &set.name }) == section.set
    };
    let there: Vec<String> = gateway
        .listeners
        .iter()
        .filter(of_section)
        .map(|listener| format!("{} on port {}", listener.name(), listener.spec.port))
        .collect();
    let parent = section.set.map_or_else(|| format!("Gateway {}", gateway.key), |set| set.to_string());
    if there.is_empty() {
        let message = format!("{parent} has no listeners on Gateway {}: see its status", gateway.key);
        return Fault { reason: "NoMatchingParent", message };
    }
    Fault {
        reason: "NoMatchingParent",
        message: format!(
            "{parent} has no listener {asked}; it has {}: correct sectionName or port of the parentRef",
            there.join(", ")
        ),
    }
}
