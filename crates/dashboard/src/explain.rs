//! Which route would take a request, and why the others would not: the router's own answer, in words.

use std::collections::BTreeMap;
use std::fmt;

use model::names::socket_parts;
use model::{Arrangement, RouteKind};
use router::counters::Way;
use router::{Action, Candidate, Decision, Request, Routed, Router, Rule, TooLong, Verdict, random};
use serde::{Deserialize, Serialize};

use crate::names::{self, Goes, Name};

/// Rules beyond this many are only counted: a large gateway has thousands.
const SHOWN: usize = 40;

/// A request that is only decided, not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    pub host: String,
    /// Path and query.
    pub path: String,
    pub method: String,
    pub headers: Vec<(String, String)>,
}

/// What one socket of one Gateway would do with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    pub gateway: String,
    pub socket: String,
    pub listener: String,
    /// How the path is read, where that differs from what was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    pub answer: String,
    /// Why the route leads nowhere, in whole or in part, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Which way the request takes, and why; absent where there is no HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// Whether the front may answer a hit from its own memory, or why not; absent where the cache is not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<String>,
    /// When and why the cache did not answer such a request last, where what runs remembers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// The other rules, closest first.
    pub others: Vec<Other>,
    /// Beyond those.
    pub more: usize,
}

/// A rule that does not get it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Other {
    pub rule: String,
    pub why: String,
}

/// What references of routes lead nowhere, by `Ingress default/shop`.
pub type Faults = BTreeMap<String, String>;

/// Asks the router that serves, or one like it. `names` are those of the front, which sees the handshake first.
pub fn explain(
    router: &Router,
    names: &[Name],
    faults: &Faults,
    (gateway, socket): (&str, &str),
    arrangement: Arrangement,
    asked: &Asked,
) -> Explained {
    let mut request = At { asked, socket, url: asked.path.as_bytes() };
    let without_route = |listener: &str, route: Option<String>, answer: String| Explained {
        gateway: gateway.to_owned(),
        socket: socket.to_owned(),
        listener: listener.to_owned(),
        problem: route.as_ref().and_then(|route| faults.get(route).cloned()),
        route,
        answer,
        ..Explained::default()
    };
    if !router::is_host(asked.host.as_bytes()) {
        let answer = format!("400, `{}` is not a valid host", asked.host);
        let way = Some(own_way(arrangement, "the Host header is not valid"));
        return Explained { way, ..without_route("any listener", None, answer) };
    }
    if let Some((protocol, port)) = socket_parts(socket)
        && protocol != "http"
    {
        match names::find(names, port, &asked.host) {
            Some(Goes::ToVarnish) => {}
            Some(Goes::ByTlsRoute { route, answer }) => {
                let route = route.as_ref().map(|route| format!("TLSRoute {route}"));
                return without_route("a TLS listener", route, answer.clone());
            }
            Some(Goes::Nowhere) | None => {
                let answer = format!(
                    "none, the handshake is refused: this port has neither a certificate nor a TLSRoute for the name `{}`",
                    asked.host
                );
                return without_route("no listener for this name", None, answer);
            }
        }
    }
    let Routed { decision, url } = router.route(&request, random::next());
    if let Some(url) = &url {
        request.url = url;
    }
    let path = url.as_ref().map(|url| format!("read as `{}`", String::from_utf8_lossy(url)));
    let explanation = router.explain(&request, random::next());
    let decision = &decision;
    let listener = decision.listener().map_or("no listener for this host".to_owned(), |l| {
        if l.name().is_empty() { "any listener".to_owned() } else { format!("listener {}", l.name()) }
    });
    let host = match (&explanation.host, decision.listener()) {
        (Some(host), _) => Some(format!("`{}` belongs to `{host}`", asked.host)),
        (None, Some(_)) => Some(format!("no route of this listener takes `{}`", asked.host)),
        (None, None) => None,
    };
    if let Action::Refused(why) = decision.action() {
        let answer = format!("400, {}", why.message());
        let way = Some(own_way(arrangement, why.message()));
        return Explained { host, way, ..without_route(&listener, None, answer) };
    }
    let others = explanation.candidates.iter().filter_map(|Candidate { rule, verdict }| {
        let why = match verdict {
            Verdict::Chosen => return None,
            Verdict::Outranked(why) => format!("fits too, but {why}"),
            Verdict::NoMatch(why) => why.clone(),
        };
        Some(Other { rule: shown(rule), why })
    });
    let count = explanation.candidates.iter().filter(|c| c.verdict != Verdict::Chosen).count();
    Explained {
        gateway: gateway.to_owned(),
        socket: socket.to_owned(),
        listener,
        path,
        host,
        route: decision.rule().map(shown),
        answer: answer(&request, decision),
        problem: decision.rule().and_then(|rule| problem(rule, faults)),
        way: Some(way(&request, decision, arrangement)),
        cache: matches!(decision.action(), Action::Forward { .. }).then(|| cache(&request, decision)),
        hot: hot(&request, decision, arrangement),
        last: None,
        others: others.take(SHOWN).collect(),
        more: count.saturating_sub(SHOWN),
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Gateway {}, socket {}, {}", self.gateway, self.socket, self.listener)?;
        for (name, value) in [("path", &self.path), ("host", &self.host), ("route", &self.route)] {
            if let Some(value) = value {
                writeln!(f, "  {name}: {value}")?;
            }
        }
        writeln!(f, "  answer: {}", self.answer)?;
        let rest = [
            ("problem", &self.problem),
            ("way", &self.way),
            ("cache", &self.cache),
            ("hot", &self.hot),
            ("last", &self.last),
        ];
        for (name, value) in rest {
            if let Some(value) = value {
                writeln!(f, "  {name}: {value}")?;
            }
        }
        for Other { rule, why } in &self.others {
            writeln!(f, "  not {rule}: {why}")?;
        }
        match self.more {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

struct At<'a> {
    asked: &'a Asked,
    socket: &'a str,
    url: &'a [u8],
}

impl Request for At<'_> {
    fn socket(&self) -> &[u8] {
        self.socket.as_bytes()
    }

    fn host(&self) -> &[u8] {
        self.asked.host.as_bytes()
    }

    fn method(&self) -> &[u8] {
        self.asked.method.as_bytes()
    }

    fn url(&self) -> &[u8] {
        self.url
    }

    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let host = name.eq_ignore_ascii_case("Host").then_some(self.asked.host.as_bytes());
        let given = self.asked.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        host.into_iter().chain(given.map(|(_, value)| value.as_bytes())).any(seen)
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

/// Why a backend of the rule is not valid.
fn problem(rule: &Rule, faults: &Faults) -> Option<String> {
    let invalid = rule.groups().iter().any(|group| group.weight() > 0 && group.name().is_empty());
    let route = || format!("{} {}", rule.kind().name(), rule.route_name());
    invalid.then(route).and_then(|route| faults.get(&route).cloned())
}

/// As the postamble of main.vcl decides it; user VCL may decide otherwise.
fn cache(request: &At<'_>, decision: &Decision<'_>) -> String {
    match (bypasses(request, decision), decision.cache()) {
        (None, Some(cache)) => {
            let mut url = Vec::new();
            cache.write_url(request.url(), &mut url);
            format!("asked, for `{}`", String::from_utf8_lossy(&url))
        }
        (why, _) => format!("bypassed: {}", why.unwrap_or_default()),
    }
}

/// Would a hit be answered by the front itself? As far as the request says it: ghost also looks at the object.
fn hot(request: &At<'_>, decision: &Decision<'_>, arrangement: Arrangement) -> Option<String> {
    let cache = decision.cache().filter(|_| bypasses(request, decision).is_none())?;
    let has = |name| request.any_header(name, &mut |_| true);
    let believed = |(name, _): &&(String, String)| {
        let kind = router::sent::kind(name.as_bytes());
        matches!(kind, Some(router::sent::Kind::Override | router::sent::Kind::Address))
    };
    let why = if !arrangement.http_in_front {
        format!("every request goes through varnishd ({})", arrangement.why())
    } else if arrangement.hot_objects_off {
        "hotObjects.enabled is false".to_owned()
    } else if has("Authorization") {
        "the request has an Authorization header".to_owned()
    } else if has("Range") {
        "the request has a Range header".to_owned()
    } else if let Some((name, _)) = request.asked.headers.iter().find(believed) {
        format!("the request has {name}, which the origin may believe")
    } else if cache.obeys_search() {
        "the policy obeys No-Vary-Search".to_owned()
    } else if cache.obeys_clients() && has("Cache-Control") {
        "the policy obeys the client's Cache-Control".to_owned()
    } else {
        return Some(
            "a fresh hit would be hot, if the object is small and the same for all who may share it"
                .to_owned(),
        );
    };
    Some(format!("no: {why}"))
}

/// Why the cache did not answer a request, in words, from what Cache-Status said.
pub(crate) fn last(uncached: &front::Uncached) -> String {
    let mut why = Vec::new();
    for parameter in uncached.said.split("; ") {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match (name, value) {
            ("fwd", "miss") => why.push("nothing that fits was stored".to_owned()),
            ("fwd", "stale") => why.push("what was stored was stale".to_owned()),
            ("fwd", "request") => why.push("the client's Cache-Control refused what was stored".to_owned()),
            ("fwd", "bypass") => why.push("the request bypassed the cache".to_owned()),
            ("fwd-status", status) => why.push(format!("the origin answered {status}")),
            ("stored", _) => why.push("the answer was stored".to_owned()),
            ("ttl", seconds) => why.push(format!("fresh for {seconds} seconds")),
            ("detail", detail) => why.push(format!("the answer was not stored: {}", not_stored(detail))),
            _ => {}
        }
    }
    format!("not from the cache {} seconds ago: {}", uncached.seconds_ago, why.join(", "))
}

/// The words of ghost's `detail`.
fn not_stored(detail: &str) -> &str {
    match detail {
        "private" => "Cache-Control: private",
        "no-store" => "Cache-Control: no-store",
        "authorization" => {
            "the request had Authorization, and the origin says neither public, s-maxage nor must-revalidate"
        }
        "surrogate-control" => "Surrogate-Control: no-store",
        "set-cookie" => "it has Set-Cookie",
        "vary" => "it has Vary: *",
        "status" => "answers with this status are not stored",
        "no-lifetime" => "the origin says that it is stale at once, and gives no ETag or Last-Modified",
        "size" => "it is larger than maxObjectSize or its storage allows",
        "index" => "the index of objects is full",
        "purged" => "a purge came while it was fetched",
        "no-vary-search" => "its No-Vary-Search differs from that of the answer before it",
        "refresh" => "it was to replace a fresh object, and is not better",
        other => other,
    }
}

/// Why the cache is not asked, if so. The conditions are those of [`Decision::asks_cache`].
fn bypasses(request: &At<'_>, decision: &Decision<'_>) -> Option<String> {
    if decision.is_ambiguous() {
        return Some("the path has encoded separators or dot segments".to_owned());
    }
    let Some(cache) = decision.cache() else { return Some("the rule has no cache policy".to_owned()) };
    let has = |name| request.any_header(name, &mut |_| true);
    if !matches!(request.method(), b"GET" | b"HEAD") {
        let kept = match request.method() {
            b"POST" if cache.keeps_posts() => {
                "; its answer may be kept for GET, if it names its own URL in Content-Location and says how long it is fresh"
            }
            _ => "",
        };
        return Some(format!("{} is never answered from the cache{kept}", request.asked.method));
    }
    let why = if has("Authorization") && !cache.shares_authorized() {
        "the request has an Authorization header"
    } else if cache.is_bypassed_by(request) {
        "the policy's bypass names a header of the request"
    } else if cache.cookies_pass() && has("Cookie") {
        "the request has a Cookie header, and the Ingress has no cache policy"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// The way that the request takes, and why.
fn way(request: &At<'_>, decision: &Decision<'_>, arrangement: Arrangement) -> String {
    let is_own = decision.cache().is_none() && !matches!(decision.action(), Action::Forward { .. });
    if is_own {
        let why = match decision.action() {
            Action::Redirect => "the rule redirects",
            Action::Preflight => "a preflight request is answered by the rule's CORS filter",
            Action::NoBackend | Action::Unavailable => "no backend of the rule has endpoints",
            Action::NotFound => "no route matches",
            Action::Misdirected => "the connection was made for another listener",
            Action::Loop => "the request has been through this gateway before",
            Action::TooLong(_) => "the request is too long for a regular expression of the routes",
            Action::Refused(why) => why.message(),
            Action::Forward { .. } => "the gateway answers",
        };
        return own_way(arrangement, why);
    }
    if !arrangement.http_in_front {
        return format!("through varnishd: {}", arrangement.why());
    }
    let upgrades = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(b"websocket");
    if request.any_header("Upgrade", &mut |value| upgrades(value)) {
        return format!("{}: a WebSocket is never answered from the cache", Way::Direct.name());
    }
    match bypasses(request, decision) {
        Some(why) => format!("{}: {why}", Way::Direct.name()),
        None => {
            let policy = match decision.cache() {
                Some(cache) if cache.cookies_pass() => "an Ingress without a cache policy",
                _ => "a cache policy",
            };
            format!("{}: {} with {policy}", Way::Cache.name(), request.asked.method)
        }
    }
}

/// The gateway answers itself: the front, or ghost in varnishd.
fn own_way(arrangement: Arrangement, why: &str) -> String {
    let way = if arrangement.http_in_front { "own" } else { "own, through varnishd" };
    format!("{way}: {why}")
}

fn answer(request: &At<'_>, decision: &Decision<'_>) -> String {
    match decision.action() {
        Action::TooLong(TooLong::Url) => {
            return "414, the path or a query parameter is too long for the regular expressions of the host's routes"
                .to_owned();
        }
        Action::TooLong(TooLong::Header) => {
            return "431, a header is too long for the regular expressions of the host's routes".to_owned();
        }
        _ => {}
    }
    let Some(rule) = decision.rule() else { return "404, no route matches".to_owned() };
    if rule.route_name().is_empty() {
        return "503, there is neither a valid Ingress nor an HTTPRoute".to_owned();
    }
    match decision.action() {
        Action::Loop => "508, the request has been through this gateway before".to_owned(),
        Action::Refused(why) => format!("400, {}", why.message()),
        Action::NotFound | Action::TooLong(_) => "404, no route matches".to_owned(),
        Action::Preflight => "204, a preflight request by the rule's CORS filter".to_owned(),
        Action::Misdirected => "421, the connection was made for another listener".to_owned(),
        Action::Redirect => {
            let (host, url) = (request.asked.host.as_bytes(), request.url);
            rule.redirect(request.socket, host, url).map_or("a redirect".to_owned(), |(status, location)| {
                format!("{status}, Location: {}", String::from_utf8_lossy(&location))
            })
        }
        // Which of the groups it is, chance decides.
        Action::Forward { .. } | Action::NoBackend | Action::Unavailable => {
            let none = rule.kind().status_without_backend();
            let of_ingress = rule.kind() == RouteKind::Ingress;
            let invalid = if of_ingress { "an invalid backend" } else { "an invalid backendRef" };
            let total: u64 = rule.groups().iter().map(|g| u64::from(g.weight())).sum();
            let groups = rule.groups().iter().filter(|g| g.weight() > 0).map(|group| {
                let name = group.name();
                let share = 100.0 * f64::from(group.weight()) / total.max(1) as f64;
                let endpoints: Vec<_> = group.endpoints().iter().map(ToString::to_string).collect();
                match endpoints.as_slice() {
                    [] if name.is_empty() => format!("{invalid} ({share:.0} %, {none})"),
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
