//! The command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use chaperone::engine::{self, Names};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::observe::{AccessLogArguments, ObserveArguments};
use crate::proxy_command;
use crate::tied::TiedArguments;

/// A Kubernetes gateway that caches: the Gateway API on Varnish Cache.
#[derive(Debug, Parser)]
#[command(name = "varnish-gateway", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Format of log lines and errors.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str =
    "Exit codes: 0 success; 1 something failed, was rejected, or does not serve; 2 invalid usage.
`varnish-gateway COMMAND --help` has examples.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One short line for people.
    Text,
    /// One JSON object a line for machines.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway on this machine, configured by manifests in files.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArguments),
    /// Run a caching proxy on this machine, configured by arguments. `--print` shows the manifests that `serve` would need for the same.
    #[command(after_help = PROXY_EXAMPLES)]
    Proxy(ProxyArguments),
    /// Run one varnishd and its front, configured by environment variables (docs/reference/chaperone.md).
    #[command(after_help = CHAPERONE_EXAMPLES)]
    Chaperone(ChaperoneArguments),
    /// Run the Gateways of a cluster, configured by environment variables (docs/reference/operator.md).
    #[command(after_help = OPERATOR_EXAMPLES)]
    Operator(OperatorArguments),
    /// Validate every object, print its status, and compile the VCL. Exits with 1 if any object would be rejected.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArguments),
    /// Explain which route, rule and backend would serve a request, and why the others would not; from files, or from a running gateway.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArguments),
    /// Show Gateways, listeners, routes, endpoints and the last reload of a `serve` or of a cluster.
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArguments),
    /// Watch the busiest routes: requests a second, hit ratio, latency and errors.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArguments),
    /// Remove objects from the cache by URL or by tag, in a `serve` on this machine or in a Gateway of a cluster.
    #[command(after_help = PURGE_EXAMPLES)]
    Purge(PurgeArguments),
    /// Remove objects from the cache by regular expression, in a `serve` on this machine or in a Gateway of a cluster.
    #[command(after_help = BAN_EXAMPLES)]
    Ban(BanArguments),
    /// Write every request of a varnishd to standard output, as one line of JSON. A pod's sidecar runs it.
    #[command(after_help = ACCESS_LOG_EXAMPLES)]
    AccessLog(AccessLogArguments),
    /// Run another program that exits with its parent. For internal use.
    #[command(hide = true)]
    Tied(TiedArguments),
    /// Print the CustomResourceDefinitions of the gateway's own kinds, for `kubectl apply --server-side -f -`.
    #[command(after_help = CRDS_EXAMPLES)]
    Crds(CrdsArguments),
    /// Print a script that completes this command line in a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArguments),
}

impl Command {
    /// Is standard output for an answer, or another's, and not for what happens?
    pub(crate) fn answers(&self) -> bool {
        matches!(
            self,
            Self::Explain(_)
                | Self::Status(_)
                | Self::Top(_)
                | Self::AccessLog(_)
                | Self::Tied(_)
                | Self::Completions(_)
                | Self::Proxy(ProxyArguments { print: true, .. })
                | Self::Crds(CrdsArguments { apply: false })
        )
    }
}

const SERVE_EXAMPLES: &str = "Examples:
  varnish-gateway serve -f examples/quickstart
  varnish-gateway serve -f shop.yaml -f /etc/gateway --state-dir /var/lib/gateway
  varnish-gateway serve -f shop.yaml --bind 127.0.0.1 --dashboard 127.0.0.1:9100 --allow-actions
  varnish-gateway serve -f shop.yaml --dashboard off --log json";
const PROXY_EXAMPLES: &str = "Examples:
  varnish-gateway proxy --to http://127.0.0.1:9001 --cache 1m
  varnish-gateway proxy --listen 127.0.0.1:8080 --to http://127.0.0.1:9001 --to http://127.0.0.1:9002
  varnish-gateway proxy --listen :8443 --tls shop.example.com --route shop.example.com/images=http://127.0.0.1:9002 --to http://127.0.0.1:9001
  varnish-gateway proxy --to http://127.0.0.1:9001 --cache 1m --print > proxy.yaml";
const CHAPERONE_EXAMPLES: &str = "Examples:
  VCL_PATH=main.vcl ROUTING_CONFIG_PATH=routing.json WORK_DIR=/tmp/varnish VARNISH_LISTEN='http-8080=:8080,http' varnish-gateway chaperone";
const OPERATOR_EXAMPLES: &str = "Examples:
  POD_NAMESPACE=varnish-gateway-system varnish-gateway operator --log json";
const CHECK_EXAMPLES: &str = "Examples:
  varnish-gateway check -f examples/quickstart
  varnish-gateway check -f manifests/ && kubectl apply -f manifests/";
const EXPLAIN_EXAMPLES: &str = "Examples:
  varnish-gateway explain -f examples/quickstart --host shop.example.com --path '/cart?x=1' --method POST
  varnish-gateway explain --host shop.example.com --path /cart                    # what runs on this machine, or the cluster
  varnish-gateway explain --port 5432                                             # a TCP or UDP listener
  varnish-gateway explain -A --host shop.example.com --path /cart                 # every Gateway of the cluster
  varnish-gateway explain --namespace shop --gateway web --host shop.example.com --path /cart --header 'X-Beta: yes'";
const STATUS_EXAMPLES: &str = "Examples:
  varnish-gateway status
  varnish-gateway status --state-dir /var/lib/gateway --output json
  varnish-gateway status --context production -A
  varnish-gateway status --namespace shop --gateway web";
const TOP_EXAMPLES: &str = "Examples:
  varnish-gateway top
  varnish-gateway top --interval 5 --limit 10
  varnish-gateway top --count 1 --output json
  varnish-gateway top --namespace shop --gateway web";
const ACCESS_LOG_EXAMPLES: &str = "Examples:
  varnish-gateway access-log --varnishd-dir /var/lib/gateway/default_web/varnishd
  varnish-gateway access-log --varnishd-dir /var/run/varnish/varnishd --vsl-query 'RespStatus >= 500'";
const CRDS_EXAMPLES: &str = "Examples:
  varnish-gateway crds | kubectl apply --server-side -f -";
const COMPLETIONS_EXAMPLES: &str = "Examples:
  varnish-gateway completions bash > /etc/bash_completion.d/varnish-gateway
  varnish-gateway completions zsh > \"${fpath[1]}/_varnish-gateway\"
  varnish-gateway completions fish > ~/.config/fish/completions/varnish-gateway.fish";

#[derive(Debug, Args)]
pub(crate) struct Files {
    /// A manifest, or a directory of *.yaml, *.yml and *.json. May be given several times.
    #[arg(short = 'f', long = "file", value_name = "FILE|DIR", required = true, num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Value of the annotation kubernetes.io/ingress.class of the Ingresses to serve.
    #[arg(long, value_name = "NAME", default_value = "varnish")]
    pub(crate) ingress_class: String,
}

#[derive(Debug, Args)]
pub(crate) struct Varnish {
    /// The daemon of the cache engine, if not the one in PATH.
    #[arg(long, value_name = "FILE")]
    pub(crate) varnishd: Option<PathBuf>,
    /// The cache engine whose programs are run: varnish (varnishd, varnishstat, …) or vinyl (vinyld, vinylstat, …). By default the one in PATH,
    /// varnishd first.
    #[arg(long, value_name = "ENGINE")]
    pub(crate) engine: Option<Engine>,
    /// libvmod_ghost.so, if it is neither beside this program nor in varnishd's vmod path.
    #[arg(long, value_name = "FILE")]
    pub(crate) vmod: Option<PathBuf>,
}

/// Whose names the programs of the cache engine have.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Engine {
    Varnish,
    Vinyl,
}

impl Varnish {
    /// The daemon to run. The first call decides about the engine of this process.
    pub(crate) fn daemon(&self) -> PathBuf {
        let names = self.engine.map(|engine| match engine {
            Engine::Varnish => Names::Varnish,
            Engine::Vinyl => Names::Vinyl,
        });
        engine::choose(self.varnishd.as_deref(), names)
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) varnish: Varnish,
    /// Where the Gateways' varnishds keep their files; a temporary directory by default.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Listen on this address only, instead of all addresses of the machine.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    /// Take internal ports from this one on, two for each Gateway, instead of free ones.
    #[arg(long, value_name = "PORT")]
    pub(crate) internal_ports: Option<u16>,
    /// How long requests may take to finish after Ctrl-C or SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) drain_timeout: Duration,
    /// Ask this server for the names of ExternalName Services, instead of those of /etc/resolv.conf. May be given several times.
    #[arg(long = "dns-server", value_name = "ADDRESS:PORT")]
    pub(crate) dns_servers: Vec<SocketAddr>,
    /// Allow loopback addresses for names of ExternalName Services, for tests.
    #[arg(long)]
    pub(crate) allow_loopback_names: bool,
    #[command(flatten)]
    pub(crate) observe: ObserveArguments,
    #[command(flatten)]
    pub(crate) dashboard: DashboardArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ProxyArguments {
    /// Address and port to listen on; without an address, all addresses of the machine.
    #[arg(long, value_name = "[ADDRESS]:PORT", default_value = ":8080", value_parser = proxy_command::listen)]
    pub(crate) listen: proxy_command::Listen,
    /// An origin for all requests that no --route matches. Several origins share the requests.
    #[arg(long, value_name = "URL")]
    pub(crate) to: Vec<proxy_command::Target>,
    /// An origin for a host and all paths below one. The longest path counts; several origins for the same share the requests.
    #[arg(long = "route", value_name = "[HOST]/PATH=URL")]
    pub(crate) routes: Vec<proxy_command::RouteTo>,
    /// Cache responses for this time (30s, 10m, 1h) unless they say otherwise. Without it nothing is cached.
    #[arg(long, value_name = "TIME", value_parser = proxy_command::time)]
    pub(crate) cache: Option<String>,
    /// Serve HTTPS for this host. May be given several times. The certificate is self-signed, and created at each start.
    #[arg(long, value_name = "HOST", value_parser = proxy_command::host)]
    pub(crate) tls: Vec<String>,
    /// A certificate for the hosts of --tls, in PEM, instead of a self-signed one.
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// Its private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// Print the manifests, and run nothing.
    #[arg(long)]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) varnish: Varnish,
    /// Where varnishd keeps its files; a temporary directory by default.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// How long requests may take to finish after Ctrl-C or SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(crate) drain_timeout: Duration,
    #[command(flatten)]
    pub(crate) observe: ObserveArguments,
    #[command(flatten)]
    pub(crate) dashboard: DashboardArguments,
}

impl ServeArguments {
    /// How names of ExternalName Services are looked up.
    pub(crate) fn dns(&self) -> dns::Settings {
        dns::Settings {
            servers: self.dns_servers.clone(),
            allow_loopback: self.allow_loopback_names,
            ..dns::Settings::default()
        }
    }
}

/// A page for people, on loopback by default.
#[derive(Debug, Args)]
#[command(next_help_heading = "Dashboard")]
pub(crate) struct DashboardArguments {
    /// Address of the dashboard, or `off`. Default: 127.0.0.1:9000, or the next free port if it is in use.
    #[arg(long = "dashboard", value_name = "ADDRESS:PORT|off", env = "DASHBOARD_ADDR", value_parser = dashboard_at)]
    pub(crate) at: Option<DashboardAt>,
    /// Let the dashboard remove objects from the cache. Without it, the dashboard is read-only.
    #[arg(long, env = "DASHBOARD_ALLOW_ACTIONS")]
    pub(crate) allow_actions: bool,
    /// A name, beside localhost, by which browsers may reach the dashboard. May be given several times.
    #[arg(long = "dashboard-host", value_name = "NAME", env = "DASHBOARD_HOSTS", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DashboardAt {
    /// The default.
    Usual,
    Here(SocketAddr),
    Off,
}

#[derive(Debug, Args)]
pub(crate) struct ChaperoneArguments {
    #[command(flatten)]
    pub(crate) varnish: Varnish,
    #[command(flatten)]
    pub(crate) dashboard: DashboardArguments,
    /// How long requests may take to finish after SIGTERM.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) drain_timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct OperatorArguments {
    /// Delete what the operator of this CONTROLLER_NAME created for Gateways and IngressClasses, and exit.
    #[arg(long)]
    pub(crate) clean_up: bool,
    /// The operator's own Deployment in POD_NAMESPACE, which is stopped first.
    #[arg(long, value_name = "NAME", requires = "clean_up")]
    pub(crate) deployment: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CrdsArguments {
    /// Apply them to the cluster instead, unless the cluster has those of a newer release.
    #[arg(long)]
    pub(crate) apply: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) varnish: Varnish,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// A manifest, or a directory of them. Without it a running gateway is asked. May be given several times.
    #[arg(short = 'f', long = "file", value_name = "FILE|DIR", num_args = 1..)]
    pub(crate) files: Vec<PathBuf>,
    /// Value of the annotation kubernetes.io/ingress.class of the Ingresses to serve, in files.
    #[arg(long, value_name = "NAME", default_value = "varnish")]
    pub(crate) ingress_class: String,
    /// Ask a running `serve` or a cluster instead of files. The same as leaving -f out.
    #[arg(long, conflicts_with = "files")]
    pub(crate) running: bool,
    /// The request's Host. Without it, --port selects a TCP or UDP listener.
    #[arg(long, required_unless_present = "port")]
    pub(crate) host: Option<String>,
    /// Path and query.
    #[arg(long, value_parser = path, required_unless_present = "port")]
    pub(crate) path: Option<String>,
    #[arg(long, default_value = "GET")]
    pub(crate) method: String,
    /// A request header, `Name: value`. May be given several times.
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Only this port. Required for TCP and UDP listeners.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// All namespaces of a cluster.
    #[arg(short = 'A', long, conflicts_with = "files")]
    pub(crate) all_namespaces: bool,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub(crate) target: Target,
    /// All namespaces of a cluster.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// A table for people, or one JSON object for machines.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    #[command(flatten)]
    pub(crate) target: Target,
    /// All namespaces of a cluster.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Seconds between two updates; numbers are the mean over this time.
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) interval: u64,
    /// Exit after this many updates. Default: never on a terminal, otherwise after one.
    #[arg(short, long, value_name = "NUMBER")]
    pub(crate) count: Option<u64>,
    /// The most routes to show.
    #[arg(short, long, value_name = "NUMBER", default_value_t = 30)]
    pub(crate) limit: usize,
    /// A table for people, or one JSON object per update for machines.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

const PURGE_EXAMPLES: &str = "Examples:
  varnish-gateway purge shop.example.com /products/7 '/products?page=1'
  varnish-gateway purge --soft shop.example.com /products/7
  varnish-gateway purge --tag product-7 --tag shelf
  varnish-gateway purge --namespace shop --gateway web shop.example.com /products/7";
const BAN_EXAMPLES: &str = "Examples:
  varnish-gateway ban shop.example.com '^/images/'
  varnish-gateway ban --context production --gateway shop/web shop.example.com '^/products/[0-9]+$'";

#[derive(Debug, Args)]
pub(crate) struct PurgeArguments {
    /// Mark objects as stale instead: within their grace they are served while they are fetched again.
    #[arg(long)]
    pub(crate) soft: bool,
    /// The host, like shop.example.com. With --tag it may be left out, which means all hosts.
    #[arg(value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Path and query, as clients send them. All variants are removed.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// A tag from the origin's Surrogate-Key or xkey header. May be given several times.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Debug, Args)]
pub(crate) struct BanArguments {
    /// The host, like shop.example.com.
    #[arg(value_name = "HOST")]
    pub(crate) host: String,
    /// Regular expressions for path and query; not anchored unless they contain ^ and $.
    #[arg(value_name = "REGEX", required = true)]
    pub(crate) regexes: Vec<String>,
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Which gateway: a `serve` on this machine, or a cluster.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The Gateway. Default: all of a `serve`; in a cluster those of the namespace, and for `purge` and `ban` the only one.
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub(crate) gateway: Option<String>,
    /// The --state-dir of the `serve`, if it has one.
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Use this kubeconfig to reach a cluster.
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Use this context of the kubeconfig.
    #[arg(long, value_name = "NAME", conflicts_with = "state_dir")]
    pub(crate) context: Option<String>,
    /// Ask a cluster, for Gateways of this namespace.
    #[arg(short, long, value_name = "NAMESPACE", conflicts_with = "state_dir")]
    pub(crate) namespace: Option<String>,
}

impl Target {
    pub(crate) fn names_cluster(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || self.namespace.is_some()
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .map_err(|_| ())
        .and_then(|s| Duration::try_from_secs_f64(s).map_err(|_| ()))
        .map_err(|()| "must be a number of seconds".to_owned())
}

/// `127.0.0.1:9000`, `:9000` and `9000` (on loopback), `off`.
fn dashboard_at(text: &str) -> Result<DashboardAt, String> {
    let wrong = || "must be an address and a port such as 127.0.0.1:9000, or `off`".to_owned();
    let (host, port) = match text.trim() {
        "" => return Ok(DashboardAt::Usual),
        "off" | "none" => return Ok(DashboardAt::Off),
        text => text.rsplit_once(':').unwrap_or(("", text)),
    };
    let host: IpAddr = match host.trim_matches(['[', ']']) {
        "" | "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse().map_err(|_| wrong())?,
    };
    Ok(DashboardAt::Here(SocketAddr::new(host, port.parse().map_err(|_| wrong())?)))
}

fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') { Ok(text.to_owned()) } else { Err("must begin with `/`".to_owned()) }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("must be `Name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_makes_sense() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_and_is_in_the_docs() {
        let page = include_str!("../../../docs/reference/commands.md");
        let headings: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            assert!(headings.iter().any(|heading| heading.split(", ").any(|word| word == name)), "{name}");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:") && help.contains(name), "{name}: {help}");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let described = argument.get_help().is_some() || argument.is_positional();
                assert!(described || argument.get_id() == "method", "{name}: {}", argument.get_id());
            }
        }
        assert!(page.contains("| exit code |"));
    }

    #[test]
    fn the_dashboard_stays_on_loopback_unless_an_address_is_given() {
        let at = |text: &str| dashboard_at(text).unwrap();
        let here = |text: &str| DashboardAt::Here(text.parse().unwrap());
        for text in ["9000", ":9000", "localhost:9000", "127.0.0.1:9000"] {
            assert_eq!(at(text), here("127.0.0.1:9000"), "{text}");
        }
        assert_eq!(at("0.0.0.0:80"), here("0.0.0.0:80"));
        assert_eq!(at("[::1]:9000"), here("[::1]:9000"));
        assert_eq!((at("off"), at("")), (DashboardAt::Off, DashboardAt::Usual));
        for text in ["x", "x:9000", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000"] {
            assert!(dashboard_at(text).is_err(), "{text}");
        }
    }
}
