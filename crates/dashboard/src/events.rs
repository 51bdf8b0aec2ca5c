//! Server-sent events: what happens, as it happens.
//!
//! `entry`: one of the journal, with its id, so that a browser that comes back misses nothing that is still kept.
//! `second`: numbers of the last second of one Gateway.
//! `changed`: what `/api/state` says is another now.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::answer::{self, Answer};
use crate::board::Board;

/// Proxies between us may close connections that are silent.
const ALIVE: Duration = Duration::from_secs(15);
/// A client that takes nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// `changed` comes at most so often.
const GATHER: Duration = Duration::from_millis(250);

/// `after` is the id of the last entry that the client has. The place is given back with the client's end.
pub(crate) fn stream(board: Arc<Board>, after: u64, place: OwnedSemaphorePermit) -> Answer {
    let (to, from) = mpsc::channel(64);
    tokio::spawn(async move {
        let client = Client(to);
        let _ = client.follow(&board, after).await;
        drop(place);
    });
    answer::stream(from)
}

struct Client(mpsc::Sender<Bytes>);

/// The client has gone.
struct Gone;

impl Client {
    async fn follow(&self, board: &Board, after: u64) -> Result<(), Gone> {
        let (missed, mut news) = board.journal.follow(after);
        let mut version = board.version.subscribe();
        let mut samples = board.samples.subscribe();
        self.send("retry: 2000\n\n".to_owned()).await?;
        for entry in missed {
            self.event("entry", Some(entry.id), &*entry).await?;
        }
        let mut alive = tokio::time::interval(ALIVE);
        loop {
            tokio::select! {
                entry = news.recv() => match entry {
                    Ok(entry) => self.event("entry", Some(entry.id), &*entry).await?,
                    // It comes back by itself, and gets what it has missed.
                    Err(RecvError::Lagged(_) | RecvError::Closed) => return Err(Gone),
                },
                second = samples.recv() => match second {
                    Ok(json) => self.send(format!("event: second\ndata: {json}\n\n")).await?,
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return Err(Gone),
                },
                changed = version.changed() => {
                    if changed.is_err() { return Err(Gone) }
                    self.event("changed", None, &()).await?;
                    tokio::time::sleep(GATHER).await;
                }
                _ = alive.tick() => self.send(": alive\n\n".to_owned()).await?,
            }
        }
    }

    async fn event(&self, name: &str, id: Option<u64>, data: &impl Serialize) -> Result<(), Gone> {
        // JSON has no line breaks of its own.
        let data = serde_json::to_string(data).map_err(|_| Gone)?;
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.send(format!("event: {name}\n{id}data: {data}\n\n")).await
    }

    async fn send(&self, text: String) -> Result<(), Gone> {
        self.0.send_timeout(Bytes::from(text), PATIENCE).await.map_err(|_| Gone)
    }
}
