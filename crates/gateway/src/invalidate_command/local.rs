//! A `serve` on this machine: found by its control socket.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::{Wanted, code};
use crate::cli::Target;
use crate::serve::control::{self, Question};

pub(super) async fn run(wanted: &Wanted, target: &Target, dir: &Path) -> anyhow::Result<ExitCode> {
    let invalidation = wanted.invalidation();
    let gateway = target.gateway.as_ref().map(|gateway| match gateway.contains('/') {
        true => gateway.clone(),
        false => format!("default/{gateway}"),
    });
    let path = control::socket(dir);
    let answer = control::ask(&path, &Question { gateway, invalidation }).await;
    let answer = answer.with_context(|| path.display().to_string())?;
    if let Some(error) = answer.error {
        bail!("{error}");
    }
    let mut good = true;
    for (gateway, outcomes) in &answer.outcomes {
        good &= wanted.print(&format!("Gateway {gateway}"), outcomes)?;
    }
    Ok(code(good))
}
