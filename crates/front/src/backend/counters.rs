//! Counters of connections to backends.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the beginning.
#[derive(Debug, Default)]
pub struct BackendCounters {
    handshakes: AtomicU64,
    resumed: AtomicU64,
    pub(super) failures: [AtomicU64; BackendFailure::ALL.len()],
    pub(super) open: AtomicU64,
    pub(super) to_backends: AtomicU64,
    pub(super) from_backends: AtomicU64,
}

impl BackendCounters {
    /// Handshakes that succeeded, counted once the backend has said something.
    pub fn handshakes(&self) -> u64 {
        self.handshakes.load(Ordering::Relaxed)
    }

    /// Those of them that took up an earlier session.
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// Connections of varnishd that were closed without one to the backend, by reason.
    pub fn failures(&self, why: BackendFailure) -> u64 {
        self.failures.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Bytes before encryption.
    pub fn to_backends(&self) -> u64 {
        self.to_backends.load(Ordering::Relaxed)
    }

    /// Bytes after decryption.
    pub fn from_backends(&self) -> u64 {
        self.from_backends.load(Ordering::Relaxed)
    }

    pub(super) fn greeted(&self, resumed: bool) {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        self.resumed.fetch_add(u64::from(resumed), Ordering::Relaxed);
    }

    pub(super) fn failed(&self, why: BackendFailure) {
        if let Some(count) = self.failures.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Why a backend was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendFailure {
    /// The connection did not begin with PROXY v2, or named no endpoint.
    NotProxy,
    /// The profile is not known (any more), or cannot be used.
    UnknownProfile,
    /// The endpoint does not take connections.
    Unreachable,
    /// It takes them and says nothing.
    Timeout,
    /// No CA of the profile vouches for it.
    Untrusted,
    /// Its certificate is for another name.
    WrongName,
    /// Its certificate is out of date, or not valid yet.
    Expired,
    /// It refused us, mostly because it wants a client certificate.
    Refused,
    /// No TLS, or one that we cannot speak.
    Incompatible,
    /// This process has no file descriptor or port left for a connection.
    Exhausted,
}

impl BackendFailure {
    pub const ALL: [Self; 10] = [
        Self::NotProxy,
        Self::UnknownProfile,
        Self::Unreachable,
        Self::Timeout,
        Self::Untrusted,
        Self::WrongName,
        Self::Expired,
        Self::Refused,
        Self::Incompatible,
        Self::Exhausted,
    ];

    /// For labels of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotProxy => "not_proxy",
            Self::UnknownProfile => "unknown_profile",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Untrusted => "untrusted",
            Self::WrongName => "wrong_name",
            Self::Expired => "expired",
            Self::Refused => "refused",
            Self::Incompatible => "incompatible",
            Self::Exhausted => "exhausted",
        }
    }
}
