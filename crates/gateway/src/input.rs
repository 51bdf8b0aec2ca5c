//! Manifests in files, up to what they mean.

use anyhow::Context;
use api::DataPath;
use source::files::{Files, Loaded, Problem, READ_LATER};
use translate::{EndpointIndex, Notice, Snapshot, Translation, resolve};

use model::names::DEFAULT_DATA_PATH_ENV;

use crate::cli;

/// For tests: the `dataPath` of Gateways whose parameters have none.
pub(crate) fn default_data_path() -> anyhow::Result<Option<DataPath>> {
    let value = std::env::var(DEFAULT_DATA_PATH_ENV).ok().filter(|value| !value.is_empty());
    let parsed = value.map(|value| value.parse().map_err(anyhow::Error::msg)).transpose();
    parsed.context(DEFAULT_DATA_PATH_ENV)
}

/// Reads the files once.
pub(crate) fn read(files: &cli::Files) -> anyhow::Result<(Translation, Snapshot, Vec<Problem>)> {
    let Loaded { mut snapshot, mut problems, .. } = Files::new(files.files.clone()).load();
    for problem in &mut problems {
        if let Some(message) = problem.message.strip_suffix(READ_LATER) {
            problem.message = format!("{message}: correct what -f names");
        }
    }
    snapshot.ingress_settings.class.clone_from(&files.ingress_class);
    snapshot.default_data_path = default_data_path()?;
    Ok((translate::translate(&snapshot), snapshot, problems))
}

/// One Gateway's ghost.json, and what to tell people of its endpoints.
pub(crate) fn ghost(
    plan: &translate::GatewayPlan,
    endpoints: &EndpointIndex,
) -> (model::ghost::Config, Vec<Notice>) {
    resolve(&plan.routing, endpoints)
}

pub(crate) fn endpoints(snapshot: &Snapshot) -> EndpointIndex {
    EndpointIndex::new(snapshot.endpoint_slices.values().map(|slice| &**slice))
}
