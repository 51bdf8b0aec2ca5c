//! Datagrams to and fro: each socket sends its next datagram when the last one has come back.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;
use crate::wire::{Times, readable};

const PAYLOAD: [u8; 64] = [7; 64];
/// A datagram that does not come back within this time is lost, and counts as failed.
const PATIENCE: Duration = Duration::from_millis(500);

struct Wire {
    socket: UdpSocket,
    sent: Instant,
}

impl Wire {
    fn open(address: &str) -> Result<Self, Failure> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, sent: Instant::now() })
    }

    fn send(&mut self) -> std::io::Result<()> {
        self.sent = Instant::now();
        self.socket.send(&PAYLOAD).map(drop)
    }
}

pub(crate) fn load(address: &str, sockets: usize, seconds: u64) -> Result<Value, Failure> {
    let mut wires = (0..sockets).map(|_| Wire::open(address)).collect::<Result<Vec<_>, _>>()?;
    let (begun, mut times, mut ready, mut lost) = (Instant::now(), Times::default(), Vec::new(), 0_u64);
    for wire in &mut wires {
        wire.send()?;
    }
    while begun.elapsed() < Duration::from_secs(seconds) {
        readable(wires.iter().map(|wire| &wire.socket), PATIENCE, &mut ready)?;
        for nth in &ready {
            let Some(wire) = wires.get_mut(*nth) else { continue };
            let mut part = [0; 128];
            match wire.socket.recv(&mut part) {
                Ok(length) if part.get(..length) == Some(&PAYLOAD[..]) => {
                    times.add(wire.sent);
                    wire.send()?;
                }
                Ok(_) => return Err("another datagram came back than was sent".into()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
        }
        if ready.is_empty() {
            for wire in wires.iter_mut().filter(|wire| wire.sent.elapsed() >= PATIENCE) {
                lost += 1;
                wire.send()?;
            }
        }
    }
    let took = begun.elapsed().as_secs_f64();
    let (middle, most) = (times.milliseconds(50), times.milliseconds(99));
    Ok(json!({"count": times.count(), "seconds": took, "p50_ms": middle, "p99_ms": most, "not_2xx": lost}))
}

/// Sends every datagram back.
pub(crate) fn echo(socket: &UdpSocket) {
    let mut buffer = [0; 2048];
    loop {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // A datagram that is lost is the load's to report.
            let _ = socket.send_to(buffer.get(..length).unwrap_or_default(), from);
        }
    }
}
