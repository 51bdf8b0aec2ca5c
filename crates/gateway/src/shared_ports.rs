//! Two Gateways cannot share a port of one machine: the older has it, and the other goes without.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::names::socket_parts;
use translate::{GatewayPlan, Key, Snapshot};

/// A port that a Gateway goes without.
pub(crate) struct Conflict {
    pub(crate) gateway: Key,
    pub(crate) why: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gateway {}: {}", self.gateway, self.why)
    }
}

/// The result for all ports.
#[derive(Default)]
pub(crate) struct Settled {
    /// For people.
    pub(crate) conflicts: Vec<Conflict>,
    lost: BTreeSet<(Key, Port)>,
}

/// Is it UDP, and its number. TCP and UDP have ports of their own.
type Port = (bool, u16);

impl Settled {
    /// Does the port belong to another Gateway?
    pub(crate) fn has_lost(&self, key: &Key, port: u16) -> bool {
        self.lost.contains(&(key.clone(), (false, port)))
    }

    /// The same for a UDP port.
    pub(crate) fn has_lost_udp(&self, key: &Key, port: u16) -> bool {
        self.lost.contains(&(key.clone(), (true, port)))
    }
}

/// Takes varnishd's sockets away that belong to another Gateway, and says so; the rest of a Gateway is served. The
/// front's are for the caller to leave out. Ages are whole seconds: of two that are the same, the one that has the port
/// now keeps it.
pub(crate) fn settle(
    snapshot: &Snapshot,
    plans: &mut BTreeMap<Key, GatewayPlan>,
    has_now: impl Fn(&Key, u16) -> bool,
) -> Settled {
    let age = |key: &Key| match snapshot.gateways.get(key) {
        Some(gateway) => gateway.metadata.creation_timestamp.clone(),
        // Made for an IngressClass of its name.
        None => {
            let class = snapshot.ingress_classes.get(&Key::cluster(key.name.as_str()));
            class.and_then(|class| class.metadata.creation_timestamp.clone())
        }
    };
    let mut claims: BTreeMap<Port, BTreeSet<Key>> = BTreeMap::new();
    for (key, plan) in &*plans {
        for port in ports(plan) {
            claims.entry(port).or_default().insert(key.clone());
        }
    }
    let mut settled = Settled::default();
    for ((is_udp, port), keys) in claims {
        let mut keys: Vec<Key> = keys.into_iter().collect();
        keys.sort_by_key(|key| (age(key), !has_now(key, port)));
        let Some((owner, others)) = keys.split_first() else { continue };
        for key in others {
            let kind = if is_udp { "UDP port" } else { "port" };
            let why = format!(
                "{kind} {port} belongs to Gateway {owner}, which was there first. Give its listener another port, or move \
                 both listeners into one Gateway"
            );
            settled.conflicts.push(Conflict { gateway: key.clone(), why });
            settled.lost.insert((key.clone(), (is_udp, port)));
            if let Some(infra) = plans.get_mut(key).and_then(|plan| plan.infra.as_mut()) {
                infra.sockets.retain(|socket| is_udp || socket.port != port);
            }
        }
    }
    settled
}

/// varnishd's and the front's. May repeat.
fn ports(plan: &GatewayPlan) -> impl Iterator<Item = Port> {
    let of_front = plan.routing.front_sockets().filter_map(|socket| {
        let (protocol, port) = socket_parts(socket)?;
        Some((protocol == "udp", port))
    });
    plan.http_ports().map(|port| (false, port)).chain(of_front)
}

#[cfg(test)]
mod tests {
    use api::DataPath;

    use super::*;

    const TWO: &str = r"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: varnish}
spec: {controllerName: varnish-software.com/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: a, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  gatewayClassName: varnish
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: b, creationTimestamp: '2026-01-02T00:00:00Z'}
spec:
  gatewayClassName: varnish
  listeners: [{name: http, port: 80, protocol: HTTP}, {name: other, port: 81, protocol: HTTP}]
";

    #[test]
    fn a_plain_port_has_one_gateway_in_both_arrangements() {
        for default_data_path in [DataPath::Auto, DataPath::Varnish] {
            let (mut snapshot, problems) = source::files::parse_str("case.yaml", TWO);
            assert!(problems.is_empty(), "{problems:?}");
            snapshot.default_data_path = Some(default_data_path);
            let mut plans = translate::translate(&snapshot).gateways;
            let settled = settle(&snapshot, &mut plans, |_, _| false);
            let (a, b) = (Key::new("default", "a"), Key::new("default", "b"));
            assert_eq!(settled.conflicts.len(), 1);
            assert!(settled.has_lost(&b, 80) && !settled.has_lost(&b, 81) && !settled.has_lost(&a, 80));
            let of_varnishd = plans[&b].infra.as_ref().map(|infra| infra.sockets.len());
            let expected = if default_data_path == DataPath::Auto { 0 } else { 1 };
            assert_eq!(of_varnishd, Some(expected));
        }
    }
}
