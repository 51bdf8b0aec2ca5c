//! `explain`: where a request would go, and why.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use model::RouteKind;
use model::names::socket_parts;
use router::{Action, Candidate, Explanation, Request, Router, Rule, Verdict, random};
use translate::Key;

use crate::cli::ExplainArguments;
use crate::input;

/// Rules beyond this many are only counted: a large gateway has thousands.
const SHOWN: usize = 40;

pub(crate) fn run(arguments: &ExplainArguments) -> anyhow::Result<ExitCode> {
    let (translation, snapshot, problems) = input::read(&arguments.files);
    let mut to = io::stdout().lock();
    for problem in problems.iter().filter(|p| p.is_error()) {
        writeln!(to, "problem: {problem}")?;
    }
    let endpoints = input::endpoints(&snapshot);
    let mut explained = 0;
    for (key, plan) in &translation.gateways {
        if arguments.gateway.as_ref().is_some_and(|wanted| *wanted != key.to_string()) {
            continue;
        }
        let (config, _) = input::ghost(plan, &endpoints);
        let compiled = Router::compile(&config)?;
        let sockets = plan.routing.listeners.iter().map(|listener| listener.socket.as_str());
        let sockets: BTreeMap<u16, &str> = sockets.filter_map(|s| Some((socket_parts(s)?.1, s))).collect();
        for (_, socket) in sockets.into_iter().filter(|(p, _)| arguments.port.is_none_or(|port| port == *p)) {
            let request = Asked { arguments, socket };
            let explanation = compiled.router.explain(&request, random::next());
            explain(&mut to, key, socket, &request, &explanation)?;
            explained += 1;
        }
    }
    if explained == 0 {
        writeln!(to, "No Gateway of ours has a listener for this. `varnish-gateway check` says more.")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The request of the command line.
struct Asked<'a> {
    arguments: &'a ExplainArguments,
    socket: &'a str,
}

impl Request for Asked<'_> {
    fn socket(&self) -> &[u8] {
        self.socket.as_bytes()
    }

    fn host(&self) -> &[u8] {
        self.arguments.host.as_bytes()
    }

    fn method(&self) -> &[u8] {
        self.arguments.method.as_bytes()
    }

    fn url(&self) -> &[u8] {
        self.arguments.path.as_bytes()
    }

    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let host = name.eq_ignore_ascii_case("Host").then_some(self.arguments.host.as_bytes());
        let given = self.arguments.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        host.into_iter().chain(given.map(|(_, value)| value.as_bytes())).any(seen)
    }
}

fn explain(
    to: &mut impl Write,
    gateway: &Key,
    socket: &str,
    request: &Asked<'_>,
    explanation: &Explanation<'_>,
) -> io::Result<()> {
    let decision = &explanation.decision;
    let listener = decision.listener().map_or("no listener for this host".to_owned(), |l| {
        if l.name().is_empty() { "any listener".to_owned() } else { format!("listener {}", l.name()) }
    });
    writeln!(to, "Gateway {gateway}, socket {socket}, {listener}")?;
    match (&explanation.host, decision.listener()) {
        (Some(host), _) => writeln!(to, "  host: `{}` belongs to `{host}`", request.arguments.host)?,
        (None, Some(_)) => {
            writeln!(to, "  host: no route of this listener takes `{}`", request.arguments.host)?;
        }
        (None, None) => {}
    }
    if let Some(rule) = decision.rule() {
        writeln!(to, "  route: {}", shown(rule))?;
    }
    writeln!(to, "  answer: {}", answer(request, explanation))?;
    if matches!(decision.action(), Action::Forward { .. }) {
        writeln!(to, "  cache: {}", cache(request, explanation))?;
    }
    let others = explanation.candidates.iter().filter(|c| c.verdict != Verdict::Chosen);
    for Candidate { rule, verdict } in others.clone().take(SHOWN) {
        let why = match verdict {
            Verdict::Chosen => continue,
            Verdict::Outranked(why) => format!("fits too, but {why}"),
            Verdict::NoMatch(why) => why.clone(),
        };
        writeln!(to, "  not {}: {why}", shown(rule))?;
    }
    match others.count().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => writeln!(to, "  and {more} more"),
    }
}

fn shown(rule: &Rule) -> String {
    if rule.route_name().is_empty() {
        return "no route: there is neither a valid Ingress nor an HTTPRoute".to_owned();
    }
    let name = rule.rule_name().map(|n| format!(" `{n}`")).unwrap_or_default();
    format!(
        "{} {}, rule {}{name} ({})",
        rule.kind().name(),
        rule.route_name(),
        rule.rule_index(),
        rule.conditions()
    )
}

/// As the postamble of main.vcl decides it; user VCL may decide otherwise.
fn cache(request: &Asked<'_>, explanation: &Explanation<'_>) -> String {
    let Some(cache) = explanation.decision.cache() else {
        return "passed by, there is no cache policy".to_owned();
    };
    if !matches!(request.method(), b"GET" | b"HEAD") {
        return "passed by, the method is neither GET nor HEAD".to_owned();
    }
    if request.any_header("Authorization", &mut |_| true) {
        return "passed by, the request has an Authorization".to_owned();
    }
    if cache.is_bypassed_by(request) {
        return "passed by, the policy's bypass has a header of the request".to_owned();
    }
    let mut url = Vec::new();
    cache.write_url(request.url(), &mut url);
    format!("asked, for `{}`", String::from_utf8_lossy(&url))
}

fn answer(request: &Asked<'_>, explanation: &Explanation<'_>) -> String {
    let decision = &explanation.decision;
    let Some(rule) = decision.rule() else { return "404, no route matches".to_owned() };
    if rule.route_name().is_empty() {
        return "503, there is neither a valid Ingress nor an HTTPRoute".to_owned();
    }
    match decision.action() {
        Action::NotFound => "404, no route matches".to_owned(),
        Action::Misdirected => "421, the connection was made for another listener".to_owned(),
        Action::Redirect => {
            let (host, url) = (request.arguments.host.as_bytes(), request.arguments.path.as_bytes());
            rule.redirect(request.socket, host, url).map_or("a redirect".to_owned(), |(status, location)| {
                format!("{status}, Location: {}", String::from_utf8_lossy(&location))
            })
        }
        // Which of the groups it is, chance decides.
        Action::Forward { .. } | Action::NoBackend | Action::Unavailable => {
            let none = if rule.kind() == RouteKind::Ingress { 503 } else { 500 };
            let total: u64 = rule.groups().iter().map(|g| u64::from(g.weight())).sum();
            let groups = rule.groups().iter().filter(|g| g.weight() > 0).map(|group| {
                let name = if group.name().is_empty() { "an invalid backendRef" } else { group.name() };
                let share = 100.0 * f64::from(group.weight()) / total.max(1) as f64;
                let endpoints: Vec<_> = group.endpoints().iter().map(ToString::to_string).collect();
                match endpoints.as_slice() {
                    [] => format!("{name} ({share:.0} %, {none}: no endpoints)"),
                    _ => format!("{name} ({share:.0} %: {})", endpoints.join(", ")),
                }
            });
            match groups.collect::<Vec<_>>().as_slice() {
                [] => "500, the rule has no backendRef with a weight".to_owned(),
                groups => format!("from {}", groups.join(" or ")),
            }
        }
    }
}
