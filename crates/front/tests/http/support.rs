//! A front that carries HTTP for one origin, both by raw sockets.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use front::{
    BackendSide, Config, Counters, Event, Host, HotLimits, Http, Limits, Listener, Observer, Shutdown,
    run_counted,
};
use model::ghost;
use router::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// For nothing to happen.
pub(crate) const SILENCE: Duration = Duration::from_millis(300);

/// An origin that records every byte, and answers each connection by a script.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    script: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

impl Origin {
    /// Answers every request head (and its body by Content-Length or chunks) with [`OK`], or with what the script says.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let origin =
            Self { address: listener.local_addr().unwrap(), seen: Arc::default(), script: Arc::default() };
        let serving = origin.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        origin
    }

    /// The next answers, one for each request. One that ends with `CLOSE` closes the connection after it.
    pub(crate) fn will_answer(&self, answers: &[&[u8]]) {
        self.script.lock().unwrap().extend(answers.iter().map(|answer| answer.to_vec()));
    }

    /// All bytes, by connection.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    async fn serve(self, mut stream: TcpStream) {
        let connection = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(Vec::new());
            seen.len() - 1
        };
        let mut unread = Vec::new();
        loop {
            let mut buffer = [0; 16384];
            let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
            self.seen.lock().unwrap()[connection].extend_from_slice(&buffer[..count]);
            unread.extend_from_slice(&buffer[..count]);
            while let Some(length) = message(&unread) {
                unread.drain(..length);
                let answer = self.script.lock().unwrap().pop_front().unwrap_or_else(|| OK.to_vec());
                let (answer, closes) = match answer.strip_suffix(b"CLOSE") {
                    Some(answer) => (answer.to_vec(), true),
                    None => (answer, false),
                };
                if stream.write_all(&answer).await.is_err() || closes {
                    return;
                }
            }
        }
    }
}

/// How many bytes the first whole request has.
fn message(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let value = |name: &str| {
        head.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim).map(str::to_owned))
    };
    if value("transfer-encoding").is_some() {
        let rest = &bytes[end..];
        return Some(end + rest.windows(5).position(|five| five == b"0\r\n\r\n")? + 5);
    }
    let length: usize = value("content-length").map_or(0, |text| text.parse().unwrap());
    (bytes.len() >= end + length).then_some(end + length)
}

/// A front with one plain port.
pub(crate) struct Front {
    pub(crate) port: u16,
    pub(crate) http: Arc<Http>,
    pub(crate) shutdown: watch::Sender<Shutdown>,
    pub(crate) counters: Arc<Counters>,
    config: watch::Sender<Arc<Config>>,
}

/// ghost.json with one route for every host, to these endpoints.
pub(crate) fn to(endpoints: &[SocketAddr], port: u16) -> ghost::Config {
    let endpoints = endpoints.iter().map(|e| ghost::Endpoint { address: e.ip(), port: e.port() }).collect();
    let group =
        ghost::Group { weight: 1, endpoints, name: Some("test/origin:80".into()), ..ghost::Group::default() };
    let route = ghost::Route {
        backends: [group].into(),
        route_name: "test/route".into(),
        listeners: vec![format!("http-{port}")],
        ..ghost::Route::default()
    };
    let mut config = ghost::Config { gateway_id: Some("vg-test".into()), ..ghost::Config::default() };
    config.listeners = vec![model::Listener {
        name: "http".into(),
        socket: format!("http-{port}"),
        hostname: None,
        tls: None,
    }];
    config.vhosts.insert("*".into(), ghost::Vhost { routes: vec![route], ..ghost::Vhost::default() });
    config
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

impl Front {
    /// With one route to these endpoints.
    pub(crate) async fn to(endpoints: &[SocketAddr]) -> Self {
        Self::with(endpoints, |_| ()).await
    }

    pub(crate) async fn limited(endpoints: &[SocketAddr], limits: Limits) -> Self {
        Self::start(endpoints, |_| (), limits, None, None, None).await
    }

    /// With somebody who is told of requests.
    pub(crate) async fn observed(
        endpoints: &[SocketAddr],
        change: impl FnOnce(&mut ghost::Config),
        limits: Limits,
        observer: Observer,
    ) -> Self {
        Self::start(endpoints, change, limits, None, Some(Arc::new(observer)), None).await
    }

    pub(crate) async fn with(endpoints: &[SocketAddr], change: impl FnOnce(&mut ghost::Config)) -> Self {
        Self::start(endpoints, change, Limits::default(), None, None, None).await
    }

    /// With a varnishd at this socket, which may answer every GET.
    pub(crate) async fn with_cache(
        endpoints: &[SocketAddr],
        varnishd: &std::path::Path,
        change: impl FnOnce(&mut ghost::Config),
    ) -> Self {
        Self::with_hot(endpoints, varnishd, change, None).await
    }

    /// The same, and responses may be kept in memory.
    pub(crate) async fn with_hot(
        endpoints: &[SocketAddr],
        varnishd: &std::path::Path,
        change: impl FnOnce(&mut ghost::Config),
        hot: Option<(Arc<page::Page>, HotLimits)>,
    ) -> Self {
        let change = |config: &mut ghost::Config| {
            for route in config.vhosts.values_mut().flat_map(|vhost| &mut vhost.routes) {
                route.cache_policy = Some(Box::new(model::CachePolicy {
                    default_ttl_seconds: Some(60.0),
                    ..Default::default()
                }));
            }
            change(config);
        };
        let front = Self::start(endpoints, change, Limits::default(), Some(varnishd), None, hot).await;
        front.http.cache_runs(true);
        front
    }

    async fn start(
        endpoints: &[SocketAddr],
        change: impl FnOnce(&mut ghost::Config),
        limits: Limits,
        varnishd: Option<&std::path::Path>,
        observer: Option<Arc<Observer>>,
        hot: Option<(Arc<page::Page>, HotLimits)>,
    ) -> Self {
        let port = free_port();
        let mut routes = to(endpoints, port);
        change(&mut routes);
        let nowhere = std::path::PathBuf::from("/nonexistent/varnishd.sock");
        let side = BackendSide::new(|_| (), Arc::default());
        let day = Duration::from_secs(86_400);
        let http = Http::new(side, varnishd.map_or(nowhere.clone(), Into::into), day, day);
        let mut http = http.observed_by(observer);
        if let Some((page, limits)) = hot {
            http = http.with_hot(page, limits);
        }
        let http = Arc::new(http);
        http.route_by(Arc::new(Router::compile(&routes).unwrap().router));
        let config = Config {
            http: true,
            limits,
            listeners: vec![Listener {
                socket: format!("http-{port}"),
                address: Some(Ipv4Addr::LOCALHOST.into()),
                port,
                hosts: vec![Host::http()],
            }],
            ..Config::default()
        };
        let (config, configs) = watch::channel(Arc::new(config));
        let (shutdown, shutdowns) = watch::channel(Shutdown::Run);
        let (tell, mut events) = mpsc::unbounded_channel();
        let report = move |event| drop(tell.send(event));
        let counters: Arc<Counters> = Arc::default();
        tokio::spawn(run_counted(
            configs,
            nowhere,
            Some(Arc::clone(&http)),
            report,
            shutdowns,
            Arc::clone(&counters),
        ));
        let event = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
        assert!(matches!(event, Event::Listening { .. }), "{event:?}");
        Self { port, http, shutdown, counters, config }
    }

    /// From now on for connections that are accepted later.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Config)) {
        self.config.send_modify(|config| change(Arc::make_mut(config)));
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap()
    }

    /// Sends these bytes on a connection of their own, and reads until the front closes it or falls silent.
    pub(crate) async fn say(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        let _ = stream.write_all(bytes).await;
        listen(&mut stream).await
    }
}

/// What comes until the other side closes, or falls silent after it has said something.
pub(crate) async fn listen(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 16384];
    loop {
        let patience = if all.is_empty() { PATIENCE } else { SILENCE };
        match timeout(patience, stream.read(&mut buffer)).await {
            Ok(Ok(count @ 1..)) => all.extend_from_slice(&buffer[..count]),
            _ => return String::from_utf8_lossy(&all).into_owned(),
        }
    }
}

/// The status of the first answer; 0 where there is none.
pub(crate) fn status(answer: &str) -> u16 {
    answer.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok()).unwrap_or(0)
}
