//! Who may ask. A browser carries requests of any page that its user has open; none of them is to get an answer.
//!
//! A page of a stranger whose name was made to lead to our address (DNS rebinding) is told by its Host; one that asks across
//! origins by Origin and Sec-Fetch-Site, which scripts cannot forge.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::{Method, StatusCode, Uri};

/// A header that only our own page and programs send: no form and no simple request of another page has it.
pub(crate) const ACTION_HEADER: &str = "x-varnish-gateway";

/// Names under which we may be asked.
#[derive(Debug, Clone, Default)]
pub struct Door {
    /// Beside loopback: host names, in lower case.
    pub names: Vec<String>,
    /// We listen beyond loopback: addresses of the machine count, too. Names cannot be rebound to what is no name.
    pub any_address: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) why: String,
}

fn refuse(status: StatusCode, why: impl Into<String>) -> Refusal {
    Refusal { status, why: why.into() }
}

impl Door {
    pub(crate) fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = one(headers, HOST.as_str())?
            .ok_or_else(|| refuse(StatusCode::BAD_REQUEST, "the request has no Host"))?;
        if !self.knows(host) {
            return Err(refuse(
                StatusCode::FORBIDDEN,
                format!(
                    "`{}` is no name of this dashboard: use localhost, or name it by DASHBOARD_HOSTS or --dashboard-host",
                    host.escape_default()
                ),
            ));
        }
        if uri.host().is_some() {
            return Err(refuse(StatusCode::BAD_REQUEST, "this is no proxy"));
        }
        let forbidden = |why: &str| Err(refuse(StatusCode::FORBIDDEN, why));
        if let Some(origin) = one(headers, ORIGIN.as_str())? {
            let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            if !own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
                return forbidden("pages of other origins are not answered");
            }
        }
        match one(headers, "sec-fetch-site")? {
            None | Some("same-origin" | "none") => {}
            // Somebody followed a link to the page. He sees it; the page that had the link does not.
            Some(_) if is_navigation(method, uri, headers)? => {}
            Some(_) => return forbidden("requests from other sites are not answered"),
        }
        if *method == Method::POST && !headers.contains_key(ACTION_HEADER) {
            return forbidden("a POST needs the header X-Varnish-Gateway");
        }
        Ok(())
    }

    /// `localhost:9000`, `127.0.0.1`, `[::1]:9000`, and what was configured; with any port, since `kubectl port-forward`
    /// may have another.
    fn knows(&self, host: &str) -> bool {
        let (name, port) = match host.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((name, port)) => (name, port),
                None => return false,
            },
            None => host.split_at(host.find(':').unwrap_or(host.len())),
        };
        let port_is_one = match port.strip_prefix(':') {
            Some(digits) => digits.parse::<u16>().is_ok(),
            None => port.is_empty(),
        };
        if !port_is_one {
            return false;
        }
        if let Ok(address) = name.parse::<IpAddr>() {
            return address.is_loopback() || self.any_address;
        }
        let name = name.to_ascii_lowercase();
        name == "localhost" || self.names.contains(&name)
    }
}

/// The only value of a header. Two would let two readers see different ones.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Refusal> {
    let bad = || refuse(StatusCode::BAD_REQUEST, format!("the header {name} makes no sense"));
    let mut values = headers.get_all(name).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        _ => Err(bad()),
    }
}

fn is_navigation(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<bool, Refusal> {
    let is = |name: &str, wanted: &str| one(headers, name).map(|value| value == Some(wanted));
    Ok(*method == Method::GET
        && uri.path() == "/"
        && is("sec-fetch-mode", "navigate")?
        && is("sec-fetch-dest", "document")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(door: &Door, method: &Method, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        match door.check(method, &path.parse().unwrap(), &map) {
            Ok(()) => 200,
            Err(refusal) => refusal.status.as_u16(),
        }
    }

    fn get(headers: &[(&'static str, &str)]) -> u16 {
        ask(&Door::default(), &Method::GET, "/api/state", headers)
    }

    #[test]
    fn names_of_loopback_are_known_and_no_others() {
        for host in ["localhost", "LocalHost:9000", "127.0.0.1:1", "127.1.2.3", "[::1]", "[::1]:9000"] {
            assert_eq!(get(&[("host", host)]), 200, "{host}");
        }
        let strangers = [
            "evil.example",
            "evil.example:9000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::1",
            "localhost:x",
            "localhost:9000:9000",
            "[::1]x",
            "",
            "user@localhost",
            "localhost.",
        ];
        for host in strangers {
            assert_eq!(get(&[("host", host)]), 403, "{host}");
        }
        assert_eq!(get(&[]), 400);
        assert_eq!(get(&[("host", "localhost"), ("host", "evil.example")]), 400);
    }

    #[test]
    fn configured_names_count_too_and_addresses_where_we_listen_on_them() {
        let door = Door { names: vec!["board.example.com".to_owned()], any_address: true };
        let host = |host| ask(&door, &Method::GET, "/", &[("host", host)]);
        assert_eq!(
            [host("Board.example.com"), host("10.0.0.1:9000"), host("x.example.com")],
            [200, 200, 403]
        );
    }

    #[test]
    fn other_origins_are_refused() {
        let local = ("host", "localhost:9000");
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost:9001",
            "http://localhost",
            "file://",
            "localhost:9000",
        ] {
            assert_eq!(get(&[local, ("origin", origin)]), 403, "{origin}");
        }
        assert_eq!(get(&[local, ("origin", "http://localhost:9000")]), 200);
        for (site, code) in
            [("cross-site", 403), ("same-site", 403), ("odd", 403), ("same-origin", 200), ("none", 200)]
        {
            assert_eq!(get(&[local, ("sec-fetch-site", site)]), code, "{site}");
        }
    }

    #[test]
    fn a_link_leads_to_the_page_and_to_nothing_else() {
        let link = [
            ("host", "localhost:9000"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let door = Door::default();
        assert_eq!(ask(&door, &Method::GET, "/", &link), 200);
        assert_eq!(ask(&door, &Method::GET, "/api/state", &link), 403);
        let mut frame = link;
        frame[3].1 = "iframe";
        assert_eq!(ask(&door, &Method::GET, "/", &frame), 403);
    }

    #[test]
    fn a_post_needs_a_header_that_no_form_has() {
        let door = Door::default();
        let local = ("host", "localhost");
        assert_eq!(ask(&door, &Method::POST, "/api/purge", &[local]), 403);
        assert_eq!(ask(&door, &Method::POST, "/api/purge", &[local, ("x-varnish-gateway", "1")]), 200);
    }
}
