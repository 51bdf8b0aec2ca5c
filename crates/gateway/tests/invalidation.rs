//! Objects out of the cache, through the real thing: by files, and by the commands `purge` and `ban`.

use std::process::Output;

use crate::support::{
    Ask, Origin, Program, Response, Scene, cache_policy, class, free_port, gateway, get, route, route_to,
    service, until,
};

const HOST: &str = "shop.example.com";

/// Gateway `web` on two ports, in front of one origin.
struct Site {
    ports: [u16; 2],
    origin: Origin,
    /// Before the scene: the program ends while its files are there.
    program: Program,
    scene: Scene,
}

impl Site {
    fn new(objects: &str) -> Self {
        let ports = [free_port(), free_port()];
        let origin = Origin::new("shop");
        let service = service("shop", &[origin.address()]);
        let scene = Scene::new(&[&class(), &gateway("web", &ports), &service, objects].concat());
        let program = scene.serve();
        Self { ports, origin, program, scene }
    }

    /// One route with this policy.
    fn with_policy(spec: &str) -> Self {
        Self::new(&[route_to("shop", "/", "shop"), cache_policy("shop", "shop", spec)].concat())
    }

    fn get(&self, url: &str) -> Response {
        get(self.ports[0], HOST, url)
    }

    /// What the cache did.
    fn cache(&self, ask: &Ask) -> String {
        ask.send(self.ports[0]).header("X-Cache").unwrap_or_default().to_owned()
    }

    /// Into the cache with it.
    #[track_caller]
    fn warm(&self, ask: &Ask) {
        self.cache(ask);
        assert_eq!(self.cache(ask), "HIT", "{ask:?}");
    }

    fn command(&self, words: &[&str]) -> Output {
        let mut command = Program::command();
        command.args(words).arg("--state-dir").arg(self.scene.path("state"));
        command.output().unwrap()
    }

    /// What a command prints where it succeeds.
    #[track_caller]
    fn done(&self, words: &[&str]) -> String {
        // The index hears of an object when it can be found, which may be after its first delivery.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let output = self.command(words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    #[track_caller]
    fn refused(&self, words: &[&str]) -> String {
        let output = self.command(words);
        // 2: the words themselves are wrong.
        let expected = if words.contains(&"--gateway") || words.contains(&"(") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(expected), "{words:?}");
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
    }
}

fn invalidation(name: &str, spec: &str) -> String {
    format!(
        "\
apiVersion: gateway.varnish-software.com/v1alpha1
kind: VarnishCacheInvalidation
metadata: {{name: {name}}}
spec: {spec}
---
"
    )
}

#[test]
fn a_purge_takes_every_variant_and_nothing_else() {
    let routes = route(
        "shop",
        r"
  rules:
  - name: rewritten
    matches: [{path: {value: /}}]
    filters:
    - type: URLRewrite
      urlRewrite: {hostname: internal.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: /deep}}
    backendRefs: [{name: shop, port: 80}]
",
    );
    let policy = "  forcedTTL: 1h\n  cacheKey: {headers: [X-A], queryParameters: {exclude: [utm_source]}}";
    let site = Site::new(&[routes, cache_policy("shop", "shop", policy)].concat());
    site.origin.answer_with(200, &["Vary: Accept-Language"]);
    let with_port = format!("{HOST}:{}", site.ports[0]);
    let variants = [
        Ask::get(HOST, "/a?b=1&a=2"),
        Ask::get(HOST, "/a?a=2&b=1").header("X-A", "1"),
        Ask::get(HOST, "/a?utm_source=x&a=2&b=1").header("Accept-Language", "de"),
        Ask::get(&with_port, "/a?a=2&b=1"),
    ];
    let others = [Ask::get(HOST, "/a"), Ask::get(HOST, "/a?a=2"), Ask::get("www.example.com", "/a?a=2&b=1")];
    variants.iter().chain(&others).for_each(|ask| site.warm(ask));
    // The other port has objects of its own.
    for expected in ["MISS", "HIT"] {
        assert_eq!(variants[0].send(site.ports[1]).header("X-Cache"), Some(expected));
    }

    assert_eq!(
        site.done(&["purge", "Shop.example.com", "/a?b=1&utm_source=y&a=2"]),
        "Gateway default/web: 5 objects purged\n"
    );
    for ask in &others {
        assert_eq!(site.cache(ask), "HIT", "{ask:?}");
    }
    assert_eq!(variants[0].send(site.ports[1]).header("X-Cache"), Some("MISS"));
    for ask in &variants[1..] {
        assert_eq!(site.cache(ask), "MISS", "{ask:?}");
    }
    assert_eq!(site.done(&["purge", HOST, "/none"]), "Gateway default/web: 0 objects purged\n");
}

#[test]
fn a_soft_purge_serves_stale_within_grace() {
    let site = Site::with_policy("  defaultTTL: 1h\n  grace: 1h");
    let ask = Ask::get(HOST, "/a");
    site.warm(&ask);
    assert_eq!(site.done(&["purge", "--soft", HOST, "/a"]), "Gateway default/web: 1 object made stale\n");
    assert_eq!(site.cache(&ask), "STALE");
    until("it is fetched anew", || site.cache(&ask) == "HIT");
    assert_eq!(site.origin.seen().len(), 2);
}

#[test]
fn tags_of_the_origin_are_purged_and_never_shown() {
    let site = Site::with_policy("  defaultTTL: 1h");
    site.origin.answer_with(200, &["Surrogate-Key: product-7 shelf", "xkey: a,b"]);
    for url in ["/1", "/2"] {
        let response = site.get(url);
        assert_eq!((response.header("Surrogate-Key"), response.header("xkey")), (None, None));
        site.warm(&Ask::get(HOST, url));
    }
    assert_eq!(site.get("/1").header("x-cache-host"), None);
    site.origin.answer_with(200, &["xkey: other"]);
    site.warm(&Ask::get(HOST, "/3"));
    assert_eq!(site.done(&["purge", "--tag", "nothing"]), "Gateway default/web: 0 objects purged\n");
    assert_eq!(
        site.done(&["purge", "www.example.com", "--tag", "b"]),
        "Gateway default/web: 0 objects purged\n"
    );
    assert_eq!(site.done(&["purge", "--tag", "b"]), "Gateway default/web: 2 objects purged\n");
    for (url, cache) in [("/1", "MISS"), ("/2", "MISS"), ("/3", "HIT")] {
        assert_eq!(site.cache(&Ask::get(HOST, url)), cache, "{url}");
    }
}

#[test]
fn many_tags_fit_into_one_header() {
    let site = Site::with_policy("  defaultTTL: 1h");
    let tags: Vec<String> = (0..256).map(|number| format!("{number:0>110}")).collect();
    site.origin.answer_with(200, &[&format!("Surrogate-Key: {}", tags.join(" "))]);
    site.warm(&Ask::get(HOST, "/"));
    let last = tags.last().unwrap();
    assert_eq!(site.done(&["purge", "--tag", last]), "Gateway default/web: 1 object purged\n");
}

#[test]
fn a_ban_takes_what_matches_and_bad_expressions_are_named() {
    let site = Site::with_policy("  defaultTTL: 1h");
    for url in ["/img/1", "/img/2", "/css"] {
        site.warm(&Ask::get(HOST, url));
    }
    assert_eq!(site.done(&["ban", HOST, "^/img/", "^/none"]), "Gateway default/web: 2 expressions banned\n");
    for (url, cache) in [("/img/1", "MISS"), ("/img/2", "MISS"), ("/css", "HIT")] {
        assert_eq!(site.cache(&Ask::get(HOST, url)), cache, "{url}");
    }
    let text = site.refused(&["ban", HOST, "^/css", "("]);
    assert!(text.contains("1 of 2 failed") && text.contains("  (: Regex compile error"), "{text}");
    for (words, part) in [
        (&["ban", "shop.example.com:80", "."][..], "without scheme, port and wildcard"),
        (&["ban", HOST, "a b"], "no blanks"),
        (&["ban", "a\" || obj.status == 200", "."], "HOST is a name"),
        (&["purge", HOST, "img"], "a path begins with a slash"),
        (&["purge", HOST], "nothing to purge"),
        (&["purge"], "nothing to purge"),
        (&["purge", "https://shop.example.com", "/a"], "without scheme, port and wildcard"),
        (
            &["purge", "--gateway", "default/other", HOST, "/"],
            "no such Gateway: default/other (running: default/web)",
        ),
    ] {
        let text = site.refused(words);
        assert!(text.contains(part), "{words:?}: {text}");
    }
}

#[test]
fn on_a_public_listener_purge_and_ban_are_methods_like_others() {
    // Unknown methods are unsafe ones: by default they invalidate their own URL, as a POST does.
    let site = Site::with_policy("  defaultTTL: 1h\n  invalidateOnUnsafe: false");
    let ask = Ask::get(HOST, "/a");
    site.warm(&ask);
    for method in ["PURGE", "BAN"] {
        let sent = Ask::new(method, HOST, "/a").header("X-Forwarded-For", "127.0.0.1").send(site.ports[0]);
        assert_eq!(sent.status, 200);
        assert_eq!(site.origin.last_seen().method, method);
    }
    let body = br#"{"invalidations":[{"method":"Purge","hostname":"shop.example.com","paths":["/a"]}]}"#;
    let order = Ask::new("POST", HOST, "/.varnish-ghost/invalidate").body(body.to_vec());
    assert_eq!(order.send(site.ports[0]).status, 200);
    assert_eq!(site.origin.last_seen().url, "/.varnish-ghost/invalidate");
    assert_eq!(site.cache(&ask), "HIT");
}

#[test]
fn a_file_is_carried_out_once_when_it_appears() {
    let site = Site::with_policy("  defaultTTL: 1h");
    let ask = Ask::get(HOST, "/a");
    site.warm(&ask);
    let purge = invalidation(
        "purge",
        "{gatewayRef: {name: web}, type: Purge, hostname: shop.example.com, paths: [/a]}",
    );
    site.scene.write("purge.yaml", &purge);
    let line = ["VarnishCacheInvalidation default/purge", "Complete: 1 object purged"];
    site.program.wait_for_line(&line);
    site.warm(&ask);

    // Neither another file nor another comment carries it out again.
    site.scene.write("purge.yaml", &format!("# touched\n{purge}"));
    site.scene.write("other.yaml", &route_to("other", "/other", "shop"));
    site.program.wait_for_line(&["HTTPRoute default/other", "accepted"]);
    assert_eq!(site.cache(&ask), "HIT");
    assert_eq!(site.program.count_lines(&["VarnishCacheInvalidation default/purge", "Complete"]), 1);

    // Another content does, and so does one that comes back.
    let ban = "{gatewayRef: {name: web}, type: Ban, hostname: shop.example.com, paths: [\"^/(\", \"^/a\"]}";
    site.scene.write("purge.yaml", &invalidation("purge", ban));
    site.program.wait_for_line(&["VarnishCacheInvalidation default/purge", "Failed: 1 of 2 failed"]);
    assert_eq!(site.cache(&ask), "MISS");
    site.scene
        .write("lost.yaml", &invalidation("lost", "{gatewayRef: {name: nobody}, type: Purge, tags: [t]}"));
    site.program
        .wait_for_line(&["VarnishCacheInvalidation default/lost", "Gateway default/nobody, which is not"]);
}

#[test]
fn what_was_there_at_the_start_is_not_carried_out_again() {
    let purge = invalidation(
        "purge",
        "{gatewayRef: {name: web}, type: Purge, hostname: shop.example.com, paths: [/a]}",
    );
    let mut site = Site::with_policy("  defaultTTL: 1h");
    let ask = Ask::get(HOST, "/a");
    site.warm(&ask);
    site.scene.write("purge.yaml", &purge);
    site.program.wait_for_line(&["VarnishCacheInvalidation default/purge", "Complete: 1 object purged"]);

    site.program.signal(rustix::process::Signal::TERM);
    site.program.wait_for_exit();
    site.program = site.scene.serve();
    site.program.wait_for_line(&["VarnishCacheInvalidation default/purge", "Complete", "the cache is empty"]);
    site.warm(&ask);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(site.cache(&ask), "HIT");
    assert_eq!(site.program.count_lines(&["VarnishCacheInvalidation default/purge"]), 1);
    // Once more, where a user removes it and brings it back.
    site.scene.remove("purge.yaml");
    site.scene.write("other.yaml", &route_to("other", "/other", "shop"));
    site.program.wait_for_line(&["HTTPRoute default/other", "accepted"]);
    site.scene.write("purge.yaml", &purge);
    site.program.wait_for_line(&["VarnishCacheInvalidation default/purge", "Complete: 1 object purged"]);
}

#[test]
fn commands_speak_json_where_asked() {
    let site = Site::with_policy("  defaultTTL: 1h");
    site.warm(&Ask::get(HOST, "/a"));
    let text = site.done(&["purge", "--log", "json", HOST, "/a", "/b", "--tag", "t"]);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["event"], "invalidated", "{text}");
    assert_eq!(line["object"], "Gateway default/web", "{text}");
    assert_eq!(
        line["pathResults"],
        serde_json::json!([
            {"path": "/a", "success": true, "objects": 1},
            {"path": "/b", "success": true, "objects": 0},
            {"path": "t", "success": true, "objects": 0},
        ])
    );
    let text = site.refused(&["--log", "json", "ban", HOST, "^/a", "("]);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["event"], "not-invalidated", "{text}");
    assert_eq!(line["pathResults"][0], serde_json::json!({"path": "^/a", "success": true}), "{text}");
    assert_eq!(line["pathResults"][1]["success"], false, "{text}");
    // An error, too, is one object.
    let text = site.refused(&["--log", "json", "purge", HOST, "a"]);
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["level"], "ERROR", "{text}");
}

#[test]
fn without_serve_and_cluster_the_commands_say_what_to_do() {
    let nowhere = tempfile::tempdir().unwrap();
    let run = |kubeconfig: Option<&str>, words: &[&str]| {
        let mut command = Program::command();
        command.args(words).env("TMPDIR", nowhere.path()).env("HOME", nowhere.path());
        command.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
        if let Some(file) = kubeconfig {
            command.env("KUBECONFIG", file);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat()
    };
    let text = run(None, &["purge", HOST, "/a"]);
    assert!(text.contains("no `varnish-gateway serve` of this user was found: start it"), "{text}");
    let text = run(Some("/nonexistent/config"), &["ban", HOST, "."]);
    assert!(text.contains("no `varnish-gateway serve`") && text.contains("--kubeconfig"), "{text}");
    for words in [&["status"][..], &["top"], &["explain", "--host", HOST, "--path", "/"]] {
        let text = run(Some("/nonexistent/config"), words);
        for part in ["no `varnish-gateway serve` of this user runs", "/nonexistent/config"] {
            assert!(text.contains(part), "{words:?}: {text}");
        }
    }
    let state = nowhere.path().to_string_lossy().into_owned();
    let text = run(None, &["purge", "--state-dir", &state, HOST, "/a"]);
    assert!(text.contains("no `varnish-gateway serve` runs with --state-dir"), "{text}");
}
