//! Whose X-Forwarded-* headers are believed.

use std::net::IpAddr;

use ipnet::IpNet;

/// Networks of proxies in front of the gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Box<[IpNet]>);

/// An entry that is neither an address nor a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an IP address nor a network such as 10.0.0.0/8")]
pub struct NotANetwork(pub String);

impl TrustedProxies {
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, NotANetwork> {
        entries.iter().map(|e| parse_network(e.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.0.iter().any(|network| network.contains(&client))
    }
}

fn parse_network(text: &str) -> Result<IpNet, NotANetwork> {
    let address = |_| text.parse::<IpAddr>().map(IpNet::from);
    text.parse::<IpNet>().or_else(address).map_err(|_| NotANetwork(text.to_owned()))
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
