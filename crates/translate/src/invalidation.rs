//! A VarnishCacheInvalidation as an order for ghost, and its result in words.

use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use api::{InvalidationType, VarnishCacheInvalidationSpec};
use model::invalidation::{Invalidation, Method, Outcome};

/// How long an invalidation stays after its end, where it does not say.
pub const DEFAULT_TTL: Duration = Duration::from_secs(3600);

/// The most paths, and the most tags, that the API server takes.
pub const MOST: usize = 256;

fn method(kind: InvalidationType) -> Method {
    match kind {
        InvalidationType::Purge => Method::Purge,
        InvalidationType::SoftPurge => Method::SoftPurge,
        InvalidationType::Ban => Method::Ban,
    }
}

pub fn order(spec: &VarnishCacheInvalidationSpec) -> Invalidation {
    Invalidation {
        method: method(spec.kind),
        hostname: spec.hostname.clone(),
        paths: spec.paths.clone().unwrap_or_default(),
        tags: spec.tags.clone().unwrap_or_default(),
        ..Invalidation::default()
    }
}

/// Why the API server would refuse an invalidation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("{0}: HOST is a name like shop.example.com, without scheme, port and wildcard")]
    Host(String),
    #[error("{count} {what}s are too many for one command: {MOST} at most")]
    TooMany { what: &'static str, count: usize },
    #[error(
        "{text:?}: a {what} has {longest} characters at most, and no blanks, quotation marks or letters beyond ASCII: write \
         them as in a request, like %20"
    )]
    Text { what: &'static str, text: String, longest: usize },
}

/// The API server's own checks, for callers without one.
pub fn check(one: &Invalidation) -> Result<(), Invalid> {
    if let Some(host) = &one.hostname {
        let label = |label: &str| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                // Requests may have an underscore, and so may what is cached for them.
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_address = address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
        if host.len() > 253 || !is_address && !host.split('.').all(label) {
            return Err(Invalid::Host(host.clone()));
        }
    }
    for (what, all, longest) in [("path", &one.paths, 2048), ("tag", &one.tags, 256)] {
        if all.len() > MOST {
            return Err(Invalid::TooMany { what, count: all.len() });
        }
        for one in all {
            let fits = one.bytes().all(|b| b.is_ascii_graphic() && b != b'"');
            if one.is_empty() || one.len() > longest || !fits {
                return Err(Invalid::Text { what, text: one.clone(), longest });
            }
        }
    }
    Ok(())
}

/// The API server has validated the field.
pub fn ttl(spec: &VarnishCacheInvalidationSpec) -> Duration {
    let written = spec.ttl.as_deref().and_then(|ttl| gateway_api::Duration::from_str(ttl).ok());
    written.map_or(DEFAULT_TTL, |ttl| Duration::new(ttl.as_secs(), ttl.subsec_nanos()))
}

/// Of one path or tag.
pub fn told(outcome: &Outcome) -> String {
    match (&outcome.error, outcome.objects) {
        (Some(error), _) => error.clone(),
        (None, Some(1)) => "1 object".to_owned(),
        (None, Some(objects)) => format!("{objects} objects"),
        (None, None) => "banned".to_owned(),
    }
}

/// Of all paths and tags.
pub fn summary(kind: InvalidationType, outcomes: &[Outcome]) -> String {
    summary_of(method(kind), outcomes)
}

/// The same, for callers that have the order.
pub fn summary_of(method: Method, outcomes: &[Outcome]) -> String {
    let failed: Vec<&str> = outcomes.iter().filter_map(|outcome| outcome.error.as_deref()).collect();
    if let Some(first) = failed.first() {
        return format!("{} of {} failed: {first}", failed.len(), outcomes.len());
    }
    let objects: u64 = outcomes.iter().filter_map(|outcome| outcome.objects).sum();
    let objects = told(&Outcome { objects: Some(objects), error: None });
    match method {
        Method::Purge => format!("{objects} purged"),
        Method::SoftPurge => format!("{objects} made stale"),
        Method::Ban if outcomes.len() == 1 => "1 expression banned".to_owned(),
        Method::Ban => format!("{} expressions banned", outcomes.len()),
    }
}

#[cfg(test)]
mod tests;
