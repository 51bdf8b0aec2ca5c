//! What a rule asks of requests.

use gateway_api::httproutes::{
    HttpRouteRulesMatches, HttpRouteRulesMatchesHeadersType as HeaderType,
    HttpRouteRulesMatchesMethod as Method, HttpRouteRulesMatchesPathType as PathType,
    HttpRouteRulesMatchesQueryParamsType as QueryType,
};
use model::matches::{PathMatch, PathMatchType, ValueMatch, ValueMatchType};

use super::rules::Context;

/// One of a rule's matches; a request has to meet all of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Match {
    pub(super) path: PathMatch,
    pub(super) method: Option<&'static str>,
    pub(super) headers: Vec<ValueMatch>,
    pub(super) query_params: Vec<ValueMatch>,
}

/// All matches of the rule at `rule`; without any, the one for everything. An error tells where, what and the remedy.
pub(super) fn read(
    rule: &str,
    specs: &[HttpRouteRulesMatches],
    context: &mut Context<'_>,
) -> Result<Vec<Match>, String> {
    let default = [HttpRouteRulesMatches::default()];
    let specs = if specs.is_empty() { &default } else { specs };
    let mut matches: Vec<Match> = Vec::with_capacity(specs.len());
    for (index, spec) in specs.iter().enumerate() {
        let one = read_one(spec, context)
            .map_err(|(field, why)| format!("{rule}.matches[{index}].{field}: {why}"))?;
        // Twice the same would count its backends twice.
        if !matches.contains(&one) {
            matches.push(one);
        }
    }
    Ok(matches)
}

fn read_one(spec: &HttpRouteRulesMatches, context: &mut Context<'_>) -> Result<Match, (String, String)> {
    let path = path(spec, context).map_err(|why| ("path".to_owned(), why))?;
    let mut headers = Vec::new();
    for (index, header) in spec.headers.iter().flatten().enumerate() {
        let kind = match header.r#type {
            None | Some(HeaderType::Exact) => ValueMatchType::Exact,
            Some(HeaderType::RegularExpression) => ValueMatchType::RegularExpression,
        };
        let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        add_first(&mut headers, &header.name, &header.value, kind, same, context)
            .map_err(|why| (format!("headers[{index}]"), why))?;
    }
    let mut query_params = Vec::new();
    for (index, param) in spec.query_params.iter().flatten().enumerate() {
        let kind = match param.r#type {
            None | Some(QueryType::Exact) => ValueMatchType::Exact,
            Some(QueryType::RegularExpression) => ValueMatchType::RegularExpression,
        };
        add_first(&mut query_params, &param.name, &param.value, kind, |a, b| a == b, context)
            .map_err(|why| (format!("queryParams[{index}]"), why))?;
    }
    Ok(Match { path, method: spec.method.as_ref().map(method), headers, query_params })
}

fn path(spec: &HttpRouteRulesMatches, context: &mut Context<'_>) -> Result<PathMatch, String> {
    let Some(path) = &spec.path else { return Ok(PathMatch::everything()) };
    let kind = match path.r#type {
        None | Some(PathType::PathPrefix) => PathMatchType::PathPrefix,
        Some(PathType::Exact) => PathMatchType::Exact,
        Some(PathType::RegularExpression) => PathMatchType::RegularExpression,
    };
    let value = path.value.as_deref().unwrap_or("/");
    match kind {
        PathMatchType::RegularExpression => pattern(value, context)?,
        // The API server sees to this too; a path without it could never match.
        PathMatchType::Exact | PathMatchType::PathPrefix if !value.starts_with('/') => {
            return Err(format!("`{value}` does not begin with a slash: write `/{value}`"));
        }
        PathMatchType::Exact | PathMatchType::PathPrefix => {}
    }
    Ok(PathMatch { kind, value: value.to_owned() })
}

/// Of several conditions on one name, the spec says, only the first counts.
fn add_first(
    values: &mut Vec<ValueMatch>,
    name: &str,
    value: &str,
    kind: ValueMatchType,
    same: impl Fn(&str, &str) -> bool,
    context: &mut Context<'_>,
) -> Result<(), String> {
    if values.iter().any(|first| same(&first.name, name)) {
        return Ok(());
    }
    if kind == ValueMatchType::RegularExpression {
        pattern(value, context)?;
    }
    values.push(ValueMatch { name: name.to_owned(), value: value.to_owned(), kind });
    Ok(())
}

fn pattern(value: &str, context: &mut Context<'_>) -> Result<(), String> {
    let remedy = "correct it (the syntax is that of Rust's regex crate: no look-around, no backreferences)";
    context.check_pattern(value).map_err(|why| format!("{why}: {remedy}"))
}

fn method(method: &Method) -> &'static str {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
    }
}
