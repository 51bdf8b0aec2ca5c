//! PROXY v2, both ways: no panic, and what was read is written and read again as the same.
#![no_main]

use front::proxy::Header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((header, length))) = Header::decode(bytes) {
        assert!(length <= bytes.len());
        let again = header.encode();
        assert_eq!(Header::decode(&again), Ok(Some((header, again.len()))));
    }
});
