//! `crds`: our CustomResourceDefinitions on standard output.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let yaml = api::crd::yaml().context("cannot write the CustomResourceDefinitions as YAML")?;
    std::io::stdout().write_all(yaml.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}
