use std::net::SocketAddr;

use translate::Key;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{kind} {key} cannot be written: {source}")]
    Write { kind: String, key: Key, source: Box<kube::Error> },
    #[error("{kind} {key} exists and is not ours: rename it or the Gateway; it was not touched")]
    Taken { kind: String, key: Key },
    #[error("rights in another namespace: {0}")]
    Binding(Box<Error>),
    #[error("{0}")]
    Name(String),
    #[error("{0}")]
    Secret(#[from] varnishadm::Error),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Packing(#[from] workload::packing::Error),
    #[error("cannot listen on {address}: {source}")]
    Port { address: SocketAddr, source: std::io::Error },
    #[error("leadership is lost: {0}")]
    LeadershipLost(String),
    #[error("{variable}: {problem}")]
    Setting { variable: &'static str, problem: String },
}

impl Error {
    /// True if a user must act. Otherwise the error goes away without action, or concerns only a part.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Write { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => {
                    (400..500).contains(&status.code) && ![404, 409, 429].contains(&status.code)
                }
                _ => false,
            },
            Self::Taken { .. } | Self::Name(_) | Self::Packing(_) => true,
            _ => false,
        }
    }

    pub(crate) fn write(kind: impl Into<String>, key: &Key) -> impl FnOnce(kube::Error) -> Self {
        let (kind, key) = (kind.into(), key.clone());
        move |source| Self::Write { kind, key, source: Box::new(source) }
    }
}
