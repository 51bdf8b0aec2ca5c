//! The configuration of the front.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use certificate::Pair;
use model::TlsOptions;
use model::host::{HostPattern, normal};

use crate::{Backends, ClientValidation, ProxyProtocol, Stream};

/// All listeners of one Gateway that the front owns.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Entries with the same address and port share one socket.
    pub listeners: Vec<Listener>,
    /// UDP listeners. They may have the numbers of TCP ports.
    pub datagrams: Vec<UdpListener>,
    pub limits: Limits,
    /// Is HTTP/2 offered? varnishd must have `feature=+http2`.
    pub http2: bool,
    /// Does the front carry HTTP itself? Otherwise varnishd gets the bytes of HTTPS listeners, and plain ones are its own.
    pub http: bool,
    /// Why it does not. For display only.
    pub through_varnishd: Option<model::ThroughVarnishd>,
    /// The parameters switch hot objects off. For display only.
    pub hot_objects_off: bool,
    /// By port: what clients must show, for all its hosts with [`Action::Terminate`].
    pub client_validation: BTreeMap<u16, ClientValidation>,
    /// Where absent no PROXY header is read.
    pub proxy_protocol: Option<ProxyProtocol>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            datagrams: Vec::new(),
            limits: Limits::default(),
            http2: true,
            http: false,
            through_varnishd: None,
            hot_objects_off: false,
            client_validation: BTreeMap::new(),
            proxy_protocol: None,
        }
    }
}

impl Config {
    /// The names of all sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &str> {
        let tcp = self.listeners.iter().map(|listener| listener.socket.as_str());
        tcp.chain(self.datagrams.iter().map(|listener| listener.socket.as_str()))
    }

    /// Opens the sockets of listeners on other ports than their own. Clients and origins see the listeners' own ports.
    pub fn open_on(&mut self, port_of: impl Fn(u16) -> u16) {
        for listener in &mut self.listeners {
            listener.port = port_of(listener.port);
        }
        for listener in &mut self.datagrams {
            listener.port = port_of(listener.port);
        }
        let validation = std::mem::take(&mut self.client_validation);
        self.client_validation = validation.into_iter().map(|(port, of)| (port_of(port), of)).collect();
    }
}

/// One port.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// `https-443`, with the port that clients connect to.
    pub socket: String,
    /// All addresses, IPv4 and IPv6, where absent.
    pub address: Option<IpAddr>,
    /// Where the socket is opened.
    pub port: u16,
    pub hosts: Vec<Host>,
}

/// One UDP port.
#[derive(Debug, Clone, PartialEq)]
pub struct UdpListener {
    /// `udp-53`, with the port that clients send to.
    pub socket: String,
    /// All addresses, IPv4 and IPv6, where absent.
    pub address: Option<IpAddr>,
    /// Where the socket is opened.
    pub port: u16,
    pub stream: Stream,
    /// New clients are refused; sessions that are there go on until they are silent.
    pub drains: bool,
}

/// What one listener of the Gateway does with the names that it takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Host {
    /// `shop.example.com`, `*.example.com` (any number of labels), or none for every name and for clients that name none.
    pub hostname: Option<String>,
    /// A wildcard stands for exactly one label.
    pub one_label: bool,
    /// Where TLS ends here.
    pub options: TlsOptions,
    pub action: Action,
}

/// Who gets the bytes, and are they decrypted before?
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// TLS ends here, and varnishd gets the bytes. A client gets the certificate that covers its name best; without any,
    /// its handshake is refused.
    Terminate { certificates: Vec<Arc<Pair>> },
    /// TLS ends here, and one of the endpoints gets the bytes, whatever they are.
    Forward { certificates: Vec<Arc<Pair>>, backends: Arc<Backends> },
    /// One of the endpoints gets the bytes as they come, and ends TLS itself.
    Passthrough { backends: Arc<Backends> },
    /// No TLS: the port speaks plain HTTP, and has this one host. Only where [`Config::http`] says that the front carries HTTP.
    Http,
    /// One of the endpoints gets the bytes as they come, whatever they are. The port has this one host.
    Relay(Stream),
    /// The listener takes the name, and no route does: refused as an unknown name.
    Refuse,
}

impl Host {
    /// The names that it is for.
    pub fn pattern(&self) -> HostPattern {
        let pattern = HostPattern::new(&normal(self.hostname.as_deref().unwrap_or_default())).owned();
        if self.one_label { pattern.of_one_label() } else { pattern }
    }

    /// A host of an HTTPS listener.
    pub fn terminate(hostname: Option<String>, certificates: Vec<Arc<Pair>>) -> Self {
        Self { action: Action::Terminate { certificates }, ..Self::refuse(hostname) }
    }

    /// The only host of a plain HTTP port.
    pub fn http() -> Self {
        Self { action: Action::Http, ..Self::refuse(None) }
    }

    /// A host that no route takes.
    pub fn refuse(hostname: Option<String>) -> Self {
        Self { hostname, one_label: false, options: TlsOptions::default(), action: Action::Refuse }
    }

    /// The only host of a TCP port.
    pub fn relay(stream: Stream) -> Self {
        Self { action: Action::Relay(stream), ..Self::refuse(None) }
    }

    /// What clients are shown, where TLS ends here.
    pub fn certificates(&self) -> &[Arc<Pair>] {
        match &self.action {
            Action::Terminate { certificates } | Action::Forward { certificates, .. } => certificates,
            Action::Passthrough { .. } | Action::Http | Action::Relay(_) | Action::Refuse => &[],
        }
    }
}

/// What clients may take. They hold for all ports together.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// From the accepted connection to the end of the handshake.
    pub handshake_timeout: Duration,
    /// Further clients wait in the sockets' backlogs.
    pub concurrent_handshakes: usize,
    /// Open connections, handshakes included. Further clients wait in the sockets' backlogs.
    pub connections: usize,
    /// Open connections of one client: one address, or one IPv6 network of 64 bits. Further ones are closed.
    pub connections_per_address: Option<u32>,
    /// The most bytes of a ClientHello.
    pub hello_bytes: usize,
    /// A connection of a TLSRoute or TCPRoute on which nothing moves is closed after this time. For HTTP varnishd has its own.
    pub idle_timeout: Duration,
    /// Where the front carries HTTP.
    pub http: HttpLimits,
    pub udp: UdpLimits,
}

/// What clients of UDP listeners may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpLimits {
    /// Sessions of one listener, at once.
    pub sessions: usize,
    /// A session on which no datagram passes ends after this time.
    pub idle_timeout: Duration,
    /// The same for a session whose client has sent a datagram after an answer.
    pub established_timeout: Duration,
}

impl Default for UdpLimits {
    fn default() -> Self {
        Self {
            sessions: 16_384,
            idle_timeout: Duration::from_secs(30),
            established_timeout: Duration::from_secs(120),
        }
    }
}

/// What one connection of HTTP may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// For the head of a request. After it: 408.
    pub head_timeout: Duration,
    /// Between two requests.
    pub idle_timeout: Duration,
    /// For a client that takes nothing of its answer, or sends nothing of its body.
    pub stall_timeout: Duration,
    /// The most bytes of a request's head. Beyond: 431.
    pub head_bytes: usize,
    /// The most headers of a request. Beyond: 431.
    pub headers: usize,
    /// The most bytes of a path with its query. Beyond: 414.
    pub url_bytes: usize,
    /// The most bytes of a request's body. Beyond: 413.
    pub body_bytes: Option<u64>,
    /// HTTP/2 streams of one connection, at once.
    pub streams: u32,
    /// HTTP/2 streams that the client of one connection may reset within a second. Beyond, the connection is closed.
    pub resets: u32,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(300),
            head_bytes: 64 << 10,
            headers: 128,
            url_bytes: 16 << 10,
            body_bytes: None,
            streams: 128,
            resets: 200,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            concurrent_handshakes: 1024,
            connections: 100_000,
            connections_per_address: None,
            hello_bytes: 16 << 10,
            idle_timeout: Duration::from_secs(3600),
            http: HttpLimits::default(),
            udp: UdpLimits::default(),
        }
    }
}
