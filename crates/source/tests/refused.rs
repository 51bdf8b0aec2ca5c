//! What is refused from the start fails closed: nothing wider takes its place.

#![allow(clippy::unwrap_used)]

use source::files::{Files, Severity, parse_str};
use translate::snapshot::Key;
use translate::{Snapshot, Translation, translate};

const BASE: &str = r"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: varnish}
spec: {controllerName: varnish-software.com/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: infra}
spec:
  gatewayClassName: varnish
  listeners:
    - {name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}
    - {name: tls, port: 443, protocol: TLS, tls: {mode: Passthrough}, allowedRoutes: {namespaces: {from: All}}}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {name: wide, namespace: infra}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: web}
  defaultTTL: 50s
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: shop}
spec: {ports: [{port: 80}]}
---
";

fn route(namespace: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  parentRefs: [{{name: web, namespace: infra}}]
  {}
---
",
        spec.trim()
    )
}

fn policy(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {{name: {name}, namespace: shop}}
spec:
  {}
---
",
        spec.trim()
    )
}

const SHOP: &str = "rules: [{name: all, backendRefs: [{name: shop, port: 80}]}]";

/// The only problem, and what becomes of everything.
#[track_caller]
fn read(objects: &[String]) -> (String, Snapshot, Translation) {
    let (snapshot, problems) = parse_str("all.yaml", &(BASE.to_owned() + &objects.concat()));
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1, "{problems:?}");
    let translation = translate(&snapshot);
    (problems.into_iter().next().unwrap(), snapshot, translation)
}

/// The entries of a host: route, path, Service, whether it is cached.
fn entries(translation: &Translation, host: &str) -> Vec<String> {
    let routing = &translation.gateways[&Key::new("infra", "web")].routing;
    let routes = routing.vhosts.get(host).map(|vhost| vhost.routes.as_slice()).unwrap_or_default();
    let entry = |route: &model::routing::Route| {
        let path = &route.path_match.as_ref().unwrap().value;
        let service = route.backends.first().and_then(|backend| backend.service.as_deref()).unwrap_or("500");
        let cached = if route.cache_policy.is_some() { "cached" } else { "passed" };
        format!("{} {path} {service} {cached}", route.route_name)
    };
    routes.iter().map(entry).collect()
}

/// Reason and message of the first condition of a route's first parent.
fn refusal(status: &translate::RouteStatus) -> String {
    let condition = &status.parents[0].conditions[0];
    assert!(condition.kind == "Accepted" && !condition.status, "{condition:?}");
    format!("{}: {}", condition.reason, condition.message)
}

#[test]
fn a_policy_with_a_typo_keeps_its_target_out_of_the_wide_policy() {
    let target = "targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}";
    for broken in [
        policy("narrow", &format!("{target}\n  defaultTTL: 1m\n  bypas: {{headers: [{{name: Cookie}}]}}")),
        policy("narrow", &format!("{target}\n  defaultTTL: soon")),
        policy("narrow", &format!("{target}\n  defaultTTL: 1m")).replace("v1alpha1", "v2"),
        policy("narrow", &format!("{target}\n  defaultTTL: 1m")).replace("CachePolicy", "CachePolciy"),
        policy("narrow", &format!("{target}\n  defaultTTL: 1m")).replace("software.com", "software.io"),
        policy("5", &format!("{target}\n  defaultTTL: 1m")),
        policy("narrow", &format!("{target}\n  defaultTTL: 1m"))
            .replace("namespace: shop}", "namespace: shop, uid: 5}"),
    ] {
        let objects = [route("shop", "shop", SHOP), route("shop", "other", SHOP), broken.clone()];
        let (problem, _, translation) = read(&objects);
        assert!(problem.ends_with("; until it is corrected, its target is not cached"), "{problem}");
        let expected = ["shop/other / shop cached", "shop/shop / shop passed"];
        assert_eq!(entries(&translation, "*"), expected, "{broken}");
        let status =
            translation.statuses.cache_policies.iter().find(|(key, _)| key.namespace == "shop").unwrap().1;
        let condition = &status.ancestors[0].conditions[0];
        assert!(!condition.status && condition.reason == "Invalid", "{condition:?}");
    }
}

#[test]
fn a_policy_for_one_rule_with_a_typo_closes_that_rule() {
    let rules = "rules: [{name: a, matches: [{path: {value: /a}}], backendRefs: [{name: shop, port: 80}]},
        {name: b, matches: [{path: {value: /b}}], backendRefs: [{name: shop, port: 80}]}]";
    let target = "targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop, sectionName: b}";
    let (_, _, translation) = read(&[route("shop", "shop", rules), policy("narrow", target)]);
    assert_eq!(entries(&translation, "*"), ["shop/shop /a shop cached", "shop/shop /b shop passed"]);
}

#[test]
fn a_policy_whose_target_cannot_be_read_closes_its_namespace() {
    let broken = policy(
        "narrow",
        "targetRef: {group: gateway.networking.k8s.io, kind: HttpRoute, name: shop}\n  defaultTTL: 1m",
    );
    let elsewhere = "rules: [{backendRefs: [{name: shop, namespace: shop, port: 80}]}]";
    let objects = [route("shop", "shop", SHOP), route("other", "other", elsewhere), broken];
    let (problem, _, translation) = read(&objects);
    assert!(problem.ends_with("so nothing that a policy of its namespace may target is cached"), "{problem}");
    assert_eq!(entries(&translation, "*"), ["other/other / 500 cached", "shop/shop / shop passed"]);
    let status = &translation.statuses.cache_policies[&Key::new("shop", "narrow")];
    let message = &status.ancestors[0].conditions[0].message;
    assert!(message.contains("nothing that a policy of namespace shop may target is cached"), "{message}");
}

#[test]
fn a_route_that_is_refused_answers_500_and_leaves_other_routes_alone() {
    let broken = "rules: [{matches: [{path: {value: /admin}}, {path: {type: Exact, value: /root}}],
        filterz: [], backendRefs: [{name: shop, port: 80}]}]";
    let (problem, snapshot, translation) =
        read(&[route("shop", "admin", broken), route("shop", "all", SHOP), route("shop", "z", SHOP)]);
    assert!(
        problem.ends_with("; until it is corrected, the requests that it can be seen to be for get 500"),
        "{problem}"
    );
    let expected = [
        "shop/admin /admin 500 cached",
        "shop/admin /root 500 cached",
        "shop/all / shop cached",
        "shop/z / shop cached",
    ];
    assert_eq!(entries(&translation, "*"), expected);
    let refusal = refusal(&translation.statuses.http_routes[&Key::new("shop", "admin")]);
    assert!(refusal.starts_with("UnsupportedValue: ") && refusal.contains("filterz"), "{refusal}");
    assert_eq!(snapshot.http_routes.len(), 3);
}

#[test]
fn a_host_of_a_refused_route_is_not_a_wildcards_to_serve() {
    let wide = format!("hostnames: ['*.example.com']\n  {SHOP}");
    // Not even the path can be read.
    let broken = "hostnames: [admin.example.com, 5]\n  rules: [{matches: [{path: /x}], backendRefs: [{name: shop, port: 80}]}]";
    let (_, _, translation) = read(&[route("shop", "admin", broken), route("shop", "wide", &wide)]);
    assert_eq!(entries(&translation, "admin.example.com"), ["shop/admin / 500 cached"]);
    assert_eq!(entries(&translation, "*.example.com"), ["shop/wide / shop cached"]);
    assert!(entries(&translation, "*").is_empty());
}

#[test]
fn a_route_whose_hosts_cannot_be_read_claims_none() {
    let broken = format!("hostnames: admin.example.com\n  {SHOP}");
    let (_, _, translation) = read(&[route("shop", "admin", &broken), route("shop", "wide", SHOP)]);
    assert_eq!(entries(&translation, "*"), ["shop/wide / shop cached"]);
}

#[test]
fn what_is_readable_in_part_goes_behind_the_routes_of_others() {
    // Older by its name, and for the requests of a header alone.
    let canary = "rules: [{matches: [{headers: [{name: 'not a header', value: x}]},
        {path: {value: /a}, method: FETCH}], backendRefs: [{name: shop, port: 80}]}]";
    let hosts = "hostnames: [shop.example.com]";
    let objects = [
        route("shop", "canary", &format!("{hosts}\n  {canary}")),
        route("shop", "main", &format!("{hosts}\n  {SHOP}")),
    ];
    let (_, _, translation) = read(&objects);
    let expected = ["shop/main / shop cached", "shop/canary / 500 cached", "shop/canary /a 500 cached"];
    assert_eq!(entries(&translation, "shop.example.com"), expected);
    // Where it names no hosts, every path of every host is closed.
    let (_, _, translation) = read(&[route("shop", "canary", canary), route("shop", "main", SHOP)]);
    assert_eq!(entries(&translation, "*"), ["shop/main / shop cached", "shop/canary /a 500 cached"]);
}

#[test]
fn connections_for_the_names_of_a_refused_tls_route_are_closed() {
    let tls_route = |name: &str, hostname: &str, rule: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {{name: {name}, namespace: shop}}
spec:
  parentRefs: [{{name: web, namespace: infra, sectionName: tls}}]
  hostnames: ['{hostname}']
  rules: [{rule}]
---
"
        )
    };
    let good = "{backendRefs: [{name: shop, port: 80}]}";
    let broken = "{backendRefs: [{name: shop, port: eighty}]}";
    let objects = [tls_route("wide", "*.example.com", good), tls_route("narrow", "a.example.com", broken)];
    let (problem, _, translation) = read(&objects);
    assert!(
        problem.ends_with("; until it is corrected, connections for its hostnames are closed"),
        "{problem}"
    );
    let hosts = &translation.gateways[&Key::new("infra", "web")].routing.tls_listeners[0].hosts;
    let backends = |name: &str| hosts.iter().find(|host| host.hostname == name).unwrap().backends.len();
    assert_eq!((backends("a.example.com"), backends("*.example.com")), (0, 1));
    let refusal = refusal(&translation.statuses.tls_routes[&Key::new("shop", "narrow")]);
    assert!(refusal.contains("connections for its hostnames are closed"), "{refusal}");
}

#[test]
fn a_backend_tls_policy_that_is_refused_keeps_plain_text_away() {
    let policy = "apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: shop, namespace: shop}
spec:
  targetRefs: [{group: '', kind: Service, name: shop}]
  validation: {hostnam: shop.example.com, wellKnownCACertificates: System}
";
    let (_, _, translation) = read(&[route("shop", "shop", SHOP), policy.to_owned()]);
    assert_eq!(entries(&translation, "*"), ["shop/shop / 500 cached"]);
}

#[test]
fn a_reference_grant_that_is_refused_grants_nothing() {
    let elsewhere =
        route("other", "other", "rules: [{backendRefs: [{name: shop, namespace: shop, port: 80}]}]");
    let grant = |to: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {{name: grant, namespace: shop}}
spec:
  from: [{{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: other}}]
  to: [{to}]
---
"
        )
    };
    let (snapshot, problems) =
        parse_str("all.yaml", &(BASE.to_owned() + &elsewhere + &grant("{group: '', kind: Service}")));
    assert_eq!(problems, []);
    assert_eq!(entries(&translate(&snapshot), "*"), ["other/other / shop cached"]);
    let (_, _, translation) = read(&[elsewhere, grant("{group: '', kind: Service, nam: cart}")]);
    assert_eq!(entries(&translation, "*"), ["other/other / 500 cached"]);
}

#[test]
fn a_gateway_whose_client_validation_cannot_be_read_is_not_served() {
    let gateway = |validation: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: private, namespace: infra}}
spec:
  gatewayClassName: varnish
  listeners: [{{name: http, port: 81, protocol: HTTP}}]
  tls: {{frontend: {{default: {{validation: {validation}}}}}}}
---
"
        )
    };
    let ca = "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]";
    for broken in [format!("{{{ca}, mode: AllowEverything}}"), format!("{{{ca}, depth: 3}}"), "5".to_owned()]
    {
        let (_, _, translation) = read(&[gateway(&broken)]);
        assert!(!translation.gateways.contains_key(&Key::new("infra", "private")), "{broken}");
    }
}

#[test]
fn the_last_good_version_goes_before_a_stand_in_and_mending_ends_both() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("all.yaml");
    let target = "targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}";
    let write = |ttl: &str| {
        let narrow = policy("narrow", &format!("{target}\n  {ttl}"));
        std::fs::write(&path, [BASE, &route("shop", "shop", SHOP), &narrow].concat()).unwrap();
    };
    let mut files = Files::new(vec![dir.path().to_owned()]);
    let mut load = || {
        let snapshot = files.load().snapshot;
        let routing = &translate(&snapshot).gateways[&Key::new("infra", "web")].routing;
        let policy = routing.vhosts["*"].routes[0].cache_policy.clone();
        policy.map(|policy| policy.default_ttl_seconds.unwrap())
    };
    write("defaultTL: 7s");
    assert_eq!(load(), None);
    write("defaultTTL: 7s");
    assert_eq!(load(), Some(7.0));
    write("defaultTL: 8s");
    assert_eq!(load(), Some(7.0));
    write("defaultTTL: 9s");
    assert_eq!(load(), Some(9.0));
}

#[test]
fn a_file_that_never_could_be_parsed_and_has_a_policy_closes_everything() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::write(dir.path().join("all.yaml"), [BASE, &route("shop", "shop", SHOP)].concat()).unwrap();
    let path = dir.path().join("policies.yaml");
    let target = "targetRef: {group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop}";
    let mut files = Files::new(vec![dir.path().to_owned()]);
    let mut load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let loaded = files.load();
        let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
        (entries(&translate(&loaded.snapshot), "*"), problems.concat())
    };
    let policy = policy("narrow", &format!("{target}\n  defaultTTL: 7s"));
    let (entries, problem) = load(&format!("{policy}\na: [\n"));
    assert_eq!(entries, ["shop/shop / shop passed"]);
    assert!(problem.ends_with("so nothing is cached at all"), "{problem}");
    assert_eq!(load(&format!("{policy}\na: [[\n")).0, entries);
    assert_eq!(load(&policy).0, ["shop/shop / shop cached"]);
    // Now there is a last good version.
    let (entries, problem) = load(&format!("{policy}\na: [\n"));
    assert_eq!(entries, ["shop/shop / shop cached"]);
    assert!(problem.ends_with("its last good object stays in use"), "{problem}");
}

#[test]
fn a_host_of_a_refused_ingress_is_not_a_wildcards_to_serve() {
    let class = "apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: varnish}
spec: {controller: varnish-software.com/ingress}
---
";
    let ingress = |name: &str, host: &str, paths: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: {name}, namespace: shop}}
spec:
  ingressClassName: varnish
  rules: [{{host: '{host}', http: {{paths: [{paths}]}}}}]
---
"
        )
    };
    let path = |path: &str| {
        format!(
            "{{path: {path}, pathType: Prefix, backend: {{service: {{name: shop, port: {{number: 80}}}}}}}}"
        )
    };
    let label = BASE.replace(
        "spec:\n  gatewayClassName: varnish",
        "spec:\n  infrastructure: {labels: {app: varnish-ingress}}\n  gatewayClassName: varnish",
    );
    let wide = ingress("wide", "*.example.com", &path("/"));
    for (broken, expected) in [
        (path("/a").replace("number: 80", "nr: 80"), vec!["shop/narrow /a 500 cached"]),
        (path("/a") + ", 5", vec!["shop/narrow /a 500 cached", "shop/narrow / 500 cached"]),
    ] {
        let narrow = ingress("narrow", "a.example.com", &broken);
        let (snapshot, problems) = parse_str("all.yaml", &[label.as_str(), class, &wide, &narrow].concat());
        assert!(problems[0].to_string().ends_with("requests for its hosts get 503"), "{problems:?}");
        let translation = translate(&snapshot);
        assert_eq!(entries(&translation, "a.example.com"), expected);
        assert_eq!(entries(&translation, "*.example.com"), ["shop/wide / shop cached"]);
        let status = &translation.statuses.ingresses[&Key::new("shop", "narrow")];
        assert!(
            status.varnish_service.is_none() && status.conditions[0].message.contains("503"),
            "{status:?}"
        );
    }
}

#[test]
fn a_misspelt_field_of_parameters_and_an_invalidation_that_cannot_be_read_are_errors() {
    let parameters = "apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {name: p}
spec: {pathz: {dotSegments: Reject}}
---
";
    // User VCL sees every request, so nothing is hot behind it.
    let hot = parameters.replace("{pathz: {dotSegments: Reject}}", "{hotObjects: {withUserVCL: true}}");
    let invalidation = "apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCacheInvalidation
metadata: {name: purge, namespace: infra}
spec: {gatewayRef: {name: web}, type: Refresh, hostname: a.test, paths: [/]}
---
";
    for (object, name, what) in [
        (parameters, "GatewayClassParameters p", "spec.pathz is an unknown field (did you mean `paths`?)"),
        (&hot, "GatewayClassParameters p", "spec.hotObjects.withUserVCL is an unknown field"),
        (invalidation, "VarnishCacheInvalidation infra/purge", "spec.type"),
    ] {
        let (snapshot, problems) = parse_str("a.yaml", &format!("{BASE}{object}"));
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(told.len() == 1 && told[0].contains(name) && told[0].contains(what), "{told:?}");
        assert!(problems.iter().all(|problem| problem.severity == Severity::Error), "{told:?}");
        assert!(snapshot.parameters.is_empty() && snapshot.cache_invalidations.is_empty());
    }
}

#[test]
fn a_policy_for_a_grpc_route_is_refused_and_closes_nothing_else() {
    let target = "targetRef: {group: gateway.networking.k8s.io, kind: GRPCRoute, name: calls}";
    let objects = [route("shop", "shop", SHOP), policy("calls", &format!("{target}\n  defaultTTL: 1m"))];
    let (problem, _, translation) = read(&objects);
    assert!(problem.contains("must be one of Gateway, HTTPRoute, Ingress"), "{problem}");
    assert_eq!(entries(&translation, "*"), ["shop/shop / shop cached"]);
    let status = &translation.statuses.cache_policies[&Key::new("shop", "calls")].ancestors[0];
    assert_eq!(status.ancestor_ref.kind.as_deref(), Some("GRPCRoute"));
    let condition = &status.conditions[0];
    assert!(!condition.status && condition.reason == "Invalid", "{condition:?}");
    assert!(condition.message.contains("calls of gRPC are never cached"), "{condition:?}");
}

/// Of a Gateway that takes ListenerSets: one for `admin.example.com`, and a younger one that wants the same.
fn sets(first: &str) -> (String, Translation) {
    let base = BASE.replace(
        "  gatewayClassName: varnish\n",
        "  gatewayClassName: varnish\n  allowedListeners: {namespaces: {from: All}}\n",
    );
    let set = |name: &str, age: u32, listeners: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {{name: {name}, namespace: shop, creationTimestamp: 2026-01-0{age}T00:00:00Z}}
spec:
  parentRef: {{name: web, namespace: infra}}
  listeners: {listeners}
---
"
        )
    };
    let younger = "[{name: http, port: 80, protocol: HTTP, hostname: admin.example.com}]";
    let on_set = "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: admin, namespace: shop}
spec:
  parentRefs: [{kind: ListenerSet, name: first}]
  rules: [{backendRefs: [{name: shop, port: 80}]}]
---
";
    let wide = route("shop", "wide", SHOP);
    let sets = set("first", 1, first) + &set("second", 2, younger);
    let text = [base.as_str(), on_set, &wide, &sets].concat();
    let (snapshot, problems) = parse_str("all.yaml", &text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    (problems[0].to_string(), translate(&snapshot))
}

#[test]
fn a_listener_set_that_cannot_be_used_keeps_its_hostnames_and_serves_nothing() {
    for broken in [
        "[{name: http, port: 80, protocol: HTTP, hostname: admin.example.com, allowedRoutes: {namespaces: {from: Some}}}]",
        "[{name: http, port: 80, protocol: HTTP, hostname: admin.example.com, allowdRoutes: {}}]",
        "[{name: http, port: 80, protocol: HTTP, hostname: admin.example.com}, {name: http, port: 81, protocol: HTTP}]",
        "[{name: http, port: 80, protocol: HTTP, hostname: admin.example.com}, 7]",
    ] {
        let (problem, translation) = sets(broken);
        assert!(problem.ends_with("; until it is corrected, its listeners serve nothing"), "{problem}");
        // The wide listener's routes do not get its requests, and neither does the younger set.
        let routing = &translation.gateways[&Key::new("infra", "web")].routing;
        let of_host: Vec<_> = routing
            .listeners
            .iter()
            .filter(|one| one.hostname.as_deref() == Some("admin.example.com"))
            .map(|one| one.name.as_str())
            .collect();
        assert_eq!(of_host, ["shop/first/http"], "{broken}");
        let all = routing.vhosts.values().flat_map(|vhost| &vhost.routes);
        let served: Vec<_> = all.flat_map(|route| &route.listener_names).collect();
        assert_eq!(served, ["http"], "{broken}");
        let statuses = &translation.statuses;
        let status = &statuses.listener_sets[&Key::new("shop", "first")];
        let condition = &status.conditions[0];
        assert!(!condition.status && condition.reason == "Invalid", "{condition:?}");
        let condition = &status.listeners[0].conditions[0];
        assert!(!condition.status && condition.message.contains("cannot be used"), "{condition:?}");
        let second = &statuses.listener_sets[&Key::new("shop", "second")].listeners[0].conditions[0];
        assert!(!second.status && second.reason == "HostnameConflict", "{second:?}");
        let refused = refusal(&statuses.http_routes[&Key::new("shop", "admin")]);
        assert!(
            refused.starts_with("NoReadyListeners: listener http of ListenerSet shop/first"),
            "{refused}"
        );
    }
}

#[test]
fn a_listener_that_can_be_read_in_part_is_not_made_wider() {
    let (_, translation) = sets("[{name: http, port: 80, protocol: HTTP, hostnam: admin.example.com}]");
    let names = |set: &str| {
        let status = &translation.statuses.listener_sets[&Key::new("shop", set)];
        status.listeners.iter().map(|one| (one.name.clone(), one.served)).collect::<Vec<_>>()
    };
    assert_eq!(names("first"), []);
    assert_eq!(names("second"), [("http".to_owned(), true)]);
}
