//! Namespaces that a listener takes routes from.

use gateway_api::gateways::{
    GatewayListenersAllowedRoutesNamespacesFrom as AllowedFrom,
    GatewayListenersAllowedRoutesNamespacesSelector,
};

use crate::listener::Listener;
use crate::snapshot::{Key, Snapshot};

/// The label that Kubernetes gives every namespace; files need not write it.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// May a route of `namespace` attach to this listener of a Gateway in `own`? If not, the answer says who may.
pub(crate) fn allow(
    listener: &Listener<'_>,
    own: &str,
    namespace: &str,
    snapshot: &Snapshot,
) -> Result<(), String> {
    let allowed = listener.spec.allowed_routes.as_ref().and_then(|routes| routes.namespaces.as_ref());
    match allowed.and_then(|namespaces| namespaces.from.as_ref()).unwrap_or(&AllowedFrom::Same) {
        AllowedFrom::All => Ok(()),
        AllowedFrom::Same if namespace == own => Ok(()),
        AllowedFrom::Same => Err(format!(
            "takes routes of namespace {own} only: set its allowedRoutes.namespaces, or move the route"
        )),
        AllowedFrom::Selector => match allowed.and_then(|namespaces| namespaces.selector.as_ref()) {
            Some(selector) if selects(selector, namespace, snapshot) => Ok(()),
            Some(_) => Err(format!(
                "takes routes of namespaces that its allowedRoutes.namespaces.selector selects, \
                 and {namespace} does not have those labels: change one of them"
            )),
            None => Err(
                "takes no routes, because its allowedRoutes.namespaces.from is Selector: set selector too"
                    .into(),
            ),
        },
    }
}

/// All requirements of a selector hold for the namespace's labels. An empty selector selects every namespace.
pub(crate) fn selects(
    selector: &GatewayListenersAllowedRoutesNamespacesSelector,
    namespace: &str,
    snapshot: &Snapshot,
) -> bool {
    let labels = snapshot.namespaces.get(&Key::cluster(namespace)).and_then(|ns| ns.metadata.labels.as_ref());
    let label = |key: &str| {
        if key == NAME_LABEL { Some(namespace) } else { labels.and_then(|l| l.get(key)).map(String::as_str) }
    };
    let by_labels = selector.match_labels.iter().flatten().all(|(key, value)| label(key) == Some(value));
    by_labels
        && selector.match_expressions.iter().flatten().all(|requirement| {
            let listed = |value: &str| requirement.values.iter().flatten().any(|v| v == value);
            match requirement.operator.as_str() {
                "In" => label(&requirement.key).is_some_and(listed),
                // As in Kubernetes, a namespace without the label is not in any set.
                "NotIn" => !label(&requirement.key).is_some_and(listed),
                "Exists" => label(&requirement.key).is_some(),
                "DoesNotExist" => label(&requirement.key).is_none(),
                // The API server admits no others; were one to come, no route may attach by it.
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Namespace;

    use super::*;

    fn snapshot() -> Snapshot {
        let mut team = Namespace::default();
        team.metadata.labels =
            Some([("team".to_owned(), "shop".to_owned()), ("env".to_owned(), "prod".to_owned())].into());
        Snapshot { namespaces: [(Key::cluster("shop"), Arc::new(team))].into(), ..Snapshot::default() }
    }

    fn selector(json: serde_json::Value) -> GatewayListenersAllowedRoutesNamespacesSelector {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn selectors_read_labels_as_kubernetes_does() {
        use serde_json::json;
        let all = snapshot();
        for (json, namespace, expected) in [
            (json!({}), "shop", true),
            (json!({}), "unknown", true),
            (json!({"matchLabels": {"team": "shop"}}), "shop", true),
            (json!({"matchLabels": {"team": "shop", "env": "test"}}), "shop", false),
            (json!({"matchLabels": {"team": "shop"}}), "unknown", false),
            (json!({"matchLabels": {"kubernetes.io/metadata.name": "shop"}}), "shop", true),
            (json!({"matchLabels": {"kubernetes.io/metadata.name": "unknown"}}), "unknown", true),
            (json!({"matchLabels": {"kubernetes.io/metadata.name": "other"}}), "shop", false),
            (
                json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod", "test"]}]}),
                "shop",
                true,
            ),
            (
                json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["test"]}]}),
                "shop",
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]}),
                "unknown",
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}),
                "shop",
                false,
            ),
            (
                json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}),
                "unknown",
                true,
            ),
            (json!({"matchExpressions": [{"key": "env", "operator": "Exists"}]}), "shop", true),
            (json!({"matchExpressions": [{"key": "env", "operator": "Exists"}]}), "unknown", false),
            (json!({"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}), "shop", false),
            (json!({"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}), "unknown", true),
            (
                json!({"matchExpressions": [{"key": "env", "operator": "Resembles", "values": ["prod"]}]}),
                "shop",
                false,
            ),
            (
                json!({"matchLabels": {"team": "shop"},
                       "matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}),
                "shop",
                false,
            ),
        ] {
            assert_eq!(selects(&selector(json.clone()), namespace, &all), expected, "{json} for {namespace}");
        }
    }
}
