//! `proxy`: a caching proxy by one line. Writes the manifests for it, and runs what `serve` would run for them.

mod manifests;
mod target;

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};

use crate::cli::{Files, ProxyArguments, ServeArguments};
use crate::serve;

pub(crate) use target::{RouteTo, Target, host};

pub(crate) async fn run(arguments: ProxyArguments) -> anyhow::Result<ExitCode> {
    let text = manifests(&arguments)?;
    if arguments.print {
        io::stdout().lock().write_all(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.tls.is_empty() && arguments.certificate.is_none() {
        let hosts = arguments.tls.join(", ");
        tracing::info!("the certificate for {hosts} is self-signed; --certificate and --key name another");
    }
    // For this user's eyes only: a private key may be in it.
    let directory = tempfile::Builder::new().prefix("varnish-gateway-proxy-").tempdir();
    let directory = directory.context("no place for the manifests")?;
    let file = directory.path().join("proxy.yaml");
    fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))?;
    serve::run(ServeArguments {
        files: Files { files: vec![file], ingress_class: "varnish".to_owned() },
        varnish: arguments.varnish,
        state_dir: arguments.state_dir,
        bind: arguments.listen.address,
        internal_ports: None,
        dns_servers: Vec::new(),
        allow_loopback_names: false,
        drain_timeout: arguments.drain_timeout,
        observe: arguments.observe,
        dashboard: arguments.dashboard,
    })
    .await
}

fn manifests(arguments: &ProxyArguments) -> anyhow::Result<String> {
    if arguments.to.is_empty() && arguments.routes.is_empty() {
        bail!("nowhere to send requests: name an origin, as --to http://127.0.0.1:9001");
    }
    let certificate = match (&arguments.certificate, &arguments.key, &arguments.tls[..]) {
        (_, _, []) => {
            ensure!(
                arguments.certificate.is_none(),
                "--certificate needs the hosts that it is for: --tls HOST"
            );
            None
        }
        (Some(certificate), Some(key), _) => {
            let read = |path: &std::path::Path| {
                fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))
            };
            Some((read(certificate)?, read(key)?))
        }
        (_, _, hosts) => {
            let made = rcgen::generate_simple_self_signed(hosts).context("no certificate for --tls")?;
            Some((made.cert.pem(), made.signing_key.serialize_pem()))
        }
    };
    Ok(manifests::Plan {
        port: arguments.listen.port,
        to: &arguments.to,
        routes: &arguments.routes,
        cache: arguments.cache.as_deref(),
        tls: &arguments.tls,
        certificate,
    }
    .to_string())
}

/// Where clients come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen {
    /// None: all addresses of the machine.
    address: Option<IpAddr>,
    port: u16,
}

/// `:8080`, `8080`, `127.0.0.1:8080`, `[::1]:8080`.
pub(crate) fn listen(text: &str) -> Result<Listen, String> {
    let wrong = || "a port is needed, as :8080, or an address and a port, as 127.0.0.1:8080".to_owned();
    if let Ok(at) = text.parse::<SocketAddr>() {
        return (at.port() > 0)
            .then_some(Listen { address: Some(at.ip()), port: at.port() })
            .ok_or_else(wrong);
    }
    let port: u16 = text.strip_prefix(':').unwrap_or(text).parse().map_err(|_| wrong())?;
    (port > 0).then_some(Listen { address: None, port }).ok_or_else(wrong)
}

/// A time as policies have it: `30s`, `1h30m`.
pub(crate) fn time(text: &str) -> Result<String, String> {
    match source::files::millis(text) {
        Some(1..) => Ok(text.to_owned()),
        _ => Err("a time is needed, as 30s, 10m or 1h30m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_with_and_without_addresses() {
        assert_eq!(listen(":8080"), Ok(Listen { address: None, port: 8080 }));
        assert_eq!(listen("8080"), Ok(Listen { address: None, port: 8080 }));
        assert_eq!(listen("[::1]:80"), Ok(Listen { address: Some("::1".parse().unwrap()), port: 80 }));
        for wrong in ["", ":", ":0", "localhost:80", "127.0.0.1", "1.2.3.4:0", ":70000"] {
            assert!(listen(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_those_of_policies() {
        for good in ["1m", "30s", "1h30m", "500ms", "0h1s"] {
            assert_eq!(time(good).as_deref(), Ok(good));
        }
        for wrong in ["", "1", "m", "0s", "1d", "-1s", "123456s", "1.5m"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
