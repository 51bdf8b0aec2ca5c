//! What others are told of each request: access logs, and spans for OpenTelemetry.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chaperone::State;
use chaperone::log::{self, Entry, Source};
use chaperone::spans::{self, Endpoint, Exporter};
use clap::Args;
use tokio::sync::watch;
use translate::{GatewayPlan, Key, Notice, Severity};

use crate::log_file::{self, LogFile, Lost};
use crate::tied;

/// What `serve` writes of requests.
#[derive(Debug, Clone, Args)]
pub(crate) struct ObserveArguments {
    /// Log every request: `json` or `ncsa` to standard output, or JSON into this file.
    #[arg(long, value_name = "json|ncsa|FILE")]
    access_log: Option<String>,
    /// Access logs as JSON show what comes behind `?` in URLs, too.
    #[arg(long)]
    log_query_strings: bool,
    /// A collector that takes OTLP over HTTP, like http://127.0.0.1:4318: requests become spans.
    /// Without it OTEL_EXPORTER_OTLP_ENDPOINT counts; other variables of OpenTelemetry are heard in any case.
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    otlp_endpoint: Option<Endpoint>,
    /// The share of requests that is recorded, from 0 to 1. Trusted proxies decide for their own.
    #[arg(long, value_name = "RATIO", default_value = "0.01", value_parser = ratio)]
    trace_sampling: f64,
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    Endpoint::parse(text).map_err(|e| e.to_string())
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "a number from 0 to 1 is needed".to_owned())
}

impl ObserveArguments {
    /// ghost writes into the log what is wanted there.
    pub(crate) fn ask(&self, ghost: &mut model::ghost::Config) {
        if self.access_log.as_ref().is_some_and(|to| to != "ncsa") {
            ghost.request_log = Some(true);
        }
        if is_there(&self.collector()) {
            ghost.trace_sampling.get_or_insert(self.trace_sampling);
        }
    }

    /// Variables may be meant for other programs: what is wrong with them stops nothing.
    fn collector(&self) -> Result<Option<Exporter>, chaperone::Error> {
        Exporter::read(self.otlp_endpoint.clone(), of_environment)
    }

    /// What GatewayClassParameters ask for that is for pods alone, where nothing here stands in for it.
    pub(crate) fn unheard(&self, key: &Key, plan: &GatewayPlan) -> Vec<Notice> {
        let Some(workload) = &plan.workload else { return Vec::new() };
        let notice = |field: &str, instead: &str| Notice {
            object: format!("Gateway {key}"),
            severity: Severity::Info,
            message: format!("has `{field}` in its GatewayClassParameters, which is for pods: {instead}"),
        };
        let logging = workload.logging.is_some() && self.access_log.is_none();
        let tracing = workload.otlp_endpoint.is_some() && !is_there(&self.collector());
        let logging = logging.then(|| notice("logging", "`serve --access-log json` logs on this machine"));
        let tracing =
            tracing.then(|| notice("tracing", "`serve --otlp-endpoint URL` exports from this machine"));
        logging.into_iter().chain(tracing).collect()
    }

    /// How many read varnishd's log of requests.
    pub(crate) fn log_readers(&self) -> usize {
        usize::from(self.access_log.is_some()) + usize::from(is_there(&self.collector()))
    }

    /// Logs and exports until it is dropped.
    pub(crate) async fn run(self, gateway: String, state: watch::Receiver<State>) {
        let logging = async {
            let Some(to) = &self.access_log else { return std::future::pending().await };
            let Some(source) = Source::of(state.clone(), tied::with_us()).await else { return };
            if let Err(e) = self.log(to, &gateway, &source).await {
                source.readers.fail();
                tracing::error!("{gateway}: no access log: {e:#}");
                std::future::pending::<()>().await;
            }
        };
        let exporting = async {
            match self.collector() {
                Ok(Some(exporter)) => {
                    spans::export(exporter, gateway.clone(), tied::with_us(), state.clone()).await;
                }
                Ok(None) => {}
                Err(e) => tracing::warn!("{gateway}: no spans: {e}"),
            }
            std::future::pending::<()>().await;
        };
        tokio::join!(logging, exporting);
    }

    async fn log(&self, to: &str, gateway: &str, source: &Source) -> anyhow::Result<()> {
        let query = translate::log_query(None);
        let out = match to {
            "json" | "ncsa" => LogFile::stdout(),
            file => LogFile::open(file).with_context(|| file.to_owned())?,
        };
        let arguments = match to {
            "ncsa" => vec!["-q".to_owned(), query],
            _ => log::arguments(Some(&query)),
        };
        let name = gateway.strip_prefix("Gateway ").unwrap_or(gateway).to_owned();
        let ((written, _), mut lost) = (log_file::writer(out, gateway.to_owned()), Lost::default());
        log::follow(source, &arguments, move |line| {
            let line = match to {
                "ncsa" => line,
                _ => json(&line, self.log_query_strings, Some(&name)),
            };
            lost.send(format!("{line}\n"), &written, gateway)
        })
        .await;
        Ok(())
    }
}

/// For lines to be written, at the end.
const FINISHING: Duration = Duration::from_secs(2);

fn json(line: &str, with_query: bool, gateway: Option<&str>) -> String {
    match Entry::parse(line, with_query) {
        Some(entry) => Entry { gateway: gateway.map(str::to_owned), ..entry }.json(),
        None => Entry::line(line, with_query),
    }
}

/// `access-log`: what a pod's sidecar runs.
#[derive(Debug, Args)]
pub(crate) struct AccessLogArguments {
    /// The directory of varnishd's shared memory (its `-n`).
    #[arg(long, value_name = "DIR")]
    varnishd_dir: PathBuf,
    /// Only transactions that this VSL query matches, like 'RespStatus >= 500'.
    #[arg(long, value_name = "QUERY")]
    vsl_query: Option<String>,
    /// Show what comes behind `?` in URLs, too.
    #[arg(long)]
    log_query_strings: bool,
    /// Further arguments for varnishncsa.
    #[arg(last = true)]
    varnishncsa: Vec<String>,
}

pub(crate) async fn access_log(arguments: AccessLogArguments) -> anyhow::Result<ExitCode> {
    let query = translate::log_query(arguments.vsl_query.as_deref());
    let mut all = log::arguments(Some(&query));
    all.extend(arguments.varnishncsa);
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let (lines, writing) = log_file::writer(LogFile::stdout(), "access-log".to_owned());
    let mut lost = Lost::default();
    let source =
        Source { varnishd_dir: arguments.varnishd_dir, by: tied::with_us(), readers: Arc::default() };
    let following = log::follow(&source, &all, |line| {
        let line = Entry::line(&line, arguments.log_query_strings);
        lost.send(format!("{line}\n"), &lines, "access-log")
    });
    tokio::select! {
        () = following => {}
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    drop(lines);
    // What waits is written, if somebody reads.
    let _ = tokio::time::timeout(FINISHING, writing).await;
    Ok(ExitCode::SUCCESS)
}

fn is_there(collector: &Result<Option<Exporter>, chaperone::Error>) -> bool {
    matches!(collector, Ok(Some(_)))
}

fn of_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// How many of a pod's chaperone itself read varnishd's log of requests.
pub(crate) fn log_readers_of_pod() -> usize {
    usize::from(is_there(&Exporter::read(None, of_environment)))
}

/// Spans of a pod's requests, where its environment names a collector. Ends never.
pub(crate) async fn export_of_pod(gateway: String, state: watch::Receiver<State>) {
    match Exporter::read(None, of_environment) {
        Ok(Some(exporter)) => spans::export(exporter, gateway, tied::with_us(), state).await,
        Ok(None) => {}
        Err(e) => tracing::error!("no spans: {e}"),
    }
    std::future::pending::<()>().await;
}
