//! Whose X-Forwarded-* headers are believed.

use std::net::IpAddr;

/// Networks of proxies in front of the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Box<[Network]>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u8,
}

/// An entry that is neither an address nor a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an IP address nor a network such as 10.0.0.0/8")]
pub struct NotANetwork(pub String);

impl TrustedProxies {
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, NotANetwork> {
        entries.iter().map(|e| Network::parse(e.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.0.iter().any(|network| network.contains(client))
    }
}

impl Network {
    fn parse(text: &str) -> Result<Self, NotANetwork> {
        let parsed = || {
            let (address, prefix) = match text.split_once('/') {
                Some((address, prefix)) => (address, Some(prefix.parse::<u8>().ok()?)),
                None => (text, None),
            };
            let address: IpAddr = address.parse().ok()?;
            let longest = if address.is_ipv4() { 32 } else { 128 };
            let prefix = prefix.unwrap_or(longest);
            (prefix <= longest).then_some(Self { address, prefix })
        };
        parsed().ok_or_else(|| NotANetwork(text.to_owned()))
    }

    fn contains(&self, client: IpAddr) -> bool {
        let same = |a: u128, b: u128, longest: u8| {
            (a ^ b).checked_shr(u32::from(longest - self.prefix)).is_none_or(|differing| differing == 0)
        };
        match (self.address, client) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_their_addresses() {
        let trusted = TrustedProxies::parse(&["10.0.0.0/8", "fd00::/8", "192.0.2.7", "::/0"]).unwrap();
        for (address, held) in
            [("10.1.2.3", true), ("11.0.0.1", false), ("192.0.2.7", true), ("192.0.2.8", false)]
        {
            assert_eq!(trusted.contains(address.parse().unwrap()), held, "{address}");
        }
        assert!(trusted.contains("fd12::1".parse().unwrap()));
        assert!(trusted.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(TrustedProxies::parse(&["10.0.0.0/33"]).is_err());
        assert!(TrustedProxies::parse(&["proxy.local"]).is_err());
    }
}
