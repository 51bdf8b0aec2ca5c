//! PROXY v2: what is written can be read, and anything else is an error or too short.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;

use front::proxy::{ClientCertificate, Error, Header, MAXIMUM, Tls};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn header() -> impl Strategy<Value = Header> {
    let v4 = (any::<([u8; 4], u16)>(), any::<([u8; 4], u16)>())
        .prop_map(|(a, b)| (SocketAddr::from(a), SocketAddr::from(b)));
    // Not ::ffff:0:0/96: such addresses are written as IPv4.
    let v6 = (any::<([u8; 15], u16)>(), any::<([u8; 15], u16)>()).prop_map(|(a, b)| {
        let address = |(rest, port): ([u8; 15], u16)| {
            let mut octets = [0x20; 16];
            octets[1..].copy_from_slice(&rest);
            SocketAddr::from((octets, port))
        };
        (address(a), address(b))
    });
    let certificate = (any::<bool>(), option::of("[^\0]{0,20}"))
        .prop_map(|(verified, common_name)| ClientCertificate { verified, common_name });
    let tls = ("[ -~]{0,10}", option::of(certificate))
        .prop_map(|(version, client_certificate)| Tls { version, client_certificate });
    (
        option::of(prop_oneof![v4, v6]),
        option::of(vec(any::<u8>(), 0..20)),
        option::of("[a-z.*]{0,100}"),
        option::of(tls),
    )
        .prop_map(|(addresses, alpn, authority, tls)| Header { addresses, alpn, authority, tls })
}

proptest! {
    #[test]
    fn what_is_written_is_read(header in header(), rest in vec(any::<u8>(), 0..50)) {
        let mut bytes = header.encode();
        let length = bytes.len();
        bytes.extend(rest);
        prop_assert_eq!(Header::decode(&bytes), Ok(Some((header, length))));
    }

    #[test]
    fn a_part_of_it_is_too_short_and_nothing_else(header in header()) {
        let bytes = header.encode();
        for length in 0..bytes.len() {
            prop_assert_eq!(Header::decode(&bytes[..length]), Ok(None));
        }
    }

    #[test]
    fn anything_is_an_answer(bytes in vec(any::<u8>(), 0..300)) {
        let _ = Header::decode(&bytes);
    }

    #[test]
    fn a_header_with_a_wrong_byte_is_an_answer(header in header(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = header.encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(Some((_, length))) = Header::decode(&bytes) {
            prop_assert!(length <= bytes.len());
        }
    }
}

#[test]
fn a_known_header_is_read() {
    // What varnishd sends for a backend by a unix socket: no client, the endpoint, and an authority.
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x17".to_vec();
    bytes.extend([0, 0, 0, 0, 10, 0, 0, 7, 0, 0, 0x1f, 0x90]);
    bytes.extend(b"\x02\0\x08shop/tls");
    bytes.extend(b"GET /");
    let (header, length) = Header::decode(&bytes).unwrap().unwrap();
    assert_eq!(length, bytes.len() - 5);
    assert_eq!(header.addresses.unwrap().1, SocketAddr::from(([10, 0, 0, 7], 8080)));
    assert_eq!(header.authority.as_deref(), Some("shop/tls"));
    assert_eq!(header.encode(), bytes[..length]);
}

#[test]
fn mapped_addresses_are_written_as_ipv4() {
    let mapped = |text: &str| text.parse::<SocketAddr>().unwrap();
    let addresses = Some((mapped("[::ffff:10.0.0.1]:1"), mapped("[::ffff:10.0.0.2]:443")));
    let bytes = Header { addresses, ..Header::default() }.encode();
    let (read, _) = Header::decode(&bytes).unwrap().unwrap();
    assert_eq!(read.addresses, Some((mapped("10.0.0.1:1"), mapped("10.0.0.2:443"))));
}

#[test]
fn errors() {
    let good = Header::default().encode();
    assert_eq!(Header::decode(b"GET / HTTP/1.1\r\n"), Err(Error::Signature));
    assert_eq!(Header::decode(b"PROXY TCP4"), Err(Error::Signature));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes.extend([0; 100]);
        Header::decode(&bytes).map(|found| found.map(|(header, _)| header))
    };
    assert_eq!(with(12, 0x11), Err(Error::Version));
    assert_eq!(with(12, 0x2f), Err(Error::Version));
    assert_eq!(with(13, 0x11), Err(Error::Lengths));
    assert_eq!(with(14, (MAXIMUM >> 8) as u8), Err(Error::TooLong));
    assert_eq!(with(15, 2), Err(Error::Lengths));
}

#[test]
fn a_local_connection_has_no_addresses() {
    let mut bytes = Header {
        addresses: Some((SocketAddr::from(([1; 4], 1)), SocketAddr::from(([2; 4], 2)))),
        ..Header::default()
    }
    .encode();
    bytes[12] = 0x20;
    assert_eq!(Header::decode(&bytes).unwrap().unwrap().0, Header::default());
}
