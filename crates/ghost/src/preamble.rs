//! What is said to the front before the first request of a connection: PROXY v2. Either with an endpoint as destination and a profile as
//! authority: all bytes are for this endpoint. Or without addresses, and with rule and group as authority: requests follow.

use std::net::SocketAddr;

use model::proxy_protocol::{AUTHORITY, encode};

/// Profiles have names of a few dozen bytes, rules and Services of a few hundred.
const LONGEST: usize = 2048;

pub(crate) fn new(endpoint: SocketAddr, profile: &str) -> Vec<u8> {
    // The front does not read the source: the endpoint stands there, too.
    encode(Some((endpoint, endpoint)), [(AUTHORITY, bounded(profile))])
}

/// For requests to this group.
pub(crate) fn for_misses(of: &str) -> Vec<u8> {
    encode(None, [(AUTHORITY, bounded(of))])
}

fn bounded(authority: &str) -> &[u8] {
    &authority.as_bytes()[..authority.len().min(LONGEST)]
}

#[cfg(test)]
mod tests {
    use model::proxy_protocol::SIGNATURE;

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
        assert_eq!(six[13], 0x21);
        let misses = for_misses("r\n0\ng");
        assert_eq!(misses[12..], [0x20, 0, 0, 8, 2, 0, 5, b'r', b'\n', b'0', b'\n', b'g']);
    }
}
