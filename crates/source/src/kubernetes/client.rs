//! The way to the API server.

use std::time::Duration;

use kube::{Client, Config};

/// A watch lasts a minute, then begins anew where it was: a connection that died without a word is found by then.
pub(super) const WATCH_SECONDS: u32 = 60;
/// Longer than a watch.
const READ_TIMEOUT: Duration = Duration::from_secs(75);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// With the pod's own account, or the current kubeconfig outside of a cluster.
pub async fn connect() -> Result<Client, crate::Error> {
    // Two crypto providers could be compiled in by now; this is ours.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut config = Config::infer().await.map_err(|e| crate::Error::Cluster(e.to_string()))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.write_timeout = Some(READ_TIMEOUT);
    Client::try_from(config).map_err(|e| crate::Error::Cluster(e.to_string()))
}
