//! PROXY v2: what is written can be read, and anything else is an error or too short.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;

use front::proxy::{ClientCertificate, Error, Header, MAXIMUM, Tls, received};
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

/// The address that a load balancer names, and the header's length.
fn client(bytes: &[u8]) -> Result<Option<(Option<String>, usize)>, Error> {
    received(bytes).map(|found| found.map(|(client, length)| (client.map(|ip| ip.to_string()), length)))
}

#[test]
fn lines_of_version_1_have_an_exact_grammar() {
    let good = |line: &str, address: Option<&str>| {
        let bytes = format!("{line}\r\nGET / HTTP/1.1\r\n");
        let expected = Ok(Some((address.map(str::to_owned), line.len() + 2)));
        assert_eq!(client(bytes.as_bytes()), expected, "{line}");
        for length in 0..line.len() + 2 {
            assert_eq!(client(&bytes.as_bytes()[..length]), Ok(None), "{length} bytes of {line}");
        }
    };
    good("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443", Some("192.0.2.1:56324"));
    good("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535", Some("255.255.255.255:65535"));
    good("PROXY TCP4 0.0.0.0 0.0.0.0 0 0", Some("0.0.0.0:0"));
    good("PROXY TCP6 2001:db8::1 ::1 1 2", Some("[2001:db8::1]:1"));
    good("PROXY TCP6 2001:DB8::1 ::1 1 2", Some("[2001:db8::1]:1"));
    good("PROXY TCP6 ::ffff:c000:201 ::1 1 2", Some("192.0.2.1:1"));
    good("PROXY UNKNOWN", None);
    good("PROXY UNKNOWN what ever it is", None);
    let longest = format!("PROXY UNKNOWN {}", "x".repeat(105 - 14));
    good(&longest, None);

    for line in [
        "PROXY ",
        "PROXY TCP4",
        "PROXY TCP5 192.0.2.1 198.51.100.1 1 2",
        "PROXY tcp4 192.0.2.1 198.51.100.1 1 2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1 2 3",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1 2 ",
        "PROXY TCP4  192.0.2.1 198.51.100.1 1 2",
        "PROXY TCP4\t192.0.2.1 198.51.100.1 1 2",
        "PROXY TCP4 192.0.2.256 198.51.100.1 1 2",
        "PROXY TCP4 192.0.2.01 198.51.100.1 1 2",
        "PROXY TCP4 192.0.2 198.51.100.1 1 2",
        "PROXY TCP4 ::1 ::1 1 2",
        "PROXY TCP6 192.0.2.1 198.51.100.1 1 2",
        "PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2",
        "PROXY TCP6 fe80::1%eth0 ::1 1 2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 65536 2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 01 2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 +1 2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1 -2",
        "PROXY TCP4 192.0.2.1 198.51.100.1 1 ",
        "PROXY UNKNOWNS",
        "PROXY TCP4 \u{e9} 198.51.100.1 1 2",
    ] {
        assert_eq!(client(format!("{line}\r\n").as_bytes()), Err(Error::Line), "{line}");
    }
    assert_eq!(client(b"PROXY UNKNOWN\n"), Err(Error::Line));
    assert_eq!(client(format!("{longest}x\r\n").as_bytes()), Err(Error::Line));
    assert_eq!(client(&[b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 93]].concat()), Err(Error::Line));
    for other in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0", b"PROXX", b"\x16\x03\x01", b"proxy "] {
        assert_eq!(client(other), Err(Error::Signature));
    }
    assert_eq!(client(b""), Ok(None));
}

/// A header of version 2 with this second byte, family and body.
fn version_2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &length, body].concat()
}

const V4: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 1, 0x13, 0x88, 0, 80];

#[test]
fn headers_of_version_2_name_the_client_or_none() {
    let of = |command, family, body: &[u8]| {
        let header = version_2(command, family, body);
        let found = client(&[&header[..], b"GET"].concat()).map(|found| {
            found.map(|(client, length)| {
                assert_eq!(length, header.len());
                client
            })
        });
        found.map(Option::flatten)
    };
    let address = Some("192.0.2.1:5000".to_owned());
    assert_eq!(of(0x21, 0x11, &V4), Ok(address.clone()));
    // Unknown TLVs, and empty ones.
    assert_eq!(of(0x21, 0x11, &[&V4[..], b"\xea\0\x03abc\x04\0\0"].concat()), Ok(address));
    let v6: Vec<u8> = [&[0x20; 16][..], &[0x21; 16], &[0, 1, 0, 2]].concat();
    assert_eq!(of(0x21, 0x21, &v6), Ok(Some("[2020:2020:2020:2020:2020:2020:2020:2020]:1".to_owned())));
    assert_eq!(of(0x21, 0x00, b"junk"), Ok(None));
    assert_eq!(of(0x20, 0x11, b""), Ok(None));
    assert_eq!(of(0x20, 0xff, &[7; 300]), Ok(None));
    assert_eq!(of(0x21, 0x31, &[0; 216]), Ok(None));
    assert_eq!(of(0x21, 0x12, &V4), Ok(None));
    for (command, family, body, error) in [
        (0x11, 0x11, &V4[..], Error::Version),
        (0x22, 0x11, &V4, Error::Version),
        (0x21, 0x10, &V4, Error::Family),
        (0x21, 0x13, &V4, Error::Family),
        (0x21, 0x41, &V4, Error::Family),
        (0x21, 0x01, &V4, Error::Family),
        (0x21, 0x11, &V4[..11], Error::Lengths),
        (0x21, 0x21, &V4, Error::Lengths),
        (0x21, 0x31, &V4, Error::Lengths),
        (0x21, 0x11, &[&V4[..], b"\x04"].concat(), Error::Lengths),
        (0x21, 0x11, &[&V4[..], b"\x04\0\x02a"].concat(), Error::Lengths),
        (0x21, 0x11, &[0; MAXIMUM], Error::TooLong),
    ] {
        assert_eq!(of(command, family, body), Err(error), "{command:x} {family:x}");
    }
}

#[test]
fn a_checksum_of_version_2_is_verified() {
    // CRC32c, as its definition has it, of the header with zeros in its place.
    let sum = |bytes: &[u8]| {
        !bytes.iter().fold(u32::MAX, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ (0x82f6_3b78 * (crc & 1)))
        })
    };
    assert_eq!(sum(b"123456789"), 0xe306_9283);
    let mut header = version_2(0x21, 0x11, &[&V4[..], b"\x03\0\x04\0\0\0\0\x04\0\x01x"].concat());
    let right = sum(&header);
    let at = header.len() - 8;
    header[at..at + 4].copy_from_slice(&right.to_be_bytes());
    assert!(matches!(client(&header), Ok(Some((Some(_), _)))));
    header[at] ^= 1;
    assert_eq!(client(&header), Err(Error::Checksum));
    let short = version_2(0x21, 0x11, &[&V4[..], b"\x03\0\x03abc"].concat());
    assert_eq!(client(&short), Err(Error::Lengths));
}
