//! What is said to the front before the first request of a connection: PROXY v2, with the endpoint as destination and the
//! profile as authority.

use std::net::SocketAddr;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, on behalf of somebody.
const PROXY: u8 = 0x21;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
const AUTHORITY: u8 = 2;
/// Profiles have names of a few dozen bytes.
const LONGEST: usize = 1024;

pub(crate) fn new(endpoint: SocketAddr, profile: &str) -> Vec<u8> {
    let profile = &profile.as_bytes()[..profile.len().min(LONGEST)];
    let (family, mut body) = match endpoint {
        // Nobody asks for the source: twice the endpoint.
        SocketAddr::V4(a) => (TCP4, [a.ip().octets(), a.ip().octets()].concat()),
        SocketAddr::V6(a) => (TCP6, [a.ip().octets(), a.ip().octets()].concat()),
    };
    let port = endpoint.port().to_be_bytes();
    body.extend_from_slice(&[port, port].concat());
    body.push(AUTHORITY);
    body.extend_from_slice(&(profile.len() as u16).to_be_bytes());
    body.extend_from_slice(profile);
    let mut all = SIGNATURE.to_vec();
    all.extend_from_slice(&[PROXY, family]);
    all.extend_from_slice(&(body.len() as u16).to_be_bytes());
    all.extend_from_slice(&body);
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
    }
}
