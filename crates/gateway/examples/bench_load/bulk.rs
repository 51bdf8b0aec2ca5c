//! Many bytes through one connection. Neither side copies them (sendfile, MSG_TRUNC), so that the proxy is the limit.

use std::fs::File;
use std::io::{Read, Seek, Write, copy};
use std::net::TcpStream;
use std::time::Instant;

use rustix::net::{RecvFlags, recv};
use serde_json::{Value, json};

use crate::Failure;
use crate::wire::{Target, content_length, read_head};

const PIECE: u64 = 1 << 20;

pub(crate) fn download(target: &Target<'_>, bytes: u64) -> Result<Value, Failure> {
    let mut stream = target.connect()?;
    let path = format!("{}/down/{bytes}", target.path);
    stream.write_all(&Target { path: &path, ..*target }.request("GET", ""))?;
    let begun = Instant::now();
    let (head, rest) = read_head(&mut stream)?;
    if !head.contains(" 200 ") || content_length(&head) != Some(bytes) {
        return Err(format!("the server answered: {head}").into());
    }
    discard(&stream, bytes - rest.len() as u64)?;
    Ok(json!({"bytes": bytes, "seconds": begun.elapsed().as_secs_f64()}))
}

pub(crate) fn upload(target: &Target<'_>, bytes: u64) -> Result<Value, Failure> {
    let mut stream = target.connect()?;
    stream.write_all(&target.request("POST", &format!("Content-Length: {bytes}\r\n")))?;
    let begun = Instant::now();
    send(&mut stream, bytes)?;
    let (head, _) = read_head(&mut stream)?;
    if !head.contains(" 200 ") {
        return Err(format!("the server answered: {head}").into());
    }
    Ok(json!({"bytes": bytes, "seconds": begun.elapsed().as_secs_f64()}))
}

/// Sends zeros from a file of one piece: the standard library uses sendfile for it.
pub(crate) fn send(stream: &mut TcpStream, bytes: u64) -> Result<(), Failure> {
    let path = std::env::temp_dir().join(format!("bench-load-{}-{bytes}", std::process::id()));
    let mut zeros = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
    std::fs::remove_file(&path)?;
    zeros.write_all(&vec![0; usize::try_from(PIECE)?])?;
    let mut left = bytes;
    while left > 0 {
        zeros.rewind()?;
        left -= copy(&mut Read::by_ref(&mut zeros).take(left), stream)?;
    }
    Ok(())
}

pub(crate) fn discard(stream: &TcpStream, bytes: u64) -> Result<(), Failure> {
    let (mut left, mut piece) = (bytes, vec![0; usize::try_from(PIECE)?]);
    while left > 0 {
        let part = piece.get_mut(..usize::try_from(left.min(PIECE))?).unwrap_or_default();
        match recv(stream, part, RecvFlags::TRUNC)?.1 {
            0 => return Err(format!("the connection was closed {left} bytes before the end").into()),
            count => left -= count as u64,
        }
    }
    Ok(())
}
