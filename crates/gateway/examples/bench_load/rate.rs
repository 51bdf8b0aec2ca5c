//! Requests at a fixed rate. A request's time counts from when it was due, also where no connection was free then.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Failure;
use crate::wire::{Target, Times, content_length, readable, split_head};

/// After the last request was due, so long may responses take.
const DRAIN: Duration = Duration::from_secs(5);

struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
    due: Option<Instant>,
}

pub(crate) fn load(
    target: &Target<'_>,
    connections: usize,
    rate: f64,
    seconds: f64,
) -> Result<Value, Failure> {
    let request = target.request("GET", "");
    let mut wires = (0..connections).map(|_| open(target)).collect::<Result<Vec<_>, _>>()?;
    let (mut times, mut failed, mut sent, mut ready) = (Times::default(), 0, 0_u32, Vec::new());
    let mut late = Times::default();
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(seconds);
    loop {
        let mut next = begun + Duration::from_secs_f64(f64::from(sent) / rate);
        for wire in wires.iter_mut().filter(|wire| wire.due.is_none()) {
            if next > Instant::now() || next >= end {
                break;
            }
            late.add(next);
            wire.due = Some(next);
            wire.stream.write_all(&request)?;
            sent += 1;
            next = begun + Duration::from_secs_f64(f64::from(sent) / rate);
        }
        let (now, busy) = (Instant::now(), wires.iter().filter(|wire| wire.due.is_some()).count());
        if next >= end && busy == 0 {
            break;
        }
        if now > end + DRAIN {
            return Err(format!("{busy} requests have no answer after {DRAIN:?}").into());
        }
        let timeout =
            if busy == wires.len() || next >= end { DRAIN } else { next.saturating_duration_since(now) };
        readable(wires.iter().map(|wire| &wire.stream), timeout, &mut ready)?;
        for nth in &ready {
            let Some(wire) = wires.get_mut(*nth) else { continue };
            match wire.answer()? {
                None => {}
                Some(status) => {
                    failed += u32::from(status != 200);
                    if let Some(due) = wire.due.take() {
                        times.add(due);
                    }
                }
            }
        }
    }
    let took = begun.elapsed().as_secs_f64();
    Ok(json!({
        "count": times.count(), "seconds": took, "not_2xx": failed,
        "p50_ms": times.milliseconds(50), "p99_ms": times.milliseconds(99), "sent_late_p99_ms": late.milliseconds(99),
    }))
}

/// Opens a connection, and asks once, so that no handshake is in the measurement.
fn open(target: &Target<'_>) -> Result<Wire, Failure> {
    let mut wire = Wire { stream: target.connect()?, input: Vec::new(), due: None };
    wire.stream.write_all(&target.request("GET", ""))?;
    while wire.answer()?.is_none() {}
    wire.stream.set_nonblocking(true)?;
    Ok(wire)
}

impl Wire {
    /// The status of the response, once it is complete.
    fn answer(&mut self) -> Result<Option<u16>, Failure> {
        let mut part = [0; 16384];
        match self.stream.read(&mut part) {
            Ok(0) => return Err("the connection was closed".into()),
            Ok(count) => self.input.extend_from_slice(part.get(..count).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        let Some((head, body)) = split_head(&self.input) else { return Ok(None) };
        let length = content_length(head).ok_or("a response has no Content-Length")?;
        if (body.len() as u64) < length {
            return Ok(None);
        }
        let status =
            head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or("a response has no status")?;
        self.input.clear();
        Ok(Some(status))
    }
}
