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

/// Headers about caching: no panic; dates lie within four digits of years; a tag matches itself, whatever stands before it; and a
/// directive that forbids is seen behind anything.
pub(crate) fn caching(bytes: &[u8]) {
    use router::cache::{Conditions, Directives, Stored, Verdict, age, date, holds_if_range, is_one_range};

    const NOW: f64 = 1_763_000_000.0;
    if let Some(seconds) = date(bytes, NOW) {
        assert!((-62_200_000_000.0..=253_402_400_000.0).contains(&seconds));
    }
    let _ = (age(bytes), is_one_range(bytes));
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
}
