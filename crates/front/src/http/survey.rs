//! One look at all names of a head: most messages have few of the headers that need handling, and are not searched for each of them.

use http::header::{self, HeaderMap, HeaderName};
use router::sent::{Kind, kind};

use super::response::{KEEP_ALIVE, PROXY_CONNECTION};

pub(super) const CDN_LOOP: HeaderName = HeaderName::from_static("cdn-loop");
pub(super) const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Which of the headers that need handling a head has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// `Transfer-Encoding` or `Content-Length`.
    pub(crate) framing: bool,
    pub(crate) expect: bool,
    pub(crate) upgrade: bool,
    /// One that is about the connection.
    pub(crate) hop_by_hop: bool,
    pub(crate) cdn_loop: bool,
    /// One that only the gateway may set.
    pub(crate) own: bool,
    /// One of a proxy before us.
    pub(crate) forwarded: bool,
}

impl Survey {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for name in headers.keys() {
            found.sees(name);
        }
        found
    }

    fn sees(&mut self, name: &HeaderName) {
        // By length first: most names have one that none of these has.
        match name.as_str().len() {
            2 => self.hop_by_hop |= *name == header::TE,
            6 => self.expect |= *name == header::EXPECT,
            7 if *name == header::UPGRADE => (self.upgrade, self.hop_by_hop) = (true, true),
            8 => self.cdn_loop |= *name == CDN_LOOP,
            10 => self.hop_by_hop |= *name == header::CONNECTION || *name == KEEP_ALIVE,
            14 => {
                self.framing |= *name == header::CONTENT_LENGTH;
                self.hop_by_hop |= *name == HTTP2_SETTINGS;
            }
            16 => self.hop_by_hop |= *name == PROXY_CONNECTION,
            17 => self.framing |= *name == header::TRANSFER_ENCODING,
            _ => {}
        }
        match kind(name.as_str().as_bytes()) {
            Some(Kind::Own) => self.own = true,
            Some(Kind::Forwarded) => self.forwarded = true,
            Some(Kind::Override | Kind::Address) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn of(name: &str) -> Survey {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        Survey::of(&HeaderMap::from_iter([(name, HeaderValue::from_static("value"))]))
    }

    #[test]
    fn every_header_that_needs_handling_is_seen() {
        let none = Survey::default();
        for name in ["Connection", "Keep-Alive", "Proxy-Connection", "TE", "HTTP2-Settings"] {
            assert_eq!(of(name), Survey { hop_by_hop: true, ..none }, "{name}");
        }
        assert_eq!(of("Upgrade"), Survey { upgrade: true, hop_by_hop: true, ..none });
        assert_eq!(of("Expect"), Survey { expect: true, ..none });
        assert_eq!(of("CDN-Loop"), Survey { cdn_loop: true, ..none });
        for name in ["Content-Length", "Transfer-Encoding"] {
            assert_eq!(of(name), Survey { framing: true, ..none }, "{name}");
        }
        for name in ["X-Ghost-Client", "X-Gateway-Route", "Content_Length", "Transfer_Encoding", "CDN_Loop"] {
            assert_eq!(of(name), Survey { own: true, ..none }, "{name}");
        }
        for name in ["Forwarded", "X-Forwarded-For", "X_Forwarded_Host"] {
            assert_eq!(of(name), Survey { forwarded: true, ..none }, "{name}");
        }
        for name in
            ["Host", "Accept", "Accept-Language", "Content-Type", "User-Agent", "X-Real-IP", "Trailer"]
        {
            assert_eq!(of(name), none, "{name}");
        }
    }
}
