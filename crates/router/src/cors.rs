//! CORS as pure decisions: who may read a rule's responses, and what a browser's preflight request is answered.
//!
//! The gateway speaks for the rule alone: what an origin says in `Access-Control-*` headers is removed. Carriers apply the edits to
//! what goes to the client, never to what is stored.

use model::filters::Cors as From;

use crate::Request;
use crate::edit::{EditHeaders, HeaderLine};

/// The longest `Origin` that is repeated to the client. Hosts have 253 characters at most.
const LONGEST_ORIGIN: usize = 300;
/// The longest list of headers that is repeated to the client.
const LONGEST_LIST: usize = 4096;

const ALLOW_ORIGIN: &str = "access-control-allow-origin";
const ALLOW_CREDENTIALS: &str = "access-control-allow-credentials";
const ALLOW_METHODS: &str = "access-control-allow-methods";
const ALLOW_HEADERS: &str = "access-control-allow-headers";
const EXPOSE_HEADERS: &str = "access-control-expose-headers";
const MAX_AGE: &str = "access-control-max-age";

/// A rule's CORS filter, compiled.
#[derive(Debug, Clone)]
pub struct Cors {
    origins: Origins,
    credentials: Option<HeaderLine>,
    methods: Names,
    headers: Names,
    expose: Option<HeaderLine>,
    max_age: Option<HeaderLine>,
    /// The one answer to all origins, where it does not depend on the request.
    any_origin: HeaderLine,
    vary: HeaderLine,
}

#[derive(Debug, Clone)]
enum Origins {
    All,
    Some(Box<[Pattern]>),
}

/// What is said of methods or headers.
#[derive(Debug, Clone)]
enum Names {
    Nothing,
    /// What the client asks for.
    Asked,
    Listed(HeaderLine),
}

/// An allowed origin: `https://*.example.com:8443`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    scheme: Scheme,
    host: Host,
    port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Any,
    /// `.example.com`, with any number of labels before it.
    EndsWith(Box<[u8]>),
    Exact(Box<[u8]>),
}

/// Who asks, as far as it may read the response.
enum Reader<'a> {
    /// Every page.
    All,
    Origin(&'a str),
}

impl Cors {
    pub(crate) fn new(from: &From) -> Self {
        let is_wild = |names: &[String]| names.iter().any(|name| name == "*");
        let list = |name: &str, values: &[String]| {
            (!values.is_empty()).then(|| HeaderLine::new(name, &values.join(", ")))
        };
        let names = |name: &str, values: &[String]| match list(name, values) {
            _ if is_wild(values) => Names::Asked,
            Some(line) => Names::Listed(line),
            None => Names::Nothing,
        };
        Self {
            origins: if is_wild(&from.allow_origins) {
                Origins::All
            } else {
                // One that cannot be read allows nothing.
                Origins::Some(from.allow_origins.iter().filter_map(|text| Pattern::parse(text)).collect())
            },
            credentials: from.allow_credentials.then(|| HeaderLine::new(ALLOW_CREDENTIALS, "true")),
            methods: names(ALLOW_METHODS, &from.allow_methods),
            headers: names(ALLOW_HEADERS, &from.allow_headers),
            // With credentials browsers take the wildcard for a name.
            expose: list(EXPOSE_HEADERS, &from.expose_headers)
                .filter(|_| !(from.allow_credentials && is_wild(&from.expose_headers))),
            max_age: from.max_age_seconds.map(|seconds| HeaderLine::new(MAX_AGE, &seconds.to_string())),
            any_origin: HeaderLine::new(ALLOW_ORIGIN, "*"),
            vary: HeaderLine::new("vary", "Origin"),
        }
    }

    /// Edits the answer to a preflight request: an empty one of the gateway's own.
    pub fn answer_preflight(&self, request: &impl Request, to: &mut impl EditHeaders) {
        let mut asked = (Vec::new(), Vec::new(), Vec::new());
        take(request, "origin", &mut asked.0);
        take(request, "access-control-request-method", &mut asked.1);
        take(request, "access-control-request-headers", &mut asked.2);
        if !self.share(Some(&asked.0), to) {
            return;
        }
        self.methods.write(ALLOW_METHODS, method(&asked.1), to);
        self.headers.write(ALLOW_HEADERS, header_list(&asked.2), to);
        if let Some(line) = &self.max_age {
            to.add(line);
        }
    }

    /// Edits the response to any other request. `origin` is the value of the request's `Origin` header.
    pub fn edit_response(&self, origin: Option<&[u8]>, to: &mut impl EditHeaders) {
        for name in [ALLOW_METHODS, ALLOW_HEADERS, MAX_AGE] {
            to.remove(name);
        }
        self.share(origin, to);
    }

    /// Says who may read the response. True where the request's origin may.
    fn share(&self, origin: Option<&[u8]>, to: &mut impl EditHeaders) -> bool {
        for name in [ALLOW_ORIGIN, ALLOW_CREDENTIALS, EXPOSE_HEADERS] {
            to.remove(name);
        }
        let reader = self.reader(origin);
        // A cache on the way must not give one origin's answer to another. The answer to all is the same for each.
        if !matches!(reader, Some(Reader::All)) && !to.any("vary", &mut names_origin) {
            to.add(&self.vary);
        }
        match reader {
            None => return false,
            Some(Reader::All) => to.add(&self.any_origin),
            Some(Reader::Origin(origin)) => to.add(&HeaderLine::new(ALLOW_ORIGIN, origin)),
        }
        for line in self.credentials.iter().chain(&self.expose) {
            to.add(line);
        }
        true
    }

    fn reader<'a>(&self, origin: Option<&'a [u8]>) -> Option<Reader<'a>> {
        match &self.origins {
            // The wildcard does not go with credentials: the origin is named.
            Origins::All if self.credentials.is_none() => Some(Reader::All),
            Origins::All => printable(origin?).map(Reader::Origin),
            Origins::Some(patterns) => {
                let text = printable(origin?)?;
                let asked = Asked::parse(text)?;
                patterns.iter().any(|pattern| pattern.matches(&asked)).then_some(Reader::Origin(text))
            }
        }
    }
}

/// Is it a preflight request, by which a browser asks whether a page may send another one?
pub(crate) fn is_preflight(request: &impl Request) -> bool {
    request.method() == b"OPTIONS"
        && request.any_header("origin", &mut |_| true)
        && request.any_header("access-control-request-method", &mut |_| true)
}

/// The first value of a header. Browsers send one.
fn take(request: &impl Request, name: &str, to: &mut Vec<u8>) {
    request.any_header(name, &mut |value| {
        to.extend_from_slice(value);
        true
    });
}

/// Does a `Vary` header name `Origin`, or everything?
fn names_origin(value: &[u8]) -> bool {
    let mut names = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    names.any(|name| name == b"*" || name.eq_ignore_ascii_case(b"origin"))
}

/// One origin and nothing else, as it can stand in a header.
fn printable(origin: &[u8]) -> Option<&str> {
    let fits = !origin.is_empty()
        && origin.len() <= LONGEST_ORIGIN
        && origin.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',');
    std::str::from_utf8(origin).ok().filter(|_| fits)
}

fn is_token(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(fits)
}

fn method(asked: &[u8]) -> Option<&str> {
    std::str::from_utf8(asked).ok().filter(|_| asked.len() <= LONGEST_ORIGIN && is_token(asked))
}

fn header_list(asked: &[u8]) -> Option<&str> {
    let mut names = asked.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    std::str::from_utf8(asked).ok().filter(|_| asked.len() <= LONGEST_LIST && names.all(is_token))
}

impl Names {
    fn write(&self, name: &str, asked: Option<&str>, to: &mut impl EditHeaders) {
        match (self, asked) {
            (Self::Listed(line), _) => to.add(line),
            (Self::Asked, Some(asked)) => to.add(&HeaderLine::new(name, asked)),
            (Self::Asked, None) | (Self::Nothing, _) => {}
        }
    }
}

/// The parts of an `Origin` header.
struct Asked<'a> {
    scheme: Scheme,
    host: &'a [u8],
    port: u16,
}

impl<'a> Asked<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let scheme = match scheme {
            _ if scheme.eq_ignore_ascii_case("http") => Scheme::Http,
            _ if scheme.eq_ignore_ascii_case("https") => Scheme::Https,
            _ => return None,
        };
        // The last colon of `[::1]` is no port's.
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let port = match port {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
            Some(_) => return None,
            None => scheme.default_port(),
        };
        (!host.is_empty()).then_some(Self { scheme, host: host.as_bytes(), port })
    }
}

impl Scheme {
    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        let Asked { scheme, host, port } = Asked::parse(text)?;
        let host = host.to_ascii_lowercase();
        let host = match host.strip_prefix(b"*") {
            None => Host::Exact(host.into()),
            Some(b"") => Host::Any,
            Some(end) => Host::EndsWith(end.into()),
        };
        Some(Self { scheme, host, port })
    }

    fn matches(&self, asked: &Asked<'_>) -> bool {
        self.scheme == asked.scheme
            && self.port == asked.port
            && match &self.host {
                Host::Any => true,
                Host::Exact(host) => asked.host.eq_ignore_ascii_case(host),
                Host::EndsWith(end) => asked
                    .host
                    .len()
                    .checked_sub(end.len())
                    .is_some_and(|start| start > 0 && asked.host[start..].eq_ignore_ascii_case(end)),
            }
    }
}

#[cfg(test)]
mod tests;
