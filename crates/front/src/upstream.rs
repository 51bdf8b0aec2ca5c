//! The way to varnishd.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{Instant, sleep};

/// A varnishd that restarts is back sooner.
const PATIENCE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Connects, and waits a moment for a varnishd that is not there yet or has a full backlog.
pub(crate) async fn connect(path: &Path) -> io::Result<UnixStream> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        match UnixStream::connect(path).await {
            Err(e) if passes(&e) && Instant::now() + pause < deadline => sleep(pause).await,
            result => return result,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn passes(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::WouldBlock)
}
