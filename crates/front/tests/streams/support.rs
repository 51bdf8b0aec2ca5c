//! A front with stream listeners on loopback, and the endpoints behind it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use front::{
    BackendGroup, Backends, Config, Counters, Event, Host, Listener, Loss, Shutdown, Stream, StreamCounters,
    Transport, UdpListener, run_counted,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const ROUTE: &str = "default/route";

pub(crate) struct Front {
    pub(crate) config: watch::Sender<Arc<Config>>,
    pub(crate) shutdown: watch::Sender<Shutdown>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) task: JoinHandle<()>,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    /// Of the first listener.
    pub(crate) address: SocketAddr,
}

impl Front {
    /// Waits until the first listener is open.
    pub(crate) async fn start(config: Config) -> Self {
        let mut front = Self::start_unopened(config);
        front.address = front.listening().await.1;
        front
    }

    pub(crate) fn start_unopened(config: Config) -> Self {
        let (config, configs) = watch::channel(Arc::new(config));
        let (shutdown, shutdowns) = watch::channel(Shutdown::Run);
        let (tell, events) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let report = move |event| {
            let _ = tell.send(event);
        };
        let upstream = PathBuf::from("/nonexistent/https.sock");
        let task =
            tokio::spawn(run_counted(configs, upstream, None, report, shutdowns, Arc::clone(&counters)));
        Self { config, shutdown, counters, task, events, address: (Ipv4Addr::LOCALHOST, 0).into() }
    }

    pub(crate) async fn event(&mut self) -> Event {
        timeout(PATIENCE, self.events.recv()).await.expect("an event").expect("a front")
    }

    pub(crate) async fn listening(&mut self) -> (String, SocketAddr) {
        loop {
            if let Event::Listening { socket, address } = self.event().await {
                return (socket, address);
            }
        }
    }

    pub(crate) async fn closed(&mut self) -> String {
        loop {
            if let Event::Closed { socket } = self.event().await {
                return socket;
            }
        }
    }

    pub(crate) fn route(&self, transport: Transport, route: &str) -> Arc<StreamCounters> {
        let all = self.counters.streams();
        let found = all.into_iter().find(|(of, name, _)| (*of, name.as_str()) == (transport, route));
        found.map(|(.., counters)| counters).unwrap_or_default()
    }

    pub(crate) fn tcp(&self) -> Arc<StreamCounters> {
        self.route(Transport::Tcp, ROUTE)
    }

    pub(crate) fn udp(&self) -> Arc<StreamCounters> {
        self.route(Transport::Udp, ROUTE)
    }
}

pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let waited = timeout(PATIENCE, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

pub(crate) async fn until_lost(counters: impl Fn() -> Arc<StreamCounters>, why: Loss, least: u64) {
    until(why.name(), || counters().losses(why) >= least).await;
}

pub(crate) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) fn group(weight: u32, endpoints: &[SocketAddr]) -> BackendGroup {
    BackendGroup {
        name: "default/service".to_owned(),
        weight,
        endpoints: endpoints.to_vec(),
        ..BackendGroup::default()
    }
}

pub(crate) fn stream(groups: Vec<BackendGroup>) -> Stream {
    Stream { route: ROUTE.to_owned(), backends: Arc::new(Backends { groups }) }
}

pub(crate) fn tcp_listener(stream: Stream) -> Listener {
    Listener {
        socket: "tcp-5432".to_owned(),
        address: Some(LOCAL),
        port: 0,
        hosts: vec![Host::relay(stream)],
    }
}

pub(crate) fn udp_listener(stream: Stream) -> UdpListener {
    UdpListener { socket: "udp-53".to_owned(), address: Some(LOCAL), port: 0, stream, drains: false }
}

pub(crate) fn tcp_config(stream: Stream) -> Config {
    Config { listeners: vec![tcp_listener(stream)], ..Config::default() }
}

pub(crate) fn udp_config(stream: Stream) -> Config {
    Config { datagrams: vec![udp_listener(stream)], ..Config::default() }
}

/// Nothing listens there.
pub(crate) fn dead_tcp() -> SocketAddr {
    std::net::TcpListener::bind((LOCAL, 0)).unwrap().local_addr().unwrap()
}

pub(crate) fn dead_udp() -> SocketAddr {
    std::net::UdpSocket::bind((LOCAL, 0)).unwrap().local_addr().unwrap()
}

/// Says its name, then echoes until the end, then says `bye` and ends.
pub(crate) async fn tcp_echo(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((LOCAL, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = write.write_all(name.as_bytes()).await;
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.write_all(b" bye").await;
                let _ = write.shutdown().await;
            });
        }
    });
    address
}

/// Sends `bytes`, ends its half, and returns all that comes.
pub(crate) async fn ask_tcp(address: SocketAddr, bytes: &[u8]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(bytes).await?;
    stream.shutdown().await?;
    let mut got = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut got)).await.expect("an end")?;
    Ok(got)
}

/// Answers each datagram with its name and what came, and tells where it came from.
pub(crate) struct UdpEcho {
    pub(crate) address: SocketAddr,
    pub(crate) sources: mpsc::UnboundedReceiver<SocketAddr>,
    task: JoinHandle<()>,
}

impl Drop for UdpEcho {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl UdpEcho {
    pub(crate) async fn start(name: &'static str) -> Self {
        let socket = UdpSocket::bind((LOCAL, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        let (tell, sources) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                let _ = tell.send(from);
                if buffer.starts_with(b"silent") {
                    continue;
                }
                let answer = [name.as_bytes(), &buffer[..length]].concat();
                let _ = socket.send_to(&answer, from).await;
            }
        });
        Self { address, sources, task }
    }

    pub(crate) async fn source(&mut self) -> SocketAddr {
        timeout(PATIENCE, self.sources.recv()).await.expect("a datagram").unwrap()
    }
}

/// A client with an address of its own.
pub(crate) async fn udp_client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((LOCAL, 0)).await.unwrap();
    socket.connect(to).await.unwrap();
    socket
}

/// Sends, and waits for the answer; sends again where it was lost.
pub(crate) async fn ask_udp(client: &UdpSocket, bytes: &[u8]) -> String {
    let mut buffer = vec![0; 65_536];
    for _ in 0..50 {
        let _ = client.send(bytes).await;
        if let Ok(Ok(length)) = timeout(Duration::from_millis(500), client.recv(&mut buffer)).await {
            return String::from_utf8_lossy(&buffer[..length]).into_owned();
        }
    }
    panic!("no answer to {}", String::from_utf8_lossy(bytes));
}
