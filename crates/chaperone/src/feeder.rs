//! `(routing.json, endpoints, certificates) → Desired`: the only place that makes it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use certificate::Pem;
use model::ghost::Config;
use model::notice::Notice;
use model::routing::Routing;
use resolve::{EndpointIndex, TlsGroups, resolve_tls};

use crate::feed::Desired;
use crate::ghost_files::{Ghost, GhostError, GhostFiles};
use crate::steps::Steps;
use crate::tls::Pairs;

/// Makes the configurations of one Gateway, each from the previous one.
#[derive(Debug, Default)]
pub struct Feeder {
    pairs: Pairs,
    files: GhostFiles,
}

/// The inputs of a configuration.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The whole, or what has changed since `below`.
    pub routing: &'a Routing,
    pub below: Option<&'a Arc<Routing>>,
    /// Both as one; hosts do not matter.
    pub frame: &'a Routing,
    pub certificates: &'a BTreeMap<String, Pem>,
    /// The address of all listeners, unless they listen on all addresses.
    pub bind: Option<IpAddr>,
}

/// The configuration of the front.
#[derive(Debug)]
pub struct FrontPart {
    pub listeners: front::Config,
    pub backends: front::Profiles,
    pub groups: TlsGroups,
    /// Of endpoints.
    pub of_endpoints: Vec<Notice>,
    /// Of listeners and certificates.
    pub of_listeners: Vec<Notice>,
}

impl Feeder {
    /// The front's part. `groups`: those of a former start, in place of those that endpoints give.
    pub fn front(
        &mut self,
        source: Source<'_>,
        endpoints: &EndpointIndex,
        groups: Option<TlsGroups>,
    ) -> FrontPart {
        let (groups, of_endpoints) = match groups {
            Some(groups) => (groups, Vec::new()),
            None => resolve_tls(source.frame, endpoints),
        };
        let tls = self.pairs.tls(source.frame, source.certificates, &groups, source.bind);
        FrontPart {
            listeners: tls.front,
            backends: tls.backends,
            groups,
            of_endpoints,
            of_listeners: tls.notices,
        }
    }

    /// ghost's part. `finish` adds what routing.json does not have. `idle`: nothing waits, so it may take longer where that makes
    /// later changes cheaper.
    pub fn ghost(
        &mut self,
        source: Source<'_>,
        endpoints: &EndpointIndex,
        idle: bool,
        finish: impl Fn(&mut Config),
    ) -> Result<(Ghost, Vec<Notice>), GhostError> {
        self.files.make(source.routing, source.below, source.frame, endpoints, idle, finish)
    }

    /// Would [`Self::ghost`] with `idle` make later changes cheaper?
    pub fn wants_idle(&self) -> bool {
        self.files.wants_base()
    }
}

impl Desired {
    /// Both parts together.
    pub fn new(ghost: Option<Ghost>, vcl: Option<Arc<str>>, front: FrontPart, tag: Option<Arc<str>>) -> Self {
        let (tls, backends) = (Arc::new(front.listeners), Arc::new(front.backends));
        Self { ghost, vcl, tls, backends, tag, steps: Steps::default() }
    }

    /// The same, as what this change has led to.
    pub fn after(mut self, steps: Steps) -> Self {
        self.steps = steps;
        self
    }
}
