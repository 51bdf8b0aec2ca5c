//! The entrance: what a client sent is judged once, before anything is decided, and becomes the gateway's own word before it leaves.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{PathAndQuery, Uri};
use http::{Method, StatusCode, Version};
use model::identity::Identity;
use model::names::{GHOST_PREFIX, socket_parts};
use router::answer::Own;
use router::edit::{EditHeaders, EditRequest, HeaderLine};
use router::sent::{Kind, kind};
use router::{Router, is_host};
use rustls::CipherSuite;

use super::survey::{CDN_LOOP, HTTP2_SETTINGS, Survey};
use super::table::{RuleId, Table};
use super::tunnels::Tunnels;
use super::watched::Movement;
use super::{Http, response};
use crate::{HttpLimits, proxy};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const GATEWAY_LISTENER: HeaderName = HeaderName::from_static("x-gateway-listener");
const GATEWAY_ROUTE: HeaderName = HeaderName::from_static("x-gateway-route");
const VIA: HeaderValue = HeaderValue::from_static("1.1 varnish-gateway");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// One connection of a client: what is the same for all its requests.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) http: Arc<Http>,
    address: IpAddr,
    address_value: HeaderValue,
    /// The listener's socket, `http-80`.
    pub(crate) socket: Arc<str>,
    socket_value: HeaderValue,
    port_value: Option<HeaderValue>,
    pub(crate) is_tls: bool,
    introduction: proxy::Header,
    /// The description of the client that ghost gets with each request. None if it cannot be written: the cache is not asked then.
    pub(crate) identity: Option<HeaderValue>,
    /// Of its TLS.
    pub(crate) cipher: Option<CipherSuite>,
    pub(crate) limits: HttpLimits,
    pub(crate) movement: Arc<Movement>,
    pub(crate) tunnels: Arc<Tunnels>,
}

impl Client {
    pub(crate) fn new(
        http: Arc<Http>,
        address: SocketAddr,
        socket: Arc<str>,
        introduction: proxy::Header,
        limits: HttpLimits,
    ) -> Self {
        let ip = address.ip().to_canonical();
        let text = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""));
        let identity = Identity {
            address: ip,
            address_text: &ip.to_string(),
            port: address.port(),
            socket: &socket,
            tls: introduction.tls.as_ref().map(|tls| &*tls.version),
            server_name: introduction.authority.as_deref(),
        };
        let identity = identity.to_string();
        // As ghost will read it, or not at all.
        let identity =
            Identity::parse(identity.as_bytes()).and_then(|_| HeaderValue::from_str(&identity).ok());
        Self {
            http,
            address: ip,
            address_value: text(&ip.to_string()),
            socket_value: text(&socket),
            port_value: socket_parts(&socket).map(|(_, port)| HeaderValue::from(port)),
            socket,
            is_tls: introduction.tls.is_some(),
            identity,
            introduction,
            cipher: None,
            limits,
            movement: Arc::default(),
            tunnels: Arc::default(),
        }
    }

    pub(crate) fn with_cipher(self, cipher: Option<CipherSuite>) -> Self {
        Self { cipher, ..self }
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    pub(crate) fn address_text(&self) -> &str {
        self.address_value.to_str().unwrap_or_default()
    }

    /// `TLSv1.3`; empty for plain HTTP.
    pub(crate) fn tls_version(&self) -> &str {
        self.introduction.tls.as_ref().map_or("", |tls| &tls.version)
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// The name that the client gave in its TLS handshake.
    pub(crate) fn server_name(&self) -> Option<&[u8]> {
        self.introduction.authority.as_deref().map(str::as_bytes)
    }
}

/// On a request: it was a CONNECT of RFC 8441 for a WebSocket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtendedConnect;

/// What is known of a request that was let in.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// The client is a proxy whose X-Forwarded-* headers are believed.
    pub(crate) trusted: bool,
    /// The request has been through this Gateway before.
    pub(crate) loops: bool,
    pub(crate) websocket: bool,
    /// The client says what a proxy would say: `Forwarded`, `X-Forwarded-*`.
    pub(crate) forwarded: bool,
}

/// Judges the head, and leaves in it only what is about the request, not about the connection.
pub(crate) fn admit(
    parts: &mut Parts,
    has_body: bool,
    client: &Client,
    router: &Router,
) -> Result<Admitted, Own> {
    if parts.method == Method::CONNECT {
        return Err(refused(
            StatusCode::NOT_IMPLEMENTED,
            "this gateway is no forward proxy: CONNECT is not served",
        ));
    }
    if parts.headers.len() > client.limits.headers {
        return Err(refused(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            "the request has more headers than this gateway accepts",
        ));
    }
    admit_target(parts, client.limits.url_bytes)?;
    let survey = Survey::of(&parts.headers);
    if survey.framing {
        admit_framing(parts, has_body)?;
    }
    if let Some(most) = client.limits.body_bytes {
        admit_size(&parts.headers, most)?;
    }
    admit_host(parts)?;
    let websocket = !has_body
        && (asks_for_websocket(parts, survey) || parts.extensions.get::<ExtendedConnect>().is_some());
    if survey.expect {
        let mut expected = parts.headers.get_all(header::EXPECT).iter();
        if !expected.all(|one| one.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
            return Err(refused(
                StatusCode::EXPECTATION_FAILED,
                "the only expectation that is served is 100-continue",
            ));
        }
        parts.headers.remove(header::EXPECT);
    }
    if survey.hop_by_hop {
        remove_hop_by_hop(&mut parts.headers);
    }
    if survey.own {
        remove_own(&mut parts.headers);
    }
    let loops = survey.cdn_loop && router.gateway_id().is_some_and(|id| names_us(&parts.headers, id));
    let trusted = !router.trusted_proxies().is_empty() && router.trusted_proxies().contains(client.address);
    Ok(Admitted { trusted, loops, websocket, forwarded: survey.forwarded })
}

pub(crate) fn refused(status: StatusCode, message: &str) -> Own {
    Own::new(status.as_u16(), status.canonical_reason().unwrap_or_default(), message)
}

/// A path, a URL, or an asterisk for OPTIONS. `GET internal:8080` is none of them: its target would become the Host.
fn admit_target(parts: &Parts, longest: usize) -> Result<(), Own> {
    let uri = &parts.uri;
    if uri.authority().is_some() && uri.scheme().is_none() {
        return Err(refused(StatusCode::BAD_REQUEST, "the request's target is neither a path nor a URL"));
    }
    let url = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    if url == "*" && parts.method != Method::OPTIONS {
        return Err(refused(StatusCode::BAD_REQUEST, "the target * is for OPTIONS only"));
    }
    if url.len() > longest {
        return Err(refused(
            StatusCode::URI_TOO_LONG,
            "the request's URL is longer than this gateway accepts",
        ));
    }
    Ok(())
}

/// hyper has read the body's length; here it is said again, in one way only.
fn admit_framing(parts: &mut Parts, has_body: bool) -> Result<(), Own> {
    let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(first) = codings.next() {
        if codings.next().is_some() || !first.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(refused(
                StatusCode::NOT_IMPLEMENTED,
                "the only transfer coding that is served is chunked, once",
            ));
        }
        parts.headers.remove(header::TRANSFER_ENCODING);
        parts.headers.remove(header::CONTENT_LENGTH);
    } else if parts.headers.contains_key(header::CONTENT_LENGTH) {
        admit_length(parts, has_body)?;
    }
    Ok(())
}

/// One length, in digits without leading zeros: some would read `010` as eight. Without a body it is none: an origin that waits for
/// one would take the next request on the connection for it.
fn admit_length(parts: &mut Parts, has_body: bool) -> Result<(), Own> {
    let mut lengths = parts.headers.get_all(header::CONTENT_LENGTH).iter();
    let first = lengths.next().map_or(&[][..], HeaderValue::as_bytes);
    let is_clear = lengths.next().is_none() && (first == b"0" || !first.starts_with(b"0"));
    if is_clear && (has_body || first == b"0") {
        return Ok(());
    }
    // hyper has seen that they are digits, and all the same number.
    let zeros = first.iter().take_while(|digit| **digit == b'0').count();
    let digits = first.get(zeros..).filter(|digits| has_body && !digits.is_empty()).unwrap_or(b"0");
    let length = HeaderValue::from_bytes(digits)
        .map_err(|_| refused(StatusCode::BAD_REQUEST, "the request's Content-Length is not valid"))?;
    parts.headers.insert(header::CONTENT_LENGTH, length);
    Ok(())
}

/// The answer to a body with too many bytes.
pub(crate) fn too_large() -> Own {
    refused(StatusCode::PAYLOAD_TOO_LARGE, "the request's body is larger than this gateway accepts")
}

/// By its length, where it has one; other bodies are counted as they come.
fn admit_size(headers: &HeaderMap, most: u64) -> Result<(), Own> {
    let Some(length) = headers.get(header::CONTENT_LENGTH) else { return Ok(()) };
    let length = std::str::from_utf8(length.as_bytes()).ok().and_then(|text| text.parse::<u64>().ok());
    if length.is_some_and(|length| length <= most) { Ok(()) } else { Err(too_large()) }
}

/// One Host header, in lower case, whatever form the request has.
fn admit_host(parts: &mut Parts) -> Result<(), Own> {
    let bad = |message| Err(refused(StatusCode::BAD_REQUEST, message));
    let mut given = parts.headers.get_all(header::HOST).iter();
    let (first, second) = (given.next(), given.next());
    if second.is_some() {
        return bad("the request has more than one Host header");
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    if authority.is_some() && !matches!(parts.uri.scheme_str(), None | Some("http" | "https")) {
        return bad("the request's URL has a scheme that is neither http nor https");
    }
    let is_valid = |first: &HeaderValue| first.is_empty() || is_host(first.as_bytes());
    let host = match (authority, first) {
        (Some(authority), Some(first))
            if parts.version > Version::HTTP_11
                && !first.as_bytes().eq_ignore_ascii_case(authority.as_bytes()) =>
        {
            return bad("the Host header differs from :authority");
        }
        // RFC 9112, 3.2: also beside a URL.
        (Some(_), None) if parts.version == Version::HTTP_11 => return bad("the request has no Host"),
        (Some(_), Some(first)) if !is_valid(first) => return bad("the request has no valid Host"),
        // The URL goes before the header (RFC 9112, 3.2.2).
        (Some(authority), _) => Some(authority.as_bytes()),
        (None, first) => first.map(HeaderValue::as_bytes),
    };
    let normal = match host.filter(|host| is_host(host)) {
        Some(host) if authority.is_none() && !host.iter().any(u8::is_ascii_uppercase) => return Ok(()),
        Some(host) => HeaderValue::from_bytes(&host.to_ascii_lowercase()).ok(),
        None => None,
    };
    match normal {
        Some(normal) => drop(parts.headers.insert(header::HOST, normal)),
        None if parts.version <= Version::HTTP_10 && parts.uri.authority().is_none() => {
            drop(parts.headers.remove(header::HOST));
        }
        None => return bad("the request has no valid Host"),
    }
    Ok(())
}

/// No other protocol gets a tunnel: `Upgrade: h2c` would take requests past the gateway's rules.
fn asks_for_websocket(parts: &Parts, survey: Survey) -> bool {
    survey.upgrade
        && parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && has_token(&parts.headers, &header::UPGRADE, b"websocket")
        && has_token(&parts.headers, &header::CONNECTION, b"upgrade")
}

pub(crate) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &[u8]) -> bool {
    tokens(headers, name).any(|one| one.eq_ignore_ascii_case(token))
}

fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
}

/// Headers that `Connection` names and that stay all the same: without them the body would be read as another request.
const FRAMING: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"host"];

/// Headers of one connection, and those that `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let is_named = |token: &&[u8]| !FRAMING.iter().any(|kept| token.eq_ignore_ascii_case(kept));
        let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
            .filter(is_named)
            .filter_map(|token| HeaderName::from_bytes(token).ok())
            .collect();
        let wants_trailers = has_token(headers, &header::TE, b"trailers");
        for name in &named {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
        // It must be named by Connection, and is about what we may answer with: we say it again.
        if wants_trailers && named.contains(&header::TE) {
            headers.insert(header::TE, TRAILERS);
        }
    }
    for name in [&response::KEEP_ALIVE, &response::PROXY_CONNECTION, &header::UPGRADE, &HTTP2_SETTINGS] {
        headers.remove(name);
    }
    if headers.contains_key(header::TE) {
        if has_token(headers, &header::TE, b"trailers") {
            headers.insert(header::TE, TRAILERS);
        } else {
            headers.remove(header::TE);
        }
    }
}

/// Headers that only the gateway may set, in any spelling: by one of them ghost knows who the client is.
fn remove_own(headers: &mut HeaderMap) {
    remove_where(headers, |name| kind(name.as_bytes()) == Some(Kind::Own));
}

/// Trailers that an origin could take for headers which only the gateway may set, or which decide about the request.
pub(crate) fn admit_trailers(trailers: &mut HeaderMap) {
    let of_gateway = |name: &HeaderName| {
        matches!(kind(name.as_str().as_bytes()), Some(Kind::Own | Kind::Forwarded)) || *name == CDN_LOOP
    };
    let refused: Vec<HeaderName> = trailers.keys().filter(|name| of_gateway(name)).cloned().collect();
    for name in refused {
        trailers.remove(name);
    }
    response::remove_forbidden(trailers);
}

/// CDN-Loop, RFC 8586. Parameters may follow an id.
fn names_us(headers: &HeaderMap, id: &str) -> bool {
    tokens(headers, &CDN_LOOP).any(|element| {
        let named = element.split(|b| *b == b';').next().unwrap_or_default();
        named.trim_ascii() == id.as_bytes()
    })
}

/// Path and query as they are routed and sent.
pub(crate) fn url(uri: &Uri) -> std::borrow::Cow<'_, [u8]> {
    let text = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    if text.starts_with('/') || text == "*" {
        text.as_bytes().into()
    } else {
        format!("/{text}").into_bytes().into()
    }
}

/// A request as the router sees it: with the gateway's own word in the place of what only the gateway can know.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) parts: &'a Parts,
    pub(crate) client: &'a Client,
    pub(crate) admitted: &'a Admitted,
    pub(crate) url: &'a [u8],
}

impl View<'_> {
    fn is_kept(&self, name: &str) -> bool {
        match kind(name.as_bytes()) {
            Some(Kind::Own) => false,
            Some(Kind::Forwarded) => self.admitted.trusted && !name.contains('_'),
            Some(Kind::Override | Kind::Address) | None => true,
        }
    }
}

impl router::Request for View<'_> {
    fn socket(&self) -> &[u8] {
        self.client.socket.as_bytes()
    }

    fn server_name(&self) -> Option<&[u8]> {
        self.client.server_name()
    }

    fn host(&self) -> &[u8] {
        self.parts.headers.get(header::HOST).map_or(&[], HeaderValue::as_bytes)
    }

    fn method(&self) -> &[u8] {
        self.parts.method.as_str().as_bytes()
    }

    fn url(&self) -> &[u8] {
        self.url
    }

    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let sent = self.parts.headers.get_all(name);
        if self.is_kept(name) && sent.iter().any(|value| seen(value.as_bytes())) {
            return true;
        }
        if kind(name.as_bytes()) != Some(Kind::Forwarded)
            || (self.is_kept(name) && sent.iter().next().is_some())
        {
            return false;
        }
        // Rules that look at these are rare.
        match name.to_ascii_lowercase().as_str() {
            "x-forwarded-for" => seen(self.client.address_value.as_bytes()),
            "x-forwarded-proto" => seen(self.client.scheme().as_bytes()),
            "x-forwarded-port" => self.client.port_value.as_ref().is_some_and(|port| seen(port.as_bytes())),
            "x-forwarded-host" => seen(self.host()),
            _ => false,
        }
    }
}

/// Writes into a request that goes straight to an origin what the gateway says of it.
pub(crate) fn speak_for_gateway(
    parts: &mut Parts,
    client: &Client,
    admitted: &Admitted,
    table: &Table,
    rule: RuleId,
) {
    let headers = &mut parts.headers;
    // All that follow, at once: to grow step by step costs more.
    headers.reserve(9);
    let mut kept = false;
    if admitted.forwarded {
        let is_kept = |name: &str| admitted.trusted && !name.contains('_');
        let is_forwarded = |name: &str| kind(name.as_bytes()) == Some(Kind::Forwarded);
        remove_where(headers, |name| is_forwarded(name) && !is_kept(name));
        kept = headers.keys().any(|name| is_forwarded(name.as_str()));
    }
    let chain = if kept { joined(headers, &FORWARDED_FOR, &client.address_value) } else { None };
    headers.insert(FORWARDED_FOR, chain.unwrap_or_else(|| client.address_value.clone()));
    let lacks = |headers: &HeaderMap, name: &HeaderName| !kept || !headers.contains_key(name);
    if lacks(headers, &FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(client.scheme()));
    }
    if let Some(port) = &client.port_value
        && lacks(headers, &FORWARDED_PORT)
    {
        headers.insert(FORWARDED_PORT, port.clone());
    }
    if lacks(headers, &FORWARDED_HOST)
        && let Some(host) = headers.get(header::HOST).cloned()
    {
        headers.insert(FORWARDED_HOST, host);
    }
    headers.insert(GATEWAY_LISTENER, client.socket_value.clone());
    if let Some(route) = table.route_name(rule) {
        headers.insert(GATEWAY_ROUTE, route.clone());
    }
    headers.append(header::VIA, VIA);
}

/// Says in CDN-Loop that the request went through this Gateway; after all filters, which must not remove it.
pub(crate) fn name_us(headers: &mut HeaderMap, table: &Table) {
    if let Some(id) = &table.gateway_id
        && !headers.get_all(CDN_LOOP).iter().any(|value| value == id)
    {
        headers.append(CDN_LOOP, id.clone());
    }
}

/// The values of a list, with one more.
fn joined(headers: &HeaderMap, name: &HeaderName, last: &HeaderValue) -> Option<HeaderValue> {
    let mut all = Vec::new();
    for value in headers.get_all(name).iter().filter(|value| !value.is_empty()) {
        all.extend_from_slice(value.as_bytes());
        all.extend_from_slice(b", ");
    }
    if all.is_empty() {
        return None;
    }
    all.extend_from_slice(last.as_bytes());
    HeaderValue::from_bytes(&all).ok()
}

/// A message's headers, for the router's edits.
#[derive(Debug)]
pub(crate) struct Edited<'a>(pub(crate) &'a mut HeaderMap);

impl EditHeaders for Edited<'_> {
    fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    fn add(&mut self, header: &HeaderLine) {
        let value = header.line().as_bytes().get(header.name().len() + 2..).unwrap_or_default();
        // Both were checked when the route was admitted.
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(header.name().as_bytes()), HeaderValue::from_bytes(value))
        {
            self.0.append(name, value);
        }
    }

    fn any(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.get_all(name).iter().any(|value| seen(value.as_bytes()))
    }
}

/// A request, for the router's edits.
#[derive(Debug)]
pub(crate) struct EditedRequest<'a> {
    pub(crate) parts: &'a mut Parts,
    /// An edit made something that no request can have.
    pub(crate) failed: bool,
}

impl EditHeaders for EditedRequest<'_> {
    fn remove(&mut self, name: &str) {
        self.parts.headers.remove(name);
    }

    fn add(&mut self, header: &HeaderLine) {
        Edited(&mut self.parts.headers).add(header);
    }

    fn any(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.parts.headers.get_all(name).iter().any(|value| seen(value.as_bytes()))
    }
}

impl EditRequest for EditedRequest<'_> {
    fn set_host(&mut self, host: &str) {
        match HeaderValue::from_str(host) {
            Ok(host) => drop(self.parts.headers.insert(header::HOST, host)),
            Err(_) => self.failed = true,
        }
    }

    fn set_url(&mut self, url: &[u8]) {
        match PathAndQuery::try_from(url) {
            Ok(url) => self.parts.uri = Uri::from(url),
            Err(_) => self.failed = true,
        }
    }
}

/// Removes headers by their name. Most messages have none of them, and cost one look at each name.
pub(crate) fn remove_where(headers: &mut HeaderMap, is_removed: impl Fn(&str) -> bool) {
    let found: Vec<HeaderName> = headers.keys().filter(|name| is_removed(name.as_str())).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Is it one of our own names, which filters and origins may have set?
pub(crate) fn is_internal(name: &str) -> bool {
    name.get(..GHOST_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(GHOST_PREFIX))
}

pub(crate) fn remove_internals(headers: &mut HeaderMap) {
    remove_where(headers, is_internal);
}
