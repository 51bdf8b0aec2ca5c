//! HTTP/2 by raw frames, for clients that no library would let one write.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Front, PATIENCE};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// `GET http://a/`, by HPACK's static table.
pub(crate) const GET: &[u8] = b"\x82\x84\x86\x01\x01a";
/// `POST http://a/`.
pub(crate) const POST: &[u8] = b"\x83\x84\x86\x01\x01a";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error code of a GOAWAY or a RST_STREAM.
    pub(crate) fn code(&self) -> Option<u32> {
        let at = match self.kind {
            GOAWAY => 4,
            RST_STREAM => 0,
            _ => return None,
        };
        Some(u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap()))
    }
}

/// One connection. What it gets is read by a task of its own, unless it is deaf.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

/// How a flood ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// All that the front has sent.
    pub(crate) frames: Vec<Frame>,
    /// The front closed the connection.
    pub(crate) is_closed: bool,
}

impl Ended {
    /// The code of the first GOAWAY.
    pub(crate) fn goaway(&self) -> Option<u32> {
        self.frames.iter().find(|frame| frame.kind == GOAWAY).and_then(Frame::code)
    }

    pub(crate) fn count(&self, kind: u8) -> usize {
        self.frames.iter().filter(|frame| frame.kind == kind).count()
    }
}

impl Raw {
    /// Says the preface, with these settings. The front's settings are not acknowledged.
    pub(crate) async fn open(front: &Front, settings: &[(u16, u32)]) -> Self {
        let mut stream = front.connect().await;
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &payload)].concat()).await.unwrap();
        Self { stream, unread: Vec::new() }
    }

    /// Sends all of this and reads at the same time, until `enough` of what has come; then a PING shows that the front has read it
    /// all, unless it has closed the connection.
    pub(crate) async fn flood(self, bytes: Vec<u8>) -> Ended {
        const LAST: &[u8] = b"theEnd!!";
        let Self { stream, mut unread } = self;
        let (mut reader, mut writer) = stream.into_split();
        let ping = frame(PING, 0, 0, LAST);
        let writes = tokio::spawn(async move {
            // A connection that the front closes cannot be written to.
            let _ = writer.write_all(&bytes).await;
            let _ = writer.write_all(&ping).await;
            writer
        });
        let mut frames = Vec::new();
        let mut buffer = vec![0; 65536];
        let is_closed = loop {
            frames.extend(split(&mut unread));
            if frames.iter().any(|frame: &Frame| frame.kind == PING && frame.payload == LAST) {
                break false;
            }
            match timeout(PATIENCE, reader.read(&mut buffer)).await {
                Ok(Ok(count @ 1..)) => unread.extend_from_slice(&buffer[..count]),
                Ok(_) => break true,
                Err(_) => panic!("the front neither answers nor closes after {} frames", frames.len()),
            }
        };
        drop(timeout(PATIENCE, writes).await.unwrap());
        Ended { frames, is_closed }
    }

    /// Sends without reading, until the front takes no more, or `most` bytes are through. Returns how many were.
    pub(crate) async fn push(&mut self, unit: &[u8], most: usize) -> usize {
        let block = unit.repeat((65536 / unit.len()).max(1));
        let mut sent = 0;
        while sent < most {
            match timeout(Duration::from_secs(2), self.stream.write_all(&block)).await {
                Ok(Ok(())) => sent += block.len(),
                Ok(Err(_)) | Err(_) => return sent,
            }
        }
        sent
    }

    /// The next frame; `None` once the connection is closed.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let mut buffer = vec![0; 16384];
        loop {
            if let Some(frame) = first(&mut self.unread) {
                return Some(frame);
            }
            match timeout(PATIENCE, self.stream.read(&mut buffer)).await.expect("the front says something") {
                Ok(count @ 1..) => self.unread.extend_from_slice(&buffer[..count]),
                _ => return None,
            }
        }
    }

    /// The next frame of a kind.
    pub(crate) async fn wait_for(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.unwrap().unwrap();
    }
}

fn split(unread: &mut Vec<u8>) -> Vec<Frame> {
    std::iter::from_fn(|| first(unread)).collect()
}

fn first(unread: &mut Vec<u8>) -> Option<Frame> {
    let head: [u8; 9] = unread.get(..9)?.try_into().unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let payload = unread.get(9..9 + length)?.to_vec();
    unread.drain(..9 + length);
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
    Some(Frame { kind: head[3], flags: head[4], stream, payload })
}
