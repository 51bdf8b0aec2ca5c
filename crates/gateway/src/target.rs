//! Which gateway a command is for: a `serve` on this machine, or those of a cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cli::Target;
use crate::serve::{control, state_dir};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// The state directory of a `serve`.
    Serve(PathBuf),
    Cluster,
}

/// What is named counts; then a `serve` of this user, or in a pod its chaperone; then the cluster that kubectl would take.
pub(crate) fn find(target: &Target, all_namespaces: bool) -> anyhow::Result<Found> {
    let chaperone = || of_chaperone().filter(|dir| target.state_dir.is_none() && answers(dir));
    match chaperone().filter(|_| !target.names_cluster() && !all_namespaces) {
        Some(dir) => Ok(Found::Serve(dir)),
        None if all_namespaces => Ok(Found::Cluster),
        None => find_to_change(target),
    }
}

/// The same for who takes objects out of caches: a chaperone is asked by its cluster alone.
pub(crate) fn find_to_change(target: &Target) -> anyhow::Result<Found> {
    if target.names_cluster() {
        return Ok(Found::Cluster);
    }
    match serves(target.state_dir.as_deref())?.as_slice() {
        [one] => Ok(Found::Serve(one.clone())),
        [] if target.state_dir.is_none() && cluster_is_near() => Ok(Found::Cluster),
        [] => bail!(
            "no `varnish-gateway serve` of this user was found: start it, name its --state-dir, or name a cluster by \
             --kubeconfig, --context or --namespace"
        ),
        several => {
            let dirs: Vec<_> = several.iter().map(|dir| format!("  --state-dir {}", dir.display())).collect();
            bail!("several `varnish-gateway serve` run: choose one:\n{}", dirs.join("\n"))
        }
    }
}

/// State directories of `serve`s that run: the one that is named, or all temporary ones of this user.
fn serves(named: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(dir) = named {
        if !answers(dir) {
            bail!("no `varnish-gateway serve` runs with --state-dir {}", dir.display());
        }
        return Ok(vec![dir.to_owned()]);
    }
    let dirs = state_dir::temporary().with_context(|| std::env::temp_dir().display().to_string())?;
    Ok(dirs.into_iter().filter(|dir| answers(dir)).collect())
}

/// In a pod: `kubectl exec POD -- varnish-gateway status` has the environment of the chaperone.
fn of_chaperone() -> Option<PathBuf> {
    std::env::var_os("WORK_DIR").map(PathBuf::from)
}

/// A chaperone has the second alone.
fn answers(dir: &Path) -> bool {
    [control::socket(dir), control::api_socket(dir)]
        .iter()
        .any(|socket| std::os::unix::net::UnixStream::connect(socket).is_ok())
}

/// Is there a cluster that could be meant?
fn cluster_is_near() -> bool {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    std::env::var_os("KUBECONFIG").is_some()
        || std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
        || home.is_some_and(|file| file.exists())
}
