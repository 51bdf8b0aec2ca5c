//! The filters of an HTTPRoute, of a rule and of a backend alike.

use crate::support::{admitted, refused, rule};

/// The filters of the rule, and the same at a backend; both with their path.
fn in_both_places(filters: &str) -> [(String, &'static str); 2] {
    [
        (rule(&format!("filters: {filters}")), "spec.rules[0].filters"),
        (
            rule(&format!("backendRefs: [{{name: app, port: 80, filters: {filters}}}]")),
            "spec.rules[0].backendRefs[0].filters",
        ),
    ]
}

fn good(filters: &str) {
    for (manifest, _) in in_both_places(filters) {
        admitted(&manifest);
    }
}

fn bad(filters: &str, message: &str) {
    for (manifest, path) in in_both_places(filters) {
        assert_eq!(refused(&manifest), format!("{path}{message}"));
    }
}

#[test]
fn exactly_the_field_that_the_type_names_is_set() {
    good("[{type: RequestHeaderModifier, requestHeaderModifier: {remove: [a]}}]");
    good("[{type: ResponseHeaderModifier, responseHeaderModifier: {}}]");
    good("[{type: ExtensionRef, extensionRef: {group: x.example, kind: Thing, name: a}}]");
    bad(
        "[{type: RequestHeaderModifier}]",
        "[0].requestHeaderModifier is missing; the type RequestHeaderModifier needs it",
    );
    bad(
        "[{type: URLRewrite, urlRewrite: {}, cors: {}}]",
        "[0].cors must not be set where the type is URLRewrite; remove it, or set the type to CORS",
    );
    bad("[{requestRedirect: {}}]", "[0].type is missing; it is required");
    bad(
        "[{type: Rewrite}]",
        "[0].type \"Rewrite\" must be one of RequestHeaderModifier, ResponseHeaderModifier, RequestMirror, \
         RequestRedirect, URLRewrite, ExtensionRef, CORS, ExternalAuth",
    );
}

#[test]
fn one_filter_of_a_type_is_enough() {
    good(
        "[{type: RequestMirror, requestMirror: {backendRef: {name: a, port: 80}}}, \
         {type: RequestMirror, requestMirror: {backendRef: {name: b, port: 80}}}]",
    );
    for (kind, field) in [
        ("RequestHeaderModifier", "requestHeaderModifier"),
        ("ResponseHeaderModifier", "responseHeaderModifier"),
        ("RequestRedirect", "requestRedirect"),
        ("URLRewrite", "urlRewrite"),
        ("CORS", "cors"),
    ] {
        bad(
            &format!("[{{type: {kind}, {field}: {{}}}}, {{type: {kind}, {field}: {{}}}}]"),
            &format!("[1] is a second {kind}; put both into one filter"),
        );
    }
}

#[test]
fn a_request_is_redirected_or_rewritten_or_forwarded() {
    bad(
        "[{type: RequestRedirect, requestRedirect: {}}, {type: URLRewrite, urlRewrite: {}}]",
        " has both RequestRedirect and URLRewrite; a request is redirected or rewritten, not both",
    );
    assert_eq!(
        refused(&rule(
            "{backendRefs: [{name: app, port: 80}], filters: [{type: RequestRedirect, requestRedirect: {}}]}"
        )),
        "spec.rules[0].backendRefs must be absent where a RequestRedirect answers the request; remove one of both"
    );
}

#[test]
fn redirects_have_a_status_port_scheme_and_host_of_their_form() {
    for code in [301, 302, 303, 307, 308] {
        good(&format!(
            "[{{type: RequestRedirect, requestRedirect: {{statusCode: {code}, scheme: https, port: 8443}}}}]"
        ));
    }
    let redirect = |fields: &str| format!("[{{type: RequestRedirect, requestRedirect: {{{fields}}}}}]");
    bad(
        &redirect("statusCode: 304"),
        "[0].requestRedirect.statusCode 304 must be one of 301, 302, 303, 307, 308",
    );
    bad(&redirect("port: 70000"), "[0].requestRedirect.port 70000 must be between 1 and 65535");
    bad(&redirect("scheme: ftp"), "[0].requestRedirect.scheme \"ftp\" must be one of http, https");
    bad(
        &redirect("hostname: '*.example'"),
        "[0].requestRedirect.hostname \"*.example\" must be a DNS name in lower case such as `shop.example.com`, without \
         wildcard, scheme, port or path",
    );
}

#[test]
fn a_path_is_replaced_in_the_way_that_its_type_names() {
    for (kind, field) in [("RequestRedirect", "requestRedirect"), ("URLRewrite", "urlRewrite")] {
        let change = |path: &str| format!("[{{type: {kind}, {field}: {{path: {{{path}}}}}}}]");
        good(&change("type: ReplaceFullPath, replaceFullPath: /new"));
        good(&change("type: ReplacePrefixMatch, replacePrefixMatch: ''"));
        bad(
            &change("type: ReplaceFullPath"),
            &format!("[0].{field}.path.replaceFullPath is missing; the type ReplaceFullPath needs it"),
        );
        bad(
            &change("type: ReplaceFullPath, replaceFullPath: /a, replacePrefixMatch: /b"),
            &format!(
                "[0].{field}.path.replacePrefixMatch must not be set where the type is ReplaceFullPath; set the type to \
                 ReplacePrefixMatch"
            ),
        );
        bad(
            &change(&format!("type: ReplaceFullPath, replaceFullPath: /{}", "a".repeat(1024))),
            &format!("[0].{field}.path.replaceFullPath has 1025 characters; between 0 and 1024 are allowed"),
        );
    }
}

#[test]
fn a_prefix_is_replaced_only_where_one_prefix_matches() {
    let message = "spec.rules[0].filters[0].urlRewrite.path.replacePrefixMatch needs a rule with exactly one match, of \
                   the path type PathPrefix; split the rule";
    let filters =
        "[{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /b}}}]";
    let with = |matches: &str| rule(&format!("{{matches: {matches}, filters: {filters}}}"));
    admitted(&with("[{path: {value: /a}}]"));
    admitted(&with("[{method: GET}]"));
    for matches in ["[{path: {value: /a}}, {path: {value: /b}}]", "[{path: {type: Exact, value: /a}}]", "[]"]
    {
        assert_eq!(refused(&with(matches)), message);
    }
}

#[test]
fn header_modifiers_name_each_header_once() {
    let modifier =
        |fields: &str| format!("[{{type: RequestHeaderModifier, requestHeaderModifier: {{{fields}}}}}]");
    good(&modifier("set: [{name: a, value: x}], add: [{name: b, value: z}], remove: [c, d]"));
    let field = "[0].requestHeaderModifier";
    bad(
        &modifier("set: [{name: a, value: x}, {name: a, value: z}]"),
        &format!("{field}.set[1].name \"a\" is there twice; each may be given only once"),
    );
    bad(
        &modifier("remove: [a, a]"),
        &format!("{field}.remove[1] \"a\" is there twice; each may be given only once"),
    );
    bad(
        &modifier("add: [{name: 'a:', value: x}]"),
        &format!(
            "{field}.add[0].name \"a:\" must be a header name of at most 256 letters, digits and !#$%&'*+-.^_`|~"
        ),
    );
    bad(
        &modifier("add: [{name: a, value: \"x\\r\\nb: y\"}]"),
        &format!("{field}.add[0].value \"x\\r\\nb: y\" must not contain line breaks or NUL"),
    );
    bad(&modifier("add: [{name: a, value: ''}]"), &format!("{field}.add[0].value must not be empty"));
}

#[test]
fn mirrors_have_a_port_and_one_share() {
    let mirror = |fields: &str| format!("[{{type: RequestMirror, requestMirror: {{{fields}}}}}]");
    good(&mirror("backendRef: {name: a, port: 80}, percent: 100"));
    bad(
        &mirror("backendRef: {name: a}"),
        "[0].requestMirror.backendRef.port is missing; say which port of the Service \"a\" to use",
    );
    bad(
        &mirror("backendRef: {name: a, port: 80}, percent: 1, fraction: {numerator: 1}"),
        "[0].requestMirror has both percent and fraction; keep one",
    );
    bad(
        &mirror("backendRef: {name: a, port: 80}, fraction: {numerator: 101}"),
        "[0].requestMirror.fraction.numerator 101 must not be larger than the denominator, 100",
    );
    bad(
        &mirror("backendRef: {name: a, port: 80}, percent: 101"),
        "[0].requestMirror.percent 101 must be between 0 and 100",
    );
}

#[test]
fn cors_names_origins_methods_and_headers() {
    let cors = |fields: &str| format!("[{{type: CORS, cors: {{{fields}}}}}]");
    good(&cors("allowOrigins: ['https://*.example.com', 'http://a.example:8080'], allowMethods: [GET, PUT]"));
    good(&cors("allowOrigins: ['*'], allowMethods: ['*'], allowHeaders: ['*'], exposeHeaders: [X-A]"));
    bad(
        &cors("allowOrigins: ['*', 'https://a.example']"),
        "[0].cors.allowOrigins has `*` beside other entries; leave `*` alone, or remove it",
    );
    bad(
        &cors("allowOrigins: ['https://a.example/']"),
        "[0].cors.allowOrigins[0] \"https://a.example/\" must be an origin such as `https://www.example.com`, without a \
         path, or `*`",
    );
    bad(&cors("maxAge: 0"), "[0].cors.maxAge 0 must be between 1 and 2147483647");
}
