//! Which addresses the owner of a name may lead requests to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The pod itself.
    Loopback,
    /// The node's neighbourhood; most clouds have their metadata there.
    LinkLocal,
    /// Metadata of a cloud, at an address that looks like any other.
    Metadata,
    /// No host has it: `0.0.0.0/8`, `::`, multicast, broadcast, reserved networks.
    NoHost,
    /// Not public, where only public addresses may be used.
    Private,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::Metadata => "metadata of a cloud",
            Self::NoHost => "not the address of a host",
            Self::Private => "not public, and externalNames is PublicOnly",
        })
    }
}

/// Azure's WireServer, and Alibaba's metadata. Those of other clouds are link-local.
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200)];
/// Metadata of AWS and of Google Cloud by IPv6.
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// `None`: the address may be used.
pub fn refused(address: IpAddr, public_only: bool, allow_loopback: bool) -> Option<Refused> {
    match address {
        IpAddr::V4(address) => refused_v4(address, public_only, allow_loopback),
        IpAddr::V6(address) => match embedded(address) {
            // The address that packets really go to.
            Some(inner) => refused_v4(inner, public_only, allow_loopback),
            None => refused_v6(address, public_only, allow_loopback),
        },
    }
}

fn refused_v4(address: Ipv4Addr, public_only: bool, allow_loopback: bool) -> Option<Refused> {
    let [a, b, c, _] = address.octets();
    if address.is_loopback() {
        return (!allow_loopback).then_some(Refused::Loopback);
    }
    if address.is_link_local() {
        return Some(Refused::LinkLocal);
    }
    if METADATA_V4.contains(&address) {
        return Some(Refused::Metadata);
    }
    if a == 0 || a >= 224 {
        return Some(Refused::NoHost);
    }
    let private = address.is_private()
        || address.is_documentation()
        // Carriers' own (RFC 6598), benchmarks (RFC 2544), protocol assignments (RFC 6890).
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b))
        || (a, b, c) == (192, 0, 0);
    (public_only && private).then_some(Refused::Private)
}

fn refused_v6(address: Ipv6Addr, public_only: bool, allow_loopback: bool) -> Option<Refused> {
    let first = address.segments()[0];
    if address.is_loopback() {
        return (!allow_loopback).then_some(Refused::Loopback);
    }
    if address.is_unspecified() || address.is_multicast() {
        return Some(Refused::NoHost);
    }
    if first & 0xffc0 == 0xfe80 {
        return Some(Refused::LinkLocal);
    }
    if METADATA_V6.contains(&address) {
        return Some(Refused::Metadata);
    }
    // Public addresses are 2000::/3, but for documentation (RFC 3849, RFC 9637).
    let is_public =
        first & 0xe000 == 0x2000 && address.segments()[..2] != [0x2001, 0xdb8] && first & 0xfff0 != 0x3ff0;
    (public_only && !is_public).then_some(Refused::Private)
}

/// The IPv4 address in one that is mapped, compatible, or translated (NAT64, 6to4).
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(of(high, low)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(of(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
