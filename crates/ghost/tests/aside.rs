//! What is known of URLs beside their objects. It is compiled in from its source, with its tests: the VMOD itself lives in varnishd only.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "a test, and a part of another crate")]

#[path = "../src/aside.rs"]
mod aside;
