//! The first message of a client, before anybody knows who is to answer it.

use rustls::server::{Accepted, Acceptor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Failure;

/// A fatal alert as a record of its own: unrecognized_name (RFC 6066).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];
/// internal_error: there is a listener, but no certificate to show.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

const FIRST_READ: usize = 1024;

/// Reads a ClientHello of at most `limit` bytes. What follows it in the same packets is kept for the handshake.
pub(crate) async fn read(stream: &mut TcpStream, limit: usize) -> Result<Accepted, Failure> {
    let mut acceptor = Acceptor::default();
    let mut buffer = vec![0; FIRST_READ.min(limit)];
    let mut total = 0;
    while total < limit {
        let room = buffer.len().min(limit - total);
        let count = stream.read(&mut buffer[..room]).await.map_err(|_| Failure::Gone)?;
        if count == 0 {
            return Err(Failure::Gone);
        }
        total += count;
        let mut bytes = &buffer[..count];
        while !bytes.is_empty() {
            match acceptor.read_tls(&mut bytes) {
                Ok(0) | Err(_) => return Err(Failure::TooLarge),
                Ok(_) => {}
            }
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(accepted),
            Ok(None) => {}
            Err((_, mut alert)) => {
                let mut bytes = Vec::new();
                if alert.write_all(&mut bytes).is_ok() {
                    farewell(stream, &bytes).await;
                }
                return Err(Failure::NotTls);
            }
        }
    }
    Err(Failure::TooLarge)
}

/// Tells the client why, as far as TLS has words for it.
pub(crate) async fn refuse(stream: &mut TcpStream, why: Failure) {
    let alert = if why == Failure::UnknownName { UNRECOGNIZED_NAME } else { INTERNAL_ERROR };
    farewell(stream, &alert).await;
}

/// The client may be gone: nothing depends on it.
async fn farewell(stream: &mut TcpStream, bytes: &[u8]) {
    if stream.write_all(bytes).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}
