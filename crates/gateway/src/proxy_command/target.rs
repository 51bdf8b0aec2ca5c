//! URLs of origins, as a command line names them.

use std::net::IpAddr;
use std::str::FromStr;

use source::files::is_dns_name;

/// `http://127.0.0.1:9001`, `https://shop.example.com`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(super) is_tls: bool,
    pub(super) host: Host,
    pub(super) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    Address(IpAddr),
    Name(String),
}

/// `shop.example.com/images=http://127.0.0.1:9002`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteTo {
    /// None: all hosts.
    pub(super) host: Option<String>,
    pub(super) path: String,
    pub(super) to: Target,
}

/// A host of certificates and routes; `*.` may stand before it.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let is_host = is_dns_name(text.strip_prefix("*.").unwrap_or(text)) && text.parse::<IpAddr>().is_err();
    if is_host { Ok(text.to_owned()) } else { Err(format!("`{text}` is no DNS name in lower case")) }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (is_tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err("a URL is needed, as http://127.0.0.1:9001".to_owned()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err("the URL has a path: paths are those of requests; leave it out".to_owned());
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                let port = port.parse().ok().filter(|port: &u16| *port > 0);
                (host, port.ok_or("the port must be a number from 1 to 65535")?)
            }
            _ => (authority, if is_tls { 443 } else { 80 }),
        };
        let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let host = match plain.parse() {
            Ok(address) => Host::Address(address),
            // What every machine means by it; names that lead to loopback are refused otherwise.
            Err(_) if plain == "localhost" => Host::Address(IpAddr::from([127, 0, 0, 1])),
            Err(_) if is_dns_name(plain) => Host::Name(plain.to_owned()),
            Err(_) => return Err(format!("`{plain}` is neither an IP address nor a DNS name in lower case")),
        };
        if is_tls && matches!(host, Host::Address(_)) {
            return Err("https needs a name that the origin's certificate is for, not an address".to_owned());
        }
        Ok(Self { is_tls, host, port })
    }
}

impl FromStr for RouteTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "[HOST]/PATH=URL is needed, as shop.example.com/=http://127.0.0.1:9001".to_owned();
        let (from, to) = text.split_once('=').ok_or_else(wrong)?;
        let at = from.find('/').ok_or_else(wrong)?;
        let (host, path) = from.split_at(at);
        let host = Some(host).filter(|host| !host.is_empty() && *host != "*").map(self::host).transpose()?;
        // What an HTTPRoute allows, without what YAML would read otherwise.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;:@".contains(&byte);
        if path.contains("//") || !path.bytes().all(is_plain) {
            return Err(format!("`{path}` is no path"));
        }
        Ok(Self { host, path: path.to_owned(), to: to.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<Target, String> {
        text.parse()
    }

    #[test]
    fn urls_are_read() {
        let address = |text: &str| Host::Address(text.parse().unwrap());
        assert_eq!(
            target("http://127.0.0.1:9001"),
            Ok(Target { is_tls: false, host: address("127.0.0.1"), port: 9001 })
        );
        assert_eq!(target("http://[::1]:81/"), Ok(Target { is_tls: false, host: address("::1"), port: 81 }));
        assert_eq!(target("http://[::1]"), Ok(Target { is_tls: false, host: address("::1"), port: 80 }));
        assert_eq!(
            target("http://localhost:1"),
            Ok(Target { is_tls: false, host: address("127.0.0.1"), port: 1 })
        );
        let name = Host::Name("shop.example.com".to_owned());
        assert_eq!(target("https://shop.example.com"), Ok(Target { is_tls: true, host: name, port: 443 }));
        for (wrong, why) in [
            ("127.0.0.1:80", "a URL is needed"),
            ("ftp://a", "a URL is needed"),
            ("http://a/b", "has a path"),
            ("http://a:0", "port"),
            ("http://a:x", "port"),
            ("http://user@a", "neither"),
            ("http://", "neither"),
            ("http://Shop", "lower case"),
            ("https://127.0.0.1", "https needs a name"),
        ] {
            assert!(target(wrong).is_err_and(|said| said.contains(why)), "{wrong}: {:?}", target(wrong));
        }
    }

    #[test]
    fn routes_are_read() {
        let route = |text: &str| text.parse::<RouteTo>();
        let to = target("http://127.0.0.1:9001").unwrap();
        let of = |host: Option<&str>, path: &str| {
            Ok(RouteTo { host: host.map(str::to_owned), path: path.to_owned(), to: to.clone() })
        };
        assert_eq!(route("shop.test/a=http://127.0.0.1:9001"), of(Some("shop.test"), "/a"));
        assert_eq!(route("/=http://127.0.0.1:9001"), of(None, "/"));
        assert_eq!(route("*/x=http://127.0.0.1:9001"), of(None, "/x"));
        assert_eq!(route("*.shop.test/=http://127.0.0.1:9001"), of(Some("*.shop.test"), "/"));
        for wrong in [
            "shop.test",
            "shop.test=http://a",
            "a b/=http://a",
            "/\"=http://a",
            "1.2.3.4/=http://a",
            "//=http://a",
        ] {
            assert!(route(wrong).is_err(), "{wrong}");
        }
    }
}
