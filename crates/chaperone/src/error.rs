//! Errors in the management of varnishd.

use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("varnishd is not installed ({} was not found): apt-get install varnish", path.display())]
    NoVarnishd { path: PathBuf },
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error(
        "port {} of socket {socket} is taken by another process on {address}: stop that process (`ss -ltnp 'sport = :{}'` names it), \
         or give the listener another port", address.port(), address.port()
    )]
    PortTaken { socket: String, address: SocketAddr },
    #[error("port {} of socket {socket} needs root, or sysctl net.ipv4.ip_unprivileged_port_start={}: use a port from 1024 on, or start as root", address.port(), address.port())]
    PortForbidden { socket: String, address: SocketAddr },
    #[error("cannot listen on {address} for socket {socket}: {source}")]
    Port { socket: String, address: SocketAddr, source: std::io::Error },
    #[error(
        "{} is too long for a unix socket, which may have {longest} bytes: choose a shorter state directory", path.display()
    )]
    SocketPath { path: PathBuf, longest: usize },
    #[error("spans cannot be exported to `{endpoint}`: {why}")]
    Endpoint { endpoint: String, why: String },
    #[error("{variable}: {why}")]
    Exporter { variable: &'static str, why: String },
    #[error("varnishd exited at its start: {output}")]
    Start { output: String },
    #[error("varnishd cannot start its child: {output}")]
    StartChild { output: String },
    #[error("{} is used by another process (see {}): end it, or choose another directory", dir.display(), lock.display())]
    Taken { dir: PathBuf, lock: PathBuf },
    #[error("{} was removed: varnishd restarts in a new one", dir.display())]
    Removed { dir: PathBuf },
    #[error("varnishd ended: {output}")]
    Ended { output: String },
    #[error(transparent)]
    Admin(#[from] varnishadm::Error),
    #[error("ghost's control socket {} did not answer: {cause}", socket.display())]
    ReloadUnreachable { socket: PathBuf, cause: String },
    #[error("varnishd's child changed its state during a reload")]
    ReloadInterrupted,
    #[error("ghost refused the configuration: {cause}")]
    ReloadRefused { cause: String },
    #[error("the VCL does not compile: {message}")]
    VclCompile { message: String },
    #[error("VMOD ghost was not found at {}: build it with `make build`, or name it by --vmod", path.display())]
    NoVmod { path: PathBuf },
    #[error("{variable}=`{value}` is not valid: {why}")]
    Environment { variable: &'static str, value: String, why: String },
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// varnishd does not start, and its arguments may be the reason.
    pub(crate) fn may_be_the_arguments(&self) -> bool {
        matches!(self, Self::Start { .. } | Self::StartChild { .. } | Self::ReloadUnreachable { .. })
    }

    /// Only the new configuration was refused. varnishd keeps running.
    pub fn keeps_serving(&self) -> bool {
        matches!(
            self,
            Self::VclCompile { .. }
                | Self::ReloadRefused { .. }
                | Self::ReloadUnreachable { .. }
                | Self::ReloadInterrupted
        )
    }
}
