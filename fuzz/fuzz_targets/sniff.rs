//! Whatever a client sends first: no panic, and the same name that rustls finds.
#![no_main]

use front::sniff::sniff;
use libfuzzer_sys::fuzz_target;
use rustls::server::Acceptor;

fuzz_target!(|bytes: &[u8]| {
    let ours = sniff(bytes);
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if !matches!(acceptor.read_tls(&mut rest), Ok(1..)) {
            return;
        }
    }
    if let Ok(Some(accepted)) = acceptor.accept() {
        let theirs = accepted.client_hello().server_name().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        if let Ok(hello) = ours {
            assert_eq!(hello.expect("rustls has read all of it").name, theirs);
        }
    }
});
