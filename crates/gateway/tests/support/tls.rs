//! A TLS client that believes every certificate, and remembers which one it was.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use super::{Ask, Connection, PATIENCE, Response, secret};

/// A self-signed pair.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    pub(crate) chain: String,
    pub(crate) key: String,
    der: CertificateDer<'static>,
}

impl Certificate {
    pub(crate) fn new(name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        Self { chain: made.cert.pem(), key: made.signing_key.serialize_pem(), der: made.cert.der().clone() }
    }

    /// As a manifest.
    pub(crate) fn secret(&self, name: &str) -> String {
        secret(name, &self.chain, &self.key)
    }
}

/// One handshake to come, on a connection of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handshake<'a> {
    pub(crate) port: u16,
    /// The name to ask for.
    pub(crate) name: Option<&'a str>,
}

/// A handshake with a certificate of the client's.
#[track_caller]
pub(crate) fn get_with(port: u16, name: &str, leaf: Option<&super::Leaf>, url: &str) -> io::Result<Response> {
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous(provider)));
    let config = match leaf {
        None => config.with_no_client_auth(),
        Some(leaf) => {
            let chain = CertificateDer::pem_slice_iter(leaf.chain.as_bytes()).map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let server = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(config), server).map_err(io::Error::other)?;
    while client.is_handshaking() {
        client.complete_io(&mut stream)?;
    }
    let ask = Ask::get(name, url).header("Connection", "close");
    Connection::over(StreamOwned::new(client, stream)).try_exchange(&ask)
}

/// A connection that is kept.
pub(crate) struct TlsConnection {
    http: Connection<StreamOwned<ClientConnection, TcpStream>>,
    shown: CertificateDer<'static>,
}

impl Handshake<'_> {
    pub(crate) fn open(&self) -> io::Result<TlsConnection> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(self.name.unwrap_or("nobody").to_owned()).unwrap();
        let mut client =
            ClientConnection::new(config(self.name.is_some()), name).map_err(io::Error::other)?;
        while client.is_handshaking() {
            client.complete_io(&mut stream)?;
        }
        let shown = client.peer_certificates().unwrap()[0].clone().into_owned();
        Ok(TlsConnection { http: Connection::over(StreamOwned::new(client, stream)), shown })
    }

    /// GET on a connection of its own.
    #[track_caller]
    pub(crate) fn get(&self, host: &str, url: &str) -> Response {
        let ask = Ask::get(host, url).header("Connection", "close");
        self.open().and_then(|mut c| c.http.try_exchange(&ask)).unwrap_or_else(|e| panic!("{self:?}: {e}"))
    }

    /// Does a new connection get this certificate?
    pub(crate) fn shows(&self, certificate: &Certificate) -> bool {
        self.open().is_ok_and(|connection| connection.shows(certificate))
    }
}

impl TlsConnection {
    pub(crate) fn shows(&self, certificate: &Certificate) -> bool {
        self.shown == certificate.der
    }

    #[track_caller]
    pub(crate) fn exchange(&mut self, ask: &Ask) -> Response {
        self.http.exchange(ask)
    }

    pub(crate) fn try_exchange(&mut self, ask: &Ask) -> io::Result<Response> {
        self.http.try_exchange(ask)
    }

    pub(crate) fn write(&mut self, ask: &Ask) -> io::Result<()> {
        self.http.write(ask)
    }

    pub(crate) fn read(&mut self) -> io::Result<Response> {
        self.http.read("GET")
    }
}

fn config(with_name: bool) -> Arc<ClientConfig> {
    let mut config = ClientConfig::clone(&believing_client(&["http/1.1"]));
    config.enable_sni = with_name;
    Arc::new(config)
}

/// A client that offers these protocols.
pub(crate) fn believing_client(protocols: &[&str]) -> Arc<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous(provider)))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// openssl s_client with one request for this host, and all that it says.
pub(crate) fn s_client(port: u16, host: &str, options: &[&str]) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-ign_eof", "-connect", &format!("127.0.0.1:{port}")])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    // It may have been refused already.
    let _ = client.stdin.take().unwrap().write_all(request.as_bytes());
    let said = client.wait_with_output().unwrap();
    String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned()
}
