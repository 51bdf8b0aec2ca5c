//! `varnish-gateway`: one binary, one command for each way to run it.

#![cfg_attr(not(feature = "kubernetes"), allow(dead_code, reason = "parts that only clusters use"))]

#[cfg(feature = "kubernetes")]
mod api_server;
#[cfg(feature = "kubernetes")]
mod chaperone_command;
mod check;
mod cli;
mod compile_vcl;
mod conditions;
mod console;
mod crds;
mod dashboard_page;
mod explain;
mod external;
mod input;
mod invalidate_command;
mod log_file;
mod loop_id;
mod observe;
#[cfg(feature = "kubernetes")]
mod operator_command;
mod progress;
mod proxy_command;
mod running;
mod serve;
mod shared_ports;
mod signals;
mod static_addresses;
mod status_command;
mod table;
mod target;
mod tied;
mod top_command;
mod verdict;
mod vmod;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};

/// Snapshots come and go in large pieces; jemalloc gives them back to the system. It does so by threads of its own: without them, memory of
/// connections that became idle would stay until the next allocations.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The answer of commands for clusters in a build without the feature `kubernetes`.
#[cfg(not(feature = "kubernetes"))]
fn without_kubernetes() -> anyhow::Error {
    anyhow::anyhow!("this build has no Kubernetes client: build with the default features (`make build`)")
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    console::init(cli.log, cli.command.answers());
    let done = match cli.command {
        Command::Serve(arguments) => run(serve::run(arguments)),
        Command::Proxy(arguments) => run(proxy_command::run(arguments)),
        #[cfg(feature = "kubernetes")]
        Command::Chaperone(arguments) => run(chaperone_command::run(arguments)),
        #[cfg(feature = "kubernetes")]
        Command::Operator(arguments) => run(operator_command::run(arguments)),
        #[cfg(feature = "kubernetes")]
        Command::Crds(arguments) if arguments.apply => run(crds::apply()),
        #[cfg(not(feature = "kubernetes"))]
        Command::Chaperone(_) | Command::Operator(_) => Err(without_kubernetes()),
        #[cfg(not(feature = "kubernetes"))]
        Command::Crds(arguments) if arguments.apply => Err(without_kubernetes()),
        Command::Check(arguments) => check::run(&arguments),
        Command::Explain(arguments) => run(explain::run(arguments)),
        Command::Status(arguments) => run(status_command::run(arguments)),
        Command::Top(arguments) => run(top_command::run(arguments)),
        Command::Completions(arguments) => completions(arguments.shell),
        Command::Purge(arguments) => run(invalidate_command::purge(arguments, cli.log)),
        Command::Ban(arguments) => run(invalidate_command::ban(arguments, cli.log)),
        Command::AccessLog(arguments) => run(observe::access_log(arguments)),
        Command::Tied(arguments) => tied::run(&arguments),
        Command::Crds(_) => crds::print(),
    };
    done.unwrap_or_else(|e| {
        // A reader that has seen enough (`| head`) is no error.
        let gone = e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe);
        if gone {
            return ExitCode::SUCCESS;
        }
        tracing::error!("{e:#}");
        ExitCode::FAILURE
    })
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "varnish-gateway", &mut script);
    // The labels of its script for bash take the hyphen in our name for a subcommand, and nothing leads to them.
    let script = String::from_utf8(script)?.replace("varnish__subcmd__gateway", "varnish__gateway");
    std::io::stdout().lock().write_all(script.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn run(command: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(command)
}
