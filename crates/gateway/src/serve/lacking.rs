//! Gateways that are not served as configured, and why: for `status` and the dashboard.

use chaperone::State;
use dashboard::view::{self, Gateway};
use model::ghost::Config;
use translate::{Key, Translation};

use crate::conditions::{self, Condition};
use crate::shared_ports::Conflict;

/// The problems of one Gateway, or `None` if it has none. `config` is what a Gateway that does not run would serve.
pub(super) fn for_gateway(
    key: &Key,
    translation: &Translation,
    conflicts: &[Conflict],
    config: Option<&Config>,
) -> Option<Gateway> {
    let mut problems = problems(key, translation);
    let of_ports = conflicts.iter().filter(|conflict| conflict.gateway == *key);
    problems.extend(of_ports.map(|conflict| conflict.why.clone()));
    let Some(config) = config else {
        let name = key.to_string();
        return (!problems.is_empty()).then(|| Gateway { name, problems, ..Gateway::default() });
    };
    if problems.is_empty() {
        problems.push("it has no listener that can be served: `varnish-gateway check` says more".to_owned());
    }
    let plan = translation.gateways.get(key);
    let arrangement = plan.map(|plan| plan.routing.arrangement().into()).unwrap_or_default();
    Some(Gateway { problems, arrangement, ..view::of_config(&key.to_string(), &State::default(), config) })
}

/// What its conditions say; one that was made for an IngressClass has those of the class.
fn problems(key: &Key, translation: &Translation) -> Vec<String> {
    let statuses = &translation.statuses;
    let class = statuses.ingress_classes.get(&Key::cluster(key.name.as_str()));
    let class = class.filter(|_| translation.made.contains_key(key));
    let gateway = statuses.gateways.get(key);
    let own = gateway.map(|status| &status.conditions).or(class.map(|status| &status.conditions));
    let own = own.into_iter().flatten().map(|condition| (None, condition));
    let listeners = gateway.into_iter().flat_map(|status| &status.listeners).flat_map(|listener| {
        listener.conditions.iter().map(|condition| (Some(listener.name.as_str()), condition))
    });
    conditions::problems(own.chain(listeners).map(|(listener, condition)| Condition {
        listener,
        kind: &condition.kind,
        status: if condition.status { "True" } else { "False" },
        reason: &condition.reason,
        message: &condition.message,
    }))
}
