//! Headers of PROXY v2 as they are written: by ghost for the front, and by the front for varnishd and for endpoints.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The part of a header that says how long the rest is.
pub const FIXED: usize = 16;
/// The type of the value with the name that a client asked for. Between ghost and the front it names a profile or a group.
pub const AUTHORITY: u8 = 0x02;

/// The bytes of one header. `addresses`: source and destination; none for a connection that a proxy makes for itself. `values`: types
/// with their values. A value that does not fit into the header (64 KiB) is left out.
pub fn encode<'v>(
    addresses: Option<(SocketAddr, SocketAddr)>,
    values: impl IntoIterator<Item = (u8, &'v [u8])>,
) -> Vec<u8> {
    let mut body = Vec::with_capacity(128);
    let mut kind = [0x20, 0x00];
    if let Some((source, destination)) = addresses {
        kind = match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                body.extend_from_slice(&from.octets());
                body.extend_from_slice(&to.octets());
                [0x21, 0x11]
            }
            (from, to) => {
                body.extend_from_slice(&v6(from).octets());
                body.extend_from_slice(&v6(to).octets());
                [0x21, 0x21]
            }
        };
        body.extend_from_slice(&source.port().to_be_bytes());
        body.extend_from_slice(&destination.port().to_be_bytes());
    }
    for (kind, value) in values {
        put(&mut body, kind, value);
    }
    let mut header = Vec::with_capacity(FIXED + body.len());
    header.extend_from_slice(&SIGNATURE);
    header.extend_from_slice(&kind);
    header.extend_from_slice(&u16::try_from(body.len()).unwrap_or(0).to_be_bytes());
    header.extend_from_slice(&body);
    header
}

/// Adds one value with its type and length, unless it does not fit.
pub fn put(body: &mut Vec<u8>, kind: u8, value: &[u8]) {
    let Ok(length) = u16::try_from(value.len()) else { return };
    // The whole body has a length of 16 bits too.
    if body.len() + 3 + value.len() > usize::from(u16::MAX) {
        return;
    }
    body.push(kind);
    body.extend_from_slice(&length.to_be_bytes());
    body.extend_from_slice(value);
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}
