//! The socket that a request came in by, `http-80`: varnishd's own, or one of the front's.

use std::io::Write;
use std::ops::Deref;

use model::names::{HTTPS_SOCKET, RELOAD_SOCKET};

use crate::ffi::{self, Ctx};
use crate::message::c_bytes;

/// A socket's name. One of the front's is made again for each request, without an allocation.
pub(crate) enum Socket<'a> {
    Varnishds(&'a [u8]),
    Fronts { text: [u8; LONGEST], length: usize },
}

/// `https-65535`
const LONGEST: usize = 11;

impl<'a> Socket<'a> {
    /// # Safety
    /// `ctx` must be a live context, and be so for `'a`.
    pub(crate) unsafe fn of(ctx: *const Ctx) -> Self {
        // SAFETY: the session outlives the task; the name is varnishd's own.
        let (name, port) = unsafe { (c_bytes(ffi::gs_local_socket(ctx)), || ffi::gs_server_port(ctx)) };
        // All HTTPS listeners share one unix socket; PROXY says which listener it was.
        let is_https = name == HTTPS_SOCKET.as_bytes();
        is_https.then(|| Self::front(HTTPS_SOCKET, port())).flatten().unwrap_or(Self::Varnishds(name))
    }

    fn front(protocol: &str, port: u32) -> Option<Self> {
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        let mut text = [0; LONGEST];
        let mut rest = text.as_mut_slice();
        write!(rest, "{protocol}-{port}").ok()?;
        let length = LONGEST - rest.len();
        Some(Self::Fronts { text, length })
    }

    /// Does the peer talk to ghost itself?
    pub(crate) fn is_reload(&self) -> bool {
        **self == *RELOAD_SOCKET.as_bytes()
    }
}

impl Deref for Socket<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Varnishds(name) => name,
            Self::Fronts { text, length } => &text[..*length],
        }
    }
}
