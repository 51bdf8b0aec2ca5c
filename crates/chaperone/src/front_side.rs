//! The front beside varnishd: it ends TLS and hands the bytes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::event::{Event, Reporter};

/// Once varnishd is gone, what it said last still has to reach the clients.
const FLUSHING: Duration = Duration::from_secs(2);

/// A front that runs, and ends with this.
#[derive(Debug)]
pub(crate) struct FrontSide {
    config: watch::Sender<Arc<front::Config>>,
    shutdown: watch::Sender<front::Shutdown>,
    /// Does varnishd understand it?
    http2: bool,
    running: JoinSet<()>,
}

impl FrontSide {
    /// Without a socket yet. `upstream` is varnishd's.
    pub(crate) fn start(upstream: PathBuf, http2: bool, reporter: Reporter) -> Self {
        let (config, shutdown) = (watch::Sender::default(), watch::Sender::default());
        let tell = move |event| {
            reporter.tell(&match event {
                front::Event::Listening { socket, address } => Event::Listening { socket, address },
                front::Event::CannotListen { why, .. } => Event::NotListening { why },
                front::Event::Closed { socket } => Event::Closed { socket },
            });
        };
        let mut running = JoinSet::new();
        running.spawn(front::run(config.subscribe(), upstream, tell, shutdown.subscribe()));
        Self { config, shutdown, http2, running }
    }

    /// From now on these listeners, with these certificates.
    pub(crate) fn show(&self, config: &Arc<front::Config>) {
        let mut config = Arc::clone(config);
        if config.http2 && !self.http2 {
            Arc::make_mut(&mut config).http2 = false;
        }
        self.config.send_if_modified(|old| {
            let differs = *old != config;
            *old = config;
            differs
        });
    }

    /// Takes no more connections; those that are there stay.
    pub(crate) fn close(&self) {
        self.show(&Arc::default());
    }

    /// Ends with the connections that varnishd has left.
    pub(crate) async fn stop(mut self) {
        self.shutdown.send_replace(front::Shutdown::Drain);
        if tokio::time::timeout(FLUSHING, self.running.join_next()).await.is_err() {
            self.shutdown.send_replace(front::Shutdown::Now);
            let _ = tokio::time::timeout(FLUSHING, self.running.join_next()).await;
        }
    }
}
