//! The router against a slow and obvious reading of the same rules.

#[path = "oracle/generators.rs"]
mod generators;
#[path = "oracle/literal.rs"]
mod literal;
#[path = "support/request.rs"]
mod request;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use model::ghost::{Config, Route};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use router::{Action, Decision, Explanation, Router, Rule, Verdict};

use crate::literal::{Answer, PRECEDENCE, answer};
use crate::request::Sample;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_request_goes_where_the_rules_say(
        config in generators::config(),
        requests in vec((generators::request(), any::<u64>()), 30),
    ) {
        let router = Router::compile(&config).unwrap().router;
        for (request, random) in &requests {
            let answer = answer(&config, request);
            same_rule(&answer, &router.decide(request, *random), request)?;
            same_reasons(&answer, &router.explain(request, *random), request)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_has_changed_since_a_base_decides_with_it_as_the_whole_does(
        config in generators::config(),
        choice in any::<u64>(),
        requests in vec((generators::request(), any::<u64>()), 30),
    ) {
        prop_assume!(!config.listeners.is_empty());
        let (base, head) = split(&config, choice);
        let below = Arc::new(Router::compile(&base).unwrap().router);
        let Some(layered) = Router::compile_over(&head, &below).unwrap() else {
            // Wildcards of Ingresses cannot be told apart from their base.
            let is_wildcard = |host: &String| host.starts_with("*.");
            prop_assert!(head.vhosts.keys().chain(&head.removed).any(is_wildcard));
            return Ok(());
        };
        let layered = layered.router;
        let as_one = Router::compile(&head.over(base)).unwrap().router;
        for (request, random) in &requests {
            let answer = answer(&config, request);
            let decision = layered.decide(request, *random);
            same_rule(&answer, &decision, request)?;
            prop_assert_eq!(decision.action(), as_one.decide(request, *random).action());
        }
    }
}

/// A file in two: some hosts are new, some are other ones in the base, and some of the base are gone.
fn split(whole: &Config, choice: u64) -> (Config, Config) {
    let (mut base, mut head) = (whole.clone(), Config { base: Some("base".to_owned()), ..whole.frame() });
    let others: Vec<_> = whole.vhosts.values().rev().cloned().collect();
    for (at, host) in ["a.com", "b.a.com", "c.org", "*.a.com", "*.b.a.com", "*"].into_iter().enumerate() {
        let other = others[at % others.len()].clone();
        match (whole.vhosts.get(host), (choice >> (2 * at)) & 3) {
            (Some(_), 0) => {}
            (Some(here), 1) => {
                base.vhosts.remove(host);
                head.vhosts.insert(host.to_owned(), here.clone());
            }
            (Some(here), _) => {
                base.vhosts.insert(host.to_owned(), other);
                head.vhosts.insert(host.to_owned(), here.clone());
            }
            (None, 0 | 1) => {}
            (None, _) => {
                base.vhosts.insert(host.to_owned(), other);
                head.removed.push(host.to_owned());
            }
        }
    }
    (base, head)
}

fn same_rule(expected: &Answer<'_>, found: &Decision<'_>, request: &Sample) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.listener().map(|l| l.name()), expected.listener.as_deref(), "{:?}", request);
    let chosen = expected.chosen();
    prop_assert_eq!(found.rule().map(identity), chosen.map(entry), "{:?}", request);
    prop_assert!(
        chosen.map_or(found.action() == Action::NotFound, |r| may_be(r, found.action())),
        "{:?}",
        found
    );
    Ok(())
}

/// What may become of a request of this rule. Chance decides between its groups.
fn may_be(route: &Route, action: Action) -> bool {
    let redirects = route.filters.as_ref().is_some_and(|f| f.request_redirect.is_some());
    let weighted = || route.backends.iter().filter(|g| g.weight > 0);
    match action {
        Action::Redirect => redirects,
        Action::NotFound
        | Action::Preflight
        | Action::Misdirected
        | Action::Unavailable
        | Action::Refused(_)
        | Action::Loop
        | Action::TooLong(_) => false,
        Action::NoBackend => {
            !redirects && (weighted().next().is_none() || weighted().any(|g| g.endpoints.is_empty()))
        }
        Action::Forward { group } => {
            let group = &route.backends[group];
            !redirects && group.weight > 0 && !group.endpoints.is_empty()
        }
    }
}

/// `explain` names the same winner, and the losers in the order in which they lost.
fn same_reasons(
    expected: &Answer<'_>,
    found: &Explanation<'_>,
    request: &Sample,
) -> Result<(), TestCaseError> {
    let with = |wanted: fn(&Verdict) -> bool| {
        found.candidates.iter().filter(|c| wanted(&c.verdict)).map(|c| identity(c.rule)).collect::<Vec<_>>()
    };
    prop_assert_eq!(
        with(|v| *v == Verdict::Chosen),
        expected.chosen().map(entry).into_iter().collect::<Vec<_>>(),
        "{:?}",
        request
    );
    prop_assert_eq!(
        with(|v| matches!(v, Verdict::Outranked(_))),
        expected.ranked.iter().copied().chain(expected.default).skip(1).map(entry).collect::<Vec<_>>(),
        "{:?}",
        request
    );
    Ok(())
}

type Identity = (String, u32, String);

fn identity(rule: &Rule) -> Identity {
    (rule.route_name().to_owned(), rule.rule_index(), rule.rule_name().unwrap_or_default().to_owned())
}

fn entry(route: &Route) -> Identity {
    (route.route_name.clone(), route.rule_index, route.rule_name.clone().unwrap_or_default())
}

/// A property that is never put to the test holds always: every way to win and to lose must come up.
#[test]
fn the_generators_reach_every_case() {
    let mut expected = BTreeSet::from([
        "no listener takes it".to_owned(),
        "404".to_owned(),
        "the host's default".to_owned(),
        "the file's default".to_owned(),
        "the order of the file".to_owned(),
    ]);
    for (at, (winner, _)) in PRECEDENCE.iter().enumerate() {
        expected.extend(PRECEDENCE[at + 1..].iter().map(|(loser, _)| format!("{winner} against {loser}")));
    }
    let mut runner = TestRunner::deterministic();
    let cases = (generators::config(), vec(generators::request(), 30));
    let mut seen = BTreeSet::new();
    for _ in 0..1000 {
        let (config, requests) = cases.new_tree(&mut runner).unwrap().current();
        seen.extend(requests.iter().flat_map(|request| what_decides(&config, request)));
    }
    assert_eq!(seen, expected);
}

/// What won, against which other reasons.
fn what_decides(config: &Config, request: &Sample) -> Vec<String> {
    let answer = answer(config, request);
    let outcome = match (answer.ranked.split_first(), answer.default) {
        (Some((first, others)), _) => return others.iter().flat_map(|other| reasons(first, other)).collect(),
        (None, Some(default)) if Some(default) == config.default.as_ref() => "the file's default",
        (None, Some(_)) => "the host's default",
        (None, None) if answer.listener.is_some() => "404",
        (None, None) => "no listener takes it",
    };
    vec![outcome.to_owned()]
}

fn reasons(first: &Route, second: &Route) -> Vec<String> {
    let speak_for = |first: &Route, second: &Route| {
        let fields = PRECEDENCE.iter().filter(|(_, compare)| compare(first, second) == Ordering::Less);
        fields.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    match speak_for(first, second).first() {
        Some(winner) => {
            speak_for(second, first).iter().map(|loser| format!("{winner} against {loser}")).collect()
        }
        None => vec!["the order of the file".to_owned()],
    }
}
