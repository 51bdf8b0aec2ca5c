//! What a rule asks of requests.

use gateway_api::experimental::httproutes::{
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

/// The matches of a rule, as far as they can be read.
#[derive(Debug, Default)]
pub(super) struct Matches {
    pub(super) exact: Vec<Match>,
    /// What is left of each one that cannot be read: its path, or every path. Wider than what was meant.
    pub(super) rough: Vec<Match>,
    /// Of the first that cannot be read: where, what and the remedy.
    pub(super) fault: Option<String>,
}

/// All matches of the rule at `rule`; without any, the one for everything.
pub(super) fn read(rule: &str, specs: &[HttpRouteRulesMatches], context: &mut Context<'_>) -> Matches {
    let default = [HttpRouteRulesMatches::default()];
    let specs = if specs.is_empty() { &default } else { specs };
    let mut matches = Matches { exact: Vec::with_capacity(specs.len()), ..Matches::default() };
    for (index, spec) in specs.iter().enumerate() {
        match read_one(spec, context) {
            // Twice the same would count its backends twice.
            Ok(one) if matches.exact.contains(&one) => {}
            Ok(one) => matches.exact.push(one),
            Err((field, why)) => {
                let path = path(spec, context).unwrap_or_else(|_| PathMatch::everything());
                let one = Match { path, method: None, headers: Vec::new(), query_params: Vec::new() };
                if !matches.rough.contains(&one) {
                    matches.rough.push(one);
                }
                matches.fault.get_or_insert_with(|| format!("{rule}.matches[{index}].{field}: {why}"));
            }
        }
    }
    matches
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
    // So a stand-in says that a condition cannot be read.
    if name.is_empty() {
        return Err("it has no name: give it one".to_owned());
    }
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
