//! HTTPRoutes are admitted as the API server admits them with the Gateway API's CRD.

use crate::support::{admitted, refused, route, rule};
use serde_json::{Value, json};
use translate::snapshot::Key;

fn spec_of(manifest: &str) -> Value {
    let snapshot = admitted(manifest);
    let route = &snapshot.http_routes[&Key::new("default", "shop")];
    serde_json::to_value(&route.spec).unwrap()
}

#[test]
fn an_empty_spec_gets_one_rule_that_matches_everything() {
    assert_eq!(
        spec_of(&route("hostnames: [a.example]")),
        json!({
            "hostnames": ["a.example"],
            "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}]
        })
    );
}

#[test]
fn absent_fields_get_the_defaults_of_the_crd() {
    let spec = spec_of(&route(
        "
parentRefs: [{name: edge}]
rules:
- matches:
  - headers: [{name: X-A, value: '1'}]
    queryParams: [{name: q, value: '1'}]
  - path: {value: /a}
  filters:
  - type: RequestMirror
    requestMirror: {backendRef: {name: copy, port: 80}, fraction: {numerator: 5}}
  backendRefs: [{name: app, port: 80}]
- filters:
  - type: RequestRedirect
    requestRedirect: {hostname: b.example}
  - type: CORS
    cors: {allowOrigins: ['*']}
",
    ));
    assert_eq!(
        spec,
        json!({
            "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "edge"}],
            "rules": [
                {
                    "matches": [
                        {
                            "path": {"type": "PathPrefix", "value": "/"},
                            "headers": [{"type": "Exact", "name": "X-A", "value": "1"}],
                            "queryParams": [{"type": "Exact", "name": "q", "value": "1"}],
                        },
                        {"path": {"type": "PathPrefix", "value": "/a"}},
                    ],
                    "filters": [{
                        "type": "RequestMirror",
                        "requestMirror": {
                            "backendRef": {"group": "", "kind": "Service", "name": "copy", "port": 80},
                            "fraction": {"numerator": 5, "denominator": 100},
                        },
                    }],
                    "backendRefs": [{"group": "", "kind": "Service", "name": "app", "port": 80, "weight": 1}],
                },
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                    "filters": [
                        {"type": "RequestRedirect", "requestRedirect": {"hostname": "b.example", "statusCode": 302}},
                        {"type": "CORS", "cors": {"allowOrigins": ["*"], "maxAge": 5}},
                    ],
                },
            ],
        })
    );
}

#[test]
fn an_explicitly_empty_list_of_matches_stays_empty() {
    assert_eq!(spec_of(&rule("matches: []"))["rules"][0]["matches"], json!([]));
}

#[test]
fn nulls_count_as_absent() {
    let spec = spec_of(&rule("{matches: null, backendRefs: null, filters: ~}"));
    assert_eq!(spec["rules"][0], json!({"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}));
}

#[test]
fn v1beta1_has_the_same_shape() {
    let manifest = route("hostnames: [a.example]").replace("k8s.io/v1", "k8s.io/v1beta1");
    assert_eq!(admitted(&manifest).http_routes.len(), 1);
}

#[test]
fn an_unknown_field_is_refused_with_its_path_and_a_guess() {
    let cases = [
        ("backendRef: []", "spec.rules[0].backendRef is an unknown field (did you mean `backendRefs`?)"),
        (
            "matches: [{path: {tpye: Exact}}]",
            "spec.rules[0].matches[0].path.tpye is an unknown field (did you mean `type`?)",
        ),
        ("stickyness: {}", "spec.rules[0].stickyness is an unknown field; remove it"),
    ];
    for (text, message) in cases {
        assert_eq!(refused(&rule(text)), message);
    }
    assert_eq!(
        refused(&route("hostname: a.example")),
        "spec.hostname is an unknown field (did you mean `hostnames`?)"
    );
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_its_path() {
    let cases = [
        (
            "backendRefs: [{name: app, port: '80'}]",
            "spec.rules[0].backendRefs[0].port must be a whole number, not a string; write it without quotes",
        ),
        (
            "matches: [{headers: [{name: a, value: 1}]}]",
            "spec.rules[0].matches[0].headers[0].value must be a string, not a number; put quotes round it",
        ),
        (
            "matches: [{headers: [{name: a, value: yes}]}]",
            "spec.rules[0].matches[0].headers[0].value must be a string, not a boolean (as YAML reads y, yes, on, \
             n, no and off); put quotes round it",
        ),
        (
            "backendRefs: {name: app}",
            "spec.rules[0].backendRefs must be a list, not a mapping; begin each item with `- `",
        ),
        ("backendRefs: [app]", "spec.rules[0].backendRefs[0] must be a mapping, not a string"),
        ("backendRefs: [null]", "spec.rules[0].backendRefs[0] must be a mapping, not nothing"),
        ("backendRefs: [{port: 80}]", "spec.rules[0].backendRefs[0].name is missing; it is required"),
        (
            "backendRefs: [{name: app, port: 99999999999}]",
            "spec.rules[0].backendRefs[0].port 99999999999 must be between -2147483648 and 2147483647",
        ),
        (
            "backendRefs: [{name: app, port: 1.5}]",
            "spec.rules[0].backendRefs[0].port must be a whole number, not a number",
        ),
        (
            "matches: [{method: get}]",
            "spec.rules[0].matches[0].method \"get\" must be one of GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, \
             TRACE, PATCH (did you mean GET?)",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refused(&rule(text)), message);
    }
}

#[test]
fn several_faults_are_told_at_once_but_not_without_end() {
    let message = refused(&rule("{a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1}"));
    assert_eq!(message.matches("is an unknown field").count(), 5);
    assert!(message.ends_with("; and 2 more"), "{message}");
}

#[test]
fn paths_are_absolute_and_plain_unless_they_are_regular_expressions() {
    for good in ["/", "/a", "/a/", "/a.b/..c", "/caf%C3%A9", "/a%20b", "/~user/(x)", "/..."] {
        for kind in ["Exact", "PathPrefix"] {
            admitted(&rule(&format!("matches: [{{path: {{type: {kind}, value: '{good}'}}}}]")));
        }
    }
    for regex in ["a//b", "[a-z]+(", "/.*#"] {
        admitted(&rule(&format!("matches: [{{path: {{type: RegularExpression, value: '{regex}'}}}}]")));
    }
    let characters =
        "must contain only letters, digits, -/._~!$&'()*+,;=:@ and percent-encoded bytes such as %20";
    let cases = [
        ("a", "must begin with `/`"),
        ("", "must begin with `/`"),
        ("/a//b", "must not contain `//`"),
        ("/a/./b", "must not contain `/./`"),
        ("/a/../b", "must not contain `/../`"),
        ("/a%2fb", "must not contain `%2f`"),
        ("/a%2Fb", "must not contain `%2F`"),
        ("/a#b", "must not contain `#`"),
        ("/a/..", "must not end in `/..`"),
        ("/a/.", "must not end in `/.`"),
        ("/a b", characters),
        ("/é", characters),
        ("/%zz", characters),
        ("/a?b", characters),
    ];
    for (bad, message) in cases {
        let manifest = rule(&format!("matches: [{{path: {{type: Exact, value: '{bad}'}}}}]"));
        let expected = format!("spec.rules[0].matches[0].path.value \"{bad}\" {message} (path type Exact)");
        assert_eq!(refused(&manifest), expected);
    }
    let long = "/a".repeat(513);
    assert_eq!(
        refused(&rule(&format!("matches: [{{path: {{type: RegularExpression, value: '{long}'}}}}]"))),
        "spec.rules[0].matches[0].path.value has 1026 characters; between 0 and 1024 are allowed"
    );
}

#[test]
fn hostnames_are_dns_names_without_port_or_address() {
    admitted(&route("hostnames: [a.example, '*.example', localhost]"));
    for bad in ["a.example:80", "*", "A.example", "http://a.example", "a_b.example"] {
        let message = refused(&route(&format!("hostnames: ['{bad}']")));
        assert!(message.starts_with(&format!("spec.hostnames[0] {bad:?} must be a DNS name")), "{message}");
    }
    assert_eq!(
        refused(&route("hostnames: [192.0.2.1]")),
        "spec.hostnames[0] \"192.0.2.1\" must be a DNS name, not an IP address"
    );
}

#[test]
fn counts_are_limited() {
    let many = |count: usize, item: &str| format!("[{}]", vec![item; count].join(", "));
    let numbered = |count: usize, item: &str| {
        let items = (0..count).map(|number| item.replace('N', &number.to_string()));
        format!("[{}]", items.collect::<Vec<_>>().join(", "))
    };
    let cases = [
        (
            route(&format!("rules: {}", many(17, "{}"))),
            "spec.rules has 17 entries; between 1 and 16 are allowed",
        ),
        (route("rules: []"), "spec.rules must not be empty"),
        (
            route(&format!("hostnames: {}", numbered(17, "hN.example"))),
            "spec.hostnames has 17 entries; between 0 and 16 are allowed",
        ),
        (
            route(&format!("parentRefs: {}", numbered(33, "{name: gN}"))),
            "spec.parentRefs has 33 entries; between 0 and 32 are allowed",
        ),
        (
            rule(&format!("matches: {}", many(65, "{}"))),
            "spec.rules[0].matches has 65 entries; between 0 and 64 are allowed",
        ),
        (
            rule(&format!("matches: [{{headers: {}}}]", numbered(17, "{name: hN, value: a}"))),
            "spec.rules[0].matches[0].headers has 17 entries; between 0 and 16 are allowed",
        ),
        (
            rule(&format!("matches: [{{queryParams: {}}}]", numbered(17, "{name: hN, value: a}"))),
            "spec.rules[0].matches[0].queryParams has 17 entries; between 0 and 16 are allowed",
        ),
        (
            rule(&format!("backendRefs: {}", many(17, "{name: app, port: 80}"))),
            "spec.rules[0].backendRefs has 17 entries; between 0 and 16 are allowed",
        ),
        (
            route(&format!("rules: {}", many(3, &format!("{{matches: {}}}", many(43, "{}"))))),
            "spec.rules have 129 matches together; at most 128 are allowed in one route",
        ),
    ];
    for (manifest, message) in cases {
        assert_eq!(refused(&manifest), message);
    }
    admitted(&route(&format!("rules: {}", many(2, &format!("{{matches: {}}}", many(64, "{}"))))));
}

#[test]
fn references_to_one_parent_are_told_apart_in_one_way() {
    admitted(&route(
        "parentRefs: [{name: a}, {name: b}, {name: a, namespace: other}, {name: a, kind: Service}]",
    ));
    admitted(&route("parentRefs: [{name: a, sectionName: x}, {name: a, sectionName: z}]"));
    admitted(&route("parentRefs: [{name: a, port: 80}, {name: a, port: 81}]"));
    assert_eq!(
        refused(&route("parentRefs: [{name: a}, {name: a}]")),
        "spec.parentRefs[1] refers to \"a\" a second time; remove it, or name another sectionName"
    );
    assert_eq!(
        refused(&route("parentRefs: [{name: a}, {name: a, sectionName: x}]")),
        "spec.parentRefs[1] refers to \"a\" again, in another way than before; give all references to it a sectionName \
         (or all a port)"
    );
    assert!(
        refused(&route("parentRefs: [{name: a, port: 0}]")).contains("port 0 must be between 1 and 65535")
    );
}

#[test]
fn backends_need_a_port_and_a_weight_in_range() {
    assert_eq!(
        refused(&rule("backendRefs: [{name: app}]")),
        "spec.rules[0].backendRefs[0].port is missing; say which port of the Service \"app\" to use"
    );
    admitted(&rule("backendRefs: [{name: app, kind: Bucket, group: storage.example}]"));
    admitted(&rule(
        "backendRefs: [{name: app, port: 65535, weight: 0}, {name: app, port: 1, weight: 1000000}]",
    ));
    for bad in ["port: 0", "port: 65536", "port: 80, weight: -1", "port: 80, weight: 1000001"] {
        let message = refused(&rule(&format!("backendRefs: [{{name: app, {bad}}}]")));
        assert!(message.contains("must be between"), "{message}");
    }
}

#[test]
fn headers_and_parameters_are_named_once_and_well() {
    for list in ["headers", "queryParams"] {
        let message =
            refused(&rule(&format!("matches: [{{{list}: [{{name: a, value: x}}, {{name: a, value: z}}]}}]")));
        assert_eq!(
            message,
            format!(
                "spec.rules[0].matches[0].{list}[1].name \"a\" is there twice; each may be given only once"
            )
        );
        let message = refused(&rule(&format!("matches: [{{{list}: [{{name: 'a b', value: x}}]}}]")));
        assert!(message.contains("must be a header name"), "{message}");
        let message = refused(&rule(&format!("matches: [{{{list}: [{{name: a, value: ''}}]}}]")));
        assert!(message.ends_with("value must not be empty"), "{message}");
    }
    let long = "x".repeat(4097);
    let message = refused(&rule(&format!("matches: [{{headers: [{{name: a, value: {long}}}]}}]")));
    assert!(message.ends_with("value has 4097 characters; between 1 and 4096 are allowed"), "{message}");
}

#[test]
fn rule_names_are_unique() {
    admitted(&route("rules: [{name: a}, {name: b}, {}, {}]"));
    assert_eq!(
        refused(&route("rules: [{name: a}, {name: a}]")),
        "spec.rules[1].name \"a\" is there twice; each may be given only once"
    );
    assert!(refused(&route("rules: [{name: A}]")).contains("must be a name"));
}

#[test]
fn timeouts_are_durations_and_the_backends_share_is_not_longer() {
    admitted(&rule("timeouts: {request: 10s, backendRequest: 9s999ms}"));
    admitted(&rule("timeouts: {request: 0s, backendRequest: 1h}"));
    assert_eq!(
        refused(&rule("timeouts: {request: 1s, backendRequest: 1s1ms}")),
        "spec.rules[0].timeouts.backendRequest \"1s1ms\" must not be longer than timeouts.request, \"1s\""
    );
    assert!(refused(&rule("timeouts: {request: 1.5s}")).contains("must be a duration such as"));
}

#[test]
fn retries_have_statuses_of_errors_and_at_least_one_attempt() {
    admitted(&rule("retry: {codes: [400, 599], attempts: 1, backoff: 100ms}"));
    admitted(&rule("retry: {}"));
    assert!(refused(&rule("retry: {codes: [200]}")).starts_with("spec.rules[0].retry.codes[0] 200 must be"));
    assert!(refused(&rule("retry: {codes: [500, 500]}")).contains("spec.rules[0].retry.codes"));
    assert!(refused(&rule("retry: {attempts: 0}")).starts_with("spec.rules[0].retry.attempts 0 must be"));
    assert!(refused(&rule("retry: {backoff: soon}")).contains("must be a duration such as"));
}

#[test]
fn sessions_have_a_cookie_or_a_header() {
    admitted(&rule("sessionPersistence: {}"));
    admitted(&rule("sessionPersistence: {type: Header, sessionName: X-Session, idleTimeout: 1m}"));
    admitted(&rule("sessionPersistence: {absoluteTimeout: 1h, cookieConfig: {lifetimeType: Permanent}}"));
    assert_eq!(
        refused(&rule("sessionPersistence: {type: Header, cookieConfig: {}}")),
        "spec.rules[0].sessionPersistence.cookieConfig can only be set where the type is Cookie; remove it, or set the \
         type to Cookie"
    );
    assert_eq!(
        refused(&rule("sessionPersistence: {cookieConfig: {lifetimeType: Permanent}}")),
        "spec.rules[0].sessionPersistence.absoluteTimeout is missing; a cookie of lifetimeType Permanent needs it, as \
         its expiry time"
    );
    assert!(refused(&rule("sessionPersistence: {type: Address}")).contains("must be one of Cookie, Header"));
}
