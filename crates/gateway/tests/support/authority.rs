//! A CA, and TLS in front of an origin.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use certificate::{Pair, Pem};
use front::{Action, BackendGroup, Backends, Config, Host, Listener, Shutdown};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
    date_time_ymd,
};
use tokio::sync::watch;

use super::{free_port, until};

pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// What an origin shows, as PEM.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, "Test CA");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    pub(crate) fn leaf(&self, names: &[&str]) -> Leaf {
        self.sign(&params(names))
    }

    pub(crate) fn expired(&self, names: &[&str]) -> Leaf {
        let mut params = params(names);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2001, 1, 1);
        self.sign(&params)
    }

    pub(crate) fn with_uri(&self, names: &[&str], uri: &str) -> Leaf {
        let mut params = params(names);
        params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Leaf {
        let key = KeyPair::generate().unwrap();
        Leaf { chain: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }

    /// As a ConfigMap.
    pub(crate) fn config_map(&self, name: &str) -> String {
        config_map(name, &self.pem)
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// A ConfigMap with this text under ca.crt.
pub(crate) fn config_map(name: &str, text: &str) -> String {
    let block: String = text.lines().map(|line| format!("    {line}\n")).collect();
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  ca.crt: |\n{block}---\n")
}

/// TLS in front of a plain origin, on a port of its own.
pub(crate) struct TlsOrigin {
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
    _kept: (watch::Sender<Arc<Config>>, watch::Sender<Shutdown>),
}

impl TlsOrigin {
    pub(crate) fn new(leaf: &Leaf, to: SocketAddr) -> Self {
        let port = free_port();
        let pem = Pem { chain: leaf.chain.clone().into_bytes(), key: leaf.key.clone().into_bytes() };
        let groups = vec![BackendGroup {
            name: String::new(),
            weight: 1,
            endpoints: vec![to],
            ..BackendGroup::default()
        }];
        let action = Action::Forward {
            certificates: vec![Arc::new(Pair::new(&pem).unwrap())],
            backends: Arc::new(Backends { groups }),
        };
        let address = Some(Ipv4Addr::LOCALHOST.into());
        let hosts = vec![Host { action, ..Host::refuse(None) }];
        let listener = Listener { socket: format!("tls-{port}"), address, port, hosts };
        let config = Config { listeners: vec![listener], ..Config::default() };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let kept = (watch::Sender::new(Arc::new(config)), watch::Sender::new(Shutdown::Run));
        runtime.spawn(front::run(kept.0.subscribe(), "/nowhere".into(), |_| {}, kept.1.subscribe()));
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        until("the origin takes connections", || std::net::TcpStream::connect(address).is_ok());
        Self { address, _runtime: runtime, _kept: kept }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// openssl's own server, which may take clients of one authority only, and answers 200 to whatever they ask.
pub(crate) struct PickyOrigin {
    address: SocketAddr,
    server: Child,
    _files: tempfile::TempDir,
}

impl PickyOrigin {
    pub(crate) fn new(leaf: &Leaf, clients: &Authority) -> Self {
        Self::start(leaf, &["-Verify", "1", "-verify_return_error"], clients)
    }

    /// Takes everybody who speaks TLS as these options of `openssl s_server` say.
    pub(crate) fn with_options(leaf: &Leaf, options: &[&str]) -> Self {
        Self::start(leaf, options, &Authority::new())
    }

    fn start(leaf: &Leaf, options: &[&str], clients: &Authority) -> Self {
        let files = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let server = Command::new("openssl")
            .args(["s_server", "-quiet", "-www"])
            .args(options)
            .arg("-accept")
            .arg(address.to_string())
            .arg("-cert")
            .arg(write("tls.crt", &leaf.chain))
            .arg("-key")
            .arg(write("tls.key", &leaf.key))
            .arg("-CAfile")
            .arg(write("ca.crt", &clients.pem))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl");
        until("openssl takes connections", || std::net::TcpStream::connect(address).is_ok());
        Self { address, server, _files: files }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PickyOrigin {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
