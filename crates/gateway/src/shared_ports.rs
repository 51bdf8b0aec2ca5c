//! Two Gateways cannot share a port of one machine: the older has it, and the other goes without.

use std::collections::BTreeMap;

use translate::{GatewayPlan, Key, Snapshot};

/// Takes the sockets away that another Gateway has, and says so. The rest of a Gateway is served.
pub(crate) fn settle(snapshot: &Snapshot, plans: &mut BTreeMap<Key, GatewayPlan>) -> Vec<String> {
    let age = |key: &Key| snapshot.gateways.get(key).and_then(|g| g.metadata.creation_timestamp.clone());
    let mut by_age: Vec<_> = plans.iter_mut().collect();
    by_age.sort_by_key(|(key, _)| age(key));
    let mut taken: BTreeMap<u16, &Key> = BTreeMap::new();
    let mut conflicts = Vec::new();
    for (key, plan) in by_age {
        let Some(infra) = &mut plan.infra else { continue };
        infra.sockets.retain(|socket| match taken.get(&socket.port) {
            Some(by) => {
                conflicts.push(format!(
                    "Gateway {key}: port {} belongs to Gateway {by}, which was there first. \
                     Give its listener another port, or move both listeners into one Gateway",
                    socket.port
                ));
                false
            }
            None => true,
        });
        taken.extend(infra.sockets.iter().map(|socket| (socket.port, key)));
    }
    conflicts
}
