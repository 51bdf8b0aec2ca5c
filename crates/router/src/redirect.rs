//! RequestRedirect: where the client is sent instead.

use model::filters::RequestRedirect;
use model::names::socket_parts;

use crate::host::without_port;
use crate::rewrite::{PathChange, Url};
use crate::rule::Rule;

impl Rule {
    /// Status and Location, where the rule redirects. `socket` is the one that the request came in by, `host` its
    /// Host header.
    pub fn redirect(&self, socket: &str, host: &[u8], url: &[u8]) -> Option<(u16, Url)> {
        let redirect = self.redirect.as_ref()?;
        Some((redirect.status, redirect.location(socket, host, url)))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Redirect {
    status: u16,
    scheme: Option<Box<str>>,
    hostname: Option<Box<str>>,
    port: Option<u16>,
    path: PathChange,
}

impl Redirect {
    pub(crate) fn new(from: &RequestRedirect, prefix: Option<&str>) -> Self {
        let (full, replacement) = (from.replace_full_path.as_deref(), from.replace_prefix_match.as_deref());
        Self {
            status: from.status_code,
            scheme: from.scheme.as_deref().map(|s| s.to_ascii_lowercase().into()),
            hostname: from.hostname.as_deref().map(Into::into),
            port: from.port,
            path: PathChange::new(from.path_type, full, replacement, prefix),
        }
    }

    /// The port is the filter's own, else the well-known one of the filter's scheme, else the listener's; it is
    /// left out where the scheme implies it.
    fn location(&self, socket: &str, host: &[u8], url: &[u8]) -> Url {
        let (protocol, listener_port) = socket_parts(socket).unzip();
        let scheme = self.scheme.as_deref().or(protocol).unwrap_or("http");
        let port = match (self.port, self.scheme.as_deref()) {
            (Some(port), _) => Some(port),
            (None, Some(scheme)) => well_known(scheme),
            (None, None) => listener_port,
        };
        let mut to = Url::new();
        to.extend_from_slice(scheme.as_bytes());
        to.extend_from_slice(b"://");
        to.extend_from_slice(self.hostname.as_deref().map_or(without_port(host), str::as_bytes));
        if let Some(port) = port.filter(|port| well_known(scheme) != Some(*port)) {
            to.push(b':');
            to.extend_from_slice(port.to_string().as_bytes());
        }
        self.path.append(url, &mut to);
        to
    }
}

fn well_known(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use model::filters::PathType;

    use super::*;

    fn location(redirect: &RequestRedirect, socket: &str, host: &str, url: &str) -> String {
        let to = Redirect::new(redirect, Some("/old")).location(socket, host.as_bytes(), url.as_bytes());
        String::from_utf8(to.to_vec()).unwrap()
    }

    #[test]
    fn ports_follow_filter_then_scheme_then_listener() {
        let plain = RequestRedirect::default;
        let https = || RequestRedirect { scheme: Some("https".into()), ..plain() };
        let port = |port, from: RequestRedirect| RequestRedirect { port: Some(port), ..from };
        for (redirect, socket, expected) in [
            (plain(), "http-80", "http://a.com/x"),
            (plain(), "http-8080", "http://a.com:8080/x"),
            (https(), "http-8080", "https://a.com/x"),
            (port(8443, https()), "http-80", "https://a.com:8443/x"),
            (port(443, https()), "http-80", "https://a.com/x"),
            (port(80, plain()), "http-8080", "http://a.com/x"),
            (port(443, plain()), "http-80", "http://a.com:443/x"),
            (plain(), "https-443", "https://a.com/x"),
        ] {
            assert_eq!(location(&redirect, socket, "a.com:9999", "/x"), expected, "{socket}");
        }
    }

    #[test]
    fn host_and_path_change_and_the_query_stays() {
        let redirect = RequestRedirect {
            hostname: Some("b.com".into()),
            path_type: Some(PathType::ReplacePrefixMatch),
            replace_prefix_match: Some("/new".into()),
            ..RequestRedirect::default()
        };
        assert_eq!(location(&redirect, "http-80", "a.com", "/old/x?q=1"), "http://b.com/new/x?q=1");
    }
}
