//! The environment variables of `varnish-gateway chaperone`, as documented for users.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use model::names::socket_parts;

use crate::{Error, ListenSocket, hot_limits};

/// All variables, read and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `NAMESPACE`, by default `default`: where Services are that routing.json names without namespace.
    pub namespace: String,
    /// `GATEWAY_NAME`: the Gateway in that namespace whose pod this is; configuration comes from the API server then, and
    /// not from files.
    pub gateway_name: Option<String>,
    /// `POD_NAME`: the name under which the pod reports to the operator.
    pub pod_name: Option<String>,
    /// `VARNISH_ADMIN_PORT`, by default 6082, on loopback.
    pub admin_address: SocketAddr,
    /// `VARNISH_SECRET_PATH`: a file with the secret of varnishd's CLI; a new one is made where absent.
    pub secret_path: Option<PathBuf>,
    /// `VARNISH_LISTEN`, by default `http-80=:80,http`; several by semicolon. None where it is set and empty, and by default
    /// with `HTTP_IN_FRONT`: then all listeners are the front's.
    pub listen: Vec<ListenSocket>,
    /// `HTTP_IN_FRONT`, by default `false`: the front owns the ports of plain HTTP listeners, as routing.json names them, and
    /// carries HTTP. varnishd's unix sockets depend on it, so it stays the same while the process runs, also if routing.json says otherwise.
    pub http_in_front: bool,
    /// `ACCESS_LOG`, by default `off`: with `json` the front writes a line for each request to standard output.
    pub access_log: Option<AccessLog>,
    /// `VCL_PATH`, by default /etc/varnish/main.vcl.
    pub vcl_path: PathBuf,
    /// `ROUTING_CONFIG_PATH`, by default /etc/varnish/routing.json.
    pub routing_path: PathBuf,
    /// `GHOST_CONFIG_PATH`, by default ghost.json in `WORK_DIR`.
    pub ghost_path: Option<PathBuf>,
    /// `ENDPOINTS_PATH`: a file or directory of EndpointSlice manifests.
    pub endpoints_path: Option<PathBuf>,
    /// `CERTIFICATES_PATH`: a directory with `{namespace}.{name}.crt` and `.key` for the Secrets that routing.json names.
    pub certificates_path: Option<PathBuf>,
    /// `WORK_DIR`, by default /var/run/varnish.
    pub work_dir: PathBuf,
    /// `HEALTH_ADDR`, by default :8081.
    pub health_address: SocketAddr,
    /// `PEERS`: health addresses of other chaperones that serve the same, separated by commas. In a cluster the chaperone finds them itself.
    pub peers: Vec<SocketAddr>,
    /// `VARNISHD_EXTRA_ARGS`; several by semicolon.
    pub extra_args: Vec<String>,
    /// `UPGRADE_IDLE_SECONDS`, by default 300: an idle WebSocket is closed after this time.
    pub upgrade_idle: Duration,
    /// `HOT_OBJECTS`, by default `true`; `HOT_OBJECTS_BYTES`, and `HOT_OBJECTS_MAX_OBJECT_BYTES`.
    pub hot: front::HotLimits,
    /// `UPGRADE_TOTAL_SECONDS`, by default 86400, a day: a WebSocket is closed after this time.
    pub upgrade_total: Duration,
    /// `DRAIN_DELAY`, by default 0: seconds after SIGTERM in which it still serves, but is not ready.
    pub drain_delay: Duration,
    /// `DRAIN_TIMEOUT`: seconds that requests may take to finish after that.
    pub drain_timeout: Option<Duration>,
}

/// What the front logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessLog {
    /// `ACCESS_LOG_QUERY_STRINGS`, by default `false`: whether query strings are logged.
    pub query_strings: bool,
}

impl Environment {
    /// `get` looks up a variable; tests pass their own function.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let text =
            |name: &str, default: &str| get(name).filter(|v| !v.is_empty()).unwrap_or(default.to_owned());
        let path = |name: &str| get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let port = text("VARNISH_ADMIN_PORT", "6082");
        let port = port.parse().map_err(|_| bad("VARNISH_ADMIN_PORT", &port, "it must be a port number"))?;
        let http_in_front = flag("HTTP_IN_FRONT", &text("HTTP_IN_FRONT", "false"))?;
        let query_strings = text("ACCESS_LOG_QUERY_STRINGS", "false");
        let query_strings = flag("ACCESS_LOG_QUERY_STRINGS", &query_strings)?;
        let access_log = match text("ACCESS_LOG", "off").as_str() {
            "off" => None,
            "json" if http_in_front => Some(AccessLog { query_strings }),
            given => {
                let why = "it must be json or off; json needs HTTP_IN_FRONT=true: otherwise `varnish-gateway access-log` \
                           writes the same lines";
                return Err(bad("ACCESS_LOG", given, why));
            }
        };
        let usual = if http_in_front { "none" } else { "http-80=:80,http" };
        let listen = listen(get("VARNISH_LISTEN").as_deref().unwrap_or(usual))?;
        let seconds = |name, default: &str| duration(name, &text(name, default));
        // Probes ask ghost by its control socket. Commands that set this variable still work; a value that is not an address is an error.
        address("VARNISH_HTTP_ADDR", &text("VARNISH_HTTP_ADDR", "localhost:80"), Ipv4Addr::LOCALHOST)?;
        Ok(Self {
            namespace: text("NAMESPACE", "default"),
            gateway_name: get("GATEWAY_NAME").filter(|name| !name.is_empty()),
            pod_name: get("POD_NAME").filter(|name| !name.is_empty()),
            secret_path: path("VARNISH_SECRET_PATH"),
            admin_address: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
            listen,
            http_in_front,
            access_log,
            vcl_path: text("VCL_PATH", "/etc/varnish/main.vcl").into(),
            routing_path: text("ROUTING_CONFIG_PATH", "/etc/varnish/routing.json").into(),
            ghost_path: path("GHOST_CONFIG_PATH"),
            endpoints_path: path("ENDPOINTS_PATH"),
            certificates_path: path("CERTIFICATES_PATH"),
            work_dir: text("WORK_DIR", "/var/run/varnish").into(),
            health_address: address("HEALTH_ADDR", &text("HEALTH_ADDR", ":8081"), Ipv4Addr::UNSPECIFIED)?,
            peers: text("PEERS", "")
                .split(',')
                .map(str::trim)
                .filter(|peer| !peer.is_empty())
                .map(|peer| address("PEERS", peer, Ipv4Addr::LOCALHOST))
                .collect::<Result<_, _>>()?,
            extra_args: list(&text("VARNISHD_EXTRA_ARGS", "")).map(str::to_owned).collect(),
            upgrade_idle: seconds("UPGRADE_IDLE_SECONDS", "300")?,
            hot: hot_limits(
                flag("HOT_OBJECTS", &text("HOT_OBJECTS", "true"))?,
                bytes("HOT_OBJECTS_BYTES", &text("HOT_OBJECTS_BYTES", ""))?,
                bytes("HOT_OBJECTS_MAX_OBJECT_BYTES", &text("HOT_OBJECTS_MAX_OBJECT_BYTES", ""))?,
            ),
            upgrade_total: seconds("UPGRADE_TOTAL_SECONDS", "86400")?,
            drain_delay: seconds("DRAIN_DELAY", "0")?,
            drain_timeout: match text("DRAIN_TIMEOUT", "").as_str() {
                "" => None,
                given => Some(duration("DRAIN_TIMEOUT", given)?),
            },
        })
    }
}

/// A number of bytes, or nothing.
fn bytes(name: &'static str, given: &str) -> Result<Option<u64>, Error> {
    if given.is_empty() {
        return Ok(None);
    }
    given.parse().map(Some).map_err(|_| bad(name, given, "it must be a number of bytes"))
}

/// The dashboard's, unless that is taken.
const DASHBOARD_PORT: u16 = 9000;

impl Environment {
    /// Our own ports on this machine, except those of listeners: no route may lead to them.
    pub fn own_ports(&self) -> Vec<u16> {
        let on_loopback =
            |address: Option<IpAddr>| address.is_none_or(|a| a.is_loopback() || a.is_unspecified());
        let listen =
            self.listen.iter().filter(|socket| on_loopback(socket.address)).map(|socket| socket.port);
        [self.admin_address.port(), self.health_address.port(), DASHBOARD_PORT]
            .into_iter()
            .chain(listen)
            .collect()
    }
}

fn bad(variable: &'static str, value: &str, why: &str) -> Error {
    Error::Environment { variable, value: value.to_owned(), why: why.to_owned() }
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(';').map(str::trim).filter(|part| !part.is_empty())
}

fn flag(variable: &'static str, value: &str) -> Result<bool, Error> {
    value.parse().map_err(|_| bad(variable, value, "it must be true or false"))
}

fn duration(variable: &'static str, value: &str) -> Result<Duration, Error> {
    let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| bad(variable, value, "it must be a number of seconds"))
}

/// `host:port`, `:port`; `localhost` is 127.0.0.1.
fn address(variable: &'static str, value: &str, any: Ipv4Addr) -> Result<SocketAddr, Error> {
    let wrong = || bad(variable, value, "it must be address:port or :port");
    let (host, port) = value.rsplit_once(':').ok_or_else(wrong)?;
    let host: IpAddr = match host.trim_matches(['[', ']']) {
        "" => any.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse().map_err(|_| wrong())?,
    };
    Ok(SocketAddr::new(host, port.parse().map_err(|_| wrong())?))
}

/// `http-80=:80,http;http-8080=127.0.0.1:8080,http`
fn listen(value: &str) -> Result<Vec<ListenSocket>, Error> {
    if value.trim() == "none" {
        return Ok(Vec::new());
    }
    let wrong = |why: &str| bad("VARNISH_LISTEN", value, why);
    list(value)
        .map(|entry| {
            let (name, rest) = entry
                .split_once('=')
                .ok_or_else(|| wrong("an entry must be {proto}-{port}=:{port},{proto}"))?;
            let (at, protocol) = rest.split_once(',').unwrap_or((rest, "http"));
            if !protocol.eq_ignore_ascii_case("http") {
                return Err(wrong(
                    "varnishd's own sockets speak http; HTTPS listeners come from routing.json",
                ));
            }
            if socket_parts(name).is_none() {
                return Err(wrong("a socket's name must be {proto}-{port}, as http-80"));
            }
            let at = address("VARNISH_LISTEN", at, Ipv4Addr::UNSPECIFIED)?;
            let address = Some(at.ip()).filter(|ip| !ip.is_unspecified());
            Ok(ListenSocket { name: name.to_owned(), address, port: at.port() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Environment, Error> {
        Environment::read(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn the_seeds_example_is_understood() {
        let env = read(&[
            ("NAMESPACE", "default"),
            ("VARNISH_ADMIN_PORT", "6082"),
            ("VARNISH_HTTP_ADDR", "localhost:8080"),
            ("VARNISH_LISTEN", "http-8080=:8080,http"),
            ("VCL_PATH", "/tmp/main.vcl"),
            ("ROUTING_CONFIG_PATH", "/tmp/routing.json"),
            ("GHOST_CONFIG_PATH", "/tmp/ghost.json"),
            ("WORK_DIR", "/tmp/varnish"),
            ("HEALTH_ADDR", ":8081"),
            ("VARNISHD_EXTRA_ARGS", "-p;thread_pool_stack=160k"),
        ])
        .unwrap();
        assert_eq!(env.listen, [ListenSocket { name: "http-8080".into(), address: None, port: 8080 }]);
        assert_eq!(env.extra_args, ["-p", "thread_pool_stack=160k"]);
        assert_eq!(env.health_address, "0.0.0.0:8081".parse().unwrap());
        assert_eq!(env.admin_address, "127.0.0.1:6082".parse().unwrap());
        assert_eq!(env.upgrade_idle, Duration::from_secs(300));
        assert_eq!((env.drain_delay, env.drain_timeout), (Duration::ZERO, None));
        assert_eq!(env.secret_path, None);
        assert!(!env.http_in_front);
    }

    #[test]
    fn varnishd_has_no_port_by_default_where_the_front_carries_http() {
        let env = read(&[("HTTP_IN_FRONT", "true")]).unwrap();
        assert_eq!((env.http_in_front, env.listen.len()), (true, 0));
        let env = read(&[("HTTP_IN_FRONT", "true"), ("VARNISH_LISTEN", "http-81=:81,http")]).unwrap();
        assert_eq!((env.http_in_front, env.listen.len()), (true, 1));
        let env = read(&[("HTTP_IN_FRONT", "")]).unwrap();
        assert_eq!((env.http_in_front, env.listen.len()), (false, 1));
    }

    #[test]
    fn the_front_logs_only_what_it_carries() {
        let log = |pairs: &[(&str, &str)]| read(pairs).map(|env| env.access_log);
        let front = ("HTTP_IN_FRONT", "true");
        assert_eq!(log(&[front]).unwrap(), None);
        assert_eq!(log(&[front, ("ACCESS_LOG", "off")]).unwrap(), None);
        let json = ("ACCESS_LOG", "json");
        assert_eq!(log(&[front, json]).unwrap(), Some(AccessLog { query_strings: false }));
        let with = ("ACCESS_LOG_QUERY_STRINGS", "true");
        assert_eq!(log(&[front, json, with]).unwrap(), Some(AccessLog { query_strings: true }));
        for bad in [&[json][..], &[front, ("ACCESS_LOG", "ncsa")], &[front, json, (with.0, "yes")]] {
            assert!(log(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_pods_variables_are_understood() {
        let env = read(&[
            ("VARNISH_LISTEN", ""),
            ("VARNISH_SECRET_PATH", "/etc/varnish-gateway/admin/secret"),
            ("UPGRADE_IDLE_SECONDS", "60.5"),
            ("DRAIN_DELAY", "5"),
            ("DRAIN_TIMEOUT", "20"),
        ])
        .unwrap();
        assert_eq!(env.listen, []);
        assert_eq!(env.secret_path, Some("/etc/varnish-gateway/admin/secret".into()));
        assert_eq!(env.upgrade_idle, Duration::from_millis(60_500));
        assert_eq!(env.drain_delay, Duration::from_secs(5));
        assert_eq!(env.drain_timeout, Some(Duration::from_secs(20)));
    }

    #[test]
    fn several_sockets_by_semicolon() {
        let env = read(&[("VARNISH_LISTEN", "http-80=:80,http; http-81=127.0.0.1:81")]).unwrap();
        assert_eq!(env.listen.len(), 2);
        assert_eq!(env.listen[1].address, Some("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn bad_values_name_their_variable() {
        for (name, value) in [
            ("VARNISH_ADMIN_PORT", "x"),
            ("VARNISH_LISTEN", "http-80"),
            ("VARNISH_LISTEN", "web=:80,http"),
            ("VARNISH_LISTEN", "https-443=:443,https"),
            ("HEALTH_ADDR", "nowhere"),
            ("HTTP_IN_FRONT", "perhaps"),
            ("DRAIN_DELAY", "soon"),
            ("DRAIN_TIMEOUT", "-1"),
            ("UPGRADE_IDLE_SECONDS", "NaN"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
