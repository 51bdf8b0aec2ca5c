//! Reports about each request: access logs, and spans for OpenTelemetry.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use chaperone::State;
use chaperone::environment::Environment;
use chaperone::log::{self, Entry, Source};
use chaperone::spans::{self, Endpoint, Exporter};
use clap::Args;
use tokio::sync::{mpsc, oneshot, watch};
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
    /// ghost writes into the log what is wanted there; and whether requests are spans.
    pub(crate) fn ask(&self, ghost: &mut model::ghost::Config, http_in_front: bool) {
        if http_in_front {
            if is_there(&self.collector()) {
                ghost.front_trace_sampling.get_or_insert(self.trace_sampling);
            }
            return;
        }
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

    /// How many read varnishd's log of a Gateway's requests. Where the front carries HTTP it reports them itself.
    pub(crate) fn log_readers(&self, http_in_front: bool) -> usize {
        if http_in_front {
            return 0;
        }
        usize::from(self.access_log.is_some()) + usize::from(is_there(&self.collector()))
    }

    /// Does varnishd have to see every request, whatever the parameters say?
    pub(crate) fn needs_varnishds_log(&self) -> bool {
        self.access_log.as_deref() == Some("ncsa")
    }

    /// What the front of this Gateway reports, where it carries HTTP.
    pub(crate) fn reports(&self, gateway: &str) -> Reports {
        let name = gateway.strip_prefix("Gateway ").unwrap_or(gateway).to_owned();
        let log = self
            .access_log
            .as_deref()
            .map(|to| (to, front::AccessLog::new(Some(name), self.log_query_strings)));
        Reports::new(gateway, log, self.collector())
    }

    /// Logs and exports until it is dropped. `reports`: from the front, in the place of varnishd's log.
    pub(crate) async fn run(self, gateway: String, state: watch::Receiver<State>, reports: Option<Reports>) {
        if let Some(reports) = reports {
            return reports.export(gateway, state).await;
        }
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
        let query = translate::pods::log_query(None);
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

/// What a front reports of requests, and who takes it.
pub(crate) struct Reports {
    observer: Arc<front::Observer>,
    export: Option<(Exporter, mpsc::Receiver<Box<front::Finished>>)>,
    written: Option<oneshot::Receiver<()>>,
}

impl Reports {
    /// `log`: `json`, or a file.
    fn new(
        gateway: &str,
        log: Option<(&str, front::AccessLog)>,
        collector: Result<Option<Exporter>, chaperone::Error>,
    ) -> Self {
        let mut written = None;
        let log = log.and_then(|(to, log)| {
            let out = match to {
                "json" => Ok(LogFile::stdout()),
                file => LogFile::open(file).with_context(|| file.to_owned()),
            };
            let out = out.inspect_err(|e| tracing::error!("{gateway}: no access log: {e:#}")).ok()?;
            let log = Arc::new(log);
            written = Some(log_file::write_front(out, gateway.to_owned(), Arc::clone(&log)));
            Some(log)
        });
        let (spans, export) = match collector {
            Ok(Some(exporter)) => {
                let (spans, requests) = mpsc::channel(spans::WAITING);
                (Some(spans), Some((exporter, requests)))
            }
            Ok(None) => (None, None),
            Err(e) => {
                tracing::warn!("{gateway}: no spans: {e}");
                (None, None)
            }
        };
        Self { observer: Arc::new(front::Observer::new(log, spans)), export, written }
    }

    pub(crate) fn observer(&self) -> Arc<front::Observer> {
        Arc::clone(&self.observer)
    }

    /// To be waited for at the end.
    pub(crate) fn ending(&mut self) -> Ending {
        Ending { observer: self.observer(), written: self.written.take() }
    }

    /// Ends never.
    pub(crate) async fn export(mut self, gateway: String, state: watch::Receiver<State>) {
        if let Some((exporter, requests)) = &mut self.export {
            spans::export_front(exporter.clone(), gateway, requests, state).await;
        }
        std::future::pending::<()>().await;
    }
}

/// The end of an access log.
pub(crate) struct Ending {
    observer: Arc<front::Observer>,
    written: Option<oneshot::Receiver<()>>,
}

impl Ending {
    /// Waiting lines are written, if there is a reader.
    pub(crate) async fn wait(self) {
        if let (Some(log), Some(written)) = (self.observer.access_log(), self.written) {
            log.close();
            let _ = tokio::time::timeout(FINISHING, written).await;
        }
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
    let query = translate::pods::log_query(arguments.vsl_query.as_deref());
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
    // Waiting lines are written, if there is a reader.
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
pub(crate) fn log_readers_of_pod(http_in_front: bool) -> usize {
    usize::from(!http_in_front && is_there(&Exporter::read(None, of_environment)))
}

/// What a pod's front reports, where it carries HTTP.
pub(crate) fn reports_of_pod(name: &str, environment: &Environment) -> Option<Reports> {
    if !environment.http_in_front {
        return None;
    }
    let log = environment.access_log.map(|log| ("json", front::AccessLog::new(None, log.query_strings)));
    Some(Reports::new(name, log, Exporter::read(None, of_environment)))
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
