use super::*;

struct Headers(Vec<String>);

impl EditHeaders for Headers {
    fn remove(&mut self, name: &str) {
        self.0.retain(|line| !line.split(':').next().unwrap().eq_ignore_ascii_case(name));
    }

    fn add(&mut self, header: &HeaderLine) {
        self.0.push(header.line().to_owned());
    }

    fn any(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.iter().any(|line| {
            let (known, value) = line.split_once(": ").unwrap();
            known.eq_ignore_ascii_case(name) && seen(value.as_bytes())
        })
    }
}

struct Asks<'a>(&'a str, &'a [(&'a str, &'a str)]);

impl Request for Asks<'_> {
    fn socket(&self) -> &[u8] {
        b"http-80"
    }
    fn host(&self) -> &[u8] {
        b"shop.example.com"
    }
    fn method(&self) -> &[u8] {
        self.0.as_bytes()
    }
    fn url(&self) -> &[u8] {
        b"/"
    }
    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.1.iter().any(|(known, value)| known.eq_ignore_ascii_case(name) && seen(value.as_bytes()))
    }
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|text| (*text).to_owned()).collect()
}

fn origins(origins: &[&str]) -> From {
    From { allow_origins: texts(origins), ..From::default() }
}

fn response(from: &From, origin: Option<&str>, before: &[&str]) -> Vec<String> {
    let mut headers = Headers(texts(before));
    Cors::new(from).edit_response(origin.map(str::as_bytes), &mut headers);
    headers.0
}

fn preflight(from: &From, asked: &[(&str, &str)]) -> Vec<String> {
    let mut headers = Headers(Vec::new());
    Cors::new(from).answer_preflight(&Asks("OPTIONS", asked), &mut headers);
    headers.0
}

#[test]
fn origins_match_by_scheme_host_and_port() {
    let allowed = |pattern: &str, origin: &str| {
        response(&origins(&[pattern]), Some(origin), &[])
            .contains(&format!("access-control-allow-origin: {origin}"))
    };
    for (pattern, origin) in [
        ("https://www.foo.com", "https://www.foo.com"),
        ("https://www.foo.com", "HTTPS://WWW.foo.com"),
        ("https://www.foo.com", "https://www.foo.com:443"),
        ("http://foo.com:80", "http://foo.com"),
        ("https://foo.com:8443", "https://foo.com:8443"),
        ("https://*.bar.com", "https://www.bar.com"),
        ("https://*.bar.com", "https://a.b.www.bar.com"),
        ("https://*", "https://anything.example"),
        ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
        ("http://*", "http://[::1]"),
    ] {
        assert!(allowed(pattern, origin), "{pattern} {origin}");
    }
    for (pattern, origin) in [
        ("https://www.foo.com", "http://www.foo.com"),
        ("https://www.foo.com", "https://www.foo.com:8443"),
        ("https://www.foo.com", "https://www.foo.com.evil.example"),
        ("https://www.foo.com", "https://evil.example/https://www.foo.com"),
        ("https://*.bar.com", "https://bar.com"),
        ("https://*.bar.com", "https://.bar.com:1"),
        ("https://*.bar.com", "https://evilbar.com"),
        ("https://*.bar.com", "https://www.bar.com:444"),
        ("https://*", "http://foo.com"),
        ("https://*", "null"),
        ("https://*", ""),
        ("https://*", "https://a.example, https://b.example"),
        ("https://*", "https://a.example:99999"),
        ("https://*", "file://x"),
    ] {
        assert!(!allowed(pattern, origin), "{pattern} {origin}");
    }
}

#[test]
fn a_response_says_who_may_read_it_in_the_place_of_the_origin() {
    let of_origin = [
        "Access-Control-Allow-Origin: *",
        "access-control-allow-credentials: true",
        "Access-Control-Allow-Methods: PUT",
        "x-a: 1",
    ];
    let shared = response(&origins(&["https://a.example"]), Some("https://a.example"), &of_origin);
    assert_eq!(shared, ["x-a: 1", "vary: Origin", "access-control-allow-origin: https://a.example"]);
    let refused = response(&origins(&["https://a.example"]), Some("https://b.example"), &of_origin);
    assert_eq!(refused, ["x-a: 1", "vary: Origin"]);
    // A cache must not give this one to a page of another origin either.
    assert_eq!(response(&origins(&["https://a.example"]), None, &["x-a: 1"]), ["x-a: 1", "vary: Origin"]);
    let varies = ["Vary: Accept-Encoding, origin"];
    assert_eq!(response(&origins(&["https://a.example"]), None, &varies), varies);
}

#[test]
fn all_origins_get_one_answer_unless_credentials_are_allowed() {
    let all = origins(&["*"]);
    assert_eq!(response(&all, Some("https://a.example"), &[]), ["access-control-allow-origin: *"]);
    assert_eq!(response(&all, None, &[]), ["access-control-allow-origin: *"]);
    let exposed = From { expose_headers: texts(&["*"]), ..all };
    assert_eq!(
        response(&exposed, None, &[]),
        ["access-control-allow-origin: *", "access-control-expose-headers: *"]
    );
    let with_credentials = From { allow_credentials: true, ..exposed };
    assert_eq!(
        response(&with_credentials, Some("https://a.example:1"), &[]),
        [
            "vary: Origin",
            "access-control-allow-origin: https://a.example:1",
            "access-control-allow-credentials: true"
        ]
    );
    assert_eq!(response(&with_credentials, None, &[]), ["vary: Origin"]);
    assert_eq!(response(&with_credentials, Some("a\r\nb: c"), &[]), ["vary: Origin"]);
}

#[test]
fn a_preflight_request_gets_what_the_filter_lists() {
    let all = From {
        allow_credentials: true,
        allow_methods: texts(&["GET", "OPTIONS"]),
        allow_headers: texts(&["x-header-1", "x-header-2"]),
        expose_headers: texts(&["x-header-3"]),
        max_age_seconds: Some(3600),
        ..origins(&["https://www.foo.com"])
    };
    let asked = |origin| {
        [
            ("origin", origin),
            ("access-control-request-method", "PUT"),
            ("access-control-request-headers", "x-other"),
        ]
    };
    assert_eq!(
        preflight(&all, &asked("https://www.foo.com")),
        [
            "vary: Origin",
            "access-control-allow-origin: https://www.foo.com",
            "access-control-allow-credentials: true",
            "access-control-expose-headers: x-header-3",
            "access-control-allow-methods: GET, OPTIONS",
            "access-control-allow-headers: x-header-1, x-header-2",
            "access-control-max-age: 3600",
        ]
    );
    assert_eq!(preflight(&all, &asked("https://www.bar.com")), ["vary: Origin"]);
}

#[test]
fn wildcards_allow_what_a_preflight_request_asks_for() {
    let wild = From {
        allow_methods: texts(&["*"]),
        allow_headers: texts(&["*"]),
        ..origins(&["https://a.example"])
    };
    let asked = |headers| {
        [
            ("origin", "https://a.example"),
            ("access-control-request-method", "PUT"),
            ("access-control-request-headers", headers),
        ]
    };
    let shared = ["vary: Origin", "access-control-allow-origin: https://a.example"];
    assert_eq!(
        preflight(&wild, &asked("x-a, authorization")),
        [
            &shared[..],
            &["access-control-allow-methods: PUT", "access-control-allow-headers: x-a, authorization"]
        ]
        .concat()
    );
    assert_eq!(
        preflight(&wild, &asked("x-a\tset-cookie: b")),
        [&shared[..], &["access-control-allow-methods: PUT"]].concat()
    );
}

#[test]
fn only_options_with_origin_and_method_is_a_preflight_request() {
    let both = [("Origin", "https://a.example"), ("Access-Control-Request-Method", "PUT")];
    assert!(is_preflight(&Asks("OPTIONS", &both)));
    assert!(!is_preflight(&Asks("GET", &both)));
    assert!(!is_preflight(&Asks("OPTIONS", &both[..1])));
    assert!(!is_preflight(&Asks("OPTIONS", &both[1..])));
}
