//! Probes: `/healthz` while we live and ghost answers, `/readyz` while varnishd serves a good configuration, is not draining,
//! and ghost answers now; and `/metrics`.
//!
//! ghost answers by a thread of its own: a varnishd whose threads are all busy lives, and one whose child hangs does not.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Response, StatusCode};
use local_http::server::{self, Incoming, Limits};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::event::Reporter;
use crate::metrics::Scrapes;
use crate::peers::{self, Peers};
use crate::{Error, State, reload};

/// The longest time for an answer to a probe: probes come every few seconds, with a short timeout.
const ANSWERING: Duration = Duration::from_secs(2);
/// A reload of many routes, or a machine that swaps, may keep ghost busy for a while: it counts as dead only after this time.
const SILENCE: Duration = Duration::from_secs(30);

/// Answers probes until the future is dropped.
pub async fn serve(address: SocketAddr, reporter: Reporter, peers: Option<Arc<Peers>>) -> Result<(), Error> {
    let failed = |source| Error::Port { socket: "health".to_owned(), address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let (scrapes, pulse) = (Arc::new(Scrapes::default()), Arc::new(Pulse::default()));
    server::serve(listener, Limits::PROBES, move |request: Incoming| {
        let (watched, scrapes, pulse) = (reporter.state(), Arc::clone(&scrapes), Arc::clone(&pulse));
        let peers = peers.clone().filter(|_| request.method() == Method::POST);
        async move {
            let path = request.uri().path().to_owned();
            let state = watched.borrow().clone();
            match (path.as_str(), peers) {
                (peers::PATH, Some(peers)) => heard(&peers, request, &watched).await,
                ("/metrics", _) => plain(scrapes.text(&[(None, watched)]).await),
                _ => respond(&path, &state, &pulse).await,
            }
        }
    })
    .await;
    Ok(())
}

/// What a peer says is carried out.
async fn heard(peers: &Peers, request: Incoming, state: &watch::Receiver<State>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = peers.hear(request, state).await;
    response
}

fn plain(text: Option<Bytes>) -> Response<Full<Bytes>> {
    let status = if text.is_some() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let text =
        text.unwrap_or_else(|| Bytes::from_static(b"the counters were not available in time: try again\n"));
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}

/// Probes within this time get the same answer: ghost has few places, and reloads need them.
const SHARED: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Pulse {
    /// When ghost last answered, or was not there to answer.
    last: Mutex<Option<Instant>>,
    /// The newest answer. Locked during a request to ghost: only one probe at a time sends one.
    newest: tokio::sync::Mutex<Option<(Instant, bool)>>,
}

impl Pulse {
    /// Does ghost answer now?
    async fn answers(&self, state: &State) -> bool {
        let Some(control) = &state.control else {
            self.note(true, Instant::now());
            return false;
        };
        let mut newest = self.newest.lock().await;
        if let Some((at, answers)) = *newest
            && at.elapsed() < SHARED
        {
            return answers;
        }
        let answers = matches!(tokio::time::timeout(ANSWERING, reload::status(control)).await, Ok(Ok(_)));
        *newest = Some((Instant::now(), answers));
        self.note(answers, Instant::now());
        answers
    }

    fn note(&self, excused: bool, now: Instant) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if excused || last.is_none() {
            *last = Some(now);
        }
    }

    /// Has it been silent for too long?
    fn is_lost(&self, now: Instant) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| now.duration_since(last) > SILENCE)
    }
}

async fn respond(path: &str, state: &State, pulse: &Pulse) -> Response<Full<Bytes>> {
    let (status, body) = match path {
        "/healthz" => {
            if !pulse.answers(state).await && pulse.is_lost(Instant::now()) {
                let why = format!("ghost has not answered for {SILENCE:?}");
                (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": why }))
            } else {
                (StatusCode::OK, json!({ "status": "alive" }))
            }
        }
        "/readyz" => {
            let ready = state.ready() && pulse.answers(state).await;
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            let sockets = state.sockets.iter().chain(&state.front_sockets);
            let sockets: Vec<_> = sockets.map(|(name, at)| format!("{name}={at}")).collect();
            let body = json!({
                "ready": ready,
                "draining": state.draining,
                "without_routes": state.idle,
                "listening": sockets,
                "refused": state.refused,
            });
            (status, body)
        }
        _ => (StatusCode::NOT_FOUND, json!({ "error": "this port knows /healthz, /readyz and /metrics" })),
    };
    let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
    *response.status_mut() = status;
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_death_only_after_a_while() {
        let (pulse, start) = (Pulse::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!pulse.is_lost(start));
        pulse.note(false, start);
        assert!(!pulse.is_lost(after(29)) && pulse.is_lost(after(31)));
        pulse.note(true, after(31));
        assert!(!pulse.is_lost(after(60)) && pulse.is_lost(after(62)));
    }

    #[tokio::test]
    async fn a_socket_that_takes_connections_and_says_nothing_is_not_ready() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        // The kernel takes the connection, and no process answers.
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let control = reload::Control { socket: socket.into(), token: "".into() };
        let state = State { serving: true, control: Some(control), ..State::default() };
        let pulse = Pulse::default();
        assert_eq!(respond("/readyz", &state, &pulse).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(respond("/healthz", &state, &pulse).await.status(), StatusCode::OK);
        *pulse.last.lock().unwrap() = Instant::now().checked_sub(Duration::from_secs(40));
        assert_eq!(respond("/healthz", &state, &pulse).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
