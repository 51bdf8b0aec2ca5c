//! The name in a ClientHello, read without answering it.
//!
//! Pure. Takes any bytes, never panics, reads each byte a bounded number of times, and takes no more memory than the bytes
//! that it is given. It is lenient where the answer is not ours to give: versions, ciphers and unknown extensions pass.

use std::net::IpAddr;

/// What is known about a client before the first response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// Lower case. None for clients that name no host, or an address.
    pub name: Option<String>,
}

/// Why bytes are no ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("not a TLS handshake")]
    NotTls,
    #[error("a ClientHello whose lengths do not fit")]
    Lengths,
    #[error("a ClientHello that names its host twice, or with an invalid hostname")]
    Name,
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const LONGEST_RECORD: usize = 1 << 14;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Reads the ClientHello at the beginning of `bytes`; none while it is not complete.
pub fn sniff(bytes: &[u8]) -> Result<Option<Hello>, Error> {
    let mut message = Vec::new();
    let mut records = Reader(bytes);
    loop {
        if let Some(length) = message_length(&message)?
            && let Some(body) = message.get(4..4 + length)
        {
            return hello(body).map(Some);
        }
        match record(&mut records)? {
            Some(part) => message.extend_from_slice(part),
            None => return Ok(None),
        }
    }
}

/// The length of a ClientHello's body, once it is known.
fn message_length(message: &[u8]) -> Result<Option<usize>, Error> {
    match *message {
        [] => Ok(None),
        [kind, ..] if kind != CLIENT_HELLO => Err(Error::NotTls),
        [_, a, b, c, ..] => Ok(Some(u32::from_be_bytes([0, a, b, c]) as usize)),
        _ => Ok(None),
    }
}

/// The content of the next record; none while it is not complete.
fn record<'a>(records: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Error> {
    let &[kind, major, ref rest @ ..] = records.0 else {
        return if records.0.first().is_none_or(|kind| *kind == HANDSHAKE) {
            Ok(None)
        } else {
            Err(Error::NotTls)
        };
    };
    if kind != HANDSHAKE || major != 3 {
        return Err(Error::NotTls);
    }
    let &[_, high, low, ref rest @ ..] = rest else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length == 0 || length > LONGEST_RECORD {
        return Err(Error::NotTls);
    }
    let Some((content, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    records.0 = rest;
    Ok(Some(content))
}

fn hello(body: &[u8]) -> Result<Hello, Error> {
    let mut body = Reader(body);
    let version_and_random = 2 + 32;
    body.take(version_and_random)?;
    let session = body.u8()?;
    body.take(session.into())?;
    let ciphers = body.u16()?;
    body.take(ciphers.into())?;
    let compressions = body.u8()?;
    body.take(compressions.into())?;
    let mut hello = Hello::default();
    // Very old clients have no extensions.
    if body.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = body.part()?;
    let mut named = false;
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let content = extensions.part()?;
        if kind == SERVER_NAME {
            if named {
                return Err(Error::Name);
            }
            named = true;
            hello.name = server_name(content)?;
        }
    }
    Ok(hello)
}

fn server_name(mut content: Reader<'_>) -> Result<Option<String>, Error> {
    let mut names = content.part()?;
    while !names.0.is_empty() {
        let kind = names.u8()?;
        let name = names.part()?;
        if kind == HOST_NAME {
            return hostname(name.0);
        }
    }
    Ok(None)
}

/// An address is no name (RFC 6066), yet some clients send it.
fn hostname(bytes: &[u8]) -> Result<Option<String>, Error> {
    let name = std::str::from_utf8(bytes).map_err(|_| Error::Name)?;
    if name.parse::<IpAddr>().is_ok() {
        return Ok(None);
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 253 || !name.bytes().all(allowed) || name.split('.').any(str::is_empty)
    {
        return Err(Error::Name);
    }
    Ok(Some(name.to_ascii_lowercase()))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Error::Lengths)?;
        self.0 = tail;
        Ok(head)
    }

    fn u8(&mut self) -> Result<u8, Error> {
        let (byte, tail) = self.0.split_first().ok_or(Error::Lengths)?;
        self.0 = tail;
        Ok(*byte)
    }

    fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_be_bytes([self.u8()?, self.u8()?]))
    }

    /// A field with its length before it, in two bytes.
    fn part(&mut self) -> Result<Self, Error> {
        let length = self.u16()?;
        self.take(length.into()).map(Self)
    }
}
