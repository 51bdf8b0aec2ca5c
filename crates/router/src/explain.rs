//! Why a request goes where it goes. For people, so it may allocate.

use model::RouteKind;
use model::host::HostPattern;

use crate::Request;
use crate::decision::{Action, Decision};
use crate::host::{NormalHost, normal_hostname};
use crate::path::{normal_prefix, split};
use crate::precedence;
use crate::rule::Rule;
use crate::table::Router;

/// The decision, and the verdict on every rule.
#[derive(Debug)]
pub struct Explanation<'r> {
    pub decision: Decision<'r>,
    /// The hostname, of those that routes name, that the request's host belongs to.
    pub host: Option<String>,
    /// In order of precedence; rules of other hosts and listeners last.
    pub candidates: Vec<Candidate<'r>>,
}

#[derive(Debug)]
pub struct Candidate<'r> {
    pub rule: &'r Rule,
    pub verdict: Verdict,
}

/// The verdict on a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Chosen,
    /// It fits too, but another goes first.
    Outranked(&'static str),
    /// It does not fit.
    NoMatch(String),
}

impl Router {
    /// The same decision as [`Router::decide`], with its reasons.
    pub fn explain(&self, request: &impl Request, random: u64) -> Explanation<'_> {
        let decision = self.decide(request, random);
        let host = NormalHost::new(request.host());
        let table = self.listener_for(request.socket(), host.as_bytes());
        let rules = table.and_then(|t| t.hosts.get(host.as_bytes()));
        let known = table.and_then(|t| {
            t.hosts.iter().find(|(_, r)| rules.is_some_and(|chosen| std::ptr::eq(chosen, *r))).map(|(h, _)| h)
        });
        let mut ordered: Vec<u32> =
            rules.map(|r| self.paths.rules_of(&r.paths).collect()).unwrap_or_default();
        ordered.sort_by_cached_key(|id| (precedence::key(&self.rules[*id as usize]), *id));
        let mut candidates: Vec<_> = ordered
            .iter()
            .map(|id| {
                let rule = &self.rules[*id as usize];
                Candidate { rule, verdict: verdict(rule, *id, &decision, request) }
            })
            .collect();
        let default = rules.and_then(|r| r.default_rule);
        for (id, rule) in (0..).zip(&self.rules) {
            if !ordered.contains(&id) {
                let verdict = if decision.rule_id() == Some(id) {
                    Verdict::Chosen
                } else if default == Some(id) {
                    Verdict::Outranked("the default is for requests that no rule of the host fits")
                } else if table.is_none() {
                    Verdict::NoMatch("no listener takes this socket and host".to_owned())
                } else {
                    Verdict::NoMatch(elsewhere(rule, host.as_bytes(), known.as_deref()))
                };
                candidates.push(Candidate { rule, verdict });
            }
        }
        Explanation { decision, host: known, candidates }
    }
}

/// Why a rule does not stand under the hostname that the request belongs to on its listener.
fn elsewhere(rule: &Rule, host: &[u8], known: Option<&str>) -> String {
    let hostname = &rule.hostname;
    let own = normal_hostname(hostname);
    let pattern = HostPattern::new(&own);
    if !pattern.matches(host) {
        return format!("hostname `{hostname}` is not the request's");
    }
    if rule.kind() == RouteKind::Ingress && !pattern.of_one_label().matches(host) {
        return format!("hostname `{hostname}` of an Ingress is for one label only");
    }
    match known.filter(|known| HostPattern::new(known).closeness() > pattern.closeness()) {
        Some(known) => format!("hostname `{hostname}`: the request belongs to `{known}`, which is closer"),
        None => "it is attached to another listener".to_owned(),
    }
}

fn verdict(rule: &Rule, id: u32, decision: &Decision<'_>, request: &impl Request) -> Verdict {
    if decision.rule_id() == Some(id) {
        return Verdict::Chosen;
    }
    match (mismatch(rule, request), decision.rule()) {
        (Some(why), _) => Verdict::NoMatch(why),
        (None, Some(winner)) => Verdict::Outranked(precedence::reason(winner, rule)),
        (None, None) if matches!(decision.action(), Action::TooLong(_)) => {
            Verdict::NoMatch("the request is refused: a value is too long to be matched".to_owned())
        }
        (None, None) => Verdict::NoMatch("it fits, yet nothing was chosen".to_owned()),
    }
}

/// The first condition of a rule that a request does not meet.
fn mismatch(rule: &Rule, request: &impl Request) -> Option<String> {
    use model::matches::PathMatchType::{Exact, PathPrefix, RegularExpression};
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let (path, query) = split(request.url());
    let value = &rule.path.value;
    let fits = match rule.path.kind {
        Exact => path == value.as_bytes(),
        RegularExpression => rule.path_pattern_matches(path),
        PathPrefix => path
            .strip_prefix(normal_prefix(value))
            .is_some_and(|rest| path.starts_with(b"/") && (rest.is_empty() || rest[0] == b'/')),
    };
    if !fits {
        let kind = match rule.path.kind {
            Exact => "is not the path",
            RegularExpression => "does not match the whole path",
            PathPrefix => "is not a prefix of whole path elements of",
        };
        return Some(format!("path `{value}` {kind} `{}`", text(path)));
    }
    if let Some(method) = rule.method.as_deref().filter(|m| m.as_bytes() != request.method()) {
        return Some(format!("requires method {method}, the request has {}", text(request.method())));
    }
    if let Some(header) = rule.headers.iter().find(|h| h.matches_header(request) != Ok(true)) {
        return Some(format!("header `{}` is missing or has another value", header.name));
    }
    let param = rule.query_params.iter().find(|p| p.matches_query(query) != Ok(true))?;
    Some(format!("query parameter `{}` is missing or has another value", param.name))
}
