//! One request.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// For `varnishncsa -j`, which escapes values. All are text, because an unknown number is not printed as a number.
pub(super) const FORMAT: &str = concat!(
    r#"{"time":"%{usec}t","client":"%h","method":"%m","host":"%{Host}i","path":"%U","query":"%q","protocol":"%H","#,
    r#""status":"%s","bytes":"%O","micros":"%D","firstbyte":"%{Varnish:time_firstbyte}x","referer":"%{Referer}i","#,
    r#""agent":"%{User-Agent}i","route":"%{VCL_Log:vg_route}x","listener":"%{VCL_Log:vg_listener}x","#,
    r#""service":"%{VCL_Log:vg_service}x","backend":"%{VCL_Log:vg_backend}x","cache":"%{VCL_Log:vg_cache}x","#,
    r#""tls":"%{VCL_Log:vg_tls}x","trace":"%{VCL_Log:vg_trace}x"}"#
);

/// As varnishncsa says it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Raw {
    time: String,
    client: String,
    method: String,
    host: String,
    path: String,
    query: String,
    protocol: String,
    status: String,
    bytes: String,
    micros: String,
    firstbyte: String,
    referer: String,
    agent: String,
    route: String,
    listener: String,
    service: String,
    backend: String,
    cache: String,
    tls: String,
    trace: String,
}

/// One request, as one line of JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Entry {
    /// When its head was there: RFC 3339, in UTC.
    pub time: String,
    /// `namespace/name`, where one process writes for several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    pub client: String,
    pub method: String,
    pub host: String,
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    pub protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Of the answer, head and body.
    pub bytes: u64,
    pub duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<f64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cache: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `namespace/name`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<String>,
    /// `https-443`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// `namespace/name:port`
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service: String,
    /// The endpoint that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_ms: Option<f64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tls: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub referer: String,
    /// Microseconds since 1970, and how many it took.
    #[serde(skip)]
    pub began_micros: u64,
    #[serde(skip)]
    pub took_micros: u64,
}

/// Which part of which trace it was, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trace {
    pub trace_id: String,
    pub span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    #[serde(skip)]
    pub sampled: bool,
}

impl Trace {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (trace, span) = (words.next()?, words.next()?);
        let (parent, flags) = (words.next()?, words.next()?);
        (trace.len() == 32 && span.len() == 16).then(|| Self {
            trace_id: trace.to_owned(),
            span_id: span.to_owned(),
            parent_span_id: Some(parent).filter(|id| id.bytes().any(|b| b != b'0')).map(str::to_owned),
            sampled: flags == "01",
        })
    }
}

impl Entry {
    /// A line of varnishncsa by our format; the query only `with_query`. `None`: it is not such a line.
    pub fn parse(line: &str, with_query: bool) -> Option<Self> {
        let raw: Raw = serde_json::from_str(line).ok()?;
        let text = |value: String| if value == "-" { String::new() } else { value };
        let began_micros: u64 = raw.time.parse().ok()?;
        let took_micros = raw.micros.parse().unwrap_or(0);
        let mut route = raw.route.splitn(3, ' ');
        let (kind, rule, name) = (route.next(), route.next(), route.next());
        let listener = raw.listener.split_once(' ');
        let backend = raw.backend.split_once(' ');
        let seconds = |text: &str| text.parse::<f64>().ok().filter(|s| s.is_finite() && *s >= 0.0);
        Some(Self {
            time: rfc3339(began_micros),
            gateway: None,
            client: text(raw.client),
            method: text(raw.method),
            host: text(raw.host),
            path: text(raw.path),
            query: Some(raw.query).filter(|query| with_query && !query.is_empty()),
            protocol: text(raw.protocol),
            status: raw.status.parse().ok().filter(|status| *status != 0),
            bytes: raw.bytes.parse().unwrap_or(0),
            duration_ms: took_micros as f64 / 1e3,
            first_byte_ms: seconds(&raw.firstbyte).map(millis),
            cache: text(raw.cache),
            kind: name.and(kind).map(str::to_owned),
            rule: name.and(rule).and_then(|rule| rule.parse().ok()),
            route: name.map(str::to_owned),
            listener: listener.map(|(_, name)| name.to_owned()),
            socket: listener.map(|(socket, _)| socket.to_owned()),
            service: text(raw.service),
            backend: backend.map(|(endpoint, _)| endpoint.to_owned()),
            backend_ms: backend.and_then(|(_, took)| seconds(took)).map(millis),
            tls: text(raw.tls),
            trace: Trace::parse(&raw.trace),
            user_agent: text(raw.agent),
            referer: without_query(text(raw.referer), with_query),
            began_micros,
            took_micros,
        })
    }

    /// One line, without its end.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A line that is not understood is not lost; but it may hold what is not to be shown.
pub(crate) fn unread(line: &str, with_query: bool) -> String {
    let value = if with_query { Value::from(line) } else { Value::from(line.len()) };
    let name = if with_query { "unread" } else { "unread_bytes" };
    serde_json::json!({ name: value }).to_string()
}

impl Entry {
    /// The line of JSON for a line of varnishncsa.
    pub fn line(of: &str, with_query: bool) -> String {
        Self::parse(of, with_query).map_or_else(|| unread(of, with_query), |entry| entry.json())
    }
}

/// Microseconds are enough.
fn millis(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

/// The page that a client comes from may be logged; its query may be private.
fn without_query(mut url: String, with_query: bool) -> String {
    if !with_query && let Some(at) = url.find('?') {
        url.truncate(at);
    }
    url
}

/// In UTC, with microseconds. A time that no calendar has is the first one.
fn rfc3339(micros: u64) -> String {
    let time = i64::try_from(micros).ok().and_then(|micros| Timestamp::from_microsecond(micros).ok());
    format!("{:.6}", time.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_civil() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(rfc3339(1_794_788_459_123_456), "2026-11-16T00:20:59.123456Z");
    }

    #[test]
    fn hostile_values_stay_within_their_quotes() {
        let line = r#"{"time":"1794788459123456","client":"127.0.0.1","method":"GET","host":"a\"b","path":"/\u0001\\","query":"?token=x","protocol":"HTTP/1.1","status":"200","bytes":"12","micros":"1500","firstbyte":"0.001","referer":"http://a/?secret","agent":"\"},{","route":"HTTPRoute 2 shop/web","listener":"https-443 web","service":"shop/web:80","backend":"10.0.0.1:80 0.0125","cache":"miss","tls":"TLSv1.3","trace":"0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 0000000000000000 01"}"#;
        let entry = Entry::parse(line, false).unwrap();
        assert_eq!((entry.query.as_deref(), entry.referer.as_str()), (None, "http://a/"));
        assert_eq!(entry.backend_ms, Some(12.5));
        let back: Value = serde_json::from_str(&entry.json()).unwrap();
        assert_eq!(back["user_agent"], "\"},{");
        assert_eq!(back["path"], "/\u{1}\\");
        assert_eq!((&back["rule"], &back["route"]), (&2.into(), &"shop/web".into()));
        assert_eq!(back["trace_id"], "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(back.get("parent_span_id"), None);
        assert_eq!(Entry::parse(line, true).unwrap().query.as_deref(), Some("?token=x"));
        assert_eq!(Entry::line("{\"half", true), r#"{"unread":"{\"half"}"#);
        assert_eq!(Entry::line("{\"half", false), r#"{"unread_bytes":6}"#);
    }
}
