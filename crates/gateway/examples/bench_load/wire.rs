//! Connections, heads of messages, and times.

use std::io::{Error, ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Failure;

/// A server or a client that says nothing for this long is broken.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Target<'a> {
    pub(crate) address: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
}

impl Target<'_> {
    pub(crate) fn connect(&self) -> Result<TcpStream, Failure> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    pub(crate) fn request(&self, method: &str, fields: &str) -> Vec<u8> {
        format!("{method} {} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", self.path, self.host).into_bytes()
    }
}

/// The head of a message, and what follows it in `bytes`.
pub(crate) fn split_head(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    Some((std::str::from_utf8(bytes.get(..end)?).ok()?, bytes.get(end..)?))
}

/// Reads a head from a blocking stream. The bytes that came with it follow.
pub(crate) fn read_head(stream: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let (mut bytes, mut part) = (Vec::new(), [0; 16384]);
    loop {
        let count = stream.read(&mut part)?;
        if count == 0 || bytes.len() > 65536 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "no complete head"));
        }
        bytes.extend_from_slice(part.get(..count).unwrap_or_default());
        if let Some((head, rest)) = split_head(&bytes) {
            return Ok((head.to_owned(), rest.to_vec()));
        }
    }
}

pub(crate) fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

pub(crate) fn content_length(head: &str) -> Option<u64> {
    field(head, "content-length")?.parse().ok()
}

/// Positions of streams that can be read, within `timeout`.
pub(crate) fn readable<'a, S: AsFd + 'a>(
    streams: impl Iterator<Item = &'a S>,
    timeout: Duration,
    ready: &mut Vec<usize>,
) -> std::io::Result<()> {
    let mut polled: Vec<PollFd<'_>> = streams.map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
    let timeout =
        Timespec { tv_sec: timeout.as_secs().cast_signed(), tv_nsec: timeout.subsec_nanos().into() };
    ready.clear();
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) => ready.extend(
            polled.iter().enumerate().filter(|(_, one)| !one.revents().is_empty()).map(|(nth, _)| nth),
        ),
        Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    Ok(())
}

/// Durations in microseconds.
#[derive(Default)]
pub(crate) struct Times(Vec<u32>);

impl Times {
    pub(crate) fn add(&mut self, since: Instant) {
        self.0.push(u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX));
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn milliseconds(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        let nth = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        f64::from(self.0.get(nth).copied().unwrap_or(0)) / 1e3
    }
}
