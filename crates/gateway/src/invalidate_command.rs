//! `purge` and `ban`: objects out of the cache, of a `serve` on this machine or of a cluster's Gateway.

#[cfg(feature = "kubernetes")]
mod cluster;
mod local;
mod report;

use std::process::ExitCode;

#[cfg(feature = "kubernetes")]
use anyhow::Context;
use api::InvalidationType;
use model::invalidation::Invalidation;
use translate::invalidation;

use crate::cli::{BanArguments, LogFormat, PurgeArguments, Target};
use crate::target::{self, Found};

/// What to take out.
pub(crate) struct Wanted {
    kind: InvalidationType,
    hostname: Option<String>,
    paths: Vec<String>,
    tags: Vec<String>,
}

pub(crate) async fn purge(arguments: PurgeArguments, log: LogFormat) -> anyhow::Result<ExitCode> {
    let PurgeArguments { soft, host, paths, tags, target } = arguments;
    let kind = if soft { InvalidationType::SoftPurge } else { InvalidationType::Purge };
    if let Some(path) = paths.iter().find(|path| !path.starts_with('/')) {
        return Ok(misuse(&format!("{path}: a path begins with a slash; regular expressions are for `ban`")));
    }
    if paths.is_empty() && tags.is_empty() {
        return Ok(misuse("nothing to purge: give HOST and PATH, or --tag"));
    }
    run(Wanted { kind, hostname: host, paths, tags }, target, log).await
}

pub(crate) async fn ban(arguments: BanArguments, log: LogFormat) -> anyhow::Result<ExitCode> {
    let BanArguments { host, regexes, target } = arguments;
    run(
        Wanted { kind: InvalidationType::Ban, hostname: Some(host), paths: regexes, tags: Vec::new() },
        target,
        log,
    )
    .await
}

async fn run(mut wanted: Wanted, target: Target, log: LogFormat) -> anyhow::Result<ExitCode> {
    wanted.hostname = wanted.hostname.map(|host| host.to_ascii_lowercase());
    if let Err(why) = wanted.check() {
        return Ok(misuse(&why.to_string()));
    }
    match target::find_to_change(&target)? {
        Found::Serve(dir) => local::run(&wanted, &target, &dir, log).await,
        #[cfg(not(feature = "kubernetes"))]
        Found::Cluster => Err(crate::without_kubernetes()),
        #[cfg(feature = "kubernetes")]
        Found::Cluster if target.names_cluster() => cluster::run(&wanted, &target, log).await,
        #[cfg(feature = "kubernetes")]
        Found::Cluster => cluster::run(&wanted, &target, log).await.context(
            "no `varnish-gateway serve` of this user was found, and the cluster of the current kubeconfig does not help: \
             start `serve`, name its --state-dir, or choose a cluster by --kubeconfig, --context and --namespace",
        ),
    }
}

impl Wanted {
    /// What the API server would refuse is refused for `serve`, too.
    fn check(&self) -> Result<(), invalidation::Invalid> {
        invalidation::check(&self.invalidation())
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

    fn names(&self) -> impl Iterator<Item = &String> + Clone {
        self.paths.iter().chain(&self.tags)
    }
}

/// As clap ends where arguments are wrong.
fn misuse(why: &str) -> ExitCode {
    tracing::error!("{why}");
    ExitCode::from(2)
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
