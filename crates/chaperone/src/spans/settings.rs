//! Where spans go, as OpenTelemetry's variables say it. What they hold may be secret, and is in no message.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};

use crate::Error;

const USUAL_TIMEOUT: Duration = Duration::from_secs(10);
const SERVICE_NAME: &str = "service.name";

/// A collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) path: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.authority())
    }
}

impl Endpoint {
    /// `http://collector:4318`, to which `/v1/traces` is added.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let base = Self::exactly(text)?;
        Ok(Self { path: format!("{}/v1/traces", base.path.trim_end_matches('/')), ..base })
    }

    /// With its path, and nothing added.
    fn exactly(text: &str) -> Result<Self, Error> {
        // Neither a password nor a token is repeated.
        let shown = text.split(['?', '#']).next().unwrap_or_default();
        let shown = match (shown.split_once("://"), shown.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
            (None, Some((_, rest))) => format!("…@{rest}"),
            _ => shown.to_owned(),
        };
        let bad = |why: &str| Error::Endpoint { endpoint: shown.clone(), why: why.to_owned() };
        let uri: Uri =
            text.trim().parse().map_err(|_| bad("it is not a URL: write http://collector:4318"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(bad("it must begin with http:// or https://")),
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(bad(
                "a password in it is not sent: write the header into OTEL_EXPORTER_OTLP_HEADERS, and http:// without it",
            ));
        }
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("http:// names no host"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Self { tls, host, port: uri.port_u16().unwrap_or(if tls { 443 } else { 4318 }), path })
    }

    /// `collector:4318`, `[::1]:4318`
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// How spans are exported.
#[derive(Clone, PartialEq, Eq)]
pub struct Exporter {
    pub(super) endpoint: Endpoint,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// CAs to trust instead of the system's.
    pub(super) certificate: Option<PathBuf>,
    pub(super) timeout: Duration,
    attributes: Vec<(String, String)>,
}

/// Without headers.
impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Exporter {
    /// By the variables that `get` knows; `given` goes before the endpoint that they name, and before their protocol.
    /// `None` where there is no endpoint, or where they switch it off. Reads no file.
    pub fn read(
        given: Option<Endpoint>,
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, Error> {
        let get =
            |name: &str| get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        // Each has a form for traces alone, which goes before the one for everything.
        let of_traces = |traces: &'static str, all: &'static str| {
            get(traces).map(|value| (traces, value)).or_else(|| get(all).map(|value| (all, value)))
        };
        let endpoint = match given {
            Some(given) => given,
            None => {
                if get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
                    || get("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none")
                {
                    return Ok(None);
                }
                let (traces, all) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
                let Some((variable, text)) = of_traces(traces, all) else { return Ok(None) };
                let parsed = if variable == all { Endpoint::parse(&text) } else { Endpoint::exactly(&text) };
                let endpoint = parsed.map_err(|e| Error::Exporter { variable, why: e.to_string() })?;
                protocol(of_traces("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"))?;
                endpoint
            }
        };
        let headers = of_traces("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
        let certificate =
            of_traces("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE");
        let timeout = of_traces("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT");
        let variable = "OTEL_RESOURCE_ATTRIBUTES";
        let mut attributes = match get(variable) {
            Some(text) => pairs(variable, &text)?,
            None => Vec::new(),
        };
        if let Some(name) = get("OTEL_SERVICE_NAME") {
            attributes.retain(|(key, _)| key != SERVICE_NAME);
            attributes.push((SERVICE_NAME.to_owned(), name));
        }
        Ok(Some(Self {
            endpoint,
            headers: headers.map_or(Ok(Vec::new()), |(variable, text)| self::headers(variable, &text))?,
            certificate: certificate.map(|(_, file)| PathBuf::from(file)),
            timeout: timeout.map_or(Ok(USUAL_TIMEOUT), |(variable, text)| milliseconds(variable, &text))?,
            attributes,
        }))
    }

    /// Who we are. What the user says goes before what we would say.
    pub(super) fn resource(&self, gateway: &str) -> Vec<(String, String)> {
        let ours = [
            (SERVICE_NAME, "varnish-gateway"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("varnish_gateway.gateway", gateway),
        ];
        let mut all = self.attributes.clone();
        for (key, value) in ours {
            if !all.iter().any(|(known, _)| known == key) {
                all.push((key.to_owned(), value.to_owned()));
            }
        }
        all
    }
}

fn protocol(given: Option<(&'static str, String)>) -> Result<(), Error> {
    let Some((variable, value)) = given else { return Ok(()) };
    let why = match value.as_str() {
        // Collectors accept both on one port, and distinguish them by Content-Type.
        "http/json" | "http/protobuf" => return Ok(()),
        "grpc" => {
            "`grpc` is not supported: spans go out as JSON over HTTP; write http/json, and name the collector's port for HTTP \
             (4318) in the endpoint"
        }
        _ => "it must be http/json",
    };
    Err(Error::Exporter { variable, why: why.to_owned() })
}

/// `key=value,key=value`, with values as in URLs.
fn pairs(variable: &'static str, text: &str) -> Result<Vec<(String, String)>, Error> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty()).enumerate();
    let one = |(place, part): (usize, &str)| {
        let pair = part.split_once('=').filter(|(key, _)| !key.trim().is_empty());
        let (key, value) = pair.ok_or_else(|| Error::Exporter {
            variable,
            why: format!("part {} is not key=value", place + 1),
        })?;
        Ok((decoded(key.trim()), decoded(value.trim())))
    };
    parts.map(one).collect()
}

fn headers(variable: &'static str, text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, Error> {
    let one = |(key, value): (String, String)| {
        let bad = |what: &str| Error::Exporter {
            variable,
            why: format!("the {what} of `{}` cannot be sent", key.escape_default()),
        };
        let name: HeaderName = key.parse().map_err(|_| bad("name"))?;
        let mut value: HeaderValue = value.parse().map_err(|_| bad("value"))?;
        value.set_sensitive(true);
        Ok((name, value))
    };
    pairs(variable, text)?.into_iter().map(one).collect()
}

fn milliseconds(variable: &'static str, text: &str) -> Result<Duration, Error> {
    let given = text.parse().ok().filter(|given| (1..=600_000).contains(given)).map(Duration::from_millis);
    given.ok_or_else(|| Error::Exporter {
        variable,
        why: "it must be a number of milliseconds from 1 to 600000".to_owned(),
    })
}

/// `%20` is a blank; other text stays as it is.
fn decoded(text: &str) -> String {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let escaped = (*byte == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        let digits = escaped.filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tls: bool, host: &str, port: u16, path: &str) -> Endpoint {
        Endpoint { tls, host: host.to_owned(), port, path: path.to_owned() }
    }

    fn read(variables: &[(&str, &str)]) -> Result<Option<Exporter>, Error> {
        Exporter::read(None, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn endpoints_are_http_or_https() {
        assert_eq!(Endpoint::parse("http://otel:4318").unwrap(), at(false, "otel", 4318, "/v1/traces"));
        assert_eq!(Endpoint::parse("http://[::1]:80/x/").unwrap(), at(false, "::1", 80, "/x/v1/traces"));
        assert_eq!(
            Endpoint::parse("https://otlp.example").unwrap(),
            at(true, "otlp.example", 443, "/v1/traces")
        );
        for bad in ["otel:4318", "", "grpc://otel", "http://", "https://me:hidden@otel", "me:hidden@otel"] {
            let why = Endpoint::parse(bad).unwrap_err().to_string();
            assert!(why.contains("http") && !why.contains("hidden"), "{why}");
        }
    }

    #[test]
    fn the_usual_variables_are_heard() {
        let all = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces.example/in?x=1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t,x-a = b=c "),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,deployment.environment=stage%2C1"),
            ("OTEL_SERVICE_NAME", "edge"),
        ]);
        let all = all.unwrap().unwrap();
        assert_eq!(all.endpoint, at(true, "traces.example", 443, "/in?x=1"));
        assert_eq!(all.headers[0].1, "Bearer t");
        assert_eq!((all.headers[1].0.as_str(), &all.headers[1].1), ("x-a", &HeaderValue::from_static("b=c")));
        assert_eq!(
            (all.timeout, all.certificate.clone()),
            (Duration::from_millis(2500), Some("/ca.pem".into()))
        );
        assert!(!format!("{all:?}").contains("Bearer"));
        let resource = all.resource("shop/web");
        let of =
            |name: &str| resource.iter().filter(|(key, _)| key == name).map(|(_, v)| v.as_str()).collect();
        let (service, environment): (Vec<_>, Vec<_>) = (of("service.name"), of("deployment.environment"));
        assert_eq!((service, environment), (vec!["edge"], vec!["stage,1"]));
        assert_eq!(of("varnish_gateway.gateway"), ["shop/web"]);
    }

    #[test]
    fn without_an_endpoint_or_switched_off_there_is_none() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel");
        for variables in [
            vec![("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            vec![("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            vec![endpoint, ("OTEL_SDK_DISABLED", "true")],
            vec![endpoint, ("OTEL_TRACES_EXPORTER", "none")],
        ] {
            assert_eq!(read(&variables).unwrap(), None, "{variables:?}");
        }
        assert!(read(&[endpoint]).unwrap().is_some());
    }

    #[test]
    fn what_makes_no_sense_is_told_by_its_variable_and_without_secrets() {
        for (variable, value, part) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/json"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "thrift", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1,hidden", "part 2"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=hidden%0a", "value of `a`"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=hidden", "name of `a b`"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://u:hidden@x", "OTEL_EXPORTER_OTLP_HEADERS"),
        ] {
            let why = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel"), (variable, value)]);
            let why = why.unwrap_err().to_string();
            assert!(why.contains(variable) && why.contains(part) && !why.contains("hidden"), "{why}");
        }
    }
}
