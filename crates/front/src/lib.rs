//! Listeners that varnishd cannot own: TLS is ended here, and the bytes go on to varnishd's unix socket with PROXY v2.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use certificate::Pair;
use tokio::sync::watch;

/// All listeners of one Gateway that the front owns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    pub listeners: Vec<Listener>,
    pub limits: Limits,
}

/// One port.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// `https-443`
    pub socket: String,
    /// All addresses, IPv4 and IPv6, where absent.
    pub address: Option<IpAddr>,
    pub port: u16,
    pub hosts: Vec<Host>,
}

/// Certificates for the names that one listener of the Gateway takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// `shop.example.com`, `*.example.com`, or none for every name.
    pub hostname: Option<String>,
    pub certificates: Vec<Arc<Pair>>,
}

/// What one client may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    pub handshake_timeout: Duration,
    pub concurrent_handshakes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { handshake_timeout: Duration::from_secs(10), concurrent_handshakes: 1024 }
    }
}

/// What a person wants to know of.
#[derive(Debug, Clone)]
pub enum Event {
    Listening { socket: String, address: SocketAddr },
    /// Tried again until it works.
    CannotListen { socket: String, why: String },
    Closed { socket: String },
}

/// Are we to go on?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shutdown {
    #[default]
    Run,
    /// Accept no more, finish what has begun, then stop.
    Drain,
    Now,
}

/// Serves until `shutdown` says otherwise.
pub async fn run(
    _config: watch::Receiver<Arc<Config>>,
    _upstream: PathBuf,
    _reporter: impl Fn(Event) + Send + Sync + 'static,
    mut shutdown: watch::Receiver<Shutdown>,
) {
    let _ = shutdown.wait_for(|asked| *asked > Shutdown::Run).await;
}
