//! What must hold for any bytes. Fuzzed by `cargo fuzz`, and by `crates/front/tests/seeds.rs` tried on the seeds.

use front::proxy::Header;
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
