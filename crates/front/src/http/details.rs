//! What logs and spans report of one request. Kept only for requests that are logged or recorded.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::header::{self, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, Version};
use model::stats::CACHE_RESULTS;
use router::counters::{OTHER, PASS, Way};
use router::trace::Trace;

use super::body::{Progress, head_bytes};
use super::line::{Line, cut};
use super::reason::Reason;
use super::request::Client;
use super::table::{ListenerId, RuleId, Table};
use crate::observe::{AccessLog, Finished, Upstream};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Bytes of a value that are shown.
const LONGEST_URL: usize = 4096;
const LONGEST_HEADER: usize = 1024;
const LONGEST_NAME: usize = 256;

/// Fields are added while the request is under way.
#[derive(Debug, Default)]
pub(crate) struct Details {
    /// None where the head could not be read.
    head: Option<Head>,
    upload: Option<Arc<Progress>>,
    table: Option<Arc<Table>>,
    rule: Option<RuleId>,
    group: Option<usize>,
    listener: Option<ListenerId>,
    pub(super) trace: Option<(Trace, u64)>,
    pub(super) status: Option<u16>,
    first_byte: Option<Duration>,
    pub(super) upgraded_bytes_in: u64,
    /// A position in [`CACHE_RESULTS`].
    pub(super) cache: Option<u8>,
    endpoint: Option<SocketAddr>,
    tries: u32,
    /// The upstream side began so long after the request.
    asked_after: Duration,
    connect: Option<Duration>,
    answered_after: Option<Duration>,
}

#[derive(Debug)]
struct Head {
    method: Method,
    uri: Uri,
    version: Version,
    host: Option<HeaderValue>,
    user_agent: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    request_id: Option<HeaderValue>,
    bytes: u64,
}

/// What [`super::record::Record`] knows of the request.
pub(crate) struct Outcome<'a> {
    pub(crate) client: &'a Client,
    pub(crate) took: Duration,
    pub(crate) bytes: u64,
    pub(crate) way: Way,
    pub(crate) reason: Option<Reason>,
}

impl Details {
    /// Without a head.
    pub(crate) fn unread(status: u16) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// Clones share their bytes with the request.
    pub(crate) fn read(
        &mut self,
        method: &Method,
        uri: &Uri,
        version: Version,
        headers: &HeaderMap,
        upload: Option<Arc<Progress>>,
    ) {
        let get = |name: &HeaderName| headers.get(name).cloned();
        let line = method.as_str().len() + uri.path_and_query().map_or(1, |url| url.as_str().len());
        self.head = Some(Head {
            method: method.clone(),
            uri: uri.clone(),
            version,
            host: get(&header::HOST),
            user_agent: get(&header::USER_AGENT),
            referer: get(&header::REFERER),
            request_id: get(&REQUEST_ID),
            bytes: head_bytes(headers) + line as u64,
        });
        self.upload = upload;
    }

    pub(crate) fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Where it goes. The host is the one that was routed.
    pub(crate) fn routed(
        &mut self,
        host: Option<&HeaderValue>,
        table: &Arc<Table>,
        (rule, group, listener): (Option<RuleId>, Option<usize>, Option<ListenerId>),
    ) {
        if let Some(head) = &mut self.head {
            head.host = host.cloned();
        }
        self.table = Some(Arc::clone(table));
        (self.rule, self.group, self.listener) = (rule, group, listener);
    }

    pub(crate) fn answers(&mut self, status: u16, after: Duration) {
        self.status = Some(status);
        self.first_byte = Some(after);
    }

    pub(crate) fn asks(&mut self, after: Duration) {
        self.asked_after = after;
    }

    pub(crate) fn tries(&mut self, endpoint: SocketAddr) {
        self.endpoint = Some(endpoint);
        self.tries = self.tries.saturating_add(1);
    }

    pub(crate) fn connected(&mut self, took: Duration) {
        self.connect = Some(took);
    }

    pub(crate) fn was_answered(&mut self, began: Instant) {
        self.answered_after = Some(began.elapsed());
    }

    fn cache(&self, way: Way) -> Option<&'static str> {
        let at = match (self.cache, way) {
            (Some(known), _) => known,
            (None, Way::Own) => OTHER,
            (None, Way::Direct) => PASS,
            (None, Way::Cache | Way::Hot) => return None,
        };
        CACHE_RESULTS.get(usize::from(at)).copied()
    }

    /// Kind, name and position of the rule, unless it is the one that answers where there is no route.
    fn route(&self) -> Option<(&'static str, &str, u32)> {
        let rule = self.table.as_ref()?.rule(self.rule?)?;
        let name = rule.route_name();
        (!name.is_empty()).then(|| (rule.kind().name(), name, rule.rule_index()))
    }

    fn service(&self) -> &str {
        let rule = self.table.as_ref().zip(self.rule).and_then(|(table, rule)| table.rule(rule));
        let group = rule.zip(self.group).and_then(|(rule, group)| rule.groups().get(group));
        group.map_or("", |group| group.name())
    }

    fn listener(&self) -> Option<&str> {
        self.table.as_ref()?.listener_name(self.listener?)
    }

    /// One line of the access log. Names and meanings are those of `chaperone::log::Entry`, and more.
    pub(crate) fn log(&self, of: &Outcome<'_>, log: &AccessLog) {
        log.add(|to| {
            let mut line = Line::new(to);
            line.date("time", began_micros(of.took));
            if let Some(gateway) = &log.gateway {
                line.text("gateway", gateway.as_bytes(), LONGEST_NAME);
            }
            line.word("client", of.client.address_text());
            if let Some(head) = &self.head {
                head.write(&mut line, log.query_strings);
            }
            if let Some(status) = self.status {
                line.number("status", status.into());
            }
            line.number("bytes", of.bytes);
            line.number("bytes_in", self.bytes_in());
            line.time("duration_ms", of.took);
            if let Some(time) = self.first_byte {
                line.time("first_byte_ms", time);
            }
            line.word("way", of.way.name());
            if let Some(cache) = self.cache(of.way) {
                line.word("cache", cache);
            }
            if let Some(reason) = of.reason {
                line.word("reason", reason.name());
            }
            if let Some((kind, name, rule)) = self.route() {
                line.word("kind", kind);
                line.text("route", name.as_bytes(), LONGEST_NAME);
                line.number("rule", rule.into());
            }
            line.text("listener", self.listener().unwrap_or_default().as_bytes(), LONGEST_NAME);
            line.text("socket", of.client.socket.as_bytes(), LONGEST_NAME);
            line.text("service", self.service().as_bytes(), LONGEST_NAME);
            self.write_upstream(&mut line);
            write_tls(of.client, &mut line);
            if let Some((trace, _)) = &self.trace {
                line.trace(trace);
            }
            if let Some(head) = &self.head {
                head.write_rest(&mut line, log.query_strings);
            }
            line.end();
        });
    }

    fn write_upstream(&self, line: &mut Line<'_>) {
        let Some(endpoint) = self.endpoint else { return };
        line.plain("backend", endpoint);
        line.number("tries", self.tries.into());
        if let Some(connect) = self.connect {
            line.time("connect_ms", connect);
        }
        if let Some(first_byte) = self.answered_after {
            line.time("backend_ms", first_byte);
        }
    }

    fn bytes_in(&self) -> u64 {
        let head = self.head.as_ref().map_or(0, |head| head.bytes);
        head + self.upload.as_ref().map_or(0, |upload| upload.bytes()) + self.upgraded_bytes_in
    }

    /// None where it is not recorded.
    pub(crate) fn finished(&self, of: &Outcome<'_>) -> Option<Box<Finished>> {
        let (trace, child) = self.trace.filter(|(trace, _)| trace.sampled)?;
        let head = self.head.as_ref()?;
        let value = |value: &Option<HeaderValue>, most| {
            value.as_ref().map_or_else(String::new, |v| lossy(v.as_bytes(), most))
        };
        Some(Box::new(Finished {
            trace,
            began_micros: began_micros(of.took),
            took: of.took,
            client: of.client.address(),
            method: lossy(head.method.as_str().as_bytes(), LONGEST_NAME),
            host: value(&head.host, LONGEST_NAME),
            path: lossy(head.path().as_bytes(), LONGEST_URL),
            protocol: protocol(head.version),
            user_agent: value(&head.user_agent, LONGEST_HEADER),
            tls: of.client.tls_version().to_owned(),
            status: self.status,
            bytes: of.bytes,
            way: of.way.name(),
            cache: self.cache(of.way).unwrap_or_default(),
            reason: of.reason.map(Reason::name),
            route: self.route().map(|(kind, name, rule)| (kind, name.to_owned(), rule)),
            listener: self.listener().map(str::to_owned),
            service: self.service().to_owned(),
            upstream: self.endpoint.map(|endpoint| Upstream {
                span: child,
                endpoint,
                tries: self.tries,
                after: self.asked_after,
                connect: self.connect,
                first_byte: self.answered_after,
            }),
        }))
    }
}

impl Head {
    fn path(&self) -> &str {
        match self.uri.path() {
            "" => "/",
            path => path,
        }
    }

    fn write(&self, line: &mut Line<'_>, query_strings: bool) {
        line.text("method", self.method.as_str().as_bytes(), LONGEST_NAME);
        match (&self.host, self.uri.authority()) {
            (Some(host), _) => line.text("host", host.as_bytes(), LONGEST_NAME),
            // Refused before a Host was made of it. Before an @ may be a password.
            (None, Some(authority)) => line.text("host", authority.host().as_bytes(), LONGEST_NAME),
            (None, None) => {}
        }
        line.text("path", self.path().as_bytes(), LONGEST_URL);
        if query_strings && let Some(query) = self.uri.path_and_query().and_then(with_mark) {
            line.text("query", query.as_bytes(), LONGEST_URL);
        }
        line.word("protocol", protocol(self.version));
    }

    fn write_rest(&self, line: &mut Line<'_>, query_strings: bool) {
        if let Some(id) = &self.request_id {
            line.text("request_id", id.as_bytes(), LONGEST_NAME);
        }
        if let Some(agent) = &self.user_agent {
            line.text("user_agent", agent.as_bytes(), LONGEST_HEADER);
        }
        if let Some(referer) = self.referer.as_ref().map(HeaderValue::as_bytes) {
            let query = referer.iter().position(|byte| *byte == b'?').filter(|_| !query_strings);
            line.text("referer", &referer[..query.unwrap_or(referer.len())], LONGEST_HEADER);
        }
    }
}

fn write_tls(client: &Client, line: &mut Line<'_>) {
    if !client.is_tls {
        return;
    }
    line.text("tls", client.tls_version().as_bytes(), LONGEST_NAME);
    if let Some(name) = client.cipher.and_then(|cipher| cipher.as_str()) {
        // rustls marks those of TLS 1.3; the IANA does not.
        match name.strip_prefix("TLS13") {
            Some(rest) => line.plain("tls_cipher", format_args!("TLS{rest}")),
            None => line.word("tls_cipher", name),
        }
    }
    line.text("sni", client.server_name().unwrap_or_default(), LONGEST_NAME);
}

/// The query with its question mark, as varnishncsa has it.
fn with_mark(url: &PathAndQuery) -> Option<&str> {
    url.as_str().find('?').and_then(|at| url.as_str().get(at..))
}

/// As varnishd writes it.
fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

fn lossy(bytes: &[u8], most: usize) -> String {
    String::from_utf8_lossy(cut(bytes, most)).into_owned()
}

/// The clock of now, less the time that has passed.
fn began_micros(took: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.saturating_sub(took).as_micros()).unwrap_or_default()
}
