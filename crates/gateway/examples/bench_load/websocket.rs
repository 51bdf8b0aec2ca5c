//! WebSocket messages to and fro: each connection sends its next message when the last one has come back.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;
use crate::wire::{Target, Times, read_head, readable};

/// Key and accepted key are those of RFC 6455, 1.3.
const ASK: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
pub(crate) const ACCEPTED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const PAYLOAD: u8 = 64;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const BINARY: u8 = 0x82;
const MASKED: u8 = 0x80;
/// How long new connections may wait for the echo thread to notice them.
const GLANCE: Duration = Duration::from_millis(20);

struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
    sent: Instant,
}

impl Wire {
    /// Whether the peer is still there.
    fn read(&mut self) -> std::io::Result<bool> {
        let mut part = [0; 4096];
        match self.stream.read(&mut part) {
            Ok(count) => {
                self.input.extend_from_slice(part.get(..count).unwrap_or_default());
                Ok(count > 0)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(e) => Err(e),
        }
    }
}

pub(crate) fn load(target: &Target<'_>, connections: usize, seconds: u64) -> Result<Value, Failure> {
    let (asked, echoed) = (frame(true), frame(false));
    let mut wires = (0..connections).map(|_| open(target)).collect::<Result<Vec<_>, _>>()?;
    let (begun, mut times, mut ready) = (Instant::now(), Times::default(), Vec::new());
    for wire in &mut wires {
        wire.sent = Instant::now();
        wire.stream.write_all(&asked)?;
    }
    while begun.elapsed() < Duration::from_secs(seconds) {
        readable(wires.iter().map(|wire| &wire.stream), Duration::from_secs(5), &mut ready)?;
        if ready.is_empty() {
            return Err("no message came back within 5 s".into());
        }
        for nth in &ready {
            let Some(wire) = wires.get_mut(*nth) else { continue };
            if !wire.read()? {
                return Err("the connection was closed".into());
            }
            if wire.input.len() < echoed.len() {
                continue;
            }
            if wire.input != echoed {
                return Err("another message came back than was sent".into());
            }
            wire.input.clear();
            times.add(wire.sent);
            wire.sent = Instant::now();
            wire.stream.write_all(&asked)?;
        }
    }
    let took = begun.elapsed().as_secs_f64();
    Ok(
        json!({"count": times.count(), "seconds": took, "p50_ms": times.milliseconds(50), "p99_ms": times.milliseconds(99)}),
    )
}

fn open(target: &Target<'_>) -> Result<Wire, Failure> {
    let mut stream = target.connect()?;
    stream.write_all(&target.request("GET", ASK))?;
    let (head, input) = read_head(&mut stream)?;
    if !head.starts_with("HTTP/1.1 101 ") {
        return Err(format!("the server answered: {head}").into());
    }
    stream.set_nonblocking(true)?;
    Ok(Wire { stream, input, sent: Instant::now() })
}

fn frame(masked: bool) -> Vec<u8> {
    let payload = (0..PAYLOAD).map(|nth| if masked { nth ^ mask(nth.into()) } else { nth });
    let mut bytes = vec![BINARY, if masked { MASKED | PAYLOAD } else { PAYLOAD }];
    bytes.extend(MASK.iter().filter(|_| masked));
    bytes.extend(payload);
    bytes
}

fn mask(nth: usize) -> u8 {
    MASK.get(nth % 4).copied().unwrap_or_default()
}

/// Echoes on all connections that the handshakes hand over.
pub(crate) fn echo(new: &Receiver<(TcpStream, Vec<u8>)>) {
    let (mut wires, mut ready, mut output): (Vec<Wire>, _, _) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        while let Ok((stream, input)) = new.try_recv() {
            if stream.set_nonblocking(true).is_ok() {
                wires.push(Wire { stream, input, sent: Instant::now() });
            }
        }
        if readable(wires.iter().map(|wire| &wire.stream), GLANCE, &mut ready).is_err() {
            return;
        }
        for nth in ready.iter().rev() {
            let Some(wire) = wires.get_mut(*nth) else { continue };
            let open = wire.read().unwrap_or(false);
            output.clear();
            let understood = answer_frames(&mut wire.input, &mut output);
            if wire.stream.write_all(&output).is_err() || !open || !understood {
                wires.swap_remove(*nth);
            }
        }
    }
}

/// Takes complete frames from `input` and writes their echoes. False for frames that the load does not send, Close included.
fn answer_frames(input: &mut Vec<u8>, output: &mut Vec<u8>) -> bool {
    while let [first, second, ..] = input[..] {
        let (length, mask_at) = (usize::from(second & !MASKED), 2);
        if second & MASKED == 0 || length > 125 || first != BINARY {
            return false;
        }
        let end = mask_at + 4 + length;
        let (Some(key), Some(payload)) = (input.get(mask_at..mask_at + 4), input.get(mask_at + 4..end))
        else {
            break;
        };
        output.extend([first, second & !MASKED]);
        output.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
        input.drain(..end);
    }
    true
}
