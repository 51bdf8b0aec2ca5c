//! Methods beside GET and HEAD whose answers are kept, where the policy says so.

use super::{HOST, Site, expect};
use crate::support::{Ask, Response};

fn query(site: &Site, url: &str, kind: &str, content: &[u8]) -> Response {
    Ask::new("QUERY", HOST, url).header("Content-Type", kind).body(content.to_vec()).send(site.port)
}

#[test]
fn answers_to_query_are_kept_by_the_content_of_the_request() {
    let site = Site::with_policy("  defaultTTL: 1h\n  methods: [QUERY]");
    site.origins[0].answer_with(200, &["Cache-Control: max-age=60"]);
    // The origin answers with what it was sent.
    for (kind, content) in [("text/a", "one"), ("text/a", "two"), ("text/b", "one")] {
        let first = query(&site, "/q", kind, content.as_bytes());
        expect(&first, 200, "MISS");
        assert_eq!(first.text(), content);
        let again = query(&site, "/q", kind, content.as_bytes());
        expect(&again, 200, "HIT");
        assert_eq!(again.text(), content);
    }
    assert_eq!(site.asked(), 3);
    let seen = site.origins[0].last_seen();
    assert_eq!((seen.method.as_str(), seen.header("Content-Type")), ("QUERY", Some("text/b")));
    // GET has nothing to do with them.
    expect(&site.get("/q"), 200, "MISS");
    assert_eq!(site.get("/q").text(), "shop");
    // As much as is looked at, and one byte more.
    let (most, more) = (vec![b'x'; 65536], vec![b'x'; 65537]);
    expect(&query(&site, "/large", "text/a", &most), 200, "MISS");
    let hit = query(&site, "/large", "text/a", &most);
    expect(&hit, 200, "HIT");
    assert_eq!(hit.body.len(), most.len());
    for _ in 0..2 {
        let asked = site.asked();
        let passed = query(&site, "/large", "text/a", &more);
        assert_eq!((passed.status, passed.body.len(), site.asked()), (200, more.len(), asked + 1));
    }
    // It is safe, and invalidates nothing; a write does.
    expect(&query(&site, "/q", "text/a", b"one"), 200, "HIT");
    expect(&site.get("/q"), 200, "HIT");
    assert_eq!(Ask::new("POST", HOST, "/q").body(b"x".to_vec()).send(site.port).status, 200);
    expect(&query(&site, "/q", "text/a", b"one"), 200, "MISS");
}

#[test]
fn queries_go_to_the_origin_where_the_policy_does_not_keep_them() {
    let site = Site::with_policy("  defaultTTL: 1h");
    site.origins[0].answer_with(200, &["Cache-Control: max-age=60"]);
    for asked in 1..3 {
        assert_eq!(query(&site, "/q", "text/a", b"one").text(), "one");
        assert_eq!(site.asked(), asked);
    }
}
