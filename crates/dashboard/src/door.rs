//! Who may ask. A browser carries requests of any page that its user has open; none of them is to get an answer.
//!
//! A foreign page whose name was made to lead to our address (DNS rebinding) is recognised by its Host; one that asks across
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
                    "`{}` is not a name of this dashboard: use localhost, or name it by DASHBOARD_HOSTS or --dashboard-host",
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
            // The user followed a link to the page. The user sees it; the page that had the link does not.
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
    let bad = || refuse(StatusCode::BAD_REQUEST, format!("the header {name} is invalid"));
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
mod tests;
