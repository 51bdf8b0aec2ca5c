//! The environment variables of `varnish-gateway chaperone`, as its users know them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use model::names::{RELOAD_PORT, socket_parts};

use crate::{Error, ListenSocket};

/// All variables, read and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `NAMESPACE`, by default `default`: where Services are that routing.json names without namespace.
    pub namespace: String,
    /// `VARNISH_ADMIN_PORT`, by default 6082, on loopback.
    pub admin_address: SocketAddr,
    /// `VARNISH_HTTP_ADDR`, by default the first socket of `VARNISH_LISTEN` on loopback: where varnishd's readiness
    /// is tried.
    pub http_address: SocketAddr,
    /// `GHOST_RELOAD_ADDR`, by default 127.0.0.1:1969; loopback only.
    pub reload_address: SocketAddr,
    /// `VARNISH_LISTEN`, by default `http-80=:80,http`; several by semicolon; `none` where all listeners are HTTPS.
    pub listen: Vec<ListenSocket>,
    /// `VCL_PATH`, by default /etc/varnish/main.vcl.
    pub vcl_path: PathBuf,
    /// `ROUTING_CONFIG_PATH`, by default /etc/varnish/routing.json.
    pub routing_path: PathBuf,
    /// `GHOST_CONFIG_PATH`, by default ghost.json in `WORK_DIR`.
    pub ghost_path: Option<PathBuf>,
    /// `ENDPOINTS_PATH`: a file or directory of EndpointSlice manifests.
    pub endpoints_path: Option<PathBuf>,
    /// `WORK_DIR`, by default /var/run/varnish.
    pub work_dir: PathBuf,
    /// `HEALTH_ADDR`, by default :8081.
    pub health_address: SocketAddr,
    /// `VARNISHD_EXTRA_ARGS`; several by semicolon.
    pub extra_args: Vec<String>,
}

impl Environment {
    /// `get` looks a variable up; tests have their own.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let text =
            |name: &str, default: &str| get(name).filter(|v| !v.is_empty()).unwrap_or(default.to_owned());
        let path = |name: &str| get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let port = text("VARNISH_ADMIN_PORT", "6082");
        let port = port.parse().map_err(|_| bad("VARNISH_ADMIN_PORT", &port, "it must be a port number"))?;
        let listen = listen(&text("VARNISH_LISTEN", "http-80=:80,http"))?;
        let reload = text("GHOST_RELOAD_ADDR", &format!("127.0.0.1:{RELOAD_PORT}"));
        let default_http = listen.first().map(|socket| format!("localhost:{}", socket.port));
        let http = text("VARNISH_HTTP_ADDR", &default_http.unwrap_or_else(|| reload.clone()));
        let reload_address = address("GHOST_RELOAD_ADDR", &reload, Ipv4Addr::LOCALHOST)?;
        if !reload_address.ip().is_loopback() {
            return Err(bad(
                "GHOST_RELOAD_ADDR",
                &reload,
                "it must be a loopback address: ghost obeys whoever reaches it",
            ));
        }
        Ok(Self {
            namespace: text("NAMESPACE", "default"),
            admin_address: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
            http_address: address("VARNISH_HTTP_ADDR", &http, Ipv4Addr::LOCALHOST)?,
            reload_address,
            listen,
            vcl_path: text("VCL_PATH", "/etc/varnish/main.vcl").into(),
            routing_path: text("ROUTING_CONFIG_PATH", "/etc/varnish/routing.json").into(),
            ghost_path: path("GHOST_CONFIG_PATH"),
            endpoints_path: path("ENDPOINTS_PATH"),
            work_dir: text("WORK_DIR", "/var/run/varnish").into(),
            health_address: address("HEALTH_ADDR", &text("HEALTH_ADDR", ":8081"), Ipv4Addr::UNSPECIFIED)?,
            extra_args: list(&text("VARNISHD_EXTRA_ARGS", "")).map(str::to_owned).collect(),
        })
    }
}

fn bad(variable: &'static str, value: &str, why: &str) -> Error {
    Error::Environment { variable, value: value.to_owned(), why: why.to_owned() }
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(';').map(str::trim).filter(|part| !part.is_empty())
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
    let sockets: Vec<_> = list(value)
        .map(|entry| {
            let (name, rest) = entry
                .split_once('=')
                .ok_or_else(|| wrong("an entry must be {proto}-{port}=:{port},{proto}"))?;
            let (at, protocol) = rest.split_once(',').unwrap_or((rest, "http"));
            if !protocol.eq_ignore_ascii_case("http") {
                return Err(wrong("varnishd's own sockets speak http; TLS is not supported yet"));
            }
            if socket_parts(name).is_none() {
                return Err(wrong("a socket's name must be {proto}-{port}, as http-80"));
            }
            let at = address("VARNISH_LISTEN", at, Ipv4Addr::UNSPECIFIED)?;
            let address = Some(at.ip()).filter(|ip| !ip.is_unspecified());
            Ok(ListenSocket { name: name.to_owned(), address, port: at.port() })
        })
        .collect::<Result<_, _>>()?;
    if sockets.is_empty() { Err(wrong("at least one socket is needed")) } else { Ok(sockets) }
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
        assert_eq!(env.http_address, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(env.admin_address, "127.0.0.1:6082".parse().unwrap());
        assert_eq!(env.reload_address, "127.0.0.1:1969".parse().unwrap());
    }

    #[test]
    fn several_sockets_by_semicolon() {
        let env = read(&[("VARNISH_LISTEN", "http-80=:80,http; http-81=127.0.0.1:81")]).unwrap();
        assert_eq!(env.listen.len(), 2);
        assert_eq!(env.listen[1].address, Some("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn without_sockets_readiness_is_tried_at_ghosts() {
        let env = read(&[("VARNISH_LISTEN", "none"), ("GHOST_RELOAD_ADDR", "127.0.0.1:1970")]).unwrap();
        assert_eq!(env.listen, []);
        assert_eq!(env.http_address, "127.0.0.1:1970".parse().unwrap());
    }

    #[test]
    fn bad_values_name_their_variable() {
        for (name, value) in [
            ("VARNISH_ADMIN_PORT", "x"),
            ("VARNISH_LISTEN", "http-80"),
            ("VARNISH_LISTEN", "web=:80,http"),
            ("VARNISH_LISTEN", "https-443=:443,https"),
            ("HEALTH_ADDR", "nowhere"),
            ("GHOST_RELOAD_ADDR", "0.0.0.0:1969"),
        ] {
            let error = read(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
