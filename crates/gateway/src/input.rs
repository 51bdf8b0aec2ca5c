//! Manifests in files, up to what they mean.

use anyhow::Context;
use api::DataPath;
use resolve::{EndpointIndex, resolve};
use source::files::{Files, Loaded, Problem, READ_LATER};
use translate::{Notice, Snapshot, Translation};

use model::names::DEFAULT_DATA_PATH_ENV;

use crate::cli;

/// For tests: the `dataPath` of Gateways whose parameters have none.
pub(crate) fn default_data_path() -> anyhow::Result<Option<DataPath>> {
    let value = std::env::var(DEFAULT_DATA_PATH_ENV).ok().filter(|value| !value.is_empty());
    let parsed = value.map(|value| value.parse().map_err(anyhow::Error::msg)).transpose();
    parsed.context(DEFAULT_DATA_PATH_ENV)
}

/// Files, read once.
pub(crate) struct Input {
    pub(crate) files: Files,
    pub(crate) translation: Translation,
    pub(crate) snapshot: Snapshot,
    pub(crate) problems: Vec<Problem>,
}

pub(crate) fn read(arguments: &cli::Files) -> anyhow::Result<Input> {
    let mut files = Files::new(arguments.files.clone());
    let Loaded { mut snapshot, mut problems, .. } = files.load();
    for problem in &mut problems {
        if let Some(message) = problem.message.strip_suffix(READ_LATER) {
            problem.message = format!("{message}: correct what -f names");
        }
    }
    snapshot.ingress_settings.class.clone_from(&arguments.ingress_class);
    snapshot.default_data_path = default_data_path()?;
    Ok(Input { files, translation: translate::translate(&snapshot), snapshot, problems })
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
