//! The HTTP client for ghost's control socket.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::http::request::Builder;
use local_http::client;
use model::invalidation::{Order, Outcomes};
use model::names::{
    CONTROL_HOST, CONTROL_TOKEN_HEADER, DRAIN_PATH, ERROR_HEADER, IN_USE_PATH, INVALIDATE_PATH, RELOAD_PATH,
    STATS_PATH, STATUS_PATH,
};
use model::stats::Stats;
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::Error;

/// The socket of ghost, and the token that it accepts.
#[derive(Clone, PartialEq, Eq)]
pub struct Control {
    pub(crate) socket: Arc<Path>,
    pub(crate) token: Arc<str>,
}

/// Without the token.
impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Control {
    fn unreachable(&self, cause: impl Into<String>) -> Error {
        Error::ReloadUnreachable { socket: self.socket.to_path_buf(), cause: cause.into() }
    }
}

/// What ghost says of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct GhostStatus {
    pub(crate) rules: u64,
    pub(crate) backends: u64,
    pub(crate) in_flight: u64,
    /// Entries of ghost.json that ghost could not use.
    pub(crate) left_out: Vec<String>,
}

/// A reload compiles every rule; 100,000 take seconds.
const PATIENCE: Duration = Duration::from_secs(60);
const LARGEST_ANSWER: usize = 1 << 20;
/// Half a kilobyte for each of 100,000 rules.
const LARGEST_STATS: usize = 64 << 20;
/// A reader of numbers asks again soon.
const PATIENCE_FOR_STATS: Duration = Duration::from_secs(5);

/// Makes ghost read its file again.
pub(crate) async fn reload(control: &Control) -> Result<GhostStatus, Error> {
    status_by(control, Request::post(RELOAD_PATH)).await
}

/// From now on, ghost's answers end their connections.
pub(crate) async fn drain(control: &Control) -> Result<GhostStatus, Error> {
    status_by(control, Request::post(DRAIN_PATH)).await
}

pub(crate) async fn status(control: &Control) -> Result<GhostStatus, Error> {
    status_by(control, Request::get(STATUS_PATH)).await
}

/// Makes the router of the VCL in use say by which table it decides, for hot objects.
/// The page of hot objects goes with it: a child that has just started does not have it yet.
pub(crate) async fn in_use(control: &Control, page: Option<&OwnedFd>) -> Result<GhostStatus, Error> {
    said(control, ask_with(control, Request::post(IN_USE_PATH), Bytes::new(), page).await?)
}

/// Takes objects out of the cache.
pub(crate) async fn invalidate(control: &Control, order: &Order) -> Result<Outcomes, Error> {
    let unreachable = |cause: String| control.unreachable(cause);
    let order = serde_json::to_vec(order).map_err(|e| unreachable(e.to_string()))?;
    let request = Request::post(INVALIDATE_PATH);
    let (ok, error, body) = ask(control, request, order.into()).await?;
    match (ok, error) {
        (true, None) => serde_json::from_slice(&body).map_err(|e| unreachable(e.to_string())),
        (_, Some(cause)) => Err(Error::ReloadRefused { cause }),
        (false, None) => Err(unreachable(format!("unexpected answer {}", String::from_utf8_lossy(&body)))),
    }
}

/// What ghost has counted.
pub(crate) async fn stats(control: &Control) -> Result<Stats, Error> {
    let unreachable = |cause: String| control.unreachable(cause);
    let asked = exchange(control, Request::get(STATS_PATH), Bytes::new(), LARGEST_STATS, None);
    let asked = tokio::time::timeout(PATIENCE_FOR_STATS, asked).await;
    let asked = asked.map_err(|_| unreachable(format!("no answer within {PATIENCE_FOR_STATS:?}")))?;
    let (_, _, body) = asked.map_err(unreachable)?;
    let parsed = tokio::task::spawn_blocking(move || serde_json::from_slice(&body)).await;
    parsed.map_err(|e| unreachable(e.to_string()))?.map_err(|e| unreachable(e.to_string()))
}

async fn ask(control: &Control, request: Builder, body: Bytes) -> Result<Answer, Error> {
    ask_with(control, request, body, None).await
}

async fn ask_with(
    control: &Control,
    request: Builder,
    body: Bytes,
    file: Option<&OwnedFd>,
) -> Result<Answer, Error> {
    let unreachable = |cause: String| control.unreachable(cause);
    let asked = tokio::time::timeout(PATIENCE, exchange(control, request, body, LARGEST_ANSWER, file)).await;
    let asked = asked.map_err(|_| unreachable(format!("no answer within {PATIENCE:?}")))?;
    asked.map_err(unreachable)
}

async fn status_by(control: &Control, request: Builder) -> Result<GhostStatus, Error> {
    said(control, ask(control, request, Bytes::new()).await?)
}

fn said(control: &Control, (ok, error, body): Answer) -> Result<GhostStatus, Error> {
    let unreachable = |cause: String| control.unreachable(cause);
    match (ok, error) {
        (true, None) => parse(&body).ok_or_else(|| unreachable("the answer is not ghost's".to_owned())),
        (_, Some(cause)) => Err(Error::ReloadRefused { cause }),
        (false, None) => Err(unreachable(format!("unexpected answer {}", String::from_utf8_lossy(&body)))),
    }
}

type Answer = (bool, Option<String>, Bytes);

async fn exchange(
    control: &Control,
    request: Builder,
    body: Bytes,
    largest: usize,
    file: Option<&OwnedFd>,
) -> Result<Answer, String> {
    let text = |e: &dyn fmt::Display| e.to_string();
    let stream = UnixStream::connect(&control.socket).await.map_err(|e| text(&e))?;
    if let Some(file) = file {
        // With an empty line, which means nothing before a request. A new socket has room for it.
        let sent = stream.async_io(Interest::WRITABLE, || page::hand_over(&stream, b"\r\n", file)).await;
        sent.map_err(|e| text(&e))?;
    }
    let request = request
        .header("Host", CONTROL_HOST)
        .header(CONTROL_TOKEN_HEADER, &*control.token)
        .body(Full::new(body))
        .map_err(|e| text(&e))?;
    let response = client::exchange(stream, request, largest).await.map_err(|e| text(&e))?;
    let ok = response.status().is_success();
    let error =
        response.headers().get(ERROR_HEADER).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    Ok((ok, error, response.into_body()))
}

fn parse(body: &[u8]) -> Option<GhostStatus> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let left_out = value["left_out"].as_array()?.iter().filter_map(|v| v.as_str().map(str::to_owned));
    Some(GhostStatus {
        rules: value["rules"].as_u64()?,
        backends: value["backends"].as_u64()?,
        in_flight: u64::try_from(value["in_flight"].as_i64()?).unwrap_or(0),
        left_out: left_out.collect(),
    })
}
