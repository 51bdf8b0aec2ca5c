//! What must hold for any bytes. Fuzzed by `cargo fuzz`, and by `crates/front/tests/seeds.rs` tried on the seeds.

use front::proxy::{Header, MAXIMUM, received as proxy_received};
use rustls::server::Acceptor;

/// A ClientHello: no panic, and the same name that rustls finds.
pub(crate) fn sniff(bytes: &[u8]) {
    let ours = front::sniff::sniff(bytes);
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if !matches!(acceptor.read_tls(&mut rest), Ok(1..)) {
            return;
        }
    }
    if let Ok(Some(accepted)) = acceptor.accept() {
        let theirs =
            accepted.client_hello().server_name().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        if let Ok(hello) = ours {
            assert_eq!(hello.expect("rustls has read all of it").name, theirs);
        }
    }
}

/// PROXY v2, both ways: no panic, and what was read is written and read again as the same.
pub(crate) fn proxy(bytes: &[u8]) {
    if let Ok(Some((header, length))) = Header::decode(bytes) {
        assert!(length <= bytes.len());
        let again = header.encode();
        assert_eq!(Header::decode(&again), Ok(Some((header, again.len()))));
    }
}

/// PROXY of load balancers: no panic; what is complete stays what it is, whatever follows; and version 2 names the client that
/// our other reader finds.
pub(crate) fn received(bytes: &[u8]) {
    match proxy_received(bytes) {
        Ok(Some((client, length))) => {
            assert!(length <= bytes.len() && length <= MAXIMUM);
            assert_eq!(proxy_received(&bytes[..length]), Ok(Some((client, length))));
            assert_eq!(proxy_received(&bytes[..length - 1]), Ok(None));
            if let (Some(client), Ok(Some((header, _)))) = (client, Header::decode(bytes)) {
                let source = header.addresses.expect("it has a client").0;
                assert_eq!((source.ip().to_canonical(), source.port()), (client.ip(), client.port()));
            }
        }
        Ok(None) => assert!(bytes.len() < MAXIMUM),
        Err(_) => {}
    }
}

/// Headers about caching: no panic; dates lie within four digits of years; a tag matches itself, whatever stands before it; a
/// directive that forbids is seen behind anything; what is read keeps to its bounds.
pub(crate) fn caching(bytes: &[u8]) {
    use router::cache::{
        Conditions, Directives, LONGEST_TAG, Ranges, Stored, Verdict, accepts_gzip, age, coalesced, date,
        groups, holds_if_range, is_one_range, may_vary_by, no_vary_search, same_origin_url,
    };

    if let Some(seconds) = date(bytes, NOW) {
        assert!((-62_200_000_000.0..=253_402_400_000.0).contains(&seconds));
    }
    let _ = (age(bytes), is_one_range(bytes), may_vary_by(bytes), accepts_gzip(bytes));
    let mut directives = Directives::default();
    directives.read(bytes);
    let forbids = [bytes, b", no-store"].concat();
    let mut directives = Directives::default();
    directives.read(&forbids);
    assert!(directives.no_store);
    let stored = Stored { etag: Some(b"\"tag\""), last_modified: Some(bytes), date: Some(bytes) };
    let _ = holds_if_range(bytes, &stored, NOW);
    let lines = [bytes, b"W/\"tag\""];
    let conditions = Conditions { if_none_match: Some(lines), if_modified_since: Some(bytes) };
    assert_eq!(conditions.judge(&stored, NOW), Verdict::NotModified);
    assert!(coalesced(bytes).is_none_or(|one| is_one_range(one.as_bytes())));
    if let Some(parts) = Ranges::read(bytes).and_then(|ranges| ranges.satisfied_by(1000)) {
        assert!(parts.iter().all(|(first, last)| first <= last && *last < 1000));
        assert!(parts.windows(2).all(|two| two[0].1 < two[1].0));
    }
    let url = same_origin_url(bytes, b"https", b"a.example", b"/x/y?z");
    assert!(url.is_none_or(|url| url.starts_with(b"/") && url.len() <= bytes.len() + 6));
    assert!(groups([bytes]).all(|group| (1..=LONGEST_TAG).contains(&group.len())));
    if let Some(parameters) = no_vary_search(&Everywhere(bytes)) {
        parameters.write(bytes, &mut Vec::new());
    }
    policies(bytes);
}

const NOW: f64 = 1_763_000_000.0;

/// A response that has these bytes in every header.
struct Everywhere<'a>(&'a [u8]);

impl router::cache::Answer for Everywhere<'_> {
    fn status(&self) -> u16 {
        200
    }
    fn any_header<'s>(&'s self, _: &str, seen: &mut dyn FnMut(&'s [u8]) -> bool) -> bool {
        seen(self.0)
    }
    fn now(&self) -> f64 {
        NOW
    }
    fn waited(&self) -> f64 {
        0.0
    }
}

/// What policies make of such a response (Vary, targeted fields, Surrogate-Control), and of such a request.
fn policies(bytes: &[u8]) {
    static ROUTER: std::sync::LazyLock<router::Router> = std::sync::LazyLock::new(|| {
        let policy = serde_json::json!({"default_ttl_seconds": 60, "heuristic": {"fraction": 0.1, "max_seconds": 60},
            "normalize": [{"header": "accept-language", "values": ["en", "de-CH"]}]});
        let config = serde_json::json!({"version": 3, "vhosts": {"*": {"routes": [{"route_name": "a/b", "cache_policy": policy}]}}});
        router::Router::compile(&serde_json::from_value(config).expect("it is one"))
            .expect("it is valid")
            .router
    });
    let cache = ROUTER.rules()[0].cache().expect("it has a policy");
    let keeping = cache.keeping(&Everywhere(bytes));
    assert!([keeping.age, keeping.ttl, keeping.grace, keeping.keep].iter().all(|seconds| *seconds >= 0.0));
    let _ = cache.forbids(&Everywhere(bytes));
    cache.unshared_fields(&Everywhere(bytes), |list| assert!(list.len() < bytes.len()));
    assert!(
        cache.normal()[0]
            .choose(|| [bytes, bytes].into_iter())
            .is_none_or(|one| ["en", "de-CH"].contains(&one))
    );
}
