//! Decides whether a Gateway's configuration is served, by the reports of its pods. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use model::Report;
use translate::Condition;
use translate::status::PROGRAMMED;

/// A new configuration takes a moment to reach the pods: the condition does not flicker for it.
const MOMENT: Duration = Duration::from_secs(10);

/// One pod of the Gateway.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) ready: bool,
    /// It was started with the current settings of the Gateway.
    pub(crate) current: bool,
    pub(crate) report: Report,
}

/// What is known of a Gateway.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    pub(crate) generation: i64,
    /// Why it cannot run at all.
    pub(crate) invalid: Option<&'a str>,
    /// Why it could not be written.
    pub(crate) error: Option<&'a str>,
    /// The hash that its pods should serve; `None` until it was written.
    pub(crate) hash: Option<&'a str>,
    /// When this hash was written.
    pub(crate) for_long: Duration,
    pub(crate) has_address: bool,
    /// Why an address in `spec.addresses` cannot be used.
    pub(crate) unusable_address: Option<&'a str>,
    pub(crate) pods: &'a [Pod],
    /// The current condition: its status and generation.
    pub(crate) before: Option<(bool, i64)>,
}

pub(crate) fn programmed(known: &Known<'_>) -> Condition {
    let is = |status, reason, message: String| {
        Condition::new(PROGRAMMED, status, reason, message, known.generation)
    };
    if let Some(why) = known.invalid {
        return is(false, "Invalid", why.to_owned());
    }
    if let Some(why) = known.error {
        return is(false, "Invalid", why.to_owned());
    }
    if let Some(why) = known.unusable_address {
        return is(false, "AddressNotUsable", why.to_owned());
    }
    let serves = |pod: &&Pod| pod.ready && pod.current && pod.report.serving.as_deref() == known.hash;
    let serving = known.pods.iter().filter(serves).count();
    let all = known.pods.iter().filter(|pod| pod.current).count();
    let (Some(_), true) = (known.hash, serving > 0) else {
        let refused = known
            .pods
            .iter()
            .filter(|pod| pod.current)
            .find_map(|pod| pod.report.refused.as_ref().map(|why| format!("pod {}: {why}", pod.name)));
        if let Some(why) = refused {
            return is(false, "Invalid", why);
        }
        let ready = known.pods.iter().any(|pod| pod.ready);
        if known.has_address
            && ready
            && known.before == Some((true, known.generation))
            && known.for_long < MOMENT
        {
            return is(true, "Programmed", "The pods are receiving a new configuration".to_owned());
        }
        let message = match (known.hash, all) {
            (None, _) => "The configuration is being written".to_owned(),
            (_, 0) => "No pod runs yet".to_owned(),
            (_, all) => format!("None of {all} pods serves this configuration yet"),
        };
        return is(false, "Pending", message);
    };
    if !known.has_address {
        let message = "The Service has no address yet: a LoadBalancer needs a controller that gives addresses, \
                       or set service.type in GatewayClassParameters";
        return is(false, "AddressNotAssigned", message.to_owned());
    }
    let serving = known.pods.iter().filter(serves);
    let engines: BTreeSet<&str> = serving.filter_map(|pod| pod.report.engine.as_deref()).collect();
    let message = match engines.into_iter().collect::<Vec<_>>().join(" and ") {
        engines if engines.is_empty() => "Pods serve this configuration".to_owned(),
        engines => format!("Pods serve this configuration with {engines}"),
    };
    is(true, "Programmed", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(serving: &str) -> Pod {
        let report = Report { serving: Some(serving.to_owned()), ..Report::default() };
        Pod { name: "p".to_owned(), ready: true, current: true, report }
    }

    fn known(pods: &[Pod]) -> Known<'_> {
        Known {
            generation: 2,
            invalid: None,
            error: None,
            hash: Some("new"),
            for_long: Duration::from_secs(60),
            has_address: true,
            unusable_address: None,
            pods,
            before: None,
        }
    }

    fn reason(known: &Known<'_>) -> (bool, String) {
        let condition = programmed(known);
        assert_eq!(condition.observed_generation, 2);
        (condition.status, condition.reason)
    }

    #[test]
    fn one_pod_that_serves_it_is_enough() {
        assert_eq!(reason(&known(&[pod("old"), pod("new")])), (true, "Programmed".to_owned()));
    }

    #[test]
    fn nothing_less_will_do() {
        let pending = (false, "Pending".to_owned());
        assert_eq!(reason(&known(&[])), pending);
        assert_eq!(reason(&known(&[pod("old")])), pending);
        assert_eq!(reason(&known(&[Pod { ready: false, ..pod("new") }])), pending);
        // Started without the new listener.
        assert_eq!(reason(&known(&[Pod { current: false, ..pod("new") }])), pending);
        assert_eq!(reason(&Known { hash: None, ..known(&[pod("new")]) }), pending);
    }

    #[test]
    fn an_address_that_cannot_be_had_is_named() {
        let pods = [pod("new")];
        let unusable = Known { unusable_address: Some("127.0.0.1"), ..known(&pods) };
        assert_eq!(reason(&unusable), (false, "AddressNotUsable".to_owned()));
    }

    #[test]
    fn without_address_nobody_can_reach_it() {
        let known = Known { has_address: false, ..known(&[]) };
        assert_eq!(reason(&Known { pods: &[pod("new")], ..known }), (false, "AddressNotAssigned".to_owned()));
    }

    #[test]
    fn a_new_configuration_does_not_make_it_flicker_and_a_new_generation_does() {
        let pods = [pod("old")];
        let fresh = || Known { for_long: Duration::from_millis(50), ..known(&pods) };
        assert!(reason(&Known { before: Some((true, 2)), ..fresh() }).0);
        assert!(!reason(&Known { before: Some((true, 1)), ..fresh() }).0);
        assert!(!reason(&Known { before: Some((false, 2)), ..fresh() }).0);
        assert!(!reason(&Known { before: Some((true, 2)), ..known(&pods) }).0);
    }

    #[test]
    fn the_engines_of_the_pods_are_named() {
        let with = |engine: &str| {
            let mut pod = pod("new");
            pod.report.engine = Some(engine.to_owned());
            pod
        };
        let message = |pods: &[Pod]| programmed(&known(pods)).message;
        assert_eq!(message(&[pod("new")]), "Pods serve this configuration");
        // While pods are replaced there are two.
        let pods = [with("Vinyl Cache 9.0.1"), with("Varnish Cache 7.7.0"), with("Vinyl Cache 9.0.1")];
        assert_eq!(
            message(&pods),
            "Pods serve this configuration with Varnish Cache 7.7.0 and Vinyl Cache 9.0.1"
        );
        let other = Pod { ready: false, ..with("Vinyl Cache 9.0.1") };
        assert_eq!(
            message(&[with("Varnish Cache 7.7.0"), other]),
            "Pods serve this configuration with Varnish Cache 7.7.0"
        );
    }

    #[test]
    fn a_refusal_says_why() {
        let report =
            Report { serving: Some("old".to_owned()), refused: Some("line 3".to_owned()), engine: None };
        let pods = [Pod { report, ..pod("old") }];
        let known = Known { before: Some((true, 2)), for_long: Duration::ZERO, ..known(&pods) };
        let condition = programmed(&known);
        assert!(!condition.status && condition.message.contains("line 3"), "{condition:?}");
    }
}
