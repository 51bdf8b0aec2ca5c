//! One policy as routing.json has it, or what is wrong with it. Most of that the API server refuses already.

use std::str::FromStr;
use std::time::Duration;

use api::{
    AuthorizedRequests, BypassHeader, ClientCacheControl, HeuristicParameters, KeptMethod, NoVarySearch,
    NormalizedHeader, PolicyTargetRef, VarnishCachePolicySpec,
};
use model::{CacheKey, CachePolicy, Heuristic, Normalize};

use crate::listener::Fault;
use crate::parameters::quantity;
use crate::patterns::Meter;
use crate::snapshot::Key;

pub(super) fn policy(
    key: &Key,
    spec: &VarnishCachePolicySpec,
    patterns: &mut Meter,
) -> Result<CachePolicy, Fault> {
    read(spec, |pattern| patterns.check(key, pattern)).map_err(|message| Fault { reason: "Invalid", message })
}

fn read(
    spec: &VarnishCachePolicySpec,
    mut check_pattern: impl FnMut(&str) -> Result<(), String>,
) -> Result<CachePolicy, String> {
    let is_of_rule = |target: &PolicyTargetRef| target.section_name.is_some() && target.kind != "HTTPRoute";
    if spec.target_ref.as_ref().is_some_and(is_of_rule) {
        return Err(
            "spec.targetRef.sectionName names a rule, which only an HTTPRoute has: remove it".to_owned()
        );
    }
    if spec.default_ttl.is_some() == spec.forced_ttl.is_some() {
        return Err("spec: give exactly one of defaultTTL and forcedTTL".to_owned());
    }
    if spec.forced_ttl.is_some() && spec.heuristic.is_some() {
        return Err(
            "spec: heuristic is for answers whose origin is silent, which forcedTTL overrules: remove one \
                    of them"
                .to_owned(),
        );
    }
    if spec.forced_ttl.is_some() && spec.cache_control_targets.is_some() {
        return Err(
            "spec: cacheControlTargets say how long an answer is fresh, which forcedTTL overrules: remove \
                    one of them"
                .to_owned(),
        );
    }
    for name in spec.cache_control_targets.iter().flatten() {
        header_name("cacheControlTargets", name)?;
        if !name.to_ascii_lowercase().ends_with("-cache-control") {
            return Err(format!(
                "spec.cacheControlTargets: `{name}` is not a header whose name ends in -Cache-Control"
            ));
        }
    }
    let headers = spec.cache_key.iter().flat_map(|key| key.headers.iter().flatten());
    for name in headers.clone() {
        header_name("cacheKey.headers", name)?;
    }
    let query = spec.cache_key.as_ref().and_then(|key| key.query_parameters.as_ref());
    if query.is_some_and(|query| query.include.is_some() == query.exclude.is_some()) {
        return Err("spec.cacheKey.queryParameters: give exactly one of include and exclude".to_owned());
    }
    // Sorted and in one spelling, since another order or spelling is not another key.
    let sorted = |names: &Vec<String>| {
        let mut names = names.clone();
        names.sort();
        names.dedup();
        names
    };
    let cache_key = CacheKey {
        headers: sorted(&headers.map(|name| name.to_ascii_lowercase()).collect()),
        query_params_include: query.and_then(|query| query.include.as_ref()).map(sorted),
        query_params_exclude: query.and_then(|query| query.exclude.as_ref()).map(sorted),
    };
    let bypass = spec.bypass.iter().flat_map(|bypass| &bypass.headers);
    let share_authorized = spec.authorization == Some(AuthorizedRequests::Share);
    if share_authorized && bypass.clone().any(|header| header.name.eq_ignore_ascii_case("authorization")) {
        return Err("spec: authorization: Share lets requests with Authorization ask the cache, which \
                    bypass.headers forbids: remove one of them"
            .to_owned());
    }
    let no_vary_search = spec.no_vary_search == Some(NoVarySearch::Obey);
    if no_vary_search && query.is_some() {
        return Err("spec: noVarySearch: Obey lets the origin say which query parameters count, which \
                    cacheKey.queryParameters does: remove one of them"
            .to_owned());
    }
    let times = |method: KeptMethod| spec.methods.iter().flatten().filter(|kept| **kept == method).count();
    let keeps = |method: KeptMethod| times(method) > 0;
    if times(KeptMethod::Query) > 1 || times(KeptMethod::Post) > 1 {
        return Err("spec.methods: each method may be named once".to_owned());
    }
    if keeps(KeptMethod::Post) && spec.invalidate_on_unsafe == Some(false) {
        return Err("spec: methods: POST keeps an answer in place of those that it invalidates, which \
                    invalidateOnUnsafe: false leaves: remove one of them"
            .to_owned());
    }
    if keeps(KeptMethod::Post) && no_vary_search {
        return Err("spec: methods: POST keeps an answer by its whole URL, which is not the key with \
                    noVarySearch: Obey: remove one of them"
            .to_owned());
    }
    let mut normalized: Vec<_> =
        spec.normalize.iter().flatten().map(|one| one.header.to_ascii_lowercase()).collect();
    normalized.sort();
    if let Some([name, _]) = normalized.array_windows().find(|[one, next]| one == next) {
        return Err(format!("spec.normalize: `{name}` is named twice: give it all values at once"));
    }
    Ok(CachePolicy {
        default_ttl_seconds: seconds("defaultTTL", spec.default_ttl.as_deref())?,
        forced_ttl_seconds: seconds("forcedTTL", spec.forced_ttl.as_deref())?,
        grace_seconds: seconds("grace", spec.grace.as_deref())?,
        keep_seconds: seconds("keep", spec.keep.as_deref())?,
        max_object_bytes: size("maxObjectSize", spec.max_object_size.as_deref())?,
        heuristic: spec.heuristic.as_ref().map(heuristic).transpose()?,
        cache_control_targets: spec.cache_control_targets.clone(),
        cache_key: (cache_key != CacheKey::default()).then_some(cache_key),
        bypass_headers: bypass
            .map(|header| bypass_header(header, &mut check_pattern))
            .collect::<Result<_, _>>()?,
        cookies_pass: false,
        ignore_unsafe_methods: spec.invalidate_on_unsafe == Some(false),
        obey_clients: spec.client_cache_control == Some(ClientCacheControl::Obey),
        share_authorized,
        no_vary_search,
        keep_queries: keeps(KeptMethod::Query),
        keep_posts: keeps(KeptMethod::Post),
        normalize: spec.normalize.iter().flatten().map(normalize).collect::<Result<_, _>>()?,
    })
}

fn normalize(from: &NormalizedHeader) -> Result<Normalize, String> {
    header_name("normalize.header", &from.header)?;
    if !router::cache::may_be_normalized(from.header.as_bytes()) {
        return Err(format!(
            "spec.normalize.header: `{}` says more than which variant is wanted, or is normalized always: choose another one",
            from.header
        ));
    }
    let is_normal = |value: &String| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'+.^_`|~/-".contains(&b);
        (1..=128).contains(&value.len()) && value.bytes().all(plain)
    };
    if let Some(value) = from.values.iter().find(|value| !is_normal(value)) {
        return Err(format!(
            "spec.normalize.values: `{value}` is not one value without parameters: write it as en or text/html"
        ));
    }
    if from.values.is_empty() || from.values.len() > 32 {
        return Err("spec.normalize.values: give 1 to 32 of them".to_owned());
    }
    Ok(Normalize { header: from.header.to_ascii_lowercase(), values: from.values.clone() })
}

fn seconds(field: &str, text: Option<&str>) -> Result<Option<f64>, String> {
    let Some(text) = text else { return Ok(None) };
    let duration = gateway_api::Duration::from_str(text)
        .map_err(|_| format!("spec.{field}: `{text}` is not a duration: write it as 10m or 1h30m"))?;
    Ok(Some(Duration::new(duration.as_secs(), duration.subsec_nanos()).as_secs_f64()))
}

fn heuristic(from: &HeuristicParameters) -> Result<Heuristic, String> {
    let fraction = from.fraction.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
    let fraction = fraction.ok_or_else(|| {
        format!("spec.heuristic.fraction: `{}` is not a number from 0 to 1: write it as 0.1", from.fraction)
    })?;
    let max_seconds = seconds("heuristic.max", Some(&from.max))?.unwrap_or_default();
    Ok(Heuristic { fraction, max_seconds })
}

fn size(field: &str, text: Option<&str>) -> Result<Option<u64>, String> {
    let Some(text) = text else { return Ok(None) };
    let bytes = quantity::bytes(text).filter(|bytes| *bytes > 0);
    bytes.map(Some).ok_or_else(|| format!("spec.{field}: `{text}` is not a size: write it as 512Ki or 50Mi"))
}

fn header_name(field: &str, name: &str) -> Result<(), String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(format!(
            "spec.{field}: `{name}` is not the name of a header: use letters, digits and hyphens"
        ));
    }
    if name.to_ascii_lowercase().starts_with("x-ghost-") {
        return Err(format!("spec.{field}: `{name}` belongs to the gateway: choose another header"));
    }
    Ok(())
}

fn bypass_header(
    header: &BypassHeader,
    check_pattern: &mut impl FnMut(&str) -> Result<(), String>,
) -> Result<model::BypassHeader, String> {
    header_name("bypass.headers", &header.name)?;
    if let Some(pattern) = &header.value_regex {
        check_pattern(pattern)
            .map_err(|error| format!("spec.bypass.headers: {}: {error}: correct valueRegex", header.name))?;
    }
    Ok(model::BypassHeader { name: header.name.clone(), value_regex: header.value_regex.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(fields: &Value) -> Result<CachePolicy, String> {
        let mut spec = json!({"targetRef": {"group": "", "kind": "Gateway", "name": "gw"}});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let key = Key::new("default", "policy");
        let policy = policy(&key, &serde_json::from_value(spec).unwrap(), &mut Meter::new(1 << 20));
        policy.map_err(|fault| fault.message)
    }

    #[test]
    fn every_field_is_carried_over() {
        let policy = of(&json!({"forcedTTL": "1h30m", "grace": "10s", "keep": "500ms",
            "maxObjectSize": "50Mi",
            "cacheKey": {"headers": ["X-B", "x-a", "X-A"], "queryParameters": {"include": ["b", "a", "b"]}},
            "bypass": {"headers": [{"name": "Cookie", "valueRegex": ".*session.*"}]}}))
        .unwrap();
        assert_eq!(
            serde_json::to_value(&policy).unwrap(),
            json!({"forced_ttl_seconds": 5400.0, "grace_seconds": 10.0, "keep_seconds": 0.5,
                "max_object_bytes": 52_428_800,
                "cache_key": {"headers": ["x-a", "x-b"], "query_params_include": ["a", "b"]},
                "bypass_headers": [{"name": "Cookie", "value_regex": ".*session.*"}]})
        );
    }

    #[test]
    fn what_the_origin_says_may_be_read_in_other_ways() {
        let policy = of(&json!({"defaultTTL": "1m", "heuristic": {"fraction": "0.1", "max": "1h"},
            "cacheControlTargets": ["Shop-Cache-Control", "CDN-Cache-Control"], "invalidateOnUnsafe": false}))
        .unwrap();
        assert_eq!(
            serde_json::to_value(&policy).unwrap(),
            json!({"default_ttl_seconds": 60.0, "heuristic": {"fraction": 0.1, "max_seconds": 3600.0},
                "cache_control_targets": ["Shop-Cache-Control", "CDN-Cache-Control"],
                "ignore_unsafe_methods": true})
        );
    }

    #[test]
    fn what_clients_send_may_count() {
        let policy = of(&json!({"defaultTTL": "1m", "clientCacheControl": "Obey", "authorization": "Share",
            "noVarySearch": "Obey", "methods": ["QUERY"], "normalize": [{"header": "Accept-Language", "values": ["en", "de-CH"]}]}))
        .unwrap();
        assert_eq!(
            serde_json::to_value(&policy).unwrap(),
            json!({"default_ttl_seconds": 60.0, "obey_clients": true, "share_authorized": true, "keep_queries": true,
                "normalize": [{"header": "accept-language", "values": ["en", "de-CH"]}], "no_vary_search": true})
        );
        let ignored =
            of(&json!({"defaultTTL": "1m", "clientCacheControl": "Ignore", "authorization": "Bypass"}));
        assert_eq!(serde_json::to_value(ignored.unwrap()).unwrap(), json!({"default_ttl_seconds": 60.0}));
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (fields, part) in [
            (
                json!({"defaultTTL": "1m", "authorization": "Share", "bypass": {"headers": [{"name": "AUTHORIZATION"}]}}),
                "which bypass.headers forbids",
            ),
            (
                json!({"defaultTTL": "1m", "noVarySearch": "Obey", "cacheKey": {"queryParameters": {"include": ["a"]}}}),
                "which cacheKey.queryParameters does",
            ),
            (
                json!({"defaultTTL": "1m", "methods": ["POST"], "invalidateOnUnsafe": false}),
                "which invalidateOnUnsafe: false leaves",
            ),
            (
                json!({"defaultTTL": "1m", "methods": ["QUERY", "POST"], "noVarySearch": "Obey"}),
                "not the key with noVarySearch: Obey",
            ),
            (json!({"defaultTTL": "1m", "methods": ["POST", "POST"]}), "each method may be named once"),
            (
                json!({"defaultTTL": "1m", "normalize": [{"header": "Accept-Language", "values": ["en"]},
                    {"header": "Accept", "values": ["text/html"]}, {"header": "accept-language", "values": ["de"]}]}),
                "`accept-language` is named twice",
            ),
            (
                json!({"defaultTTL": "1m", "normalize": [{"header": "Accept-Encoding", "values": ["gzip"]}]}),
                "`Accept-Encoding` says more than which variant",
            ),
            (
                json!({"defaultTTL": "1m", "normalize": [{"header": "Accept-Language", "values": ["en, de"]}]}),
                "`en, de` is not one value",
            ),
            (json!({"defaultTTL": "1m", "normalize": [{"header": "Accept", "values": []}]}), "give 1 to 32"),
            (
                json!({"forcedTTL": "1m", "heuristic": {"fraction": "0.1", "max": "1h"}}),
                "which forcedTTL overrules",
            ),
            (json!({"forcedTTL": "1m", "cacheControlTargets": []}), "which forcedTTL overrules"),
            (
                json!({"defaultTTL": "1m", "heuristic": {"fraction": "1.5", "max": "1h"}}),
                "`1.5` is not a number from 0 to 1",
            ),
            (
                json!({"defaultTTL": "1m", "heuristic": {"fraction": "1", "max": "x"}}),
                "spec.heuristic.max: `x`",
            ),
            (
                json!({"defaultTTL": "1m", "cacheControlTargets": ["Surrogate-Control"]}),
                "ends in -Cache-Control",
            ),
            (json!({}), "exactly one of defaultTTL and forcedTTL"),
            (
                json!({"defaultTTL": "1m", "targetRef": {"group": "", "kind": "Ingress", "name": "a", "sectionName": "b"}}),
                "sectionName names a rule, which only an HTTPRoute has",
            ),
            (json!({"defaultTTL": "1m", "forcedTTL": "1m"}), "exactly one of defaultTTL and forcedTTL"),
            (json!({"defaultTTL": "soon"}), "spec.defaultTTL: `soon` is not a duration"),
            (json!({"defaultTTL": "1m", "maxObjectSize": "0"}), "spec.maxObjectSize: `0` is not a size"),
            (json!({"defaultTTL": "1m", "cacheKey": {"headers": ["a b"]}}), "`a b` is not the name"),
            (
                json!({"defaultTTL": "1m", "cacheKey": {"headers": ["X-Ghost-Pass"]}}),
                "belongs to the gateway",
            ),
            (json!({"defaultTTL": "1m", "cacheKey": {"queryParameters": {}}}), "one of include and exclude"),
            (
                json!({"defaultTTL": "1m", "bypass": {"headers": [{"name": "A", "valueRegex": "("}]}}),
                "A: regular",
            ),
        ] {
            let message = of(&fields).unwrap_err();
            assert!(message.contains(part), "{fields}: {message}");
        }
    }
}
