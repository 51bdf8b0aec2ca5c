//! GRPCRoutes as HTTPRoutes: a gRPC call is `POST /{service}/{method}`. Filters, backends, weights and mirrors have one implementation,
//! that of HTTPRoutes.

use gateway_api::experimental::grpcroutes::{
    GrpcRoute, GrpcRouteRulesMatches, GrpcRouteRulesMatchesMethodType as MethodType, GrpcRouteSpec,
};
use gateway_api::experimental::httproutes::{HttpRoute, HttpRouteSpec};
use serde_json::{Value, json};

use crate::refused::REFUSED_ANNOTATION;

/// One element of a path, as a regular expression.
const ANY_ELEMENT: &str = "[^/]+";

/// The HTTPRoute that asks for the same.
pub(crate) fn as_http(route: &GrpcRoute) -> HttpRoute {
    let mut metadata = route.metadata.clone();
    let spec = spec(&route.spec).unwrap_or_else(|error| {
        // The types have the same fields, so this does not happen. If it did, no filter may be skipped.
        let annotations = metadata.annotations.get_or_insert_default();
        annotations
            .insert(REFUSED_ANNOTATION.to_owned(), format!("it cannot be read as an HTTPRoute: {error}"));
        HttpRouteSpec { hostnames: route.spec.hostnames.clone(), ..HttpRouteSpec::default() }
    });
    HttpRoute { metadata, spec, status: None }
}

/// All fields but `matches` have the same names and meanings.
fn spec(spec: &GrpcRouteSpec) -> Result<HttpRouteSpec, serde_json::Error> {
    let mut value = serde_json::to_value(spec)?;
    let rules = value.get_mut("rules").and_then(Value::as_array_mut);
    for (raw, rule) in rules.into_iter().flatten().zip(spec.rules.iter().flatten()) {
        let default = [GrpcRouteRulesMatches::default()];
        let matches = rule.matches.as_deref().filter(|all| !all.is_empty()).unwrap_or(&default);
        if let Some(raw) = raw.as_object_mut() {
            raw.insert("matches".to_owned(), matches.iter().map(one_match).collect());
        }
    }
    serde_json::from_value(value)
}

fn one_match(one: &GrpcRouteRulesMatches) -> Value {
    json!({ "method": "POST", "path": path(one), "headers": one.headers })
}

fn path(one: &GrpcRouteRulesMatches) -> Value {
    let of_type = |kind: &str, value: String| json!({ "type": kind, "value": value });
    let everything = || of_type("PathPrefix", "/".to_owned());
    let Some(method) = &one.method else { return everything() };
    // The API server writes an absent name as an empty one.
    let service = method.service.as_deref().filter(|name| !name.is_empty());
    let name = method.method.as_deref().filter(|name| !name.is_empty());
    match (&method.r#type, service, name) {
        (_, None, None) => everything(),
        (Some(MethodType::RegularExpression), service, name) => {
            // Groups, so that an alternative stays within its element.
            let part =
                |pattern: Option<&str>| pattern.map_or(ANY_ELEMENT.to_owned(), |one| format!("(?:{one})"));
            of_type("RegularExpression", format!("/{}/{}", part(service), part(name)))
        }
        (_, Some(service), Some(name)) => of_type("Exact", format!("/{service}/{name}")),
        (_, Some(service), None) => of_type("PathPrefix", format!("/{service}")),
        // Names of methods have no characters that mean anything in a regular expression.
        (_, None, Some(name)) => of_type("RegularExpression", format!("/{ANY_ELEMENT}/{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(rules: &Value) -> HttpRouteSpec {
        let spec =
            json!({ "parentRefs": [{ "name": "web" }], "hostnames": ["grpc.example.com"], "rules": rules });
        let route = GrpcRoute::new("calls", serde_json::from_value(spec).unwrap());
        as_http(&route).spec
    }

    #[test]
    fn a_method_is_a_path() {
        for (method, kind, path) in [
            (json!({ "service": "a.B", "method": "C" }), "Exact", "/a.B/C"),
            (json!({ "service": "a.B" }), "PathPrefix", "/a.B"),
            (json!({ "method": "C" }), "RegularExpression", "/[^/]+/C"),
            (
                json!({ "type": "RegularExpression", "service": "a|b", "method": "C.*" }),
                "RegularExpression",
                "/(?:a|b)/(?:C.*)",
            ),
            (json!({ "type": "RegularExpression", "method": "C" }), "RegularExpression", "/[^/]+/(?:C)"),
            (Value::Null, "PathPrefix", "/"),
        ] {
            let spec = converted(&json!([{ "matches": [{ "method": method }] }]));
            let rules = spec.rules.unwrap();
            let one = &rules[0].matches.as_ref().unwrap()[0];
            let written = serde_json::to_value(one).unwrap();
            assert_eq!(written, json!({ "method": "POST", "path": { "type": kind, "value": path } }));
        }
    }

    #[test]
    fn everything_else_stays() {
        let filter = json!({ "type": "RequestHeaderModifier", "requestHeaderModifier": { "set": [{ "name": "a", "value": "b" }] } });
        let backend = json!({ "name": "calls", "port": 9000, "weight": 3, "filters": [filter] });
        let headers = json!([{ "name": "version", "value": "[12]", "type": "RegularExpression" }]);
        let spec = converted(&json!([{
            "name": "first", "filters": [filter], "backendRefs": [backend], "matches": [{ "headers": headers }]
        }]));
        assert_eq!(spec.hostnames, Some(vec!["grpc.example.com".to_owned()]));
        assert_eq!(spec.parent_refs.unwrap()[0].name, "web");
        let rule = serde_json::to_value(&spec.rules.unwrap()[0]).unwrap();
        assert_eq!(rule["name"], "first");
        assert_eq!(rule["filters"], json!([filter]));
        assert_eq!(rule["backendRefs"], json!([backend]));
        assert_eq!(rule["matches"][0]["headers"], headers);
    }
}
