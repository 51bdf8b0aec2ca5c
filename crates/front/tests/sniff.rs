//! The name in a ClientHello.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use front::sniff::{Error, Hello, sniff};
use proptest::collection::vec;
use proptest::prelude::*;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// A ClientHello of rustls.
fn real(name: &str) -> Vec<u8> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut connection =
        ClientConnection::new(Arc::new(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// A ClientHello made by hand, with these extensions.
fn made(extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, content) in extensions {
        list.extend(kind.to_be_bytes());
        list.extend(u16::try_from(content.len()).unwrap().to_be_bytes());
        list.extend(*content);
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
    body.extend(u16::try_from(list.len()).unwrap().to_be_bytes());
    body.extend(list);
    record(&message(&body))
}

fn message(body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1, length[1], length[2], length[3]], body].concat()
}

fn record(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[22, 3, 1, length[0], length[1]], content].concat()
}

fn server_name(name: &[u8]) -> Vec<u8> {
    let length = u16::try_from(name.len()).unwrap();
    [&(length + 3).to_be_bytes(), &[0][..], &length.to_be_bytes(), name].concat()
}

fn named(name: &str) -> Result<Option<Hello>, Error> {
    Ok(Some(Hello { name: Some(name.to_owned()) }))
}

const NAMELESS: Result<Option<Hello>, Error> = Ok(Some(Hello { name: None }));

#[test]
fn a_real_hello_is_read() {
    assert_eq!(sniff(&real("shop.example.com")), named("shop.example.com"));
    assert_eq!(sniff(&real("127.0.0.1")), NAMELESS);
}

#[test]
fn every_part_of_a_hello_is_too_short() {
    let bytes = real("shop.example.com");
    for length in 0..bytes.len() {
        assert_eq!(sniff(&bytes[..length]), Ok(None), "{length}");
    }
}

#[test]
fn a_hello_in_many_records_is_read() {
    let bytes = real("shop.example.com");
    for size in [1, 2, 3, 4, 5, 100, 511] {
        let split: Vec<u8> = bytes[5..].chunks(size).flat_map(record).collect();
        assert_eq!(sniff(&split), named("shop.example.com"), "{size}");
    }
}

#[test]
fn names_are_lower_case_and_without_their_last_dot() {
    assert_eq!(sniff(&made(&[(0, &server_name(b"Shop.Example.COM."))])), named("shop.example.com"));
    assert_eq!(sniff(&made(&[(10, &[0, 0]), (0, &server_name(b"a_b.test"))])), named("a_b.test"));
    assert_eq!(sniff(&made(&[])), NAMELESS);
    assert_eq!(sniff(&made(&[(0, &server_name(b"::1"))])), NAMELESS);
    // A kind of name that no RFC defines.
    assert_eq!(sniff(&made(&[(0, &[0, 4, 9, 0, 1, b'x'])])), NAMELESS);
}

#[test]
fn what_is_no_hostname_is_no_name() {
    for name in [&b""[..], b".", b"a..b", b".a", b"a b", b"a\0b", b"\xff", b"*.test", &[b'a'; 254]] {
        assert_eq!(sniff(&made(&[(0, &server_name(name))])), Err(Error::Name), "{name:?}");
    }
    let twice = server_name(b"a.test");
    assert_eq!(sniff(&made(&[(0, &twice), (0, &twice)])), Err(Error::Name));
}

#[test]
fn what_is_no_hello_is_told_early() {
    assert_eq!(sniff(b"G"), Err(Error::NotTls));
    assert_eq!(sniff(b"GET / HTTP/1.1\r\n"), Err(Error::NotTls));
    assert_eq!(sniff(&[22, 2]), Err(Error::NotTls));
    assert_eq!(sniff(&[22, 3, 1, 0, 0]), Err(Error::NotTls));
    assert_eq!(sniff(&[22, 3, 1, 0x40, 1]), Err(Error::NotTls));
    assert_eq!(sniff(&record(&[2, 0, 0, 0])), Err(Error::NotTls));
    assert_eq!(sniff(&record(&message(&[3, 3]))), Err(Error::Lengths));
}

proptest! {
    #[test]
    fn anything_is_an_answer(bytes in vec(any::<u8>(), 0..300)) {
        let _ = sniff(&bytes);
        let _ = sniff(&record(&bytes));
        let _ = sniff(&record(&message(&bytes)));
    }

    #[test]
    fn a_wrong_byte_is_an_answer(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = made(&[(10, &[0, 2, 0, 1]), (0, &server_name(b"shop.example.com"))]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = sniff(&bytes);
    }

    #[test]
    fn whatever_follows_changes_nothing(rest in vec(any::<u8>(), 0..50)) {
        let mut bytes = made(&[(0, &server_name(b"a.test"))]);
        bytes.extend(rest);
        prop_assert_eq!(sniff(&bytes), named("a.test"));
    }
}
