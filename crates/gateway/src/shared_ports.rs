//! Two Gateways cannot share a port of one machine: the older has it, and the other goes without.

use std::collections::BTreeMap;

use translate::{GatewayPlan, Key, Snapshot};

/// Takes the sockets away that belong to another Gateway, and says so; the rest of a Gateway is served. Ages are whole
/// seconds: of two that are the same, the one that has the port now keeps it.
pub(crate) fn settle(
    snapshot: &Snapshot,
    plans: &mut BTreeMap<Key, GatewayPlan>,
    has_now: impl Fn(&Key, u16) -> bool,
) -> Vec<String> {
    let age = |key: &Key| snapshot.gateways.get(key).and_then(|g| g.metadata.creation_timestamp.clone());
    let mut claims: BTreeMap<u16, Vec<Key>> = BTreeMap::new();
    for (key, plan) in &*plans {
        for socket in plan.infra.iter().flat_map(|infra| &infra.sockets) {
            claims.entry(socket.port).or_default().push(key.clone());
        }
    }
    let mut conflicts = Vec::new();
    for (port, mut keys) in claims {
        keys.sort_by_key(|key| (age(key), !has_now(key, port)));
        let Some((owner, others)) = keys.split_first() else { continue };
        for key in others {
            conflicts.push(format!(
                "Gateway {key}: port {port} belongs to Gateway {owner}, which was there first. \
                 Give its listener another port, or move both listeners into one Gateway"
            ));
            if let Some(infra) = plans.get_mut(key).and_then(|plan| plan.infra.as_mut()) {
                infra.sockets.retain(|socket| socket.port != port);
            }
        }
    }
    conflicts
}
