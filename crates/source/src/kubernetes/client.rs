//! The way to the API server.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A watch lasts a minute, then begins again where it was: a connection that died silently is found by then.
pub(super) const WATCH_SECONDS: u32 = 60;
/// Longer than a watch.
const READ_TIMEOUT: Duration = Duration::from_secs(75);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// With the pod's own account, or the current kubeconfig outside of a cluster.
pub async fn connect() -> Result<Client, crate::Error> {
    connect_to(None, None).await.map(|(client, _)| client)
}

/// By a kubeconfig of one's choice, or a context of it. And the namespace that belongs to it.
pub async fn connect_to(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<(Client, String), crate::Error> {
    // Two crypto providers could be compiled in by now; this is ours.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let failed = |e: &dyn std::fmt::Display| crate::Error::Cluster(e.to_string());
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = match (kubeconfig, context) {
        (None, None) => Config::infer().await.map_err(|e| failed(&e))?,
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(|e| failed(&e))?,
        (Some(file), _) => {
            let file = Kubeconfig::read_from(file).map_err(|e| failed(&e))?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(|e| failed(&e))?
        }
    };
    let namespace = config.default_namespace.clone();
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.write_timeout = Some(READ_TIMEOUT);
    Ok((Client::try_from(config).map_err(|e| failed(&e))?, namespace))
}
