//! `explain`: where a request would go, and why: by files, or by what runs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{bail, ensure};
use dashboard::{Asked, Explained};
use model::names::socket_parts;
use router::Router;

use crate::cli::ExplainArguments;
use crate::input::{self, Input};
use crate::running::{Running, qualified};
use crate::{cli, external, progress, verdict};

pub(crate) async fn run(arguments: ExplainArguments) -> anyhow::Result<ExitCode> {
    let asked = Asked {
        host: arguments.host.clone().unwrap_or_default(),
        path: arguments.path.clone().unwrap_or_else(|| "/".to_owned()),
        method: arguments.method.clone(),
        headers: arguments.headers.clone(),
    };
    let (all, remedy) = if arguments.files.is_empty() {
        let working = progress::spinner("asking what runs");
        let running = Running::find(&arguments.target, arguments.all_namespaces).await?;
        let all = running.explain(&asked, arguments.port).await?;
        working.finish_and_clear();
        (all, running.remedy())
    } else {
        (of_files(&arguments, &asked).await?, "`varnish-gateway check` says more.".to_owned())
    };
    let mut to = io::stdout().lock();
    for one in &all {
        write!(to, "{one}")?;
    }
    if all.is_empty() {
        writeln!(to, "No Gateway of ours has a listener for this. {remedy}")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

async fn of_files(arguments: &ExplainArguments, asked: &Asked) -> anyhow::Result<Vec<Explained>> {
    let target = &arguments.target;
    ensure!(
        !target.names_cluster() && target.state_dir.is_none(),
        "-f is about files, --state-dir, --kubeconfig, --context and --namespace are about what runs: leave one out"
    );
    let files = cli::Files { files: arguments.files.clone(), ingress_class: arguments.ingress_class.clone() };
    let Input { translation, snapshot, problems, .. } = input::read(&files)?;
    let mut to = io::stdout().lock();
    for problem in problems.iter().filter(|p| p.is_error()) {
        writeln!(to, "problem: {problem}")?;
    }
    let endpoints = input::endpoints(&snapshot);
    let external = translation.gateways.values().filter_map(|plan| plan.routing.external_names.as_ref());
    let mut externals = external::look_up(external).await;
    let faults = verdict::unresolved(&translation.statuses);
    let wanted = target.gateway.as_ref().map(|gateway| qualified(gateway, "default"));
    let names: Vec<String> = translation.gateways.keys().map(ToString::to_string).collect();
    if let Some(wanted) = wanted.as_ref().filter(|wanted| !names.contains(wanted)) {
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        bail!("no such Gateway of ours: {wanted} (in the files: {there})");
    }
    let mut all = Vec::new();
    for (key, plan) in &translation.gateways {
        if wanted.as_ref().is_some_and(|wanted| *wanted != key.to_string()) {
            continue;
        }
        let key = key.to_string();
        let endpoints = externals.endpoints_of(&plan.routing, &endpoints);
        let (config, _) = input::ghost(plan, &endpoints);
        let compiled = Router::compile(&config)?;
        let names = dashboard::names::of_routing(&plan.routing);
        if let Some(port) = arguments.port {
            let (groups, _) = resolve::resolve_tls(&plan.routing, &endpoints);
            all.extend(dashboard::streams::of_routing(&key, &plan.routing, &groups, &faults, port));
        }
        let of_tls = plan.routing.tls_listeners.iter().map(|listener| listener.socket.as_str());
        // HTTPS and TLS may share a port.
        let sockets = of_tls.chain(plan.routing.listeners.iter().map(|listener| listener.socket.as_str()));
        let sockets: BTreeMap<u16, &str> = sockets.filter_map(|s| Some((socket_parts(s)?.1, s))).collect();
        for (_, socket) in sockets.into_iter().filter(|(p, _)| arguments.port.is_none_or(|port| port == *p)) {
            let at = (key.as_str(), socket);
            let arrangement = plan.routing.arrangement();
            all.push(dashboard::explain(&compiled.router, &names, &faults, at, arrangement, asked));
        }
    }
    Ok(all)
}
