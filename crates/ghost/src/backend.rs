//! Native backends: one for each endpoint, shared by all rules and kept across reloads, so that varnishd pools
//! its connections; and one for each group that the front reaches.

use std::ffi::{CStr, c_uint, c_void};
use std::net::SocketAddr;
use std::sync::Arc;

use model::{MissFor, Timeouts};
use router::Rule;

use crate::error::Error;
use crate::ffi::{self, Ctx, Director, NewBackend, OwnedDirector, RawCluster, Text, c_string};
use crate::{preamble, retire};

/// What makes two backends the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum BackendKey {
    /// An endpoint. With a profile, by which the front verifies it, all bytes go through the front.
    Endpoint { address: SocketAddr, tls: Option<Arc<str>>, timeouts: [u64; 3] },
    /// A group that the front reaches: [`MissFor`].
    Group(Box<str>),
}

/// The front gives up in time, and says so. Varnish's own timeouts would cut requests that may take long.
const BY_FRONT: [f64; 3] = [5., 90_000., 90_000.];

impl BackendKey {
    pub(crate) fn new(address: SocketAddr, tls: Option<&Arc<str>>, timeouts: Timeouts) -> Self {
        let Timeouts { connect_seconds, first_byte_seconds, idle_seconds } = timeouts;
        let tls = tls.cloned();
        let timeouts = [connect_seconds, first_byte_seconds, idle_seconds].map(f64::to_bits);
        Self::Endpoint { address, tls, timeouts }
    }

    /// For a group of a rule; `None` where varnishd reaches it by itself.
    pub(crate) fn by_front(rule: &Rule, group: usize) -> Option<Self> {
        Self::front(rule, group).filter(|_| rule.needs_front(group))
    }

    /// For responses to POST that the front keeps; `None` where the policy of the rule keeps none.
    pub(crate) fn of_kept(rule: &Rule, group: usize) -> Option<Self> {
        rule.cache().filter(|cache| cache.keeps_posts())?;
        Self::front(rule, group)
    }

    fn front(rule: &Rule, group: usize) -> Option<Self> {
        let name = rule.groups().get(group)?.name();
        let miss = MissFor { rule: rule.identity(), host: rule.hostname(), position: group, group: name };
        Some(Self::Group(miss.to_string().into()))
    }

    pub(crate) fn is_endpoint(&self) -> bool {
        matches!(self, Self::Endpoint { .. })
    }

    /// In logs and counters of varnishd.
    fn name(&self) -> String {
        match self {
            Self::Endpoint { address, tls: None, .. } => address.to_string(),
            Self::Endpoint { address, tls: Some(tls), .. } => format!("{address}+tls:{tls}"),
            Self::Group(name) => format!("front:{}", name.replace(['\n', ' ', '"', '\\'], "_")),
        }
    }

    fn preamble(&self) -> Option<Vec<u8>> {
        match self {
            Self::Endpoint { address, tls, .. } => tls.as_deref().map(|tls| preamble::new(*address, tls)),
            Self::Group(name) => Some(preamble::for_misses(name)),
        }
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
    /// `front` is the unix socket by which backends are reached that need the front.
    pub(crate) fn new(
        ctx: *const Ctx,
        key: &BackendKey,
        front: &CStr,
        cluster: Arc<Cluster>,
    ) -> Result<Self, Error> {
        let name = c_string(&key.name());
        let (address, [connect, first_byte, between_bytes]) = match key {
            BackendKey::Endpoint { address, timeouts, .. } => (*address, timeouts.map(f64::from_bits)),
            // Not used beside a path.
            BackendKey::Group(_) => (SocketAddr::from(([127, 0, 0, 1], 0)), BY_FRONT),
        };
        let sockaddr = SockAddr::new(address);
        let preamble = key.preamble();
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
        let director = OwnedDirector::new(director).ok_or_else(|| Error::Backend(key.name()))?;
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
