//! The socket by which `purge` and `ban` speak to a running `serve`. Its directory is for our own user alone.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chaperone::State;
use dashboard::Board;
use model::invalidation::{Invalidation, Outcome};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use translate::Key;

/// 512 paths and tags of 2048 bytes, and their clothes.
const LARGEST: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// One line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    /// `namespace/name`; all where absent.
    pub(crate) gateway: Option<String>,
    pub(crate) invalidation: Invalidation,
}

/// One line of JSON, too.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// By Gateway.
    #[serde(default)]
    pub(crate) outcomes: BTreeMap<String, Vec<Outcome>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// The varnishds that run now.
pub(crate) type Running = Arc<Mutex<BTreeMap<Key, watch::Receiver<State>>>>;

/// Where the socket is, below a state directory.
pub(crate) fn socket(state: &Path) -> PathBuf {
    state.join("control").join("serve.sock")
}

/// Where `status`, `top` and `explain` ask.
pub(crate) fn api_socket(state: &Path) -> PathBuf {
    state.join("control").join("api.sock")
}

/// Answers until it is dropped. Without the socket, all else works.
pub(crate) async fn run(state: PathBuf, running: Running, board: Arc<Board>) {
    let path = socket(&state);
    let listener = match listen(&path) {
        Ok(listener) => listener,
        Err(e) => {
            tracing::warn!(
                "{}: {e}; `varnish-gateway purge` and `ban` will not find this process",
                path.display()
            );
            return std::future::pending().await;
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(converse(stream, Arc::clone(&running), Arc::clone(&board)))),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

pub(crate) fn listen(path: &Path) -> std::io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        match std::fs::DirBuilder::new().mode(0o700).create(dir) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                use std::os::unix::fs::PermissionsExt;
                std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
            }
            done => done?,
        }
    }
    // Of a process that was killed.
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path)
}

async fn converse(stream: UnixStream, running: Running, board: Arc<Board>) {
    let (from, mut to) = stream.into_split();
    let mut line = String::new();
    let mut from = BufReader::new(from.take(LARGEST));
    let read = from.read_line(&mut line);
    if !matches!(tokio::time::timeout(PATIENCE, read).await, Ok(Ok(_))) {
        return;
    }
    let answer = match serde_json::from_str::<Question>(&line) {
        Ok(question) => answer(question, &running, &board).await,
        Err(e) => Answer { error: Some(format!("not understood: {e}")), ..Answer::default() },
    };
    let mut line = serde_json::to_string(&answer).unwrap_or_default();
    line.push('\n');
    let _ = to.write_all(line.as_bytes()).await;
}

async fn answer(question: Question, running: &Running, board: &Board) -> Answer {
    let all = running.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let asked = |key: &Key| question.gateway.as_ref().is_none_or(|gateway| *gateway == key.to_string());
    let names: Vec<String> = all.keys().map(ToString::to_string).collect();
    let chosen: Vec<_> = all.into_iter().filter(|(key, _)| asked(key)).collect();
    if chosen.is_empty() {
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let wanted = question.gateway.as_deref().unwrap_or("any");
        return Answer {
            error: Some(format!("no such Gateway: {wanted} (running: {there})")),
            ..Answer::default()
        };
    }
    let mut answer = Answer::default();
    for (key, state) in chosen {
        let mut outcomes = chaperone::invalidate(&state, std::slice::from_ref(&question.invalidation)).await;
        let outcomes = outcomes.pop().unwrap_or_default();
        board.invalidated(&key.to_string(), &question.invalidation, &outcomes);
        answer.outcomes.insert(key.to_string(), outcomes);
    }
    answer
}

/// The other side.
pub(crate) async fn ask(path: &Path, question: &Question) -> std::io::Result<Answer> {
    let (from, mut to) = UnixStream::connect(path).await?.into_split();
    let mut line = serde_json::to_string(question)?;
    line.push('\n');
    to.write_all(line.as_bytes()).await?;
    let mut line = String::new();
    let mut from = BufReader::new(from.take(LARGEST));
    let read = from.read_line(&mut line);
    tokio::time::timeout(PATIENCE, read).await.map_err(std::io::Error::other)??;
    Ok(serde_json::from_str(&line)?)
}
