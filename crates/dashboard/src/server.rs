//! Sockets: one that browsers reach, behind the door; and one of the file system, for our own user.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use chaperone::metrics::Scrapes;
use http_body_util::{BodyExt, Limited};
use hyper::{Method, StatusCode};
use local_http::server::{self, Incoming, Limits};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use crate::answer::{self, Answer};
use crate::api::{self, Query};
use crate::board::Board;
use crate::door::Door;
use crate::{assets, events, purge};

/// Connections at a time.
const MOST: usize = 128;
/// Of these, streams of events: each costs for as long as it lasts.
const MOST_STREAMS: usize = 32;
/// The same for the socket of our own user.
const MOST_LOCAL: usize = 1024;
/// For the body of a question.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct Server {
    board: Arc<Board>,
    /// `None`: every client of the socket is our own user.
    door: Option<Arc<Door>>,
    streams: Arc<Semaphore>,
    scrapes: Arc<Scrapes>,
}

impl Server {
    fn new(board: Arc<Board>, door: Option<Door>) -> Self {
        let streams = Arc::new(Semaphore::new(MOST_STREAMS));
        Self { board, door: door.map(Arc::new), streams, scrapes: Arc::default() }
    }
}

/// Answers browsers until it is dropped.
pub async fn serve(listener: TcpListener, door: Door, board: Arc<Board>) {
    let server = Server::new(board, Some(door));
    server::serve(listener, Limits { connections: MOST, lifetime: None }, server.answers()).await;
}

/// Answers the command line of our own user until it is dropped.
pub async fn serve_local(listener: UnixListener, board: Arc<Board>) {
    let server = Server::new(board, None);
    server::serve(listener, Limits { connections: MOST_LOCAL, lifetime: None }, server.answers()).await;
}

impl Server {
    fn answers(
        self,
    ) -> impl Fn(Incoming) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Clone + Send + Sync + 'static
    {
        move |request| {
            let server = self.clone();
            Box::pin(async move { server.answer(request).await })
        }
    }

    async fn answer(&self, request: Incoming) -> Answer {
        let (head, body) = request.into_parts();
        if let Some(door) = &self.door
            && let Err(refusal) = door.check(&head.method, &head.uri, &head.headers)
        {
            return answer::error(refusal.status, &refusal.why);
        }
        let path = head.uri.path();
        if path == "/api/purge" {
            if head.method != Method::POST {
                return answer::not_allowed("POST");
            }
            return self.act(body).await;
        }
        if head.method != Method::GET && head.method != Method::HEAD {
            return answer::not_allowed("GET, HEAD");
        }
        let query = Query::new(head.uri.query());
        self.board.look();
        if path == "/api/events" {
            if head.method == Method::HEAD {
                return answer::not_allowed("GET");
            }
            let told = head.headers.get("last-event-id").and_then(|id| id.to_str().ok());
            let after = told.or(query.get("after")).and_then(|id| id.parse().ok()).unwrap_or(0);
            return match Arc::clone(&self.streams).try_acquire_owned() {
                Ok(place) => events::stream(Arc::clone(&self.board), after, place),
                Err(_) => {
                    answer::error(StatusCode::SERVICE_UNAVAILABLE, "too many follow the events already")
                }
            };
        }
        if path == "/metrics" {
            let all: Vec<_> = self.board.gateways();
            let all: Vec<_> = all.iter().map(|one| (Some(one.name.clone()), one.state.clone())).collect();
            return match self.scrapes.text(&all).await {
                Some(text) => answer::text("text/plain; version=0.0.4", text),
                None => answer::error(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the counters were not available in time: try again",
                ),
            };
        }
        if let Some(asset) = assets::find(path) {
            return asset;
        }
        let (board, path) = (Arc::clone(&self.board), path.to_owned());
        // Thousands of routes take a while to read.
        let answered = tokio::task::spawn_blocking(move || match path.as_str() {
            "/" => api::page(&board),
            "/api/state" => api::state(&board),
            "/api/routes" => api::routes(&board, &query),
            "/api/explain" => api::explained(&board, &query),
            "/api/traffic" => api::traffic(&board, &query),
            "/api/top" => api::top(&board, &query),
            "/api/journal" => api::journal(&board, &query),
            _ => answer::error(StatusCode::NOT_FOUND, "there is no such page"),
        });
        answered.await.unwrap_or_else(|e| answer::error(StatusCode::INTERNAL_SERVER_ERROR, &e.to_string()))
    }

    async fn act(&self, body: hyper::body::Incoming) -> Answer {
        if self.door.is_some() && !self.board.options.allow_actions {
            return answer::error(
                StatusCode::FORBIDDEN,
                "this dashboard is for reading: --allow-actions (DASHBOARD_ALLOW_ACTIONS=true) would allow it",
            );
        }
        let read = tokio::time::timeout(PATIENCE, Limited::new(body, purge::LARGEST).collect()).await;
        match read {
            Ok(Ok(body)) => purge::purge(&self.board, &body.to_bytes()).await,
            Ok(Err(_)) => answer::error(StatusCode::PAYLOAD_TOO_LARGE, "the question is too long"),
            Err(_) => answer::error(StatusCode::REQUEST_TIMEOUT, "the question did not come"),
        }
    }
}
