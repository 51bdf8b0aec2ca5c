//! Whose pages may read a rule's responses.

use gateway_api::experimental::httproutes::HttpRouteRulesFiltersCors;
use model::filters::Cors;

use super::{FilterFault, is_token};

/// The API's own default.
const DEFAULT_MAX_AGE_SECONDS: u32 = 5;

pub(super) fn read(at: &str, spec: &HttpRouteRulesFiltersCors) -> Result<Cors, FilterFault> {
    let mut allow_origins: Vec<String> = Vec::new();
    for origin in spec.allow_origins.iter().flatten() {
        let normal = origin.to_ascii_lowercase();
        if !is_origin(&normal) {
            return Err(FilterFault::unsupported(format!(
                "{at}.cors.allowOrigins: `{}` is not an origin: write scheme and host as https://shop.example.com, \
                 https://*.example.com, or * alone",
                origin.escape_debug()
            )));
        }
        if !allow_origins.contains(&normal) {
            allow_origins.push(normal);
        }
    }
    let max_age_seconds = match spec.max_age.map(u32::try_from) {
        None => DEFAULT_MAX_AGE_SECONDS,
        Some(Ok(seconds)) if seconds > 0 => seconds,
        Some(_) => {
            return Err(FilterFault::unsupported(format!(
                "{at}.cors.maxAge: it must be at least 1 second: raise it, or remove it"
            )));
        }
    };
    let tokens = |field: &str, given: &Option<Vec<String>>, alone: bool| {
        tokens(&format!("{at}.cors.{field}"), given.as_deref().unwrap_or_default(), alone)
    };
    if allow_origins.len() > 1 && allow_origins.iter().any(|origin| origin == "*") {
        return Err(not_alone(&format!("{at}.cors.allowOrigins")));
    }
    Ok(Cors {
        allow_origins,
        allow_credentials: spec.allow_credentials.unwrap_or_default(),
        allow_methods: tokens("allowMethods", &spec.allow_methods, true)?,
        allow_headers: tokens("allowHeaders", &spec.allow_headers, true)?,
        expose_headers: tokens("exposeHeaders", &spec.expose_headers, false)?,
        max_age_seconds: Some(max_age_seconds),
    })
}

/// Methods or names of headers. `*` is a token as well.
fn tokens(at: &str, given: &[String], alone: bool) -> Result<Vec<String>, FilterFault> {
    if let Some(bad) = given.iter().find(|name| !is_token(name)) {
        return Err(FilterFault::unsupported(format!(
            "{at}: `{}` is not a name: use letters, digits and hyphens, or * alone",
            bad.escape_debug()
        )));
    }
    if alone && given.len() > 1 && given.iter().any(|name| name == "*") {
        return Err(not_alone(at));
    }
    Ok(given.to_vec())
}

fn not_alone(at: &str) -> FilterFault {
    FilterFault::unsupported(format!("{at}: `*` stands for all: remove it, or the other entries"))
}

/// In lower case: `*`, or scheme, host and perhaps port. The host may be `*`, or begin with `*.`.
fn is_origin(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    let Some(rest) = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")) else {
        return false;
    };
    let (host, port) = rest.rsplit_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let host = host.strip_prefix("*.").unwrap_or(host);
    (host == "*" || host.split('.').all(label))
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}
