//! What a rule, or one of its backendRefs, does to requests and responses.

mod cors;

use gateway_api::experimental::httproutes::{
    HttpRouteRules, HttpRouteRulesBackendRefsFilters, HttpRouteRulesFilters,
    HttpRouteRulesFiltersRequestHeaderModifier as RequestModifier, HttpRouteRulesFiltersRequestMirror,
    HttpRouteRulesFiltersRequestRedirect as Redirect,
    HttpRouteRulesFiltersRequestRedirectPathType as RedirectPathType,
    HttpRouteRulesFiltersRequestRedirectScheme as Scheme,
    HttpRouteRulesFiltersResponseHeaderModifier as ResponseModifier, HttpRouteRulesFiltersType as FilterType,
    HttpRouteRulesFiltersUrlRewrite as Rewrite, HttpRouteRulesFiltersUrlRewritePathType as RewritePathType,
};
use model::Fraction;
use model::filters::{Filters, Header, HeaderModifier, PathType, RequestRedirect, UrlRewrite};
use model::matches::PathMatchType;
use model::names::{API_GROUP, GHOST_PREFIX};
use model::routing::Mirror;

use super::backends::{self, Backend};
use super::matches::Match;
use super::rules::Context;
use crate::cache_policy;
use crate::listener::{Fault, RouteKind};
use crate::snapshot::Key;

/// Headers that say where a message ends. A filter that sets them lets one client's bytes be read as another's request.
const FRAMING: [&str; 9] = [
    "Connection",
    "Content-Length",
    "Expect",
    "Keep-Alive",
    "Proxy-Connection",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
];

/// Why a rule's filters cannot be carried out.
#[derive(Debug)]
pub(super) struct FilterFault {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Where the filter is a reference, the message about that.
    pub(super) unresolved: Option<Fault>,
}

impl FilterFault {
    pub(super) fn unsupported(message: String) -> Self {
        Self { reason: "UnsupportedValue", message, unresolved: None }
    }

    fn incompatible(message: String) -> Self {
        Self { reason: "IncompatibleFilters", message, unresolved: None }
    }
}

/// What the filters of a rule, or of one of its backendRefs, ask for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) filters: Filters,
    pub(super) mirrors: Vec<Mirror>,
}

/// Where filters stand. Not every filter makes sense on a single backendRef.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Rule,
    BackendRef,
}

/// All filters of the rule at `rule`; those of its backendRefs are added to `backends`. Invalid mirrors are added to `unresolved`,
/// and do not stop the rule.
pub(super) fn read(
    route: &Key,
    rule: &str,
    spec: &HttpRouteRules,
    matches: &[Match],
    backends: &mut [Backend],
    context: &Context<'_>,
    unresolved: &mut Vec<Fault>,
) -> Result<Asked, FilterFault> {
    let mut reader = Reader { route, context, unresolved, has_policy: false };
    let at = format!("{rule}.filters");
    let asked = reader.list(&at, Place::Rule, spec.filters.as_deref().unwrap_or_default(), matches)?;
    let has_backends = spec.backend_refs.as_ref().is_some_and(|refs| !refs.is_empty());
    if asked.filters.request_redirect.is_some() && has_backends {
        return Err(FilterFault::incompatible(format!(
            "{rule}: a rule with RequestRedirect sends nothing to backends: remove its backendRefs or the filter"
        )));
    }
    for ((index, reference), backend) in spec.backend_refs.iter().flatten().enumerate().zip(backends) {
        let Some(filters) = reference.filters.as_ref().filter(|filters| !filters.is_empty()) else {
            continue;
        };
        let at = format!("{rule}.backendRefs[{index}].filters");
        let asked = reader.list(&at, Place::BackendRef, &as_of_rule(&at, filters)?, matches)?;
        (backend.filters, backend.mirrors) = (asked.filters, asked.mirrors);
    }
    Ok(asked)
}

/// The API has two types for the same filters: those of a rule and those of a backendRef.
fn as_of_rule(
    at: &str,
    filters: &[HttpRouteRulesBackendRefsFilters],
) -> Result<Vec<HttpRouteRulesFilters>, FilterFault> {
    serde_json::to_value(filters)
        .and_then(serde_json::from_value)
        .map_err(|error| FilterFault::unsupported(format!("{at}: {error}: correct the filter")))
}

struct Reader<'a, 'c> {
    route: &'a Key,
    context: &'a Context<'c>,
    unresolved: &'a mut Vec<Fault>,
    /// The rule names its cache policy.
    has_policy: bool,
}

impl Reader<'_, '_> {
    fn list(
        &mut self,
        at: &str,
        place: Place,
        specs: &[HttpRouteRulesFilters],
        matches: &[Match],
    ) -> Result<Asked, FilterFault> {
        let mut asked = Asked::default();
        for (index, filter) in specs.iter().enumerate() {
            self.one(&format!("{at}[{index}]"), place, filter, &mut asked)?;
        }
        let filters = &asked.filters;
        if filters.request_redirect.is_some() && filters.url_rewrite.is_some() {
            return Err(FilterFault::incompatible(format!(
                "{at}: RequestRedirect and URLRewrite exclude each other: remove one of them"
            )));
        }
        let replaces_prefix =
            filters.request_redirect.as_ref().is_some_and(|f| f.replace_prefix_match.is_some())
                || filters.url_rewrite.as_ref().is_some_and(|f| f.replace_prefix_match.is_some());
        if replaces_prefix && matches.iter().any(|m| m.path.kind != PathMatchType::PathPrefix) {
            return Err(FilterFault::unsupported(format!(
                "{at}: ReplacePrefixMatch needs matches of type PathPrefix only: \
                 change the matches, or use ReplaceFullPath"
            )));
        }
        Ok(asked)
    }

    fn one(
        &mut self,
        at: &str,
        place: Place,
        filter: &HttpRouteRulesFilters,
        asked: &mut Asked,
    ) -> Result<(), FilterFault> {
        let filters = &mut asked.filters;
        match filter.r#type {
            FilterType::RequestHeaderModifier => {
                let modifier = body(at, "requestHeaderModifier", filter.request_header_modifier.as_ref())?;
                once(at, &mut filters.request_header_modifier, request_modifier(at, modifier)?)
            }
            FilterType::ResponseHeaderModifier => {
                let modifier = body(at, "responseHeaderModifier", filter.response_header_modifier.as_ref())?;
                once(at, &mut filters.response_header_modifier, response_modifier(at, modifier)?)
            }
            FilterType::UrlRewrite => {
                let spec = body(at, "urlRewrite", filter.url_rewrite.as_ref())?;
                once(at, &mut filters.url_rewrite, rewrite(at, spec)?)
            }
            FilterType::RequestMirror => {
                let spec = body(at, "requestMirror", filter.request_mirror.as_ref())?;
                self.mirror(at, spec, &mut asked.mirrors)
            }
            FilterType::RequestRedirect if place == Place::Rule => {
                let spec = body(at, "requestRedirect", filter.request_redirect.as_ref())?;
                once(at, &mut filters.request_redirect, redirect(at, spec)?)
            }
            FilterType::Cors if place == Place::Rule => {
                let spec = body(at, "cors", filter.cors.as_ref())?;
                once(at, &mut filters.cors, cors::read(at, spec)?)
            }
            FilterType::RequestRedirect => {
                Err(of_rule(at, "RequestRedirect", "nothing is sent to a backend"))
            }
            FilterType::Cors => Err(of_rule(at, "CORS", "preflight requests are answered without a backend")),
            FilterType::ExternalAuth => Err(FilterFault::unsupported(format!(
                "{at}: ExternalAuth is not supported: remove the filter"
            ))),
            FilterType::ExtensionRef if names_policy(filter) && self.context.kind == RouteKind::GrpcRoute => {
                let message = format!(
                    "{at}: calls of gRPC are never cached, so no rule of a GRPCRoute can name a VarnishCachePolicy: remove the filter"
                );
                let unresolved = Some(Fault { reason: "InvalidKind", message: message.clone() });
                Err(FilterFault { unresolved, ..FilterFault::unsupported(message) })
            }
            FilterType::ExtensionRef if place == Place::Rule && names_policy(filter) => {
                let reference = body(at, "extensionRef", filter.extension_ref.as_ref())?;
                self.cache_policy(at, &reference.name)
            }
            FilterType::ExtensionRef => {
                let name = filter.extension_ref.as_ref().map_or_else(
                    || "nothing".to_owned(),
                    |reference| format!("{} {} of group {}", reference.kind, reference.name, reference.group),
                );
                let message = format!(
                    "{at}: ExtensionRef names {name}, and the one extension is VarnishCachePolicy of group {API_GROUP}, on a rule: \
                     remove the filter"
                );
                let unresolved = Some(Fault { reason: "InvalidKind", message: message.clone() });
                Err(FilterFault { unresolved, ..FilterFault::unsupported(message) })
            }
        }
    }

    /// The rule's cache policy is read with all others, by [`cache_policy::translate`].
    fn cache_policy(&mut self, at: &str, name: &str) -> Result<(), FilterFault> {
        if std::mem::replace(&mut self.has_policy, true) {
            let message = format!("{at}: a rule can name one VarnishCachePolicy: remove the others");
            return Err(FilterFault::incompatible(message));
        }
        cache_policy::check(&Key::new(&self.route.namespace, name), self.context.snapshot).map_err(|fault| {
            let message = format!("{at}.extensionRef: {}", fault.message);
            let unresolved = Some(Fault { message: message.clone(), ..fault });
            FilterFault { unresolved, ..FilterFault::unsupported(message) }
        })
    }

    /// An invalid mirror is left out and reported in the status: requests are served without it.
    fn mirror(
        &mut self,
        at: &str,
        spec: &HttpRouteRulesFiltersRequestMirror,
        mirrors: &mut Vec<Mirror>,
    ) -> Result<(), FilterFault> {
        let fraction = fraction(at, spec)?;
        match backends::mirror(self.route, spec, self.context) {
            Ok(mirror) => mirrors.push(Mirror { fraction, ..mirror }),
            Err(fault) => {
                let message = format!(
                    "{at}.requestMirror.backendRef: {} (no request is mirrored there)",
                    fault.message
                );
                self.unresolved.push(Fault { message, ..fault });
            }
        }
        Ok(())
    }
}

fn names_policy(filter: &HttpRouteRulesFilters) -> bool {
    let reference = filter.extension_ref.as_ref();
    reference.is_some_and(|reference| cache_policy::is_policy(&reference.group, &reference.kind))
}

/// None: all requests.
fn fraction(at: &str, spec: &HttpRouteRulesFiltersRequestMirror) -> Result<Option<Fraction>, FilterFault> {
    let (numerator, denominator) = match (spec.percent, &spec.fraction) {
        (None, None) => return Ok(None),
        (Some(percent), None) => (percent, 100),
        (None, Some(fraction)) => (fraction.numerator, fraction.denominator.unwrap_or(100)),
        (Some(_), Some(_)) => {
            return Err(FilterFault::unsupported(format!(
                "{at}.requestMirror: percent and fraction exclude each other: remove one of them"
            )));
        }
    };
    match (u32::try_from(numerator), u32::try_from(denominator)) {
        (Ok(numerator), Ok(denominator)) if denominator > 0 && numerator <= denominator => {
            Ok((numerator < denominator).then_some(Fraction { numerator, denominator }))
        }
        _ => Err(FilterFault::unsupported(format!(
            "{at}.requestMirror: {numerator} of {denominator} requests cannot be mirrored: use 0 to 100 percent"
        ))),
    }
}

fn of_rule(at: &str, filter: &str, why: &str) -> FilterFault {
    FilterFault::incompatible(format!(
        "{at}: {filter} cannot be a filter of a single backendRef, since {why}: move it to the rule's filters"
    ))
}

fn body<'a, T>(at: &str, field: &str, body: Option<&'a T>) -> Result<&'a T, FilterFault> {
    body.ok_or_else(|| FilterFault::unsupported(format!("{at}: the field {field} is missing: add it")))
}

/// The spec: a filter must not be there twice, since it would be unclear which of the two is meant.
fn once<T>(at: &str, place: &mut Option<T>, filter: T) -> Result<(), FilterFault> {
    if place.is_some() {
        let message = format!("{at}: a rule can have one filter of each type: merge the two");
        return Err(FilterFault::incompatible(message));
    }
    *place = Some(filter);
    Ok(())
}

fn request_modifier(at: &str, spec: &RequestModifier) -> Result<HeaderModifier, FilterFault> {
    let set = spec.set.iter().flatten().map(|h| (h.name.as_str(), h.value.as_str()));
    let add = spec.add.iter().flatten().map(|h| (h.name.as_str(), h.value.as_str()));
    let mut others =
        add.clone().map(|(name, _)| name).chain(spec.remove.iter().flatten().map(String::as_str));
    if others.any(|name| name.eq_ignore_ascii_case("Host")) {
        return Err(FilterFault::unsupported(format!(
            "{at}: a request has exactly one Host: change it by `set`, or by hostname of urlRewrite"
        )));
    }
    modifier(at, set, add, spec.remove.as_deref())
}

fn response_modifier(at: &str, spec: &ResponseModifier) -> Result<HeaderModifier, FilterFault> {
    let set = spec.set.iter().flatten().map(|h| (h.name.as_str(), h.value.as_str()));
    let add = spec.add.iter().flatten().map(|h| (h.name.as_str(), h.value.as_str()));
    modifier(at, set, add, spec.remove.as_deref())
}

fn modifier<'a>(
    at: &str,
    set: impl Iterator<Item = (&'a str, &'a str)>,
    add: impl Iterator<Item = (&'a str, &'a str)>,
    remove: Option<&[String]>,
) -> Result<HeaderModifier, FilterFault> {
    let remove = remove.unwrap_or_default();
    for name in remove {
        header_name(at, name).map_err(FilterFault::unsupported)?;
    }
    Ok(HeaderModifier { set: headers(at, set)?, add: headers(at, add)?, remove: remove.to_vec() })
}

/// Of several entries for one name, the spec says, only the first counts.
fn headers<'a>(
    at: &str,
    given: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<Header>, FilterFault> {
    let mut headers: Vec<Header> = Vec::new();
    for (name, value) in given {
        header_name(at, name).map_err(FilterFault::unsupported)?;
        if value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
            return Err(FilterFault::unsupported(format!(
                "{at}: the value of header {name} holds a control character: remove it"
            )));
        }
        if !headers.iter().any(|first| first.name.eq_ignore_ascii_case(name)) {
            headers.push(Header { name: name.to_owned(), value: value.to_owned() });
        }
    }
    Ok(headers)
}

pub(super) fn is_token(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(token)
}

/// Can the gateway set this header? An error says where, what and the remedy.
pub(super) fn header_name(at: &str, name: &str) -> Result<(), String> {
    let why = if !is_token(name) {
        "is not the name of a header: use letters, digits and hyphens"
    } else if starts_with_ignore_case(name, GHOST_PREFIX) {
        "belongs to the gateway: choose another name"
    } else if FRAMING.iter().any(|framing| framing.eq_ignore_ascii_case(name)) {
        "is Varnish's to set: remove it from the filter"
    } else {
        return Ok(());
    };
    Err(format!("{at}: `{name}` {why}"))
}

fn starts_with_ignore_case(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn redirect(at: &str, spec: &Redirect) -> Result<RequestRedirect, FilterFault> {
    let status_code = match spec.status_code {
        None => 302,
        Some(code @ (301 | 302 | 303 | 307 | 308)) => u16::try_from(code).unwrap_or(302),
        Some(other) => {
            return Err(FilterFault::unsupported(format!(
                "{at}: status code {other} does not redirect: use 301, 302, 303, 307 or 308"
            )));
        }
    };
    let port = match spec.port.map(u16::try_from) {
        None => None,
        Some(Ok(port)) if port > 0 => Some(port),
        Some(_) => return Err(FilterFault::unsupported(format!("{at}: port must be from 1 to 65535"))),
    };
    let path = spec.path.as_ref().map(|path| {
        let kind = match path.r#type {
            RedirectPathType::ReplaceFullPath => PathType::ReplaceFullPath,
            RedirectPathType::ReplacePrefixMatch => PathType::ReplacePrefixMatch,
        };
        (kind, path.replace_full_path.as_deref(), path.replace_prefix_match.as_deref())
    });
    let path = Path::read(at, path)?;
    Ok(RequestRedirect {
        scheme: spec.scheme.as_ref().map(|scheme| match scheme {
            Scheme::Http => "http".to_owned(),
            Scheme::Https => "https".to_owned(),
        }),
        hostname: hostname(at, spec.hostname.as_deref())?,
        port,
        path_type: path.kind,
        replace_full_path: path.full,
        replace_prefix_match: path.prefix,
        status_code,
    })
}

fn rewrite(at: &str, spec: &Rewrite) -> Result<UrlRewrite, FilterFault> {
    let path = spec.path.as_ref().map(|path| {
        let kind = match path.r#type {
            RewritePathType::ReplaceFullPath => PathType::ReplaceFullPath,
            RewritePathType::ReplacePrefixMatch => PathType::ReplacePrefixMatch,
        };
        (kind, path.replace_full_path.as_deref(), path.replace_prefix_match.as_deref())
    });
    let path = Path::read(at, path)?;
    Ok(UrlRewrite {
        hostname: hostname(at, spec.hostname.as_deref())?,
        path_type: path.kind,
        replace_full_path: path.full,
        replace_prefix_match: path.prefix,
    })
}

fn hostname(at: &str, hostname: Option<&str>) -> Result<Option<String>, FilterFault> {
    let Some(name) = hostname.filter(|name| !name.is_empty()) else { return Ok(None) };
    if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.') {
        return Ok(Some(name.to_ascii_lowercase()));
    }
    Err(FilterFault::unsupported(format!("{at}: `{name}` is not a hostname: write it as shop.example.com")))
}

/// How a redirect or a rewrite changes the path.
#[derive(Default)]
struct Path {
    kind: Option<PathType>,
    full: Option<String>,
    prefix: Option<String>,
}

impl Path {
    fn read(at: &str, spec: Option<(PathType, Option<&str>, Option<&str>)>) -> Result<Self, FilterFault> {
        let Some((kind, full, prefix)) = spec else { return Ok(Self::default()) };
        let (field, value) = match kind {
            PathType::ReplaceFullPath => ("replaceFullPath", full),
            PathType::ReplacePrefixMatch => ("replacePrefixMatch", prefix),
        };
        let value = *body(at, field, value.as_ref())?;
        if value.bytes().any(|b| b.is_ascii_control() || b" ?#".contains(&b)) {
            return Err(FilterFault::unsupported(format!(
                "{at}: {field} `{}` holds a blank, a `?`, a `#` or a control character: it is a path alone; write it percent-encoded",
                value.escape_debug()
            )));
        }
        // A path begins with a slash on the wire, whether or not it was written so. An empty prefix stays: it
        // says that the prefix goes away.
        let value = match kind {
            PathType::ReplacePrefixMatch if value.is_empty() => String::new(),
            _ if value.starts_with('/') => value.to_owned(),
            _ => format!("/{value}"),
        };
        Ok(match kind {
            PathType::ReplaceFullPath => Self { kind: Some(kind), full: Some(value), prefix: None },
            PathType::ReplacePrefixMatch => Self { kind: Some(kind), full: None, prefix: Some(value) },
        })
    }
}
