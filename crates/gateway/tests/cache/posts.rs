//! Responses to POST that answer later GETs, where the policy keeps them. Only the front does; where HTTP goes through varnishd, a POST
//! invalidates as always.

use std::thread;

use rustix::process::Signal;

use super::{HOST, Site, expect};
use crate::support::processes::signal;
use crate::support::{Ask, Program, Response, cache_policy, front_carries_http, get, route, route_to, until};

const KEEPS: &str = "  defaultTTL: 1h\n  methods: [POST]";
const FRESH: &str = "Cache-Control: max-age=60";

fn post(url: &str, content: &str) -> Ask {
    Ask::new("POST", HOST, url).body(content.as_bytes().to_vec())
}

fn is_stored(response: &Response) -> bool {
    response.header("Cache-Status").is_some_and(|status| status.ends_with("; stored"))
}

impl Site {
    /// The origin names this URL from now on.
    fn names(&self, url: &str, more: &[&str]) {
        let here = format!("Content-Location: {url}");
        self.origins[0].answer_with(200, &[&[here.as_str()], more].concat());
    }

    fn purge(&self, words: &[&str]) {
        let mut command = Program::command();
        let state = self.scene.path("state");
        let done = command.arg("purge").args(words).arg("--state-dir").arg(state).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    /// What becomes of a POST to `/hold…` while `meanwhile` runs.
    fn post_while(&self, url: &str, meanwhile: impl FnOnce()) -> Response {
        self.origins[0].hold();
        thread::scope(|scope| {
            let posted = scope.spawn(|| post(url, "posted").send(self.port));
            self.origins[0].wait_for(url);
            meanwhile();
            self.origins[0].release();
            posted.join().unwrap()
        })
    }
}

#[test]
fn a_post_that_names_its_own_url_answers_later_gets() {
    if !front_carries_http() {
        return;
    }
    let site = Site::with_policy(KEEPS);
    site.names("/a?b=1", &[FRESH, "ETag: \"1\"", "Surrogate-Key: k"]);
    expect(&site.get("/a?b=1"), 200, "MISS");
    let posted = post("/a?b=1", "one").send(site.port);
    assert_eq!((posted.status, posted.text()), (200, "one".into()));
    assert!(is_stored(&posted), "{posted:?}");
    let seen = site.asked();
    for _ in 0..4 {
        let hit = site.get("/a?b=1");
        expect(&hit, 200, "HIT");
        assert_eq!((hit.text(), hit.header("ETag")), ("one".into(), Some("\"1\"")));
        assert!(hit.headers.iter().all(|(name, _)| !name.to_ascii_lowercase().starts_with("x-ghost")));
    }
    let head = Ask::new("HEAD", HOST, "/a?b=1").send(site.port);
    expect(&head, 200, "HIT");
    assert_eq!(site.asked(), seen, "no origin was asked");
    // The next write counts.
    assert!(is_stored(&post("/a?b=1", "two").send(site.port)));
    assert_eq!(site.get("/a?b=1").text(), "two");
    assert_eq!(Ask::new("DELETE", HOST, "/a?b=1").send(site.port).status, 200);
    expect(&site.get("/a?b=1"), 200, "MISS");
    // Purges find it by URL and by tag.
    for words in [&[HOST, "/a?b=1"][..], &["--tag", "k"]] {
        assert!(is_stored(&post("/a?b=1", "three").send(site.port)));
        expect(&site.get("/a?b=1"), 200, "HIT");
        site.purge(words);
        expect(&site.get("/a?b=1"), 200, "MISS");
    }
    // As large as it may be, and one byte more.
    site.names("/bytes/65536/x", &[FRESH]);
    assert!(is_stored(&post("/bytes/65536/x", "x").send(site.port)));
    let hit = site.get("/bytes/65536/x");
    expect(&hit, 200, "HIT");
    assert_eq!(hit.body.len(), 65536);
    site.names("/bytes/65537/x", &[FRESH]);
    let large = post("/bytes/65537/x", "x").send(site.port);
    assert_eq!((is_stored(&large), large.body.len()), (false, 65537));
    expect(&site.get("/bytes/65537/x"), 200, "MISS");
}

#[test]
fn without_the_policy_a_post_is_not_kept() {
    let site = Site::with_policy("  defaultTTL: 1h");
    site.names("/a", &[FRESH]);
    assert!(!is_stored(&post("/a", "one").send(site.port)));
    expect(&site.get("/a"), 200, "MISS");
    expect(&site.get("/a"), 200, "HIT");
}

#[test]
fn what_is_in_doubt_is_not_kept_of_a_post() {
    let site = Site::with_policy(KEEPS);
    let plain = |url: &str| post(url, "posted");
    let named = |number: usize| format!("Content-Location: /r{number}");
    let responses: &[(u16, &[&str])] = &[
        (200, &[]),
        (200, &["Expires: 0"]),
        (200, &[FRESH, "Set-Cookie: a=1"]),
        (200, &["Cache-Control: max-age=60, private"]),
        (200, &["Cache-Control: max-age=60, no-store"]),
        (200, &["Cache-Control: max-age=60, no-cache"]),
        (200, &[FRESH, "Vary: *"]),
        (200, &[FRESH, "Vary: Content-Type"]),
        (200, &[FRESH, "Content-Encoding: br"]),
        (200, &[FRESH, "Content-Location: /other"]),
        (201, &[FRESH]),
        (204, &[FRESH]),
        (404, &[FRESH]),
        (500, &[FRESH]),
    ];
    for (number, (status, headers)) in responses.iter().enumerate() {
        // The origin says how long the content of its 204 is: varnishd answers that with 503.
        if *status == 204 && !front_carries_http() {
            continue;
        }
        let url = format!("/r{number}");
        site.origins[0].answer_with(*status, &[&[named(number).as_str()], *headers].concat());
        let posted = plain(&url).send(site.port);
        assert_eq!((posted.status, is_stored(&posted)), (*status, false), "{headers:?}");
        // A GET is stored as if there had been no POST.
        site.origins[0].answer_with(200, &[FRESH]);
        let first = site.get(&url);
        expect(&first, 200, "MISS");
        assert_eq!(first.text(), "shop");
        expect(&site.get(&url), 200, "HIT");
    }
    let requests: &[(&str, &str)] = &[
        ("Authorization", "Basic YQ=="),
        ("Cookie", "session=1"),
        ("Range", "bytes=0-1"),
        ("If-Match", "\"1\""),
        ("X-HTTP-Method-Override", "DELETE"),
        ("X-Original-URL", "/other"),
        ("X-Real-IP", "192.0.2.1"),
    ];
    for (number, (name, value)) in requests.iter().enumerate() {
        let url = format!("/q{number}");
        site.names(&url, &[FRESH]);
        let posted = plain(&url).header(name, value).send(site.port);
        assert_eq!((posted.status, is_stored(&posted)), (200, false), "{name}");
        expect(&site.get(&url), 200, "MISS");
        expect(&site.get(&url), 200, "HIT");
    }
    // A URL that the gateway normalises is not the one that the origin names.
    site.names("/b/../c", &[FRESH]);
    assert!(!is_stored(&plain("/b/../c").send(site.port)));
    expect(&site.get("/c"), 200, "MISS");
    if front_carries_http() {
        site.names("/shared", &["Cache-Control: s-maxage=60"]);
        assert!(is_stored(&plain("/shared").header("Cookie", "session=1").send(site.port)));
        expect(&site.get("/shared"), 200, "HIT");
    }
}

#[test]
fn a_variant_of_a_post_is_that_of_its_client() {
    if !front_carries_http() {
        return;
    }
    let site = Site::with_policy(KEEPS);
    site.names("/a", &[FRESH, "Vary: Accept-Language"]);
    assert!(is_stored(&post("/a", "deutsch").header("Accept-Language", "de").send(site.port)));
    let of = |language: &str| Ask::get(HOST, "/a").header("Accept-Language", language).send(site.port);
    expect(&of("en"), 200, "MISS");
    expect(&site.get("/a"), 200, "MISS");
    let hit = of("de");
    expect(&hit, 200, "HIT");
    assert_eq!(hit.text(), "deutsch");
}

#[test]
fn a_write_that_comes_meanwhile_keeps_a_post_out() {
    if !front_carries_http() {
        return;
    }
    let site = Site::with_policy(KEEPS);
    let named = |url: &str| site.names(url, &[FRESH, "Surrogate-Key: k", "Cache-Groups: \"g\""]);
    named("/hold/quiet");
    assert!(is_stored(&site.post_while("/hold/quiet", || {})));
    expect(&site.get("/hold/quiet"), 200, "HIT");
    // What is about something else does no harm.
    named("/hold/other");
    let posted = site.post_while("/hold/other", || {
        site.purge(&[HOST, "/elsewhere"]);
        site.purge(&["--tag", "other"]);
        site.origins[0].answer_with(200, &[]);
        assert_eq!(Ask::new("DELETE", HOST, "/elsewhere").send(site.port).status, 200);
        named("/hold/other");
    });
    assert!(is_stored(&posted));
    let meanwhile: [(&str, &dyn Fn()); 4] = [
        ("/hold/purged", &|| site.purge(&[HOST, "/hold/purged"])),
        ("/hold/tagged", &|| site.purge(&["--tag", "k"])),
        // It names the same URL.
        ("/hold/located", &|| assert!(!is_stored(&post("/elsewhere", "x").send(site.port)))),
        ("/hold/grouped", &|| {
            site.origins[0].answer_with(200, &["Cache-Group-Invalidation: \"g\""]);
            assert_eq!(post("/elsewhere", "x").send(site.port).status, 200);
            named("/hold/grouped");
        }),
    ];
    for (url, change) in meanwhile {
        named(url);
        let posted = site.post_while(url, change);
        assert_eq!(
            (posted.status, posted.text(), is_stored(&posted)),
            (200, "posted".into(), false),
            "{url}"
        );
        expect(&site.get(url), 200, "MISS");
        expect(&site.get(url), 200, "HIT");
    }
}

#[test]
fn of_writes_that_cross_the_last_one_counts_or_none() {
    if !front_carries_http() {
        return;
    }
    let site = Site::with_policy(KEEPS);
    site.names("/a", &[FRESH]);
    let mut stored = 0;
    for round in 0..60 {
        thread::scope(|scope| {
            for writer in 0..3 {
                let site = &site;
                scope.spawn(move || post("/a", &format!("{round}-{writer}")).send(site.port));
                // Without a body: what it fetches meanwhile is "shop", and older than all.
                scope.spawn(move || site.get("/a"));
            }
        });
        let last = site.origins[0].seen().into_iter().rfind(|seen| seen.method == "POST").unwrap();
        let got = site.get("/a");
        if got.header("X-Cache") == Some("HIT") && got.text() != "shop" {
            stored += 1;
            assert_eq!(got.text(), String::from_utf8_lossy(&last.body), "round {round}");
        }
        // Alone, it is kept.
        assert!(is_stored(&post("/a", "alone").send(site.port)), "round {round}");
        assert_eq!(site.get("/a").text(), "alone");
    }
    println!("{stored} of 60 rounds had a response to POST");
}

#[test]
fn a_post_is_not_kept_for_the_route_of_another() {
    if !front_carries_http() {
        return;
    }
    let writes =
        "  rules: [{matches: [{path: {value: /}, method: POST}], backendRefs: [{name: writer, port: 80}]}]";
    let both = "
  rules:
    - matches: [{path: {value: /split}}]
      backendRefs: [{name: writer, port: 80}, {name: reader, port: 80}]
    - matches: [{path: {value: /rewritten}}]
      filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /elsewhere}}}]
      backendRefs: [{name: writer, port: 80}]
    - matches: [{path: {value: /renamed}}]
      filters: [{type: URLRewrite, urlRewrite: {hostname: other.test}}]
      backendRefs: [{name: writer, port: 80}]
    - matches: [{path: {value: /edited}}]
      filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: X-Edited, value: 'yes'}]}}]
      backendRefs: [{name: writer, port: 80}]
";
    let site = Site::new(
        &["writer", "reader"],
        &[
            route("writes", writes),
            route_to("reads", "/", "reader"),
            route("both", both),
            cache_policy("writes", "writes", KEEPS),
            cache_policy("reads", "reads", KEEPS),
            cache_policy("both", "both", KEEPS),
        ]
        .concat(),
    );
    let reader = &site.origins[1];
    site.names("/a", &[FRESH]);
    let posted = post("/a", "one").send(site.port);
    assert_eq!((posted.origin(), is_stored(&posted)), ("writer", false));
    let read = site.get("/a");
    expect(&read, 200, "MISS");
    assert_eq!(read.origin(), "reader");
    reader.answer_with(200, &[FRESH]);
    for url in ["/split/a", "/rewritten/a", "/renamed/a"] {
        site.origins.iter().for_each(|origin| {
            origin.answer_with(200, &[FRESH, &format!("Content-Location: {url}")]);
        });
        assert!(!is_stored(&post(url, "one").send(site.port)), "{url}");
        expect(&site.get(url), 200, "MISS");
    }
    // Filters of the answer are carried out once for each delivery.
    site.names("/edited/a", &[FRESH]);
    let posted = post("/edited/a", "one").send(site.port);
    assert!(is_stored(&posted));
    let hit = site.get("/edited/a");
    expect(&hit, 200, "HIT");
    for response in [posted, hit] {
        let edits = response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("X-Edited"));
        assert_eq!(edits.count(), 1, "{response:?}");
    }
}

#[test]
fn clients_cannot_say_what_only_the_front_may() {
    let site = Site::with_policy(KEEPS);
    site.origins[0].answer_with(200, &[FRESH]);
    expect(&site.get("/a"), 200, "MISS");
    let number = "0000000000000000-0000000000000000";
    let kept = format!("{number} {number}");
    for (name, value) in [("X-Ghost-Kept", kept.as_str()), ("X_Ghost_Kept", &kept), ("X-Ghost-Order", number)]
    {
        expect(&Ask::get(HOST, "/a").header(name, value).send(site.port), 200, "HIT");
        let missed = Ask::get(HOST, &format!("/{name}")).header(name, value).send(site.port);
        expect(&missed, 200, "MISS");
        let posted = post("/b", "x").header(name, value).send(site.port);
        assert_eq!((posted.status, posted.text()), (200, "x".into()));
    }
    for method in ["ORDER", "INVALIDATE"] {
        let asked = Ask::new(method, HOST, "/a").send(site.port);
        assert_eq!((asked.status, asked.header("X-Ghost-Order")), (200, None));
        assert_eq!(site.origins[0].last_seen().method, method);
    }
    assert!(site.origins[0].seen().iter().all(|seen| {
        seen.headers
            .iter()
            .all(|(name, _)| !name.replace('_', "-").to_ascii_lowercase().starts_with("x-ghost"))
    }));
}

#[test]
fn a_varnishd_that_dies_meanwhile_keeps_nothing_of_a_post() {
    if !front_carries_http() {
        return;
    }
    let site = Site::with_policy(KEEPS);
    site.names("/hold/a", &[FRESH]);
    let posted = site.post_while("/hold/a", || {
        let child = site.program.varnishd().child;
        signal(child, Signal::KILL);
        until("another child runs", || {
            let origin_is_held = get(site.port, HOST, "/ping");
            origin_is_held.header("X-Cache") == Some("MISS")
                || origin_is_held.header("X-Cache") == Some("HIT")
        });
    });
    assert_eq!((posted.status, is_stored(&posted)), (200, false));
    expect(&site.get("/hold/a"), 200, "MISS");
}
