//! `crds`: our CustomResourceDefinitions, on standard output or into a cluster.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

pub(crate) fn print() -> anyhow::Result<ExitCode> {
    let yaml = api::crd::yaml().context("cannot write the CustomResourceDefinitions as YAML")?;
    std::io::stdout().write_all(yaml.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "kubernetes")]
/// helm installs CRDs once, and never again: an upgrade does it by this.
pub(crate) async fn apply() -> anyhow::Result<ExitCode> {
    let client = source::kubernetes::connect().await?;
    operator::apply_crds(&client, env!("CARGO_PKG_VERSION")).await.context("CustomResourceDefinitions")?;
    Ok(ExitCode::SUCCESS)
}
