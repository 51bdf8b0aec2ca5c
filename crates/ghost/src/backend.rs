//! Native backends: one for each endpoint, shared by all rules and kept across reloads, so that varnishd pools
//! its connections.

use std::ffi::{CStr, c_uint, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use model::Timeouts;

use crate::error::Error;
use crate::ffi::{self, Ctx, Director, NewBackend, OwnedDirector, RawCluster, Text, c_string};
use crate::{preamble, retire};

/// What makes two backends the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BackendKey {
    address: SocketAddr,
    /// The profile by which the front verifies it.
    tls: Option<Arc<str>>,
    timeouts: [u64; 3],
}

impl BackendKey {
    pub(crate) fn new(address: SocketAddr, tls: Option<&Arc<str>>, timeouts: Timeouts) -> Self {
        let Timeouts { connect_seconds, first_byte_seconds, idle_seconds } = timeouts;
        let tls = tls.cloned();
        Self { address, tls, timeouts: [connect_seconds, first_byte_seconds, idle_seconds].map(f64::to_bits) }
    }
}

/// One endpoint in varnishd.
pub(crate) struct Backend {
    /// There until it is dropped.
    director: Option<OwnedDirector>,
    cluster: Arc<Cluster>,
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Some(director) = self.director.take() {
            // In this order: the counters go last.
            retire::later((director, Arc::clone(&self.cluster)));
        }
    }
}

/// Shared memory for the counters of backends that were made together.
pub(crate) struct Cluster(*mut RawCluster);

// SAFETY: Varnish locks its shared memory itself; the pointer is only ever given back.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

impl Cluster {
    pub(crate) fn new(ctx: *const Ctx, backends: usize) -> Arc<Self> {
        // SAFETY: ctx is the caller's live context.
        Arc::new(Self(unsafe { ffi::gs_cluster_new(ctx, backends.max(1)) }))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: given back once. Backends that requests still hold keep the memory until they are gone.
        unsafe { ffi::gs_cluster_free(self.0) };
    }
}

impl Backend {
    /// `front` is the unix socket by which backends with TLS are reached.
    pub(crate) fn new(
        ctx: *const Ctx,
        key: &BackendKey,
        front: &CStr,
        cluster: Arc<Cluster>,
    ) -> Result<Self, Error> {
        let name = match &key.tls {
            None => c_string(&key.address.to_string()),
            Some(tls) => c_string(&format!("{}+tls:{tls}", key.address)),
        };
        let sockaddr = SockAddr::new(key.address);
        let preamble = key.tls.as_deref().map(|tls| preamble::new(key.address, tls));
        let [connect, first_byte, between_bytes] = key.timeouts.map(f64::from_bits);
        let from = NewBackend {
            name: name.as_ptr(),
            sockaddr: sockaddr.as_ptr(),
            socklen: sockaddr.len(),
            path: preamble.as_ref().map_or(std::ptr::null(), |_| front.as_ptr()),
            preamble: match &preamble {
                Some(bytes) => Text { p: bytes.as_ptr(), n: bytes.len() },
                None => Text { p: std::ptr::null(), n: 0 },
            },
            connect,
            first_byte,
            between_bytes,
        };
        // SAFETY: ctx is live, `from` and what it points to outlive the call, Varnish copies them.
        let director = unsafe { ffi::gs_backend_new(ctx, &from, cluster.0) };
        let director = OwnedDirector::new(director).ok_or(Error::Backend(key.address))?;
        Ok(Self { director: Some(director), cluster })
    }

    pub(crate) fn raw(&self) -> Director {
        self.director.as_ref().map_or(std::ptr::null(), OwnedDirector::raw)
    }
}

/// `struct sockaddr_in` and `struct sockaddr_in6` as Linux has them.
#[repr(C)]
enum SockAddr {
    V4(In4),
    V6(In6),
}

#[repr(C)]
struct In4 {
    family: u16,
    port: [u8; 2],
    address: [u8; 4],
    zero: [u8; 8],
}

#[repr(C)]
struct In6 {
    family: u16,
    port: [u8; 2],
    flow: u32,
    address: [u8; 16],
    scope: u32,
}

impl SockAddr {
    fn new(address: SocketAddr) -> Self {
        let port = address.port().to_be_bytes();
        match address {
            SocketAddr::V4(a) => Self::V4(In4 { family: 2, port, address: a.ip().octets(), zero: [0; 8] }),
            SocketAddr::V6(a) => {
                Self::V6(In6 { family: 10, port, flow: 0, address: a.ip().octets(), scope: a.scope_id() })
            }
        }
    }

    fn as_ptr(&self) -> *const c_void {
        match self {
            Self::V4(a) => (&raw const *a).cast(),
            Self::V6(a) => (&raw const *a).cast(),
        }
    }

    fn len(&self) -> c_uint {
        match self {
            Self::V4(_) => size_of::<In4>() as c_uint,
            Self::V6(_) => size_of::<In6>() as c_uint,
        }
    }
}
