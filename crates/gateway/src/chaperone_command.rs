//! `chaperone`: one varnishd, fed by routing.json, main.vcl and EndpointSlices in files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chaperone::environment::Environment;
use chaperone::{Desired, Reporter, Settings};
use model::routing::Routing;
use model::{Version, check_version};
use source::files::Files;
use tokio::sync::watch;
use translate::{EndpointIndex, resolve};

use crate::cli::ChaperoneArguments;
use crate::serve::tell;
use crate::{signals, vmod};

/// Where a pipe's other end says nothing, it is closed after this time.
const UPGRADE_IDLE: Duration = Duration::from_secs(300);

pub(crate) async fn run(arguments: ChaperoneArguments) -> anyhow::Result<ExitCode> {
    let environment = Environment::read(|name| std::env::var(name).ok())?;
    let shutdown = signals::watch_signals()?;
    let settings = settings(&environment, &arguments);
    let (to_varnishd, desired) = watch::channel(Desired::default());
    let reporter = Reporter::new(move |event| tell("chaperone", event));

    let health =
        chaperone::health::serve(environment.health_address, environment.http_address, reporter.state());
    let feeding = feed(&environment, to_varnishd);
    let running = chaperone::run(settings, desired, reporter, shutdown);
    tokio::select! {
        () = running => Ok(ExitCode::SUCCESS),
        failed = health => failed.context("HEALTH_ADDR").map(|()| ExitCode::FAILURE),
        failed = feeding => failed.map(|()| ExitCode::FAILURE),
    }
}

fn settings(environment: &Environment, arguments: &ChaperoneArguments) -> Settings {
    let (extra_args, refused) = translate::varnishd_args::check(&environment.extra_args);
    for argument in refused {
        tracing::error!("VARNISHD_EXTRA_ARGS: {argument}");
    }
    Settings {
        name: "chaperone".to_owned(),
        varnishd: arguments.varnish.varnishd.clone(),
        vmod: vmod::find(arguments.varnish.vmod.as_deref()),
        work_dir: environment.work_dir.clone(),
        ghost_config: environment.ghost_path.clone(),
        sockets: environment.listen.clone(),
        reload_address: environment.reload_address,
        admin_address: environment.admin_address,
        extra_args,
        upgrade_idle: UPGRADE_IDLE,
        drain_timeout: arguments.drain_timeout,
    }
}

/// Reads all files again whenever one may have changed. What cannot be read leaves the last good in force.
async fn feed(environment: &Environment, to_varnishd: watch::Sender<Desired>) -> anyhow::Result<()> {
    let watched =
        [Some(&environment.vcl_path), Some(&environment.routing_path), environment.endpoints_path.as_ref()];
    let watched: Vec<PathBuf> = watched.into_iter().flatten().cloned().collect();
    let mut watch = Files::new(watched).watch()?;
    let mut endpoints = environment.endpoints_path.clone().map(|path| Files::new(vec![path]));
    let mut told = String::new();
    loop {
        match read(environment, endpoints.as_mut()) {
            Ok(desired) => {
                told.clear();
                to_varnishd.send_if_modified(|old| {
                    let new = *old != desired;
                    *old = desired;
                    new
                });
            }
            Err(e) => {
                let message = format!("{e:#}; the last good configuration stays in use");
                if message != told {
                    tracing::warn!("{message}");
                    told = message;
                }
            }
        }
        watch.changed().await;
    }
}

fn read(environment: &Environment, endpoints: Option<&mut Files>) -> anyhow::Result<Desired> {
    let vcl = read_text(&environment.vcl_path).context("VCL_PATH")?;
    let mut routing = read_routing(&environment.routing_path).context("ROUTING_CONFIG_PATH")?;
    let routes = routing.vhosts.values_mut().flat_map(|v| v.routes.iter_mut().chain(&mut v.default_route));
    for route in routes.chain(&mut routing.default).filter(|r| r.service.is_some()) {
        route.namespace.get_or_insert_with(|| environment.namespace.clone());
    }
    let index = match endpoints {
        Some(files) => {
            let loaded = files.load();
            for problem in &loaded.problems {
                tracing::warn!("{problem}");
            }
            EndpointIndex::new(loaded.snapshot.endpoint_slices.values().map(|slice| &**slice))
        }
        None => EndpointIndex::new([]),
    };
    let (ghost, notices) = resolve(&routing, &index);
    for notice in notices {
        tracing::debug!("{notice}");
    }
    Ok(Desired { ghost: Some(serde_json::to_vec(&ghost)?.into()), vcl: Some(Arc::from(vcl)) })
}

fn read_text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// A newer operator may write fields that we do not know: they are told, and ignored.
fn read_routing(path: &Path) -> anyhow::Result<Routing> {
    let text = read_text(path)?;
    let at = || path.display().to_string();
    let Version { version } = serde_json::from_str(&text).with_context(at)?;
    check_version("routing.json", version).with_context(at)?;
    let mut unknown = Vec::new();
    let mut json = serde_json::Deserializer::from_str(&text);
    let routing =
        serde_ignored::deserialize(&mut json, |field| unknown.push(field.to_string())).with_context(at)?;
    if let Some(first) = unknown.first() {
        let count = unknown.len();
        tracing::warn!("{}: {count} unknown fields are ignored, the first is {first}", path.display());
    }
    Ok(routing)
}
