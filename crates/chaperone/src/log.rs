//! Requests as varnishd logs them: its program `varnishncsa` reads the log, and we read `varnishncsa`.
//!
//! Whatever bytes clients send, an [`Entry`] is text. Secrets are not in it: neither Authorization nor cookies are asked for,
//! and the query only where somebody wants it.

mod entry;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

pub use entry::{Entry, Trace};

/// A line is cut there; varnishd cuts headers long before.
const LONGEST: u64 = 256 << 10;
/// After `varnishncsa` has ended, before it is started anew.
const PAUSE: Duration = Duration::from_secs(1);

/// One program that writes a line for each request.
#[derive(Debug)]
pub struct Follower {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    /// Waits for varnishd as long as it takes. `more` are arguments of varnishncsa.
    pub fn start(varnishd_dir: &Path, more: &[String]) -> std::io::Result<Self> {
        let mut process = Command::new("varnishncsa")
            .args(["-t", "off", "-n"])
            .arg(varnishd_dir)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().ok_or_else(|| std::io::Error::other("no output"))?;
        Ok(Self { process, lines: BufReader::new(output) })
    }

    /// The next line, without its end; `None` where the program has ended.
    pub async fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(LONGEST).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(n) if n > 0) {
            let _ = self.process.start_kill();
            return None;
        }
        while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
            line.pop();
        }
        Some(String::from_utf8_lossy(&line).into_owned())
    }
}

/// Gives every line to `take`, until it says false or this is dropped. Starts the program again where it ends.
pub async fn follow(varnishd_dir: &Path, arguments: &[String], mut take: impl FnMut(String) -> bool) {
    let mut told = false;
    loop {
        match Follower::start(varnishd_dir, arguments) {
            Ok(mut follower) => {
                while let Some(line) = follower.line().await {
                    if !take(line) {
                        return;
                    }
                }
            }
            Err(e) if !told => {
                told = true;
                tracing::error!(
                    "varnishncsa does not start: {e}; requests are not logged (it comes with Varnish)"
                );
            }
            Err(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What varnishncsa is to say so that [`Entry::parse`] understands it. `query` is one of VSL's.
pub fn arguments(query: Option<&str>) -> Vec<String> {
    let mut all = vec!["-j".to_owned(), "-F".to_owned(), entry::FORMAT.to_owned()];
    if let Some(query) = query {
        all.extend(["-q".to_owned(), query.to_owned()]);
    }
    all
}
