//! ListenerSets: listeners that others add to a Gateway. The Gateway says in `allowedListeners` who may.
//!
//! Listeners are merged by precedence: the Gateway's own, then those of the oldest ListenerSet, then by name. Of listeners that
//! cannot be distinguished, the first is served, and the others are conflicted.

use std::collections::BTreeMap;

use gateway_api::gateways::{
    Gateway as GatewayObject, GatewayAllowedListenersNamespacesFrom as AllowedFrom, GatewayListeners,
};
use gateway_api::listenersets::ListenerSet;

use crate::listener::{Fault, GATEWAY_API_GROUP, Listener};
use crate::namespaces;
use crate::notice::Notice;
use crate::refused;
use crate::snapshot::{Key, Snapshot, oldest_first};
use crate::status::{ACCEPTED, Condition, ListenerSetStatus};

/// All ListenerSets, by their Gateway.
#[derive(Debug, Default)]
pub(crate) struct Sets<'a> {
    by_gateway: BTreeMap<Key, Vec<Set<'a>>>,
}

/// One ListenerSet.
#[derive(Debug)]
pub(crate) struct Set<'a> {
    pub(crate) key: &'a Key,
    object: &'a ListenerSet,
    /// As listeners of a Gateway.
    pub(crate) listeners: Vec<GatewayListeners>,
    /// It is a stand-in: why nothing is served.
    pub(crate) closed: Option<Fault>,
}

impl<'a> Sets<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, notices: &mut Vec<Notice>) -> Self {
        let mut by_gateway: BTreeMap<Key, Vec<Set<'a>>> = BTreeMap::new();
        for (key, object) in oldest_first(&snapshot.listener_sets, |set| &set.metadata) {
            let Some(gateway) = gateway(key, object) else { continue };
            if !snapshot.gateways.contains_key(&gateway) {
                notices.push(Notice::warning(
                    format!("ListenerSet {key}"),
                    format!(
                        "has a parentRef to Gateway {gateway}, which does not exist: create it, or correct name and namespace of \
                         the parentRef"
                    ),
                ));
            }
            let listeners = converted(object).unwrap_or_else(|error| {
                notices
                    .push(Notice::warning(format!("ListenerSet {key}"), format!("cannot be read: {error}")));
                Vec::new()
            });
            let closed = refused::why(&object.metadata).map(|why| Fault {
                reason: "Invalid",
                message: format!("the ListenerSet cannot be used, so its listeners serve nothing: {why}"),
            });
            by_gateway.entry(gateway).or_default().push(Set { key, object, listeners, closed });
        }
        Self { by_gateway }
    }

    /// Those of a Gateway, allowed or not, oldest first.
    pub(crate) fn of_gateway(&self, gateway: &Key) -> &[Set<'a>] {
        self.by_gateway.get(gateway).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The types have the same fields.
fn converted(set: &ListenerSet) -> Result<Vec<GatewayListeners>, serde_json::Error> {
    serde_json::from_value(serde_json::to_value(&set.spec.listeners)?)
}

/// The Gateway that a ListenerSet is for. `None`: its parent is of another kind.
pub(crate) fn gateway(key: &Key, set: &ListenerSet) -> Option<Key> {
    let parent = &set.spec.parent_ref;
    let is_gateway = parent.group.as_deref().is_none_or(|group| group == GATEWAY_API_GROUP)
        && parent.kind.as_deref().is_none_or(|kind| kind == "Gateway");
    is_gateway.then(|| Key::new(parent.namespace.as_deref().unwrap_or(&key.namespace), &parent.name))
}

/// May a ListenerSet of `namespace` add listeners to this Gateway? If not, the answer says what to do.
pub(crate) fn allow(
    key: &Key,
    gateway: &GatewayObject,
    namespace: &str,
    snapshot: &Snapshot,
) -> Result<(), String> {
    let allowed = gateway.spec.allowed_listeners.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
    let why = match allowed.and_then(|namespaces| namespaces.from.as_ref()).unwrap_or(&AllowedFrom::None) {
        AllowedFrom::All => return Ok(()),
        AllowedFrom::Same if namespace == key.namespace => return Ok(()),
        AllowedFrom::Same => format!("takes ListenerSets of namespace {} only", key.namespace),
        AllowedFrom::None => "takes no ListenerSets".to_owned(),
        AllowedFrom::Selector => {
            let selector = allowed.and_then(|namespaces| namespaces.selector.as_ref());
            // The types have the same fields.
            let selector =
                selector.and_then(|one| serde_json::from_value(serde_json::to_value(one).ok()?).ok());
            match selector {
                Some(selector) if namespaces::selects(&selector, namespace, snapshot) => return Ok(()),
                Some(_) => format!("takes ListenerSets of namespaces with other labels than {namespace} has"),
                None => "takes no ListenerSets, because the selector is missing".to_owned(),
            }
        }
    };
    Err(format!("Gateway {key} {why}: set spec.allowedListeners.namespaces of the Gateway"))
}

impl Set<'_> {
    /// `listeners` are all of its Gateway. `refused`: why it may not add any.
    pub(crate) fn status(
        &self,
        gateway: &Key,
        gateway_is_accepted: bool,
        refused: Option<&str>,
        listeners: &[Listener<'_>],
    ) -> ListenerSetStatus {
        let generation = self.object.metadata.generation.unwrap_or_default();
        let own: Vec<&Listener<'_>> =
            listeners.iter().filter(|listener| listener.set == Some(self.key)).collect();
        let not_served: Vec<String> = own
            .iter()
            .filter_map(|listener| {
                Some(format!("listener {}: {}", listener.name(), listener.why_not_served()?))
            })
            .collect();
        let accepted = |status: bool, reason: &str, message: &str| {
            Condition::new(ACCEPTED, status, reason, message, generation)
        };
        let condition = if let Some(why) = refused {
            accepted(false, "NotAllowed", why)
        } else if !gateway_is_accepted {
            let message = format!("Gateway {gateway} is not accepted: see its status");
            accepted(false, "ParentNotAccepted", &message)
        } else if let Some(fault) = &self.closed {
            accepted(false, fault.reason, &fault.message)
        } else if not_served.is_empty() && !own.is_empty() {
            accepted(true, "Accepted", "The ListenerSet and all its listeners are valid")
        } else {
            let any = own.iter().any(|listener| listener.is_served());
            let served = if any { "Not all listeners are served" } else { "No listener is served" };
            accepted(any, "ListenersNotValid", &format!("{served}: {}", not_served.join("; ")))
        };
        ListenerSetStatus {
            gateway: gateway.clone(),
            conditions: vec![condition],
            listeners: own.iter().map(|listener| listener.status(generation)).collect(),
        }
    }
}
