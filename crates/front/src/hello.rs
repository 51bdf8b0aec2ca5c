//! The first message of a client, before anybody knows who is to answer it.

use rustls::server::{Accepted, Acceptor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;
use crate::sniff::{Hello, sniff};

/// A fatal alert as a record of its own: unrecognized_name (RFC 6066). No listener has the name, or none has a certificate for it.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
/// decode_error: we and rustls read the name differently.
const DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

/// Hellos with keys against quantum computers have nearly 2 KiB.
const READ: usize = 2048;

/// How a client began its connection.
pub(crate) struct Greeting {
    /// The ClientHello, and bytes that were received with it.
    pub(crate) bytes: Vec<u8>,
    /// None: not understood. rustls has the last word then.
    pub(crate) hello: Option<Hello>,
}

/// Reads a ClientHello within `limit` bytes.
pub(crate) async fn read(stream: &mut TcpStream, limit: usize) -> Result<Greeting, Failure> {
    let mut bytes = Vec::with_capacity(READ);
    while bytes.len() < limit {
        bytes.reserve(READ);
        let room = (limit - bytes.len()) as u64;
        let count = (&mut *stream).take(room).read_buf(&mut bytes).await.map_err(|_| Failure::Gone)?;
        if count == 0 {
            return Err(Failure::Gone);
        }
        match sniff(&bytes) {
            Ok(None) => {}
            Ok(hello) => return Ok(Greeting { bytes, hello }),
            Err(_) => return Ok(Greeting { bytes, hello: None }),
        }
    }
    Err(Failure::TooLarge)
}

/// The same for rustls.
pub(crate) async fn accept(stream: &mut TcpStream, bytes: &[u8]) -> Result<Accepted, Failure> {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if !matches!(acceptor.read_tls(&mut rest), Ok(1..)) {
            return Err(Failure::TooLarge);
        }
    }
    match acceptor.accept() {
        Ok(Some(accepted)) => Ok(accepted),
        Ok(None) => Err(Failure::NotTls),
        Err((_, mut alert)) => {
            let mut bytes = Vec::new();
            if alert.write_all(&mut bytes).is_ok() {
                farewell(stream, &bytes).await;
            }
            Err(Failure::NotTls)
        }
    }
}

/// Sends the client the reason, as far as TLS has an alert for it.
pub(crate) async fn refuse(stream: &mut TcpStream, why: Failure) {
    let alert = if why == Failure::Misbehaved { DECODE_ERROR } else { UNRECOGNIZED_NAME };
    farewell(stream, &alert).await;
}

/// The client may be gone: nothing depends on it.
async fn farewell(stream: &mut TcpStream, bytes: &[u8]) {
    if stream.write_all(bytes).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}
