//! Whatever a load balancer, or one who pretends to be one, sends first.
#![no_main]

#[path = "../properties.rs"]
#[allow(dead_code)]
mod properties;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| properties::received(bytes));
