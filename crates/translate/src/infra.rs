//! What varnishd reads at its start and cannot change while it runs. A change here restarts it; nothing else does.

use std::fmt::Write;

use serde::Serialize;
use sha2::{Digest, Sha256};

/// The start of one Gateway's varnishd.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Infra {
    /// One for each port of a valid HTTP listener, by port; none with `http_in_front`. The front's listeners change while
    /// varnishd runs.
    pub sockets: Vec<Socket>,
    /// The front owns all ports and carries HTTP; varnishd has unix sockets only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub http_in_front: bool,
    /// The user's own arguments, without those that would break the gateway.
    pub varnishd_args: Vec<String>,
    /// A piped connection (WebSocket) on which nothing moves is closed after this time.
    pub upgrade_idle_seconds: f64,
    /// Hits that the front answers from its own memory.
    #[serde(skip_serializing_if = "HotObjects::is_default")]
    pub hot_objects: HotObjects,
}

/// From the parameters. The pod chooses numbers that are absent, because it knows its memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct HotObjects {
    pub disabled: bool,
    /// Of all hot objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Of the largest one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_object_bytes: Option<u64>,
}

impl HotObjects {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One named `-a` of varnishd. All listeners of a port share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Socket {
    /// `{proto}-{port}`, for example `http-80`.
    pub name: String,
    /// `http`.
    pub protocol: String,
    pub port: u16,
}

impl Infra {
    /// SHA-256 over the JSON of everything here, in hexadecimal: changes when varnishd must restart.
    pub fn hash(&self) -> String {
        sha256(self)
    }
}

/// In hexadecimal, over the value's JSON. Fields are written in the order of their declaration and maps are sorted, so
/// equal values give equal bytes.
pub fn sha256<T: Serialize>(value: &T) -> String {
    // Numbers, strings and maps by name cannot fail to serialize.
    let json = serde_json::to_vec(value).unwrap_or_default();
    Sha256::digest(json).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infra() -> Infra {
        Infra {
            sockets: vec![Socket { name: "http-80".into(), protocol: "http".into(), port: 80 }],
            http_in_front: false,
            varnishd_args: vec!["-p".into(), "thread_pool_min=50".into()],
            upgrade_idle_seconds: 300.0,
            hot_objects: HotObjects::default(),
        }
    }

    #[test]
    fn the_hash_is_stable_and_changes_with_every_field() {
        let first = infra().hash();
        assert_eq!(first, infra().hash());
        // Written down: a new release must not restart every varnishd just because the hash is made otherwise.
        assert_eq!(first, "87dc53e2a1ec765ae1062e9e0383185ba4089ae51e3db3c19129c7a55f1c7d6b");
        assert_ne!(first, Infra { sockets: vec![], ..infra() }.hash());
        assert_ne!(first, Infra { http_in_front: true, ..infra() }.hash());
        assert_ne!(first, Infra { varnishd_args: vec![], ..infra() }.hash());
        assert_ne!(first, Infra { upgrade_idle_seconds: 60.0, ..infra() }.hash());
        let hot_objects = HotObjects { disabled: true, ..HotObjects::default() };
        assert_ne!(first, Infra { hot_objects, ..infra() }.hash());
    }
}
