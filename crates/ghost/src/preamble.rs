//! What is said to the front before the first request of a connection: PROXY v2. Either with an endpoint as destination and a profile as
//! authority: all bytes are for this endpoint. Or without addresses, and with rule and group as authority: requests follow.

use std::net::SocketAddr;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, on behalf of somebody.
const PROXY: u8 = 0x21;
/// Version 2, without addresses.
const LOCAL: u8 = 0x20;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
const AUTHORITY: u8 = 2;
/// Profiles have names of a few dozen bytes, rules and Services of a few hundred.
const LONGEST: usize = 2048;

pub(crate) fn new(endpoint: SocketAddr, profile: &str) -> Vec<u8> {
    let profile = &profile.as_bytes()[..profile.len().min(LONGEST)];
    let (family, mut body) = match endpoint {
        // Nobody asks for the source: twice the endpoint.
        SocketAddr::V4(a) => (TCP4, [a.ip().octets(), a.ip().octets()].concat()),
        SocketAddr::V6(a) => (TCP6, [a.ip().octets(), a.ip().octets()].concat()),
    };
    let port = endpoint.port().to_be_bytes();
    body.extend_from_slice(&[port, port].concat());
    add_authority(&mut body, profile);
    whole([PROXY, family], &body)
}

/// For requests to this group.
pub(crate) fn for_misses(of: &str) -> Vec<u8> {
    let mut body = Vec::new();
    add_authority(&mut body, &of.as_bytes()[..of.len().min(LONGEST)]);
    whole([LOCAL, 0], &body)
}

fn add_authority(body: &mut Vec<u8>, authority: &[u8]) {
    body.push(AUTHORITY);
    body.extend_from_slice(&(authority.len() as u16).to_be_bytes());
    body.extend_from_slice(authority);
}

fn whole(kind: [u8; 2], body: &[u8]) -> Vec<u8> {
    let mut all = SIGNATURE.to_vec();
    all.extend_from_slice(&kind);
    all.extend_from_slice(&(body.len() as u16).to_be_bytes());
    all.extend_from_slice(body);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_endpoint_and_profile() {
        let made = new(([192, 0, 2, 1], 8443).into(), "p");
        let mut expected = SIGNATURE.to_vec();
        expected
            .extend([0x21, 0x11, 0, 16, 192, 0, 2, 1, 192, 0, 2, 1, 0x20, 0xfb, 0x20, 0xfb, 2, 0, 1, b'p']);
        assert_eq!(made, expected);
        let six = new("[2001:db8::1]:443".parse().unwrap(), "profile");
        assert_eq!(six.len(), 16 + 36 + 3 + 7);
        assert_eq!(six[13], TCP6);
        let misses = for_misses("r\n0\ng");
        assert_eq!(misses[12..], [0x20, 0, 0, 8, 2, 0, 5, b'r', b'\n', b'0', b'\n', b'g']);
    }
}
