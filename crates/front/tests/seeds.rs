//! The seeds of the fuzz targets, and what a few changed bytes make of it, with a stable compiler.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

#[path = "../../../fuzz/properties.rs"]
mod properties;

const CHANGED_FOR_EACH: usize = 3_000;

/// The same numbers every time: a failure can be looked at.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

fn seeds(of: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(of);
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "{of} has seeds");
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// A few bytes other, fewer or more.
fn changed(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        match numbers.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), numbers.below(256) as u8),
            2 => drop(bytes.drain(at..(at + numbers.below(8)).min(bytes.len()))),
            // Lengths are what parsers trip over.
            3 => bytes
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|byte| *byte = [0, 1, 0x7f, 0xff][numbers.below(4)]),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = numbers.below(256) as u8),
        }
    }
    bytes
}

fn replay(of: &str, property: fn(&[u8])) {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for bytes in seeds(of) {
        property(&bytes);
        for _ in 0..CHANGED_FOR_EACH {
            property(&changed(&bytes, &mut numbers));
        }
    }
}

#[test]
fn client_hellos() {
    replay("sniff", properties::sniff);
}

#[test]
fn proxy_headers() {
    replay("proxy", properties::proxy);
}

#[test]
fn proxy_headers_of_load_balancers() {
    replay("received", properties::received);
}

#[test]
fn caching() {
    replay("caching", properties::caching);
}
