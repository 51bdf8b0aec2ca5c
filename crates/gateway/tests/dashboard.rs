//! The dashboard of `serve`: what it shows, whom it answers, and what it does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::{
    Ask, Certificate, Origin, PATIENCE, Program, Response, Scene, cache_policy, class, free_port, gateway,
    gateway_of, get, parameters, route, route_to, service, shop_on, until, user_vcl, wait_for,
};

const HOST: &str = "shop.example.com";

/// Gateway `web` in front of one origin, and its dashboard.
struct Site {
    port: u16,
    board: u16,
    origin: Origin,
    /// Before the scene: the program ends while its files are there.
    _program: Program,
    scene: Scene,
}

impl Site {
    fn new(arguments: &[&str]) -> Self {
        let (port, board) = (free_port(), free_port());
        let origin = Origin::new("shop");
        let objects = [
            class(),
            gateway("web", &[port]),
            service("shop", &[origin.address()]),
            route(
                "shop",
                r"
  hostnames: [shop.example.com]
  rules:
  - matches: [{path: {value: /}}]
    backendRefs: [{name: shop, port: 80}]
",
            ),
            cache_policy("shop", "shop", "  forcedTTL: 1h"),
        ];
        let scene = Scene::new(&objects.concat());
        let address = format!("127.0.0.1:{board}");
        let program = scene.start_with(&[&["--dashboard", &address], arguments].concat());
        program.wait_for_line(&[&format!("dashboard: http://{address}/")]);
        program.wait_for_line(&["Gateway default/web: reloaded"]);
        Self { port, board, origin, _program: program, scene }
    }

    fn get(&self, path: &str) -> Response {
        get(self.board, &format!("localhost:{}", self.board), path)
    }

    #[track_caller]
    fn json(&self, path: &str) -> Value {
        let response = self.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        serde_json::from_slice(&response.body).unwrap()
    }

    fn ask(&self, headers: &[(&str, &str)]) -> u16 {
        let mut ask = Ask::get("localhost", "/api/state");
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        ask.send(self.board).status
    }
}

#[test]
fn what_is_served_is_shown_and_follows_changes() {
    let site = Site::new(&[]);
    let page = site.get("/");
    assert_eq!(page.status, 200);
    assert!(page.text().contains("<main"), "{}", page.text());
    // Its first state is in it, before anything else is asked for.
    let text = page.text();
    let first =
        text.split_once("id=\"first\">").and_then(|(_, tail)| tail.split_once("</script>")).unwrap().0;
    let first: Value = serde_json::from_str(first).unwrap();
    assert_eq!(first["state"]["gateways"][0]["name"], "default/web");
    assert_eq!(first["routes"]["rows"][0]["route"], "default/shop");
    assert_eq!(first["traffic"]["gateways"][0]["gateway"], "default/web");
    assert!(first["journal"].as_array().is_some_and(|all| !all.is_empty()), "{first}");
    for (name, part) in [
        ("Content-Security-Policy", "frame-ancestors 'none'"),
        ("Content-Security-Policy", "default-src 'self'"),
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
    ] {
        assert!(page.header(name).is_some_and(|value| value.contains(part)), "{name}: {:?}", page.headers);
    }
    assert!(page.header("Access-Control-Allow-Origin").is_none());

    let state = site.json("/api/state");
    let web = &state["gateways"][0];
    assert_eq!((&web["name"], &web["serving"]), (&"default/web".into(), &true.into()));
    assert_eq!(web["listeners"][0]["port"], site.port);
    assert_eq!(web["listeners"][0]["address"], format!("127.0.0.1:{}", site.port));
    assert_eq!((&web["counts"]["routes"], &web["counts"]["endpoints"]), (&1.into(), &1.into()));
    assert!(web["last_reload"]["milliseconds"].as_f64().unwrap() > 0.0);
    let changed_at = || site.json("/api/state")["gateways"][0]["last_change"]["at"].as_u64();
    until("the first change is reported", || changed_at().is_some());
    let first_change = changed_at();

    let routes = site.json("/api/routes");
    let row = &routes["rows"][0];
    assert_eq!((&row["route"], &row["conditions"]), (&"default/shop".into(), &"PathPrefix /".into()));
    assert_eq!(row["groups"][0]["endpoints"][0]["address"], site.origin.address().to_string());
    assert!(row["cache"].as_str().unwrap().contains("3600 s"), "{row}");
    assert_eq!(site.json("/api/routes?q=nothing-like-it")["total"], 0);

    let explained = site.json("/api/explain?host=shop.example.com&path=/x");
    assert_eq!(explained[0]["route"], "HTTPRoute default/shop, rule 0 (PathPrefix /)");
    assert_eq!(site.json("/api/explain?host=elsewhere&path=/")[0]["answer"], "404, no route matches");
    assert_eq!(site.get("/api/explain?path=/").status, 400);

    let more = Origin::new("more");
    site.scene.write(
        "more.yaml",
        &[route_to("more", "/more", "more"), service("more", &[more.address()])].concat(),
    );
    until("the new route is shown", || site.json("/api/routes")["total"] == 2);
    until("its change is served", || changed_at() > first_change);
    let change = site.json("/api/state")["gateways"][0]["last_change"].clone();
    let steps = change["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().filter_map(|step| step["name"].as_str()).collect();
    assert_eq!(names, ["read", "translated", "compiled", "swapped"]);
    let sum: f64 = steps.iter().filter_map(|step| step["milliseconds"].as_f64()).sum();
    assert!((sum - change["milliseconds"].as_f64().unwrap()).abs() < 0.01, "{change}");
    // Changes within 300 ms are reported as one, and a Service that comes with its route is not reported.
    std::thread::sleep(std::time::Duration::from_secs(1));
    site.scene.write(
        "more.yaml",
        &[route_to("more", "/more", "more"), service("more", &[more.address(), site.origin.address()])]
            .concat(),
    );
    let told = |kind: &str, part: &str| {
        let journal = site.json("/api/journal");
        journal
            .as_array()
            .unwrap()
            .iter()
            .any(|entry| entry["kind"] == kind && entry["text"].as_str().unwrap().contains(part))
    };
    until("the new endpoint is told", || told("endpoints", &format!("+{}", site.origin.address())));
    assert!(told("reloaded", "ms") && told("accepted", "HTTPRoute default/more"));
    site.scene.write("more.yaml", "kind: [");
    until("what is wrong is told", || told("bad-input", "more.yaml"));
}

#[test]
fn requests_are_counted_for_each_route() {
    let site = Site::new(&[]);
    let rate = || {
        get(site.port, HOST, "/counted");
        let top = site.json("/api/top?seconds=10");
        let rule = top["gateways"][0]["rules"][0].clone();
        (rule["route"] == "default/shop" && rule["hits"].as_f64()? > 0.0).then_some(rule)
    };
    let rule = wait_for("the requests are counted", rate);
    assert!(rule["rate"].as_f64().unwrap() > 0.0 && rule["p95"].as_f64().unwrap() > 0.0, "{rule}");
    let row = &site.json("/api/routes")["rows"][0];
    assert!(!row["traffic"]["rate"].as_array().unwrap().is_empty(), "{row}");
    assert!(!site.json("/api/traffic")["gateways"][0]["total"]["rate"].as_array().unwrap().is_empty());
}

#[test]
fn strangers_are_refused() {
    let site = Site::new(&[]);
    // A name that was made to lead here.
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1"] {
        let response = get(site.board, host, "/api/state");
        assert_eq!(response.status, 403, "{host}");
        assert!(response.text().contains("--dashboard-host"), "{}", response.text());
    }
    assert_eq!(site.ask(&[]), 200);
    assert_eq!(site.ask(&[("Origin", "http://evil.example")]), 403);
    assert_eq!(site.ask(&[("Origin", "null")]), 403);
    assert_eq!(site.ask(&[("Sec-Fetch-Site", "cross-site")]), 403);
    assert_eq!(site.ask(&[("Host", "evil.example")]), 400);
    // Whatever is asked for, and however: a script may not read, and may not act either.
    let paths = [
        "/",
        "/app.js",
        "/metrics",
        "/api/state",
        "/api/routes",
        "/api/traffic",
        "/api/top",
        "/api/journal",
        "/api/events",
        "/api/explain?host=x&path=/",
        "/api/purge",
        "/nothing",
    ];
    for path in paths {
        let port = site.board;
        let status = |ask: Ask| ask.send(port).status;
        assert_eq!(status(Ask::get("evil.example", path)), 403, "{path}");
        for (name, value) in [
            ("Origin", "http://evil.example"),
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Site", "same-site"),
        ] {
            assert_eq!(
                status(Ask::get("localhost", path).header(name, value)),
                403,
                "{path} {name}: {value}"
            );
            let act =
                Ask::new("POST", "localhost", path).header("X-Varnish-Gateway", "1").header(name, value);
            assert_eq!(status(act.body(b"{}".to_vec())), 403, "POST {path} {name}: {value}");
        }
    }
    // As kubectl port-forward, IPv6 and another name of loopback have it.
    for host in ["localhost:12345", "[::1]:9000", "127.0.0.1"] {
        assert_eq!(get(site.board, host, "/api/state").status, 200, "{host}");
    }
    // The answer may be lost: the server closes while the rest of the request is on its way.
    let long =
        format!("GET /api/state HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "x".repeat(20 << 10));
    let mut stream = TcpStream::connect(("127.0.0.1", site.board)).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    let _ = stream.write_all(long.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
    for (method, path, status) in [
        ("OPTIONS", "/api/state", 405),
        ("POST", "/api/state", 403),
        ("GET", "/nothing", 404),
        ("HEAD", "/", 200),
    ] {
        assert_eq!(Ask::new(method, "localhost", path).send(site.board).status, status, "{method} {path}");
    }
}

#[test]
fn it_is_for_reading_unless_actions_are_allowed() {
    let order = br#"{"method": "Purge", "hostname": "shop.example.com", "paths": ["/a"]}"#.to_vec();
    let post = |body: Vec<u8>| Ask::new("POST", "localhost", "/api/purge").body(body);
    let ours = |body: Vec<u8>| post(body).header("X-Varnish-Gateway", "test");
    let reading = Site::new(&[]);
    assert_eq!(reading.json("/api/state")["allow_actions"], false);
    assert_eq!(ours(order.clone()).send(reading.board).status, 403);
    drop(reading);

    let site = Site::new(&["--allow-actions"]);
    let cache = || get(site.port, HOST, "/a").header("X-Cache").unwrap_or_default().to_owned();
    cache();
    assert_eq!(cache(), "HIT");
    assert_eq!(post(order.clone()).send(site.board).status, 403, "without the header");
    assert_eq!(cache(), "HIT");
    let done = ours(order).send(site.board);
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(done.text().contains("1 object purged"), "{}", done.text());
    assert_eq!(cache(), "MISS");
    assert_eq!(ours(b"{}".to_vec()).send(site.board).status, 400);
    assert_eq!(ours(vec![b' '; 70 << 10]).send(site.board).status, 413);
    let wrong = br#"{"method": "Purge", "hostname": "a b", "paths": ["/"]}"#.to_vec();
    assert_eq!(ours(wrong).send(site.board).status, 400);
}

#[test]
fn events_come_as_they_happen_and_streams_are_bounded() {
    let site = Site::new(&[]);
    let open = || {
        let mut stream = TcpStream::connect(("127.0.0.1", site.board)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut stream = BufReader::new(stream);
        let mut status = String::new();
        stream.read_line(&mut status).unwrap();
        (stream, status)
    };
    let (stream, status) = open();
    assert!(status.contains("200"), "{status}");
    let mut lines = stream.lines().map(Result::unwrap);
    let mut next = |part: &str| lines.find(|line| line.contains(part)).unwrap();
    next("\"kind\":\"reloaded\"");
    site.scene.write("more.yaml", &route_to("more", "/more", "shop"));
    next("HTTPRoute default/more: accepted");
    next("\"kind\":\"reloaded\"");
    next("event: second");

    let all: Vec<_> = (0..40).map(|_| open()).collect();
    let refused = all.iter().filter(|(_, status)| status.contains("503")).count();
    assert!((8..40).contains(&refused), "{refused} of 40 refused");
    drop(all);
    assert_eq!(site.ask(&[]), 200);
}

#[test]
fn a_listener_goes_before_the_dashboard() {
    let port = free_port();
    let scene = Scene::new(&[class(), gateway("web", &[port])].concat());
    let program = scene.start_with(&["--dashboard", &port.to_string()]);
    program.wait_for_line(&["no dashboard", "belongs to a listener"]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    assert_eq!(get(port, "x", "/").status, 404);
    drop(program);

    let other = free_port();
    let program = scene.start_with(&["--dashboard", &other.to_string()]);
    program.wait_for_line(&["dashboard: http://127.0.0.1:"]);
    scene.write("all.yaml", &[class(), gateway("web", &[port, other])].concat());
    program.wait_for_line(&["the dashboard gives port", &other.to_string()]);
    until("the listener has the port", || {
        Ask::get("x", "/").try_send(other).is_ok_and(|response| response.header("X-Cache").is_some())
    });
    drop(program);

    // A Gateway that is new starts at once, and finds the port free.
    let third = free_port();
    let program = scene.start_with(&["--dashboard", &third.to_string()]);
    program.wait_for_line(&["dashboard: http://127.0.0.1:"]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    scene.write("third.yaml", &gateway("third", &[third]));
    program.wait_for_line(&["Gateway default/third: reloaded"]);
    assert_eq!(get(third, "x", "/").status, 404);
    assert_eq!(program.count_lines(&["is taken by another process"]), 0);
}

/// What a command of the command line prints, and how it ends.
fn command(scene: &Scene, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Program::command();
    command.args(words).arg("--state-dir").arg(scene.path("state"));
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn status_top_and_explain_ask_what_runs() {
    let port = free_port();
    let origin = Origin::new("shop");
    let objects = [shop_on(port, &[origin.address()]), cache_policy("shop", "shop", "  forcedTTL: 1h")];
    let scene = Scene::new(&objects.concat());
    // The dashboard is off: the command line has its own way.
    let program = scene.serve();
    let (code, text) = command(&scene, &["status"]);
    assert_eq!(code, Some(0), "{text}");
    let line = |parts: &[&str]| {
        assert!(
            text.lines().any(|line| parts.iter().all(|part| line.contains(part))),
            "{parts:?} in\n{text}"
        );
    };
    line(&["GATEWAY", "STATE", "LISTENERS", "ROUTES", "ENDPOINTS", "LAST RELOAD"]);
    line(&["default/web", "serving", " ms"]);
    line(&["http-", "HTTP", &port.to_string(), "127.0.0.1:"]);
    line(&["HTTPRoute default/shop, rule 0", "PathPrefix /", "default/shop:80 (1 endpoint)"]);
    let (_, json) = command(&scene, &["status", "--output", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["gateways"][0]["name"], &json["routes"][0]["route"]),
        (&"default/web".into(), &"default/shop".into())
    );
    let (code, text) = command(&scene, &["status", "--gateway", "nothing"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("no such Gateway: default/nothing (there: default/web)"), "{text}");

    let (code, text) = command(&scene, &["explain", "--host", "x", "--path", "/a"]);
    assert!(code == Some(0) && text.contains("route: HTTPRoute default/shop, rule 0"), "{text}");
    let (code, text) = command(&scene, &["explain", "--host", "x", "--path", "/a", "--port", "1"]);
    assert!(code == Some(1) && text.contains("status"), "{text}");
    let (code, text) = command(&scene, &["explain", "--host", "x", "--path", "/a", "--gateway", "nothing"]);
    assert!(
        code == Some(1) && text.contains("no such Gateway: default/nothing (there: default/web)"),
        "{text}"
    );
    scene.write(
        "lost.yaml",
        &route("lost", "  hostnames: [lost.example.com]\n  rules: [{backendRefs: [{name: lost, port: 80}]}]"),
    );
    until("explain says what is missing", || {
        let (_, text) = command(&scene, &["explain", "--host", "lost.example.com", "--path", "/"]);
        text.lines().any(|line| {
            line.contains("problem: ") && line.contains("Service default/lost does not exist: create it")
        })
    });

    until("top shows the route", || {
        (0..5).for_each(|_| drop(get(port, "x", "/top")));
        let (code, text) = command(&scene, &["top", "--interval", "10"]);
        assert_eq!(code, Some(0), "{text}");
        text.lines().any(|line| line.contains("HTTPRoute default/shop, rule 0") && line.contains(" %"))
    });
    let (code, text) = command(&scene, &["top", "--gateway", "nope"]);
    assert!(code == Some(1) && text.contains("no such Gateway: default/nope"), "{code:?} {text}");
    let (_, json) = command(&scene, &["top", "--count", "1", "--output", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["gateways"][0]["gateway"], "default/web");

    drop(program);
    let (code, text) = command(&scene, &["status"]);
    assert!(code == Some(1) && text.contains("no `varnish-gateway serve` runs with --state-dir"), "{text}");
    let (_, text) = command(&scene, &["status", "--log", "json"]);
    assert!(serde_json::from_str::<Value>(&text).is_ok_and(|line| line["level"] == "ERROR"), "{text}");
}

#[test]
fn the_ways_of_requests_are_shown() {
    let (port, board) = (free_port(), free_port());
    let origin = Origin::new("shop");
    let objects = [
        parameters("{dataPath: Auto}"),
        gateway("web", &[port]),
        service("shop", &[origin.address()]),
        route_to("shop", "/", "shop"),
        route_to("cached", "/cached", "shop"),
        cache_policy("cached", "cached", "  forcedTTL: 1h"),
    ];
    let scene = Scene::new(&objects.concat());
    let address = format!("127.0.0.1:{board}");
    let program = scene.start_with(&["--dashboard", &address]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    let (_, text) = command(&scene, &["status"]);
    let line = |text: &str, parts: &[&str]| {
        let found = text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?} in\n{text}");
    };
    line(&text, &["GATEWAY", "STATE", "DATA PATH"]);
    line(&text, &["default/web", "Front (dataPath: Auto)"]);
    line(&text, &["HTTPRoute default/shop, rule 0", "direct", "default/shop:80"]);
    line(&text, &["HTTPRoute default/cached, rule 0", "cache", "default/shop:80"]);

    let picture = wait_for("all ways are drawn", || {
        for _ in 0..4 {
            get(port, "x", "/cached");
        }
        get(port, "x", "/");
        Ask::get("x", "/x/..%2fy").send(port);
        let traffic: Value = serde_json::from_slice(&get(board, "localhost", "/api/traffic").body).unwrap();
        let web = &traffic["gateways"][0];
        assert_eq!(web["in_front"], true);
        let socket = &web["picture"]["sockets"][0];
        let rate = |way: &str| socket[way]["requests"].as_f64().unwrap_or_default();
        let all = rate("cache") > 0.0 && rate("direct") > 0.0 && rate("own") > 0.0;
        let hits = socket["hits"].as_f64().unwrap_or_default() > 0.0;
        (all && hits).then(|| web["picture"].clone())
    });
    assert_eq!(picture["sockets"][0]["name"], format!("http-{port}"));
    assert_eq!(picture["services"].as_array().unwrap().len(), 1, "{picture}");
    assert_eq!(picture["services"][0]["name"], "default/shop:80");
    assert_eq!(picture["services"][0]["own"]["requests"], 0.0, "no Service has seen it");
    let (_, text) = command(&scene, &["top", "--interval", "30"]);
    line(&text, &["ROUTE", "REQUESTS/S", "WAY", "HITS"]);
    line(&text, &["HTTPRoute default/shop, rule 0", " direct "]);
    line(&text, &["HTTPRoute default/cached, rule 0", " cache "]);
    let (_, text) = command(&scene, &["explain", "--host", "x", "--path", "/cached"]);
    line(&text, &["way: cache: GET with a cache policy"]);

    origin.answer_with(503, &[]);
    wait_for("errors are drawn", || {
        get(port, "x", "/");
        let traffic: Value = serde_json::from_slice(&get(board, "localhost", "/api/traffic").body).unwrap();
        let errors = &traffic["gateways"][0]["picture"]["services"][0]["direct"]["errors"];
        (errors.as_f64().unwrap_or_default() > 0.0).then_some(())
    });
}

#[test]
fn user_vcl_is_named_as_what_sends_every_request_through_varnishd() {
    let (port, board) = (free_port(), free_port());
    let origin = Origin::new("shop");
    let vcl = user_vcl("sub vcl_deliver { set resp.http.X-User = \"yes\"; }");
    let class = vcl.replacen("{userVCLConfigMapRef", "{dataPath: Auto, userVCLConfigMapRef", 1);
    let rest = [gateway("web", &[port]), service("shop", &[origin.address()]), route_to("shop", "/", "shop")];
    let scene = Scene::new(&[class, rest.concat()].concat());
    let program = scene.start_with(&["--dashboard", &format!("127.0.0.1:{board}")]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    let (_, text) = command(&scene, &["status"]);
    assert!(text.contains("Varnish (user VCL)"), "{text}");
    let (_, text) = command(&scene, &["explain", "--host", "x", "--path", "/"]);
    assert!(text.contains("way: through varnishd: user VCL"), "{text}");
    let picture = wait_for("requests are drawn", || {
        assert_eq!(get(port, "x", "/").header("X-User"), Some("yes"));
        let traffic: Value = serde_json::from_slice(&get(board, "localhost", "/api/traffic").body).unwrap();
        let web = &traffic["gateways"][0];
        assert_eq!(web["in_front"], false);
        let services = web["picture"]["services"].as_array()?;
        (!services.is_empty()).then(|| web["picture"].clone())
    });
    assert_eq!(picture["sockets"][0]["name"], format!("http-{port}"));
    assert_eq!(picture["services"][0]["name"], "default/shop:80");
    let (_, text) = command(&scene, &["top", "--interval", "30"]);
    assert!(text.lines().any(|line| line.contains("rule 0") && line.contains(" varnishd ")), "{text}");
}

#[test]
fn numbers_that_nobody_counts_are_not_shown_as_zero() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let class = parameters("{metrics: {perRoute: false}}");
    let rest = [gateway("web", &[port]), service("shop", &[origin.address()]), route_to("shop", "/", "shop")];
    let scene = Scene::new(&[class, rest.concat()].concat());
    let _program = scene.serve();
    until("top says why there are none", || {
        drop(get(port, "x", "/"));
        command(&scene, &["top"]).1.contains("Gateway default/web: requests are not counted")
    });
}

#[test]
fn a_gateway_that_refuses_the_newest_is_no_success() {
    let port = free_port();
    let scene = Scene::new(&[class(), gateway("web", &[port]), route_to("shop", "/", "shop")].concat());
    let _program = scene.serve();
    assert_eq!(command(&scene, &["status"]).0, Some(0));
    scene.write("class.yaml", "");
    scene.write("all.yaml", &[user_vcl("sub vcl_recv { nonsense; }"), gateway("web", &[port])].concat());
    until("it is refused", || {
        let (code, text) = command(&scene, &["status"]);
        code == Some(1) && text.contains("the newest is refused")
    });
}

/// The row of a Gateway in the first table.
fn row<'a>(text: &'a str, gateway: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(gateway)).unwrap_or_else(|| panic!("no {gateway} in\n{text}"))
}

#[test]
fn status_shows_gateways_that_do_not_run_and_why() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let rejected = gateway("rejected", &[free_port()]).replace(
        "  listeners:",
        "  infrastructure: {parametersRef: {group: gateway.varnish-software.com, kind: GatewayClassParameters, name: nosuch}}\n  listeners:",
    );
    let odd =
        gateway_of("odd", &[format!("{{name: odd, protocol: example.com/odd, port: {}}}", free_port())]);
    let scene = Scene::new(&shop_on(port, &[origin.address()]));
    let program = scene.start_with(&["--dashboard", "127.0.0.1:0"]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    scene.write("more.yaml", &[gateway("late", &[port]), rejected, odd].concat());
    until("all are known", || command(&scene, &["status"]).1.contains("default/rejected"));
    let (code, text) = command(&scene, &["status"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(row(&text, "default/web").contains(" serving "), "{text}");
    for gateway in ["default/late", "default/rejected", "default/odd"] {
        assert!(row(&text, gateway).contains("not serving"), "{gateway} in\n{text}");
    }
    let owner = format!("  default/late: port {port} belongs to Gateway default/web");
    for problem in [owner.as_str(), "  default/rejected: InvalidParameters: ", "  default/odd: "] {
        assert!(text.contains(problem), "{problem} in\n{text}");
    }
    let (code, text) = command(&scene, &["status", "--gateway", "late", "--output", "json"]);
    assert_eq!(code, Some(1), "{text}");
    let json: Value = serde_json::from_str(&text).unwrap();
    let late = &json["gateways"][0];
    assert_eq!((&late["name"], &late["serving"]), (&"default/late".into(), &false.into()));
    assert!(late["problems"][0].as_str().unwrap().starts_with(&format!("port {port} belongs to")), "{text}");
    assert_eq!(command(&scene, &["status", "--gateway", "web"]).0, Some(0));
    let (code, text) = command(&scene, &["top", "--gateway", "late"]);
    assert!(code == Some(1) && text.contains("Gateway default/late does not run"), "{text}");
    scene.remove("more.yaml");
    until("all is well again", || command(&scene, &["status"]).0 == Some(0));
}

#[test]
fn status_says_why_a_listener_is_not_open() {
    let (port, taken) = (free_port(), free_port());
    let certificate = Certificate::new("a.example.com");
    let listeners = [
        format!("{{name: http, protocol: HTTP, port: {port}}}"),
        format!(
            "{{name: https, protocol: HTTPS, port: {taken}, tls: {{certificateRefs: [{{name: pair}}]}}}}"
        ),
    ];
    let holder = std::net::TcpListener::bind(("127.0.0.1", taken)).unwrap();
    let scene = Scene::new(&[class(), gateway_of("web", &listeners), certificate.secret("pair")].concat());
    let _program = scene.serve();
    until("it says why", || {
        let (code, text) = command(&scene, &["status"]);
        let said =
            text.lines().any(|line| line.starts_with("  default/web: ") && line.contains(&taken.to_string()));
        code == Some(1) && row(&text, "default/web").contains("serving, not all listeners") && said
    });
    drop(holder);
    until("it is open", || command(&scene, &["status"]).0 == Some(0));
}
