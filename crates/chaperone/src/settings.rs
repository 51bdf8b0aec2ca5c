//! The settings that one varnishd is started with. A change of any of them starts another.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::event::EVENTS_SOCKET;
use model::names::TLS_BACKENDS_SOCKET;

#[derive(Debug, Clone)]
pub struct Settings {
    /// For logs: `Gateway default/shop`.
    pub name: String,
    /// `varnishd`, or a path.
    pub varnishd: PathBuf,
    /// libvmod_ghost.so; `None` where it lies in varnishd's own vmod path.
    pub vmod: Option<PathBuf>,
    /// Everything of this varnishd lies here. It must be readable for varnishd's own user.
    pub work_dir: PathBuf,
    /// ghost.json; in `work_dir` where absent.
    pub ghost_config: Option<PathBuf>,
    /// Directories with private keys, which varnishd and user VCL cannot read where the kernel has Landlock.
    pub hidden: Vec<PathBuf>,
    /// varnishd's own; there may be none. What comes by TLS comes by the front.
    pub sockets: Vec<ListenSocket>,
    /// The front carries HTTP, and owns all ports: varnishd has unix sockets only.
    pub http_in_front: bool,
    /// Where varnishd reports to us; port 0 takes a free one.
    pub admin_address: SocketAddr,
    /// A file with the CLI's secret; a new one is made where absent.
    pub secret: Option<PathBuf>,
    pub extra_args: Vec<String>,
    /// So many of ours read times and bytes of each request out of varnishd's log: an access log, spans.
    pub log_readers: usize,
    /// Where the front reports requests, where it carries HTTP.
    pub observer: Option<Arc<front::Observer>>,
    /// Those that the varnishd before this one had, where they differ: with them it starts, if it does not with these.
    pub former_args: Option<Vec<String>>,
    /// Objects that the front answers from its own memory, where it carries HTTP.
    pub hot: front::HotLimits,
    /// A WebSocket on which nothing moves is closed after this time.
    pub upgrade_idle: Duration,
    /// A WebSocket is closed after this time, even if it is in use.
    pub upgrade_total: Duration,
    /// After the request to stop: how long to keep serving, but not ready. Load balancers need time to notice.
    pub drain_delay: Duration,
    /// How long requests may take to finish once we are asked to stop.
    pub drain_timeout: Duration,
}

/// One named `-a`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenSocket {
    /// `http-80`
    pub name: String,
    /// All addresses of the machine where absent.
    pub address: Option<IpAddr>,
    pub port: u16,
}

impl ListenSocket {
    /// In the syntax of varnishd: `http-80=:80,HTTP`.
    pub(crate) fn argument(&self) -> String {
        let Self { name, address, port } = self;
        match address {
            None => format!("{name}=:{port},HTTP"),
            Some(IpAddr::V4(a)) => format!("{name}={a}:{port},HTTP"),
            Some(IpAddr::V6(a)) => format!("{name}=[{a}]:{port},HTTP"),
        }
    }
}

impl Settings {
    /// By which the front hands on what it has decrypted.
    pub(crate) fn https_socket(&self) -> PathBuf {
        self.work_dir.join("https.sock")
    }

    /// By which the front asks the cache, where it carries HTTP.
    pub(crate) fn front_socket(&self) -> PathBuf {
        self.work_dir.join("front.sock")
    }

    /// By which we speak to ghost: in a directory that varnishd's own user may write to, and no other.
    pub(crate) fn control_socket(&self) -> PathBuf {
        self.work_dir.join("ghost").join("control.sock")
    }

    /// By which varnishd reaches backends with TLS: beside ghost.json, where ghost looks for it.
    pub(crate) fn backends_socket(&self) -> PathBuf {
        self.ghost_config().with_file_name(TLS_BACKENDS_SOCKET)
    }

    /// By which ghost reports what the front should know at once: beside ghost.json, too.
    pub(crate) fn events_socket(&self) -> PathBuf {
        self.ghost_config().with_file_name(EVENTS_SOCKET)
    }

    pub(crate) fn ghost_config(&self) -> PathBuf {
        self.ghost_config.clone().unwrap_or_else(|| self.work_dir.join("ghost.json"))
    }
}
