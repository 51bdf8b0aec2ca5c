//! The difference that some routes make, carried over into the whole.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::jiff::Timestamp;
use model::routing::{Route, Vhost};
use model::{RouteKind, SharedMap};

use super::world::Routes;
use crate::http_route::Irregular;
use crate::snapshot::{Key, Snapshot, age};
use crate::status::{GatewayStatus, ListenerSetStatus, ListenerStatus};

type Hosts = SharedMap<String, Vhost>;

/// What routes of one host stand in the order of: their ages, and an HTTPRoute before a GRPCRoute of its name and age.
type Place = (bool, Option<Timestamp>, String, bool);

pub(super) struct Splice<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) routes: &'a Routes,
    pub(super) irregular: &'a Irregular,
}

impl Splice<'_> {
    /// The hosts of a Gateway with the entries of the routes as they are now: `old` and `new` have no others. `Some(None)`: nothing
    /// changes. `None`: it cannot be said.
    pub(super) fn hosts(
        &self,
        gateway: &Key,
        all: &Hosts,
        old: Option<&Hosts>,
        new: Option<&Hosts>,
    ) -> Option<Option<Hosts>> {
        let empty = Hosts::new();
        let (old, new) = (old.unwrap_or(&empty), new.unwrap_or(&empty));
        let irregular = self.irregular.get(gateway);
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let mut spliced = all.clone();
        let mut changed = false;
        for name in names {
            let nothing = Vhost::default();
            let here = all.get(name).unwrap_or(&nothing);
            let theirs = new.get(name).unwrap_or(&nothing);
            let is_odd = |host: &Vhost| host.default_route.is_some() || host.same_as.is_some();
            if irregular.is_some_and(|hosts| hosts.contains(name)) || is_odd(here) || is_odd(theirs) {
                return None;
            }
            let routes = self.merged(&here.routes, &theirs.routes)?;
            if routes == here.routes {
                continue;
            }
            changed = true;
            match routes.is_empty() {
                true => drop(spliced.remove(name)),
                false => drop(spliced.insert(name.clone(), Vhost { routes, ..Vhost::default() })),
            }
        }
        Some(changed.then_some(spliced))
    }

    /// The entries of other routes, and these, in the order of their routes' ages.
    fn merged(&self, here: &[Route], theirs: &[Route]) -> Option<Vec<Route>> {
        let mut places: HashMap<(bool, &str), Place> = HashMap::new();
        let mut merged = Vec::with_capacity(here.len() + theirs.len());
        let mut theirs = theirs.iter().peekable();
        for route in here.iter().filter(|route| !self.is_changed(route)) {
            while let Some(next) = theirs.peek() {
                if self.place(route, &mut places)? <= self.place(next, &mut places)? {
                    break;
                }
                merged.extend(theirs.next().cloned());
            }
            merged.push(route.clone());
        }
        merged.extend(theirs.cloned());
        Some(merged)
    }

    fn is_changed(&self, route: &Route) -> bool {
        let Some(key) = key_of(route) else { return false };
        match route.kind {
            RouteKind::HttpRoute => self.routes.http.contains(&key),
            RouteKind::GrpcRoute => self.routes.grpc.contains(&key),
            RouteKind::Ingress | RouteKind::TlsRoute | RouteKind::TcpRoute | RouteKind::UdpRoute => false,
        }
    }

    fn place<'r>(&self, route: &'r Route, places: &mut HashMap<(bool, &'r str), Place>) -> Option<Place> {
        let is_grpc = match route.kind {
            RouteKind::HttpRoute => false,
            RouteKind::GrpcRoute => true,
            RouteKind::Ingress | RouteKind::TlsRoute | RouteKind::TcpRoute | RouteKind::UdpRoute => {
                return None;
            }
        };
        let name = (is_grpc, route.route_name.as_str());
        if let Some(place) = places.get(&name) {
            return Some(place.clone());
        }
        let key = key_of(route)?;
        let metadata = match is_grpc {
            false => &self.snapshot.http_routes.get(&key)?.metadata,
            true => &self.snapshot.grpc_routes.get(&key)?.metadata,
        };
        let (undated, created, text) = age(&key, metadata);
        let place = (undated, created, text, is_grpc);
        places.insert(name, place.clone());
        Some(place)
    }
}

fn key_of(route: &Route) -> Option<Key> {
    let (namespace, name) = route.route_name.split_once('/')?;
    Some(Key::new(namespace, name))
}

/// A status with listeners that count their routes.
pub(super) trait Listeners: Clone {
    fn listeners(&self) -> &[ListenerStatus];
    fn listeners_mut(&mut self) -> &mut [ListenerStatus];
}

impl Listeners for GatewayStatus {
    fn listeners(&self) -> &[ListenerStatus] {
        &self.listeners
    }

    fn listeners_mut(&mut self) -> &mut [ListenerStatus] {
        &mut self.listeners
    }
}

impl Listeners for ListenerSetStatus {
    fn listeners(&self) -> &[ListenerStatus] {
        &self.listeners
    }

    fn listeners_mut(&mut self) -> &mut [ListenerStatus] {
        &mut self.listeners
    }
}

/// Counts the routes of `new` in the place of those of `old`.
pub(super) fn counts<T: Listeners>(
    all: &mut SharedMap<Key, T>,
    old: &SharedMap<Key, T>,
    new: &SharedMap<Key, T>,
) -> Option<()> {
    let keys: BTreeSet<&Key> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let count = |of: &SharedMap<Key, T>, at: usize| {
            of.get(key).and_then(|status| status.listeners().get(at)).map_or(0, |one| one.attached_routes)
        };
        let number = all.get(key)?.listeners().len();
        let more = |at: usize| count(new, at) - count(old, at);
        if (0..number).all(|at| more(at) == 0) {
            continue;
        }
        for (at, listener) in all.get_mut(key)?.listeners_mut().iter_mut().enumerate() {
            listener.attached_routes += more(at);
        }
    }
    Some(())
}

/// The statuses of these objects as they are now.
pub(super) fn statuses<T: Clone + PartialEq>(
    all: &mut SharedMap<Key, T>,
    changed: &BTreeSet<Key>,
    new: &SharedMap<Key, T>,
) {
    for key in changed {
        match new.get(key) {
            Some(status) if all.get(key) == Some(status) => {}
            Some(status) => drop(all.insert(key.clone(), status.clone())),
            None => drop(all.remove(key)),
        }
    }
}
