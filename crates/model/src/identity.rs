//! Who sent a request, as the front tells ghost: the value of [`crate::names::CLIENT_HEADER`].
//!
//! `203.0.113.9 51234 https-443 TLSv1.3 shop.example.com`: address, port, the listener's socket, the version of TLS, and the name
//! of the TLS handshake. `-` stands for a part that is not there. A value of any other form is refused as a whole.

use std::fmt;
use std::net::IpAddr;

use crate::names::socket_parts;

/// Names of hosts have at most 253 bytes.
const LONGEST: usize = 400;
const NOTHING: &str = "-";

/// The client of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity<'a> {
    pub address: IpAddr,
    /// The same as text, in its shortest form.
    pub address_text: &'a str,
    pub port: u16,
    /// `https-443`
    pub socket: &'a str,
    /// `TLSv1.3`; `None` for plain HTTP.
    pub tls: Option<&'a str>,
    /// The name that the client asked for in its TLS handshake.
    pub server_name: Option<&'a str>,
}

impl<'a> Identity<'a> {
    /// `None` for anything that [`fmt::Display`] does not write.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        if value.len() > LONGEST || !value.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return None;
        }
        let mut parts = std::str::from_utf8(value).ok()?.split(' ');
        let (address_text, port, socket) = (parts.next()?, parts.next()?, parts.next()?);
        let (tls, server_name) = (parts.next()?, parts.next()?);
        if parts.next().is_some() || tls.is_empty() || server_name.is_empty() {
            return None;
        }
        let address: IpAddr = address_text.parse().ok()?;
        let (protocol, number) = socket_parts(socket)?;
        let given = |text: &'a str| (text != NOTHING).then_some(text);
        let (tls, server_name) = (given(tls), given(server_name));
        let fits = match protocol {
            "https" => tls.is_some(),
            "http" => tls.is_none() && server_name.is_none(),
            _ => false,
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let port = Some(port).filter(|text| is_number(text))?.parse().ok()?;
        (fits && number > 0).then_some(Self { address, address_text, port, socket, tls, server_name })
    }
}

impl fmt::Display for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address_text, port, socket, tls, server_name, .. } = self;
        let (tls, server_name) = (tls.unwrap_or(NOTHING), server_name.unwrap_or(NOTHING));
        write!(f, "{address_text} {port} {socket} {tls} {server_name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for value in [
            "203.0.113.9 51234 http-80 - -",
            "203.0.113.9 0 https-443 TLSv1.2 -",
            "2001:db8::9 65535 https-8443 TLSv1.3 shop.example.com",
        ] {
            let read = Identity::parse(value.as_bytes()).unwrap();
            assert_eq!(read.to_string(), value);
            assert_eq!(read.address.to_string(), read.address_text);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let long = format!("203.0.113.9 1 https-443 TLSv1.3 {}", "a".repeat(400));
        for value in [
            "",
            "-",
            "203.0.113.9",
            "203.0.113.9 1 http-80 -",
            "203.0.113.9 1 http-80 - - -",
            "203.0.113.9 1 http-80 -  -",
            " 203.0.113.9 1 http-80 - -",
            "203.0.113.9 1 http-80 - - ",
            "203.0.113.9, 1 http-80 - -",
            "localhost 1 http-80 - -",
            "203.0.113.9 65536 http-80 - -",
            "203.0.113.9 +1 http-80 - -",
            "203.0.113.9 1 http - -",
            "203.0.113.9 1 http-0 - -",
            "203.0.113.9 1 tls-80 - -",
            "203.0.113.9 1 http-80 TLSv1.3 -",
            "203.0.113.9 1 http-80 - shop.example.com",
            "203.0.113.9 1 https-443 - shop.example.com",
            "203.0.113.9 1 https-443 TLSv1.3 ä.example.com",
            "203.0.113.9 1 https-443 TLSv1.3\tshop.example.com",
            &long,
        ] {
            assert_eq!(Identity::parse(value.as_bytes()), None, "{value:?}");
        }
    }
}
