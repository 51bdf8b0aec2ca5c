//! PROXY protocol: who is at the other end, said before the first byte. Version 2 towards varnishd and from it ([`Header`]),
//! version 1 and 2 from load balancers ([`received`]).
//!
//! Pure. The parser takes any bytes, never panics, and never asks for more than `MAXIMUM`.

mod received;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use model::proxy_protocol::{self, AUTHORITY, SIGNATURE, put};

pub use model::proxy_protocol::FIXED;

pub use self::received::received;

/// The longest header that is read, with its fixed part.
pub const MAXIMUM: usize = 4096;

mod tlv {
    pub(super) const ALPN: u8 = 0x01;
    pub(super) const SSL: u8 = 0x20;
    pub(super) const SSL_VERSION: u8 = 0x21;
    pub(super) const SSL_CN: u8 = 0x22;
}

const CLIENT_SSL: u8 = 0x01;
const CLIENT_CERT_CONN: u8 = 0x02;
const CLIENT_CERT_SESS: u8 = 0x04;

/// What one header says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// Source and destination; none for connections that a proxy makes for itself.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    pub alpn: Option<Vec<u8>>,
    /// The name that the client asked for (SNI).
    pub authority: Option<String>,
    pub tls: Option<Tls>,
}

/// What is known of the client's TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// `TLSv1.3`
    pub version: String,
    pub client_certificate: Option<ClientCertificate>,
}

/// The certificate that a client showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub verified: bool,
    pub common_name: Option<String>,
}

/// Why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the connection does not begin with a PROXY header")]
    Signature,
    #[error("a version of PROXY that is not 2")]
    Version,
    #[error("a PROXY header with more than {MAXIMUM} bytes")]
    TooLong,
    #[error("a PROXY header whose lengths do not fit")]
    Lengths,
    #[error("a name in a PROXY header that is not UTF-8")]
    Text,
    #[error("a line of PROXY v1 that is not valid")]
    Line,
    #[error("a family or protocol of addresses that PROXY v2 does not have")]
    Family,
    #[error("a PROXY header whose checksum is wrong")]
    Checksum,
}

impl Header {
    /// The bytes to send. Values that would not fit (64 KiB) are left out.
    pub fn encode(&self) -> Vec<u8> {
        let tls = self.tls.as_ref().map(Tls::encode);
        let values = [
            self.alpn.as_deref().map(|alpn| (tlv::ALPN, alpn)),
            self.authority.as_ref().map(|authority| (AUTHORITY, authority.as_bytes())),
            tls.as_deref().map(|tls| (tlv::SSL, tls)),
        ];
        proxy_protocol::encode(self.addresses, values.into_iter().flatten())
    }

    /// The header at the beginning of `bytes` and how long it is; none while there are too few bytes to say.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, Error> {
        let Some(whole) = length(bytes)? else { return Ok(None) };
        let Some(body) = bytes.get(FIXED..whole) else { return Ok(None) };
        let (version, family) = (bytes.get(12).copied().unwrap_or(0), bytes.get(13).copied().unwrap_or(0));
        let mut header = Self::default();
        let mut tlvs = body;
        // LOCAL: whatever the header says of addresses is not about the peer.
        let local = version & 0x0f == 0;
        match family >> 4 {
            1 => {
                let addresses = take::<12>(&mut tlvs)?;
                header.addresses = (!local).then(|| addresses_v4(addresses));
            }
            2 => {
                let addresses = take::<36>(&mut tlvs)?;
                header.addresses = (!local).then(|| addresses_v6(addresses));
            }
            3 => {
                take::<216>(&mut tlvs)?;
            }
            _ => {}
        }
        header.read_tlvs(tlvs)?;
        Ok(Some((header, whole)))
    }

    fn read_tlvs(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while let Some((kind, value)) = next_tlv(&mut bytes)? {
            match kind {
                tlv::ALPN => self.alpn = Some(value.to_vec()),
                AUTHORITY => self.authority = Some(text(value)?),
                tlv::SSL => self.tls = Tls::decode(value)?,
                _ => {}
            }
        }
        Ok(())
    }
}

impl Tls {
    fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(16);
        let client = match self.client_certificate {
            Some(_) => CLIENT_SSL | CLIENT_CERT_CONN | CLIENT_CERT_SESS,
            None => CLIENT_SSL,
        };
        let verified = self.client_certificate.as_ref().is_none_or(|certificate| certificate.verified);
        value.push(client);
        value.extend_from_slice(&u32::from(!verified).to_be_bytes());
        put(&mut value, tlv::SSL_VERSION, self.version.as_bytes());
        let common_name =
            self.client_certificate.as_ref().and_then(|certificate| certificate.common_name.as_ref());
        if let Some(common_name) = common_name {
            put(&mut value, tlv::SSL_CN, common_name.as_bytes());
        }
        value
    }

    fn decode(mut bytes: &[u8]) -> Result<Option<Self>, Error> {
        let [client, verify @ ..] = take::<5>(&mut bytes)?;
        let mut version = String::new();
        let mut common_name = None;
        while let Some((kind, value)) = next_tlv(&mut bytes)? {
            match kind {
                tlv::SSL_VERSION => version = text(value)?,
                tlv::SSL_CN => common_name = Some(text(value)?),
                _ => {}
            }
        }
        let client_certificate = (client & (CLIENT_CERT_CONN | CLIENT_CERT_SESS) != 0)
            .then(|| ClientCertificate { verified: verify == [0; 4], common_name });
        Ok((client & CLIENT_SSL != 0).then_some(Self { version, client_certificate }))
    }
}

/// How long the header at the beginning of `bytes` is; none while there are too few bytes to say.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let known = bytes.len().min(SIGNATURE.len());
    if bytes.get(..known) != SIGNATURE.get(..known) {
        return Err(Error::Signature);
    }
    let Some(&[.., version, _family, high, low]) = bytes.get(..FIXED) else { return Ok(None) };
    if version >> 4 != 2 || version & 0x0f > 1 {
        return Err(Error::Version);
    }
    let length = FIXED + usize::from(u16::from_be_bytes([high, low]));
    if length > MAXIMUM { Err(Error::TooLong) } else { Ok(Some(length)) }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Error> {
    let (head, tail) = bytes.split_first_chunk::<N>().ok_or(Error::Lengths)?;
    *bytes = tail;
    Ok(*head)
}

fn next_tlv<'a>(bytes: &mut &'a [u8]) -> Result<Option<(u8, &'a [u8])>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let [kind, high, low] = take::<3>(bytes)?;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let (value, tail) = bytes.split_at_checked(length).ok_or(Error::Lengths)?;
    *bytes = tail;
    Ok(Some((kind, value)))
}

fn text(bytes: &[u8]) -> Result<String, Error> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Error::Text)
}

fn addresses_v4(bytes: [u8; 12]) -> (SocketAddr, SocketAddr) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
    (
        SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), u16::from_be_bytes([i, j])),
        SocketAddr::new(Ipv4Addr::new(e, f, g, h).into(), u16::from_be_bytes([k, l])),
    )
}

fn addresses_v6(bytes: [u8; 36]) -> (SocketAddr, SocketAddr) {
    let mut source = [0; 16];
    let mut destination = [0; 16];
    let (addresses, ports) = bytes.split_at(32);
    let (first, second) = addresses.split_at(16);
    source.copy_from_slice(first);
    destination.copy_from_slice(second);
    let port = |high: usize| u16::from_be_bytes([ports[high], ports[high + 1]]);
    let (source, destination) = (IpAddr::from(source), IpAddr::from(destination));
    let (source, destination) = match (source.to_canonical(), destination.to_canonical()) {
        both @ (IpAddr::V4(_), IpAddr::V4(_)) => both,
        _ => (source, destination),
    };
    (SocketAddr::new(source, port(0)), SocketAddr::new(destination, port(2)))
}
