//! A `serve` on this machine: found by its control socket.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use model::invalidation::Outcome;
use serde_json::json;
use translate::invalidation;

use super::report::Report;
use super::{Wanted, code};
use crate::cli::{LogFormat, Target};
use crate::serve::control::{self, Question};

pub(super) async fn run(
    wanted: &Wanted,
    target: &Target,
    dir: &Path,
    log: LogFormat,
) -> anyhow::Result<ExitCode> {
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
        let report = report(wanted, gateway, outcomes);
        good &= report.good;
        report.print(log)?;
    }
    Ok(code(good))
}

fn report(wanted: &Wanted, gateway: &str, outcomes: &[Outcome]) -> Report {
    let each = wanted.names().zip(outcomes);
    let bad = each.clone().filter(|(_, outcome)| outcome.error.is_some());
    let result = |(name, outcome): (&String, &Outcome)| match (&outcome.error, outcome.objects) {
        (Some(error), _) => json!({"path": name, "success": false, "message": error}),
        (None, Some(objects)) => json!({"path": name, "success": true, "objects": objects}),
        (None, None) => json!({"path": name, "success": true}),
    };
    Report {
        object: format!("Gateway {gateway}"),
        message: invalidation::summary(wanted.kind, outcomes),
        good: outcomes.iter().all(|outcome| outcome.error.is_none()),
        details: bad.map(|(name, outcome)| format!("{name}: {}", invalidation::told(outcome))).collect(),
        fields: json!({"pathResults": each.map(result).collect::<Vec<_>>()}),
    }
}
