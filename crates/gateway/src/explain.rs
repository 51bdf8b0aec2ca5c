//! `explain`: where a request would go, and why.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use dashboard::Asked;
use model::names::socket_parts;
use router::Router;

use crate::cli::ExplainArguments;
use crate::input;

pub(crate) fn run(arguments: &ExplainArguments) -> anyhow::Result<ExitCode> {
    let (translation, snapshot, problems) = input::read(&arguments.files);
    let mut to = io::stdout().lock();
    for problem in problems.iter().filter(|p| p.is_error()) {
        writeln!(to, "problem: {problem}")?;
    }
    let endpoints = input::endpoints(&snapshot);
    let asked = Asked {
        host: arguments.host.clone(),
        path: arguments.path.clone(),
        method: arguments.method.clone(),
        headers: arguments.headers.clone(),
    };
    let mut explained = 0;
    for (key, plan) in &translation.gateways {
        if arguments.gateway.as_ref().is_some_and(|wanted| *wanted != key.to_string()) {
            continue;
        }
        let (config, _) = input::ghost(plan, &endpoints);
        let compiled = Router::compile(&config)?;
        let sockets = plan.routing.listeners.iter().map(|listener| listener.socket.as_str());
        let sockets: BTreeMap<u16, &str> = sockets.filter_map(|s| Some((socket_parts(s)?.1, s))).collect();
        for (_, socket) in sockets.into_iter().filter(|(p, _)| arguments.port.is_none_or(|port| port == *p)) {
            let explained_here = dashboard::explain(&compiled.router, &key.to_string(), socket, &asked);
            write!(to, "{explained_here}")?;
            explained += 1;
        }
    }
    if explained == 0 {
        writeln!(to, "No Gateway of ours has a listener for this. `varnish-gateway check` says more.")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
