//! `purge` and `ban`: objects out of the cache, of a `serve` on this machine or of a cluster's Gateway.

mod cluster;
mod local;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::ensure;
use api::InvalidationType;
use model::invalidation::{Invalidation, Outcome};
use translate::invalidation;

use crate::cli::{BanArguments, PurgeArguments, Target};
use crate::target::{self, Found};

/// What to take out.
pub(crate) struct Wanted {
    kind: InvalidationType,
    hostname: Option<String>,
    paths: Vec<String>,
    tags: Vec<String>,
}

pub(crate) async fn purge(arguments: PurgeArguments) -> anyhow::Result<ExitCode> {
    let PurgeArguments { soft, host, paths, tags, target } = arguments;
    let kind = if soft { InvalidationType::SoftPurge } else { InvalidationType::Purge };
    for path in &paths {
        ensure!(
            path.starts_with('/'),
            "{path}: a path begins with a slash; regular expressions are for `ban`"
        );
    }
    ensure!(!paths.is_empty() || !tags.is_empty(), "nothing to purge: give HOST and PATH, or --tag");
    run(Wanted { kind, hostname: host, paths, tags }, target).await
}

pub(crate) async fn ban(arguments: BanArguments) -> anyhow::Result<ExitCode> {
    let BanArguments { host, regexes, target } = arguments;
    run(
        Wanted { kind: InvalidationType::Ban, hostname: Some(host), paths: regexes, tags: Vec::new() },
        target,
    )
    .await
}

async fn run(mut wanted: Wanted, target: Target) -> anyhow::Result<ExitCode> {
    wanted.hostname = wanted.hostname.map(|host| host.to_ascii_lowercase());
    wanted.check()?;
    match target::find(&target)? {
        Found::Cluster => cluster::run(&wanted, &target).await,
        Found::Serve(dir) => local::run(&wanted, &target, &dir).await,
    }
}

impl Wanted {
    /// What the API server would refuse is refused for `serve`, too.
    fn check(&self) -> anyhow::Result<()> {
        invalidation::check(&self.invalidation()).map_err(anyhow::Error::msg)
    }

    fn invalidation(&self) -> Invalidation {
        let order = invalidation::order(&api::VarnishCacheInvalidationSpec {
            kind: self.kind,
            ..api::VarnishCacheInvalidationSpec::default()
        });
        Invalidation {
            hostname: self.hostname.clone(),
            paths: self.paths.clone(),
            tags: self.tags.clone(),
            ..order
        }
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.paths.iter().chain(&self.tags)
    }

    /// One line for the whole, and one for each that failed. True where none did.
    fn print(&self, whose: &str, outcomes: &[Outcome]) -> io::Result<bool> {
        let mut to = io::stdout().lock();
        writeln!(to, "{whose}: {}", invalidation::summary(self.kind, outcomes))?;
        for (name, outcome) in self.names().zip(outcomes).filter(|(_, outcome)| outcome.error.is_some()) {
            writeln!(to, "  {name}: {}", invalidation::told(outcome))?;
        }
        Ok(outcomes.iter().all(|outcome| outcome.error.is_none()))
    }
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
