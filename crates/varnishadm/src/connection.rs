//! The task that owns the socket. It runs one command at a time, to its end even when the caller has left, so
//! that no answer is ever taken for another command's; and it notices when varnishd leaves between commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::wire::{self, Answer, Command};

/// Commands that wait for the one that runs. More callers than that wait in [`Connection::run`].
const QUEUE: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct Connection {
    requests: mpsc::Sender<Request>,
    closed: watch::Receiver<Option<Arc<str>>>,
}

#[derive(Debug)]
struct Request {
    command: Command,
    timeout: Duration,
    reply: oneshot::Sender<Result<Answer>>,
}

impl Connection {
    /// The connection lives until it fails or the last clone is dropped.
    pub(crate) fn spawn(stream: TcpStream) -> Self {
        let (requests, queue) = mpsc::channel(QUEUE);
        let (close, closed) = watch::channel(None);
        tokio::spawn(serve(stream, queue, close));
        Self { requests, closed }
    }

    /// The time counts from when the command is sent, not while it waits for others. A caller that stops waiting
    /// takes its command out of the queue; once sent, the command runs on.
    pub(crate) async fn run(&self, command: Command, timeout: Duration) -> Result<Answer> {
        let label = command.label().to_owned();
        let (reply, answer) = oneshot::channel();
        // Both fail only when the task has ended, or ends with this in its queue.
        if self.requests.send(Request { command, timeout, reply }).await.is_ok()
            && let Ok(result) = answer.await
        {
            return result;
        }
        Err(Error::Disconnected { command: label, reason: self.closed().await.to_string() })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.borrow().is_some() || self.requests.is_closed()
    }

    pub(crate) async fn closed(&self) -> Arc<str> {
        let mut closed = self.closed.clone();
        match closed.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(reason)) => Arc::clone(reason),
            _ => "its task was stopped".into(),
        }
    }
}

async fn serve(
    mut stream: TcpStream,
    mut queue: mpsc::Receiver<Request>,
    close: watch::Sender<Option<Arc<str>>>,
) {
    let reason = loop {
        let request = tokio::select! {
            // First, so that a command is not sent where no one reads it.
            biased;
            reason = unasked(&stream) => break reason,
            request = queue.recv() => request,
        };
        let Some(Request { command, timeout, reply }) = request else {
            tracing::debug!("CLI connection no longer used, closing it");
            return;
        };
        if reply.is_closed() {
            continue;
        }
        let result = run(&mut stream, &command, timeout).await;
        let reason = result.as_ref().err().map(ToString::to_string);
        // Before the caller hears of it, so that it finds the connection closed.
        if let Some(reason) = &reason {
            close.send_replace(Some(reason.as_str().into()));
        }
        // The caller may have left.
        let _ = reply.send(result);
        if let Some(reason) = reason {
            break reason;
        }
    };
    tracing::debug!(reason, "CLI connection closed");
    close.send_if_modified(|closed| {
        let first = closed.is_none();
        closed.get_or_insert_with(|| reason.into());
        first
    });
}

async fn run(stream: &mut TcpStream, command: &Command, limit: Duration) -> Result<Answer> {
    let start = Instant::now();
    let label = command.label();
    let result = timeout(limit, wire::exchange(stream, command))
        .await
        .unwrap_or_else(|_| Err(Error::Timeout { command: label.to_owned(), after: limit }));
    let elapsed = start.elapsed();
    match &result {
        Ok(answer) => {
            tracing::debug!(
                command = label,
                status = answer.status,
                bytes = answer.body.len(),
                ?elapsed,
                "CLI"
            );
        }
        Err(error) => tracing::debug!(command = label, %error, ?elapsed, "CLI"),
    }
    result
}

/// Ends when varnishd does something between two commands; all it can rightly do is leave.
async fn unasked(stream: &TcpStream) -> String {
    let mut byte = [0];
    match stream.peek(&mut byte).await {
        Ok(0) => "varnishd closed it between two commands".to_owned(),
        Ok(_) => "varnishd sent an unexpected message".to_owned(),
        Err(error) => format!("it failed between two commands: {error}"),
    }
}
