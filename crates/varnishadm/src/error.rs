use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// `command` is what was asked for, with long or multi-line arguments replaced by their size.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen for varnishd's CLI on {address}: {source}; is another process using the port?")]
    Bind { address: String, source: io::Error },

    #[error("cannot accept varnishd's CLI connection: {0}")]
    Accept(io::Error),

    #[error(
        "no varnishd connected to {address} within {after:?}; is it running, and was it started with -M {address}?"
    )]
    NoConnection { address: SocketAddr, after: Duration },

    #[error(
        "varnishd refused the authentication (status {status}{}); its -S file differs from our secret, or it cannot read it: \
         start it with -S pointing at the file that was written for it",
        said(text)
    )]
    AuthenticationRefused { status: u16, text: String },

    /// varnishd answered, and the answer is no. For `vcl.load` the text is the compiler's whole message.
    #[error("varnishd refused `{command}` (status {status}): {text}")]
    Status { command: String, status: u16, text: String },

    #[error(
        "varnishd cut its answer to `{command}` short at {length} bytes; raise its parameter cli_limit (varnishd -p cli_limit=64m)"
    )]
    Truncated { command: String, length: usize },

    #[error("varnishd's answer to `{command}` cannot be read: {why}; is this varnishd 7.1 or later?")]
    Answer { command: String, why: String },

    #[error("cannot send `{command}` to varnishd: {why}")]
    Argument { command: String, why: String },

    #[error(
        "varnishd did not answer `{command}` within {after:?}; the CLI connection is closed, since a late answer would be \
         taken for the next command's: await varnishd's next connection"
    )]
    Timeout { command: String, after: Duration },

    #[error(
        "varnishd closed the CLI connection before it answered `{command}`; it has probably died: look at its log, restart \
         it if it is gone, and await its next connection"
    )]
    Closed { command: String },

    #[error(
        "varnishd announced {length} bytes in answer to `{command}`, more than the {limit} that are taken; the CLI \
         connection is closed: await varnishd's next connection"
    )]
    TooLarge { command: String, length: usize, limit: usize },

    #[error(
        "what came in answer to `{command}` is not varnishd's CLI protocol: {why}; the CLI connection is closed: is \
         something else connecting to this port?"
    )]
    Garbage { command: String, why: String },

    #[error(
        "the CLI connection failed during `{command}`: {source}; it is closed: await varnishd's next connection"
    )]
    Io { command: String, source: io::Error },

    #[error(
        "cannot run `{command}`: the CLI connection was closed earlier ({reason}); await varnishd's next connection"
    )]
    Disconnected { command: String, reason: String },

    #[error("cannot read the CLI secret {path}: {source}")]
    ReadSecret { path: PathBuf, source: io::Error },

    #[error("the CLI secret {path} is empty, which varnishd refuses; write some random bytes into it")]
    EmptySecret { path: PathBuf },

    #[error("cannot write the CLI secret {path}: {source}; the directory must exist and be writable")]
    WriteSecret { path: PathBuf, source: io::Error },

    #[error("cannot get random bytes for the CLI secret from /dev/urandom: {0}")]
    Random(io::Error),
}

impl Error {
    /// varnishd's own status code, if it was varnishd that said no.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } | Self::AuthenticationRefused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the connection is gone with this error, so that the next step is [`ReverseListener::accept`].
    ///
    /// [`ReverseListener::accept`]: crate::ReverseListener::accept
    pub fn is_disconnected(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Closed { .. }
                | Self::TooLarge { .. }
                | Self::Garbage { .. }
                | Self::Io { .. }
                | Self::Disconnected { .. }
        )
    }
}

fn said(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}
