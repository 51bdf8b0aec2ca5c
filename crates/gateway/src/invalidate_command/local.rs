//! A `serve` on this machine: found by its control socket.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::{Wanted, code};
use crate::cli::CacheTarget;
use crate::serve::TEMPORARY_PREFIX;
use crate::serve::control::{self, Question};

/// State directories of `serve`s that run: the one that is named, or all temporary ones of this user.
pub(super) fn find(named: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    if let Some(dir) = named {
        if !answers(dir) {
            bail!("no `varnish-gateway serve` runs with --state-dir {}", dir.display());
        }
        return Ok(vec![dir.to_owned()]);
    }
    let temporary = std::env::temp_dir();
    let entries = std::fs::read_dir(&temporary).with_context(|| temporary.display().to_string())?;
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let own = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == own_user());
        name.starts_with(TEMPORARY_PREFIX) && own && answers(path)
    };
    let mut dirs: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(ours).collect();
    dirs.sort();
    Ok(dirs)
}

/// The owner of our own process, as the system tells it.
fn own_user() -> u32 {
    std::fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid())
}

fn answers(dir: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(control::socket(dir)).is_ok()
}

pub(super) async fn run(wanted: &Wanted, target: &CacheTarget, dir: &Path) -> anyhow::Result<ExitCode> {
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
