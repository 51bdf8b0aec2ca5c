//! Ingresses by `serve`: whose rules count, where requests go, and what is said of those that lost.

use std::collections::BTreeMap;

use crate::support::{
    Ask, Certificate, Handshake, Origin, Program, Scene, class, free_port, get, parameters, route, service,
    until,
};

/// A Varnish Service: Gateway `name` with the label.
fn varnish(name: &str, port: u16) -> String {
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}}}
spec:
  gatewayClassName: varnish
  infrastructure: {{labels: {{app: varnish-ingress}}}}
  listeners: [{{name: http, protocol: HTTP, port: {port}}}]
---
"
    )
}

/// `spec` has two blanks before its fields. Of two the one with the smaller age is older.
fn ingress(name: &str, age: u8, more: &str, spec: &str) -> String {
    format!(
        "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {name}
  creationTimestamp: \"2026-01-01T00:00:{age:02}Z\"
  annotations: {{kubernetes.io/ingress.class: varnish{more}}}
spec:
{}
---
",
        spec.trim_matches('\n')
    )
}

fn path(path: &str, kind: &str, service: &str) -> String {
    format!(
        "{{path: {path}, pathType: {kind}, backend: {{service: {{name: {service}, port: {{number: 80}}}}}}}}"
    )
}

fn rule(host: &str, paths: &[String]) -> String {
    format!("  - {{host: \"{host}\", http: {{paths: [{}]}}}}\n", paths.join(", "))
}

fn all_of(host: &str, service: &str) -> String {
    format!("  rules:\n{}", rule(host, &[path("/", "Prefix", service)]))
}

fn backend(service: &str) -> String {
    format!("  defaultBackend: {{service: {{name: {service}, port: {{number: 80}}}}}}\n")
}

/// Varnish Service `web` in front of Services that have one origin each.
struct Site {
    port: u16,
    #[expect(dead_code, reason = "origins live as long as the site")]
    origins: Vec<Origin>,
    /// Before the scene: the program ends while its files are there.
    program: Program,
    scene: Scene,
}

impl Site {
    fn new(class: &str, services: &[&str], ingresses: &str) -> Self {
        let port = free_port();
        let origins: Vec<_> = services.iter().map(|name| Origin::new(name)).collect();
        let backends: String =
            services.iter().zip(&origins).map(|(name, origin)| service(name, &[origin.address()])).collect();
        let scene = Scene::new(&[class, &varnish("web", port), &backends].concat());
        scene.write("ingress.yaml", ingresses);
        let program = scene.serve();
        Self { port, origins, program, scene }
    }

    /// Who answers, or the status where it is not 200.
    #[track_caller]
    fn asked(&self, host: &str, url: &str) -> String {
        let response = get(self.port, host, url);
        if response.status == 200 { response.origin().to_owned() } else { response.status.to_string() }
    }
}

#[test]
fn the_cafe_serves_tea_and_coffee_and_nothing_else() {
    let rules =
        rule("cafe.example.com", &[path("/tea", "Prefix", "tea"), path("/coffee", "Prefix", "coffee")]);
    let site =
        Site::new(&class(), &["tea", "coffee"], &ingress("cafe", 1, "", &format!("  rules:\n{rules}")));
    assert_eq!(site.asked("cafe.example.com", "/tea/green?cups=2"), "tea");
    assert_eq!(site.asked("CAFE.example.com:80", "/coffee"), "coffee");
    assert_eq!(site.asked("cafe.example.com", "/teapot"), "404");
    assert_eq!(site.asked("cafe.example.com", "/"), "404");
    assert_eq!(site.asked("bar.example.com", "/tea"), "404");
}

#[test]
fn what_no_rule_fits_goes_to_the_one_default_backend() {
    let ingresses = [
        ingress(
            "tea",
            1,
            "",
            &format!("{}{}", backend("coffee"), all_of("tea.example", "tea").replace("/,", "/x,")),
        ),
        ingress("other", 2, "", &all_of("*.other.example", "tea").replace("path: /", "path: /x")),
    ]
    .concat();
    let site = Site::new(&class(), &["tea", "coffee"], &ingresses);
    assert_eq!(site.asked("tea.example", "/x"), "tea");
    assert_eq!(site.asked("tea.example", "/y"), "coffee");
    assert_eq!(site.asked("a.other.example", "/y"), "coffee");
    assert_eq!(site.asked("unknown.example", "/"), "coffee");
}

#[test]
fn a_newcomer_is_rejected_and_taken_in_once_the_conflict_is_gone() {
    let site =
        Site::new(&class(), &["tea", "coffee"], &ingress("first", 1, "", &all_of("cafe.example", "tea")));
    let second =
        [all_of("cafe.example", "coffee"), rule("bar.example", &[path("/", "Prefix", "coffee")])].concat();
    site.scene.write("second.yaml", &ingress("second", 2, "", &second));
    site.program.wait_for_line(&[
        "Ingress default/second",
        "rejected",
        "Ingress default/first",
        "cafe.example",
    ]);
    assert_eq!(site.asked("cafe.example", "/"), "tea");
    until("it is rejected as a whole", || site.asked("bar.example", "/") == "503");
    site.scene.write("third.yaml", &ingress("third", 3, "", &all_of("third.example", "tea")));
    until("a rejected Ingress harms no other", || site.asked("third.example", "/") == "tea");
    site.scene.remove("ingress.yaml");
    until("the newcomer is taken in", || site.asked("cafe.example", "/") == "coffee");
    assert_eq!(site.asked("bar.example", "/"), "coffee");
    site.program.wait_for_line(&["Ingress default/second: accepted by Varnish Service default/web"]);
}

#[test]
fn without_any_ingress_or_route_every_request_gets_503() {
    let site = Site::new(&class(), &["tea"], "");
    assert_eq!(site.asked("cafe.example", "/"), "503");
    site.scene.write("ingress.yaml", &ingress("tea", 1, "", &all_of("cafe.example", "tea")));
    until("the Ingress is served", || site.asked("cafe.example", "/") == "tea");
    assert_eq!(site.asked("bar.example", "/"), "404");
    site.scene.write("ingress.yaml", "");
    until("the last one is gone", || site.asked("cafe.example", "/") == "503");
    assert_eq!(site.asked("bar.example", "/"), "503");
    let of_route = "  hostnames: [shop.example]\n  rules: [{backendRefs: [{name: tea, port: 80}]}]";
    site.scene.write("route.yaml", &route("shop", of_route));
    until("a route is there", || site.asked("cafe.example", "/") == "404");
    assert_eq!(site.asked("shop.example", "/"), "tea");
}

#[test]
fn a_wildcard_is_for_exactly_one_label() {
    let rules = [all_of("*.foo.com", "wild"), rule("bar.foo.com", &[path("/", "Prefix", "exact")])].concat();
    let site = Site::new(&class(), &["wild", "exact"], &ingress("tea", 1, "", &rules));
    assert_eq!(site.asked("baz.foo.com", "/"), "wild");
    assert_eq!(site.asked("bar.foo.com", "/"), "exact");
    assert_eq!(site.asked("baz.bar.foo.com", "/"), "404");
    assert_eq!(site.asked("foo.com", "/"), "404");
}

#[test]
fn sixteen_paths_go_where_the_api_says() {
    // Type, path of the rule, path of the request, does it match?
    let cases = [
        ("Exact", "/foo", "/foo", true),
        ("Exact", "/foo", "/bar", false),
        ("Exact", "/foo", "/foo/", false),
        ("Exact", "/foo/", "/foo", false),
        ("Exact", "/foo", "/FOO", false),
        ("Prefix", "/", "/any/path", true),
        ("Prefix", "/foo", "/foo", true),
        ("Prefix", "/foo", "/foo/", true),
        ("Prefix", "/foo/", "/foo", true),
        ("Prefix", "/foo/", "/foo/bar", true),
        ("Prefix", "/aaa/bb", "/aaa/bbb", false),
        ("Prefix", "/aaa/bbb", "/aaa/bbb", true),
        ("Prefix", "/aaa/bbb/", "/aaa/bbb", true),
        ("Prefix", "/aaa/bbb", "/aaa/bbb/ccc", true),
        ("Prefix", "/aaa/bbb", "/aaa/bbbxyz", false),
        ("ImplementationSpecific", "/foo", "/foo/bar", true),
    ];
    let rules: String = cases
        .iter()
        .enumerate()
        .map(|(n, (kind, of_rule, _, _))| rule(&format!("case-{n}.example"), &[path(of_rule, kind, "tea")]))
        .collect();
    let site = Site::new(&class(), &["tea"], &ingress("paths", 1, "", &format!("  rules:\n{rules}")));
    for (n, (kind, of_rule, of_request, matches)) in cases.into_iter().enumerate() {
        let expected = if matches { "tea" } else { "404" };
        let found = site.asked(&format!("case-{n}.example"), of_request);
        assert_eq!(found, expected, "{kind} {of_rule} and {of_request}");
    }
}

#[test]
fn the_longest_path_goes_first_and_an_exact_one_before_a_prefix() {
    let rules = rule(
        "cafe.example",
        &[
            path("/", "Prefix", "root"),
            path("/tea", "Prefix", "tea"),
            path("/tea", "Exact", "exact"),
            path("/tea/green", "Prefix", "green"),
        ],
    );
    let site = Site::new(
        &class(),
        &["root", "tea", "exact", "green"],
        &ingress("cafe", 1, "", &format!("  rules:\n{rules}")),
    );
    for (url, expected) in
        [("/", "root"), ("/teapot", "root"), ("/tea", "exact"), ("/tea/", "tea"), ("/tea/green/1", "green")]
    {
        assert_eq!(site.asked("cafe.example", url), expected, "{url}");
    }
}

#[test]
fn a_service_without_endpoints_is_503_and_so_is_one_that_is_missing() {
    let rules =
        [all_of("empty.example", "empty"), rule("gone.example", &[path("/", "Prefix", "gone")])].concat();
    let site = Site::new(&class(), &[], &[service("empty", &[]), ingress("tea", 1, "", &rules)].concat());
    site.program.wait_for_line(&["Ingress default/tea", "Service default/gone does not exist", "503"]);
    assert_eq!(site.asked("empty.example", "/"), "503");
    assert_eq!(site.asked("gone.example", "/"), "503");
    let origin = Origin::new("late");
    site.scene.write("late.yaml", &service("gone", &[origin.address()]));
    until("the Service is there", || site.asked("gone.example", "/") == "late");
}

#[test]
fn ten_endpoints_share_the_requests_in_turn() {
    let port = free_port();
    let origins: Vec<_> = (0..10).map(|n| Origin::new(&format!("pod-{n}"))).collect();
    let addresses: Vec<_> = origins.iter().map(Origin::address).collect();
    let scene = Scene::new(
        &[
            class(),
            varnish("web", port),
            service("tea", &addresses),
            ingress("tea", 1, "", &all_of("cafe.example", "tea")),
        ]
        .concat(),
    );
    let _program = scene.serve();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for n in 0..100 {
        let response = get(port, "cafe.example", &format!("/{n}"));
        assert_eq!(response.status, 200);
        *counts.entry(response.origin().to_owned()).or_default() += 1;
    }
    assert_eq!(counts.len(), 10, "{counts:?}");
    assert!(counts.values().all(|count| *count == 10), "{counts:?}");
}

#[test]
fn tls_opens_a_port_with_each_hosts_own_certificate() {
    let tls = free_port();
    let (tea, coffee) = (Certificate::new("tea.example"), Certificate::new("coffee.example"));
    let spec = format!(
        "  tls:\n  - {{hosts: [tea.example], secretName: tea-tls}}\n  - {{hosts: [coffee.example], secretName: coffee-tls}}\n{}{}",
        all_of("tea.example", "tea"),
        rule("coffee.example", &[path("/", "Prefix", "coffee")])
    );
    let manifests =
        [tea.secret("tea-tls"), coffee.secret("coffee-tls"), ingress("cafe", 1, "", &spec)].concat();
    let class = parameters(&format!("{{ingress: {{httpsPort: {tls}}}}}"));
    let site = Site::new(&class, &["tea", "coffee"], &manifests);
    site.program.wait_for_line(&["listening on", &format!(":{tls} (https-{tls})")]);
    for (host, certificate, other) in [("tea.example", &tea, &coffee), ("coffee.example", &coffee, &tea)] {
        let handshake = Handshake { port: tls, name: Some(host) };
        assert!(handshake.shows(certificate) && !handshake.shows(other), "{host}");
        let response = handshake.get(host, "/");
        assert_eq!((response.status, response.origin()), (200, host.trim_end_matches(".example")));
    }
    assert!(Handshake { port: tls, name: Some("unknown.example") }.open().is_err());
    assert_eq!(site.asked("tea.example", "/"), "tea", "HTTP is served as well");
    let renewed = Certificate::new("tea.example");
    let manifests =
        [renewed.secret("tea-tls"), coffee.secret("coffee-tls"), ingress("cafe", 1, "", &spec)].concat();
    site.scene.write("ingress.yaml", &manifests);
    until("the new certificate is shown", || {
        Handshake { port: tls, name: Some("tea.example") }.shows(&renewed)
    });
}

#[test]
fn status_says_that_another_varnish_service_has_the_https_port() {
    let tls = free_port();
    let class = parameters(&format!("{{ingress: {{httpsPort: {tls}}}}}"));
    let one = |name: &str, age: u8| {
        let host = format!("{name}.example");
        let spec = format!("  tls: [{{hosts: [{host}], secretName: {name}-tls}}]\n{}", all_of(&host, "tea"));
        let by = format!(", ingress.varnish-cache.org/varnish-svc: {name}");
        [Certificate::new(&host).secret(&format!("{name}-tls")), ingress(name, age, &by, &spec)].concat()
    };
    let site = Site::new(&class, &["tea"], &one("web", 1));
    site.program.wait_for_line(&["listening on", &format!(":{tls} (https-{tls})")]);
    site.scene.write("second.yaml", &[varnish("late", free_port()), one("late", 2)].concat());
    site.program.wait_for_line(&["Gateway default/late: reloaded"]);
    let mut command = Program::command();
    command.args(["status", "--gateway", "late", "--state-dir"]).arg(site.scene.path("state"));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let why = format!("  default/late: port {tls} belongs to Gateway default/web");
    for part in ["serving, not all listeners", &why] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn an_ingress_class_with_parameters_needs_no_gateway() {
    let (port, origin) = (free_port(), Origin::new("tea"));
    let manifests = format!(
        "\
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {{name: inner}}
spec:
  controller: varnish-software.com/ingress
  parameters: {{apiGroup: gateway.varnish-software.com, kind: GatewayClassParameters, name: inner}}
---
apiVersion: gateway.varnish-software.com/v1alpha1
kind: GatewayClassParameters
metadata: {{name: inner}}
spec: {{ingress: {{httpPort: {port}, hostlessRules: allow}}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: tea}}
spec:
  ingressClassName: inner
  rules: [{{http: {{paths: [{}]}}}}]
---
{}",
        path("/", "Prefix", "tea"),
        service("tea", &[origin.address()])
    );
    let scene = Scene::new(&manifests);
    let program = scene.start();
    program.wait_for_line(&["Ingress default/tea: accepted by Varnish Service default/inner"]);
    program.wait_for_line(&["default/inner: reloaded"]);
    assert_eq!(get(port, "whatever.example", "/").origin(), "tea");
}

#[test]
fn the_annotation_chooses_among_several_varnish_services() {
    let (one, two) = (free_port(), free_port());
    let (tea, coffee) = (Origin::new("tea"), Origin::new("coffee"));
    let svc = |name: &str| format!(", ingress.varnish-cache.org/varnish-svc: {name}");
    let scene = Scene::new(
        &[
            class(),
            varnish("web", one),
            varnish("second", two),
            service("tea", &[tea.address()]),
            service("coffee", &[coffee.address()]),
            ingress("tea", 1, &svc("web"), &all_of("cafe.example", "tea")),
            ingress("coffee", 2, &svc("default/second"), &all_of("cafe.example", "coffee")),
            ingress("lost", 3, &svc("nobody"), &all_of("lost.example", "tea")),
            ingress("undecided", 4, "", &all_of("undecided.example", "tea")),
        ]
        .concat(),
    );
    let program = scene.serve();
    program.wait_for_line(&["default/second: reloaded"]);
    program.wait_for_line(&[
        "Ingress default/lost",
        "rejected",
        "default/nobody",
        "default/second, default/web",
    ]);
    program.wait_for_line(&["Ingress default/undecided", "rejected", "2 Varnish Services"]);
    assert_eq!(get(one, "cafe.example", "/").origin(), "tea");
    assert_eq!(get(two, "cafe.example", "/").origin(), "coffee");
    assert_eq!(get(one, "lost.example", "/").status, 404);
}

#[test]
fn regular_expressions_and_shared_hosts_are_options() {
    let options = "{ingress: {implementationSpecific: regular-expression, merge: same-namespace}}";
    let one =
        format!("  rules:\n{}", rule("cafe.example", &[path("'/t.a'", "ImplementationSpecific", "tea")]));
    let two = format!("  rules:\n{}", rule("cafe.example", &[path("/coffee", "Prefix", "coffee")]));
    let site = Site::new(
        &parameters(options),
        &["tea", "coffee"],
        &[ingress("one", 1, "", &one), ingress("two", 2, "", &two)].concat(),
    );
    for (url, expected) in
        [("/tea", "tea"), ("/toapot/x", "tea"), ("/my/tea", "404"), ("/coffee/1", "coffee")]
    {
        assert_eq!(site.asked("cafe.example", url), expected, "{url}");
    }
}

fn run(scene: &Scene, arguments: &[&str]) -> (bool, String) {
    let mut command = Program::command();
    command.args(&arguments[..1]).arg("-f").arg(scene.path("manifests")).args(&arguments[1..]);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn check_and_explain_know_ingresses() {
    let origin = Origin::new("tea");
    let all = |more: &str| {
        [class(), varnish("web", 8080), service("tea", &[origin.address()]), more.to_owned()].concat()
    };
    let good = ingress("tea", 1, "", &all_of("*.cafe.example", "tea"));
    let scene = Scene::new(&all(&good));
    let (fine, text) = run(&scene, &["check"]);
    assert!(
        fine && text.contains("ok: Ingress default/tea: accepted by Varnish Service default/web"),
        "{text}"
    );
    let (fine, text) = run(&scene, &["explain", "--host", "a.cafe.example", "--path", "/x"]);
    assert!(fine && text.contains("route: Ingress default/tea, rule 0 (PathPrefix /)"), "{text}");
    let (_, text) = run(&scene, &["explain", "--host", "a.b.cafe.example", "--path", "/x"]);
    assert!(text.contains("404") && text.contains("one label only"), "{text}");
    let bad = ingress("late", 2, "", &all_of("*.cafe.example", "tea"));
    let scene = Scene::new(&all(&[good, bad].concat()));
    let (fine, text) = run(&scene, &["check"]);
    assert!(!fine && text.contains("problem: Ingress default/late: rejected: Ingress default/tea"), "{text}");
    let scene = Scene::new(&all(""));
    let (_, text) = run(&scene, &["explain", "--host", "a", "--path", "/"]);
    assert!(text.contains("503, there is neither a valid Ingress nor an HTTPRoute"), "{text}");
    // Another class name is another controller's.
    let scene = Scene::new(&all(&ingress("tea", 1, "", &all_of("a.example", "tea"))));
    let (_, text) = run(&scene, &["check", "--ingress-class", "inner"]);
    assert!(!text.contains("Ingress default/tea"), "{text}");
}

#[test]
fn the_examples_are_good() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/ingress");
    for file in std::fs::read_dir(examples).unwrap() {
        let file = file.unwrap().path();
        let output = Program::command().args(["check", "-f"]).arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("Ingress"), "{}: {text}", file.display());
    }
}

#[test]
fn answers_are_cached_as_the_origin_says_and_a_policy_may_say_more() {
    let port = free_port();
    let origin = Origin::new("tea");
    let policy = "\
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCachePolicy
metadata: {name: long}
spec: {targetRef: {group: networking.k8s.io, kind: Ingress, name: long}, defaultTTL: 1h}
---
";
    let scene = Scene::new(
        &[
            class(),
            varnish("web", port),
            service("tea", &[origin.address()]),
            ingress("plain", 1, "", &all_of("plain.example", "tea")),
            ingress("long", 2, "", &all_of("long.example", "tea")),
            policy.to_owned(),
        ]
        .concat(),
    );
    let _program = scene.serve();
    let asked = |host: &str| {
        let before = origin.seen().len();
        assert_eq!(get(port, host, "/same").status, 200);
        assert_eq!(get(port, host, "/same").status, 200);
        origin.seen().len() - before
    };
    assert_eq!(asked("plain.example"), 2, "the origin says nothing of freshness");
    assert_eq!(asked("long.example"), 1, "the policy does");

    origin.answer_with(200, &["Cache-Control: max-age=60"]);
    let cache = |host: &str, header: &str| {
        let response = Ask::get(host, "/mine").header(header, "x=1").send(port);
        response.header("X-Cache").unwrap_or_default().to_owned()
    };
    // A personalised page is for its user alone, unless a policy says otherwise.
    assert_eq!(cache("plain.example", "Cookie"), "PASS");
    assert_eq!(cache("plain.example", "Authorization"), "PASS");
    assert_eq!(cache("plain.example", "X-Other"), "MISS");
    assert_eq!(cache("plain.example", "X-Other"), "HIT");
    assert_eq!(cache("plain.example", "Cookie"), "PASS");
    assert_eq!(cache("long.example", "Cookie"), "MISS");
    assert_eq!(cache("long.example", "Cookie"), "HIT");
    let explain = ["explain", "--host", "plain.example", "--path", "/", "--header", "Cookie: x=1"];
    let (_, text) = run(&scene, &explain);
    assert!(text.contains("cache: bypassed: the request has a Cookie"), "{text}");
}
