//! How a rule's requests reach its backends: timeouts, retries, sticky sessions.

use std::str::FromStr;
use std::time::Duration;

use gateway_api::experimental::httproutes::{
    HttpRouteRules, HttpRouteRulesRetry, HttpRouteRulesSessionPersistence,
    HttpRouteRulesSessionPersistenceCookieConfigLifetimeType as LifetimeType,
    HttpRouteRulesSessionPersistenceType as SessionType, HttpRouteRulesTimeouts,
};
use model::{Retry, RuleTimeouts, SessionBy, SessionPersistence};

use super::filters::{header_name, is_token};
use crate::infra::sha256;
use crate::snapshot::Key;

/// How often a request is sent again where `retry` does not say it.
const DEFAULT_ATTEMPTS: u32 = 1;
const MOST_ATTEMPTS: i64 = 100;
const LONGEST_SESSION_NAME: usize = 128;

/// The fields of a rule that concern requests to its backends.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Upstream {
    pub(super) timeouts: Option<RuleTimeouts>,
    pub(super) retry: Option<Retry>,
    pub(super) session: Option<SessionPersistence>,
}

/// Those of the rule at `rule`, or what is wrong with the first that cannot be carried out.
pub(super) fn read(route: &Key, rule: &str, index: usize, spec: &HttpRouteRules) -> Result<Upstream, String> {
    let timeouts =
        spec.timeouts.as_ref().map(|spec| timeouts(&format!("{rule}.timeouts"), spec)).transpose()?;
    let retry = spec.retry.as_ref().map(|spec| retry(&format!("{rule}.retry"), spec)).transpose()?;
    let session = spec.session_persistence.as_ref().map(|persistence| {
        let default_name = || default_name(route, index, spec.name.as_deref());
        session(&format!("{rule}.sessionPersistence"), persistence, default_name)
    });
    Ok(Upstream { timeouts: timeouts.flatten(), retry, session: session.transpose()? })
}

/// None where nothing is limited: zero means no timeout.
fn timeouts(at: &str, spec: &HttpRouteRulesTimeouts) -> Result<Option<RuleTimeouts>, String> {
    let read = |field: &str, text: Option<&str>| -> Result<Option<f64>, String> {
        Ok(seconds(&format!("{at}.{field}"), text)?.filter(|seconds| *seconds > 0.0))
    };
    let request_seconds = read("request", spec.request.as_deref())?;
    let backend_request_seconds = read("backendRequest", spec.backend_request.as_deref())?;
    if let (Some(request), Some(backend)) = (request_seconds, backend_request_seconds)
        && backend > request
    {
        return Err(format!(
            "{at}.backendRequest: one try may not take longer than the whole request: make it at most `{}`, or raise \
             timeouts.request",
            spec.request.as_deref().unwrap_or_default()
        ));
    }
    let timeouts = RuleTimeouts { request_seconds, backend_request_seconds };
    Ok((timeouts != RuleTimeouts::default()).then_some(timeouts))
}

fn retry(at: &str, spec: &HttpRouteRulesRetry) -> Result<Retry, String> {
    let mut codes = Vec::new();
    for code in spec.codes.iter().flatten() {
        match u16::try_from(*code) {
            Ok(code @ 400..=599) if codes.contains(&code) => {}
            Ok(code @ 400..=599) => codes.push(code),
            _ => {
                return Err(format!("{at}.codes: {code} is not the status of an error: use 400 to 599"));
            }
        }
    }
    let attempts = match spec.attempts {
        None => DEFAULT_ATTEMPTS,
        Some(attempts @ 1..=MOST_ATTEMPTS) => u32::try_from(attempts).unwrap_or(DEFAULT_ATTEMPTS),
        Some(attempts) => {
            return Err(format!("{at}.attempts: {attempts} is not supported: use 1 to {MOST_ATTEMPTS}"));
        }
    };
    let backoff_seconds = seconds(&format!("{at}.backoff"), spec.backoff.as_deref())?;
    Ok(Retry { codes, attempts, backoff_seconds })
}

fn session(
    at: &str,
    spec: &HttpRouteRulesSessionPersistence,
    default_name: impl FnOnce() -> String,
) -> Result<SessionPersistence, String> {
    let by = match spec.r#type {
        None | Some(SessionType::Cookie) => SessionBy::Cookie,
        Some(SessionType::Header) => SessionBy::Header,
    };
    let name = match spec.session_name.as_deref().filter(|name| !name.is_empty()) {
        None => default_name(),
        Some(name) => {
            let here = format!("{at}.sessionName");
            if name.len() > LONGEST_SESSION_NAME {
                return Err(format!(
                    "{here}: it is longer than {LONGEST_SESSION_NAME} characters: shorten it"
                ));
            }
            match by {
                SessionBy::Header => header_name(&here, name)?,
                SessionBy::Cookie if !is_token(name) => {
                    return Err(format!(
                        "{here}: `{name}` is not the name of a cookie: use letters, digits, hyphens and underscores"
                    ));
                }
                SessionBy::Cookie => {}
            }
            name.to_owned()
        }
    };
    if spec.cookie_config.is_some() && by == SessionBy::Header {
        return Err(format!(
            "{at}.cookieConfig: a session by header has no cookie: remove it, or set type Cookie"
        ));
    }
    let lifetime = spec.cookie_config.as_ref().and_then(|config| config.lifetime_type.as_ref());
    let permanent = matches!(lifetime, Some(LifetimeType::Permanent));
    let absolute_seconds = lifetime_seconds(at, "absoluteTimeout", spec.absolute_timeout.as_deref())?;
    let idle_seconds = lifetime_seconds(at, "idleTimeout", spec.idle_timeout.as_deref())?;
    if permanent && absolute_seconds.is_none() {
        return Err(format!(
            "{at}.absoluteTimeout is missing: a cookie of lifetimeType Permanent needs it, as its expiry time"
        ));
    }
    Ok(SessionPersistence { by, name, absolute_seconds, idle_seconds, permanent })
}

/// A session that ends at once would be none.
fn lifetime_seconds(at: &str, field: &str, text: Option<&str>) -> Result<Option<f64>, String> {
    let read = seconds(&format!("{at}.{field}"), text)?;
    if read == Some(0.0) {
        return Err(format!(
            "{at}.{field}: a session cannot last zero seconds: remove it, or write a longer one"
        ));
    }
    Ok(read)
}

/// Each rule has its own, so that the sessions of two rules of one host do not overwrite each other.
fn default_name(route: &Key, index: usize, name: Option<&str>) -> String {
    let rule = name.map_or_else(|| index.to_string(), |name| format!("#{name}"));
    let hash = sha256(&(&route.namespace, &route.name, rule));
    format!("vg-session-{}", hash.get(..12).unwrap_or(&hash))
}

fn seconds(at: &str, text: Option<&str>) -> Result<Option<f64>, String> {
    let Some(text) = text else { return Ok(None) };
    let duration = gateway_api::Duration::from_str(text)
        .map_err(|_| format!("{at}: `{text}` is not a duration: write it as 500ms, 10s or 1m30s"))?;
    Ok(Some(Duration::new(duration.as_secs(), duration.subsec_nanos()).as_secs_f64()))
}
