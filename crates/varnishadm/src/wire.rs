//! The bytes: a command goes out as one line (or a line and a here-document), an answer comes back as a header
//! of exactly 13 bytes, the body, and a newline.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::{Error, Result};

mod quote;

pub(crate) use quote::Command;

/// The largest answer that is taken. varnishd's own limit (its parameter `cli_limit`) is raised to it at each
/// connection: by default, varnishd cuts every answer at 48 KiB, that is a list of some 300 backends.
pub const ANSWER_LIMIT: usize = 64 << 20;

/// `%-3d %-8d\n`
const HEADER: usize = 13;

pub(crate) const OK: u16 = 200;
pub(crate) const TRUNCATED: u16 = 201;
pub(crate) const AUTHENTICATE: u16 = 107;
pub(crate) const CANNOT: u16 = 300;

/// What varnishd said, whether yes or no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// 200 is yes; 100 to 107 is a bad command or argument, 300 cannot be done now, 400 no answer from the child.
    pub status: u16,
    pub body: String,
}

pub(crate) async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    command: &Command,
) -> Result<Answer> {
    let sent = async {
        stream.write_all(command.bytes()).await?;
        stream.flush().await
    };
    sent.await.map_err(|error| failed(command.label(), error))?;
    read_answer(stream, command.label()).await
}

pub(crate) async fn read_answer<R: AsyncRead + Unpin>(stream: &mut R, command: &str) -> Result<Answer> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header).await.map_err(|error| failed(command, error))?;
    let garbage = |why: String| Error::Garbage { command: command.to_owned(), why };

    let (status, length) = parse_header(&header).ok_or_else(|| {
        garbage(format!("the header of an answer is wanted, not \"{}\"", header.escape_ascii()))
    })?;
    if length > ANSWER_LIMIT {
        return Err(Error::TooLarge { command: command.to_owned(), length, limit: ANSWER_LIMIT });
    }
    // Grows with what arrives, not with what was announced.
    let mut body = Vec::new();
    stream.take(length as u64 + 1).read_to_end(&mut body).await.map_err(|error| failed(command, error))?;
    if body.len() <= length {
        return Err(Error::Closed { command: command.to_owned() });
    }
    match body.pop() {
        Some(b'\n') => {}
        other => {
            let end = other.map(|byte| byte.escape_ascii().to_string()).unwrap_or_default();
            return Err(garbage(format!("after {length} bytes, the answer should end in \\n, not {end}")));
        }
    }
    // The compiler quotes the lines of a VCL, and these may be in any encoding.
    let body = String::from_utf8(body)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(Answer { status, body })
}

fn parse_header(header: &[u8; HEADER]) -> Option<(u16, usize)> {
    let text = std::str::from_utf8(header).ok()?;
    let (status, length) = text.strip_suffix('\n')?.split_once(' ')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let length = length.trim_end_matches(' ');
    if status.len() != 3 || !digits(status) || !digits(length) {
        return None;
    }
    Some((status.parse().ok()?, length.parse().ok()?))
}

fn failed(command: &str, source: io::Error) -> Error {
    let command = command.to_owned();
    match source.kind() {
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => Error::Closed { command },
        _ => Error::Io { command, source },
    }
}

#[cfg(test)]
mod tests;
