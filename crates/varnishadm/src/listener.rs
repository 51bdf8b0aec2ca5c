use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

use crate::admin::Admin;
use crate::banner::Banner;
use crate::error::{Error, Result};
use crate::secret::Secret;
use crate::wire::{self, ANSWER_LIMIT, AUTHENTICATE, Command, OK};

/// Where `varnishd -M` connects to.
///
/// varnishd's manager tries again every second, ten at most, for as long as it lives and has no connection. So one
/// listener serves a varnishd over all its reconnections, and its successors too.
#[derive(Debug)]
pub struct ReverseListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl ReverseListener {
    /// `127.0.0.1:0` takes a free port. Every client is believed to be varnishd, so stay on the loopback.
    pub async fn bind(address: &str) -> Result<Self> {
        let bind = async {
            let listener = TcpListener::bind(address).await?;
            let address = listener.local_addr()?;
            Ok(Self { listener, address })
        };
        bind.await.map_err(|source| Error::Bind { address: address.to_owned(), source })
    }

    /// For varnishd's `-M`.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Waits for varnishd's next connection, and authenticates. The timeout is for all of it.
    ///
    /// After an error, another call waits for the next try: varnishd makes one after each failure.
    pub async fn accept(&self, secret: &Secret, timeout: Duration) -> Result<Admin> {
        let mut connected = false;
        let greeted = async {
            let (stream, peer) = self.listener.accept().await.map_err(Error::Accept)?;
            connected = true;
            greet(stream, peer, secret).await
        };
        let result = tokio::time::timeout(timeout, greeted).await;
        result.unwrap_or_else(|_| {
            Err(match connected {
                true => Error::Timeout { command: GREETING.to_owned(), after: timeout },
                false => Error::NoConnection { address: self.address, after: timeout },
            })
        })
    }
}

const GREETING: &str = "(greeting)";

async fn greet(mut stream: TcpStream, peer: SocketAddr, secret: &Secret) -> Result<Admin> {
    // Commands are small and each one waits for its answer. If this fails, they are only slower.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
    let mut answer = wire::read_answer(&mut stream, GREETING).await?;
    if answer.status == AUTHENTICATE {
        let challenge = match answer.body.as_bytes().split_at_checked(32) {
            Some((challenge, [b'\n', ..])) => challenge,
            _ => {
                let why = "its challenge should be a line of 32 characters".to_owned();
                return Err(Error::Garbage { command: GREETING.to_owned(), why });
            }
        };
        // Not through the connection's task: that would log it.
        let response = Command::authenticate(&secret.respond(challenge));
        answer = wire::exchange(&mut stream, &response).await?;
        if answer.status != OK {
            return Err(Error::AuthenticationRefused { status: answer.status, text: answer.body });
        }
    } else if answer.status != OK {
        let why = format!("status {} is neither a banner nor a challenge", answer.status);
        return Err(Error::Garbage { command: GREETING.to_owned(), why });
    }
    let banner = Banner::parse(answer);
    tracing::debug!(%peer, version = banner.version, child_running = banner.child_running, "varnishd connected");

    let raise = Command::words(&["param.set", "cli_limit", &ANSWER_LIMIT.to_string()])?;
    let answer = wire::exchange(&mut stream, &raise).await?;
    if answer.status != OK {
        // Read-only by varnishd -r, perhaps. Most answers fit, and Error::Truncated tells of those that don't.
        tracing::warn!(status = answer.status, text = answer.body, "varnishd's cli_limit stays as it is");
    }
    Ok(Admin::new(stream, banner))
}
