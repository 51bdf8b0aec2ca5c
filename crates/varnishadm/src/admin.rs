//! The commands. Each is one exchange with varnishd; none is tried twice.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::banner::Banner;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::wire::{Answer, Command, OK, TRUNCATED};

pub(crate) mod backend;
mod ban;
pub(crate) mod child;
mod json;
mod param;
pub(crate) mod vcl;

/// A connection to varnishd. Clones share it, and may be used from several tasks; it closes when the last is dropped.
///
/// varnishd's manager does one thing at a time: while it compiles a VCL, a `ping` waits, and so do callers here.
#[derive(Debug, Clone)]
pub struct Admin {
    connection: Connection,
    greeting: Arc<Banner>,
    timeout: Duration,
}

impl Admin {
    /// What the manager itself gives the child for an answer (its parameter `cli_timeout`).
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

    pub(crate) fn new(stream: TcpStream, greeting: Banner) -> Self {
        Self {
            connection: Connection::spawn(stream),
            greeting: Arc::new(greeting),
            timeout: Self::DEFAULT_TIMEOUT,
        }
    }

    /// The same connection, with another time limit for each command that goes through this handle. It counts from
    /// when a command is sent. A command that exceeds it closes the connection for all.
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// What varnishd said when it connected.
    pub fn greeting(&self) -> &Banner {
        &self.greeting
    }

    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Waits until the connection is closed, and says why.
    pub async fn closed(&self) -> String {
        self.connection.closed().await.to_string()
    }

    /// Any command, and varnishd's answer, whether yes or no.
    ///
    /// Words reach the manager as they are. Those that it passes on to the child lose their blanks in 7.1 (a word
    /// `a b` arrives as two).
    pub async fn command(&self, words: &[&str]) -> Result<Answer> {
        self.send(Command::words(words)?).await
    }

    pub async fn banner(&self) -> Result<Banner> {
        let body = self.ask(&["banner"]).await?;
        Ok(Banner::parse(Answer { status: OK, body }))
    }

    pub async fn ping(&self) -> Result<()> {
        let body = self.ask(&["ping"]).await?;
        match body.starts_with("PONG") {
            true => Ok(()),
            false => {
                Err(Error::Answer { command: "ping".to_owned(), why: format!("it is not PONG but {body}") })
            }
        }
    }

    async fn send(&self, command: Command) -> Result<Answer> {
        self.connection.run(command, self.timeout).await
    }

    /// The body of a yes. One that varnishd cut short is still a yes.
    async fn ask(&self, words: &[&str]) -> Result<String> {
        let command = Command::words(words)?;
        let label = command.label().to_owned();
        yes(label, self.send(command).await?)
    }
}

fn yes(command: String, answer: Answer) -> Result<String> {
    match answer.status {
        OK | TRUNCATED => Ok(answer.body),
        status => Err(Error::Status { command, status, text: answer.body }),
    }
}
