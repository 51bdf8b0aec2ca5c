//! PROXY headers of load balancers, version 1 and 2: only the client's address is of interest.
//!
//! Pure. Takes any bytes, never panics, and never asks for more than [`super::MAXIMUM`]. It follows the specification of HAProxy
//! (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use super::{Error, FIXED, SIGNATURE, addresses_v4, addresses_v6, length, next_tlv, take};

/// How every line of version 1 begins.
const BEGINNING: &[u8; 6] = b"PROXY ";

/// The longest line of version 1, with CR and LF.
const LONGEST_LINE: usize = 107;

const CRC32C: u8 = 0x03;

/// The header at the beginning of `bytes`: the client's address and how long the header is; none while there are too few bytes
/// to say. The address is none where the header names none: the peer itself is the client then.
pub fn received(bytes: &[u8]) -> Result<Option<(Option<SocketAddr>, usize)>, Error> {
    if begins(bytes, &SIGNATURE) {
        let Some(whole) = length(bytes)? else { return Ok(None) };
        let Some(header) = bytes.get(..whole) else { return Ok(None) };
        return version_2(header).map(|client| Some((client, whole)));
    }
    if !begins(bytes, BEGINNING) {
        return Err(Error::Signature);
    }
    let known = bytes.get(..LONGEST_LINE).unwrap_or(bytes);
    let Some(end) = known.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() < LONGEST_LINE { Ok(None) } else { Err(Error::Line) };
    };
    let line = known.get(..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(Error::Line)?;
    version_1(line).map(|client| Some((client, end + 1)))
}

/// As far as there are bytes.
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    let known = bytes.len().min(with.len());
    bytes.get(..known) == with.get(..known)
}

/// The line without CR and LF.
fn version_1(line: &[u8]) -> Result<Option<SocketAddr>, Error> {
    let text = std::str::from_utf8(line).map_err(|_| Error::Line)?;
    let rest = text.strip_prefix("PROXY ").ok_or(Error::Line)?;
    // Whatever follows UNKNOWN is ignored.
    if rest == "UNKNOWN" || rest.starts_with("UNKNOWN ") {
        return Ok(None);
    }
    let mut words = rest.split(' ');
    let mut next = || words.next().ok_or(Error::Line);
    let is_v4 = match next()? {
        "TCP4" => true,
        "TCP6" => false,
        _ => return Err(Error::Line),
    };
    let (source, destination, port, other) = (next()?, next()?, next()?, next()?);
    if words.next().is_some() {
        return Err(Error::Line);
    }
    let source = address(source, is_v4)?;
    address(destination, is_v4)?;
    number(other)?;
    Ok(Some(SocketAddr::new(source, number(port)?)))
}

fn address(text: &str, is_v4: bool) -> Result<IpAddr, Error> {
    if is_v4 {
        return Ipv4Addr::from_str(text).map(IpAddr::V4).map_err(|_| Error::Line);
    }
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':') {
        return Err(Error::Line);
    }
    Ipv6Addr::from_str(text).map(|ip| ip.to_canonical()).map_err(|_| Error::Line)
}

/// A port: digits without leading zeros.
fn number(text: &str) -> Result<u16, Error> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().map_err(|_| Error::Line) } else { Err(Error::Line) }
}

/// A whole header, whose beginning was checked.
fn version_2(header: &[u8]) -> Result<Option<SocketAddr>, Error> {
    let (command, family) = (header.get(12).copied().unwrap_or(0), header.get(13).copied().unwrap_or(0));
    // LOCAL, such as health checks of the load balancer: what the header says beyond that is ignored, whatever it is.
    if command & 0x0f == 0 {
        return Ok(None);
    }
    let mut rest = header.get(FIXED..).unwrap_or_default();
    let client = match family {
        0x00 => return Ok(None),
        // Datagrams have no place here: their addresses are not those of this connection.
        0x11 | 0x12 => {
            let (source, _) = addresses_v4(take::<12>(&mut rest)?);
            (family == 0x11).then_some(source)
        }
        0x21 | 0x22 => {
            let (source, _) = addresses_v6(take::<36>(&mut rest)?);
            (family == 0x21).then(|| SocketAddr::new(source.ip().to_canonical(), source.port()))
        }
        0x31 | 0x32 => {
            take::<216>(&mut rest)?;
            None
        }
        _ => return Err(Error::Family),
    };
    while let Some((kind, value)) = next_tlv(&mut rest)? {
        if kind == CRC32C {
            let expected = <[u8; 4]>::try_from(value).map_err(|_| Error::Lengths)?;
            // Where the value stands: as far from the end as what follows it.
            let at = header.len() - rest.len() - expected.len();
            if checksum(header, at) != u32::from_be_bytes(expected) {
                return Err(Error::Checksum);
            }
        }
    }
    Ok(client)
}

/// CRC32c of a header, with zeros in the place of the checksum itself.
fn checksum(header: &[u8], at: usize) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for (position, byte) in header.iter().enumerate() {
        let byte = if (at..at + 4).contains(&position) { 0 } else { *byte };
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
        }
    }
    !crc
}
