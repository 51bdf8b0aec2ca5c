//! What runs, for commands that ask: a `serve` by its socket, a cluster by its API server.

#[cfg(feature = "kubernetes")]
mod cluster;
#[cfg(not(feature = "kubernetes"))]
#[path = "running/no_cluster.rs"]
mod cluster;
mod local;
mod scrape;

use std::collections::BTreeSet;
use std::path::PathBuf;

use dashboard::view::{Gateway, Row, Top};
use dashboard::{Asked, Explained};
use serde::Serialize;

use crate::cli::Target;
use crate::target::{self, Found};

/// Where to ask.
pub(crate) enum Running {
    Serve { dir: PathBuf, gateway: Option<String> },
    Cluster(cluster::Cluster),
}

/// One Gateway, and its pods where it has some.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    #[serde(flatten)]
    pub(crate) gateway: Gateway,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pods: Vec<Pod>,
    /// Of the Gateway in a cluster: IP addresses or names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) addresses: Vec<String>,
    /// Listeners that the operator says are not served.
    #[serde(skip)]
    pub(crate) closed: BTreeSet<String>,
}

impl Status {
    /// Does it serve the newest configuration?
    pub(crate) fn is_good(&self) -> bool {
        self.gateway.serving
            && self.gateway.refused.is_none()
            && self.gateway.problems.is_empty()
            && self
                .gateway
                .listeners
                .iter()
                .all(|listener| listener.address.is_some() || !self.pods.is_empty())
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Pod {
    pub(crate) name: String,
    /// Does it serve?
    pub(crate) ready: bool,
    /// Does it serve the newest configuration?
    pub(crate) current: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// Why it is not ready, or will not be for long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
    /// When it last took a configuration, as the API server writes times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// The cache engine that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<String>,
}

impl Running {
    pub(crate) async fn find(target: &Target, all_namespaces: bool) -> anyhow::Result<Self> {
        Ok(match target::find(target, all_namespaces)? {
            Found::Serve(dir) => {
                let gateway = target.gateway.as_ref().map(|gateway| qualified(gateway, "default"));
                Self::Serve { dir, gateway }
            }
            Found::Cluster => Self::Cluster(cluster::Cluster::connect(target, all_namespaces).await?),
        })
    }

    /// What to say where there is none.
    pub(crate) fn nothing(&self) -> String {
        match self {
            Self::Serve { .. } => "No Gateway is served.".to_owned(),
            Self::Cluster(cluster) => cluster.nothing(),
        }
    }

    /// Where to look next.
    pub(crate) fn remedy(&self) -> String {
        let more = "`varnish-gateway status` says more.";
        match self {
            Self::Cluster(cluster) => match cluster.namespace() {
                Some(namespace) => format!("Namespace {namespace} was looked at, -A looks at all. {more}"),
                None => more.to_owned(),
            },
            Self::Serve { .. } => more.to_owned(),
        }
    }

    pub(crate) async fn status(&self) -> anyhow::Result<(Vec<Status>, Vec<Row>)> {
        match self {
            Self::Serve { dir, gateway } => local::status(dir, gateway.as_deref()).await,
            Self::Cluster(cluster) => cluster.status().await,
        }
    }

    pub(crate) async fn explain(&self, asked: &Asked, port: Option<u16>) -> anyhow::Result<Vec<Explained>> {
        match self {
            Self::Serve { dir, gateway } => local::explain(dir, gateway.as_deref(), asked, port).await,
            Self::Cluster(cluster) => cluster.explain(asked, port).await,
        }
    }

    /// Over the last seconds.
    pub(crate) async fn top(&mut self, seconds: u64, limit: usize) -> anyhow::Result<Top> {
        match self {
            Self::Serve { dir, gateway } => local::top(dir, gateway.as_deref(), seconds, limit).await,
            Self::Cluster(cluster) => cluster.top(seconds, limit).await,
        }
    }
}

/// `namespace/name`
pub(crate) fn qualified(gateway: &str, namespace: &str) -> String {
    if gateway.contains('/') { gateway.to_owned() } else { format!("{namespace}/{gateway}") }
}
