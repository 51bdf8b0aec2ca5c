//! 103 Early Hints of origins on misses.

use std::future::poll_fn;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::HOST;
use crate::support::{
    PATIENCE, Program, Scene, cache_policy, class, free_port, front_carries_http, gateway, route, service,
};

/// Sends hints, and its answer only after the next word on `answers`.
struct Hinting {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    answers: std::sync::mpsc::Sender<()>,
}

impl Hinting {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (answers, may) = std::sync::mpsc::channel();
        let asked = Arc::new(AtomicUsize::new(0));
        let (address, count) = (listener.local_addr().unwrap(), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                Self::serve(stream, &may, &count);
            }
        });
        Self { address, asked, answers }
    }

    fn serve(mut stream: TcpStream, may: &std::sync::mpsc::Receiver<()>, asked: &AtomicUsize) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        loop {
            let head: Vec<String> =
                lines.by_ref().map_while(Result::ok).take_while(|l| !l.is_empty()).collect();
            if head.is_empty() {
                return;
            }
            asked.fetch_add(1, Ordering::Relaxed);
            let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nSet-Cookie: a=b\r\nX-Secret: 1\r\n\r\n\
                HTTP/1.1 103 Early Hints\r\nLink: </b.css>; rel=preload\r\n\r\n";
            let _ = stream.write_all(hints.as_bytes());
            if may.recv_timeout(PATIENCE).is_err() {
                return;
            }
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok");
        }
    }
}

struct Told {
    /// Link, and how many headers there were beside it.
    hints: Vec<(String, usize)>,
    status: u16,
    result: String,
    has_link: bool,
}

/// By HTTP/2. `after` is called when so many hints have come, before the answer.
async fn get(port: u16, url: &str, hints_wanted: usize, after: impl FnOnce()) -> Told {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    poll_fn(|cx| sender.poll_ready(cx)).await.unwrap();
    let request = http::Request::get(format!("http://{HOST}{url}")).body(()).unwrap();
    let (mut response, _) = sender.send_request(request, true).unwrap();
    let mut hints = Vec::new();
    while hints.len() < hints_wanted {
        let hint = tokio::time::timeout(PATIENCE, poll_fn(|cx| response.poll_informational(cx))).await;
        let hint = hint.expect("a hint comes before the answer").unwrap().unwrap();
        assert_eq!(hint.status(), 103);
        let link = hint.headers().get("link").unwrap().to_str().unwrap().to_owned();
        hints.push((link, hint.headers().len() - 1));
    }
    after();
    let response = tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap();
    let result = response.headers().get("x-cache").unwrap().to_str().unwrap().to_owned();
    let has_link = response.headers().contains_key("link");
    Told { hints, status: response.status().as_u16(), result, has_link }
}

#[test]
fn hints_of_origins_reach_the_client_whose_miss_it_is() {
    // varnishd's HTTP/2 sends no informational responses.
    if !front_carries_http() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (plain, by_front) = (Hinting::start(), Hinting::start());
    let rules = "  rules:
  - {matches: [{path: {value: /plain}}], backendRefs: [{name: plain, port: 80}]}
  - {matches: [{path: {value: /front}}], backendRefs: [{name: front, port: 80}], timeouts: {request: 60s}}";
    let port = free_port();
    let services = [service("plain", &[plain.address]), service("front", &[by_front.address])].concat();
    let policy = cache_policy("shop", "shop", "  defaultTTL: 1h");
    let scene =
        Scene::new(&[class(), gateway("web", &[port]), services, route("shop", rules), policy].concat());
    let _program: Program = scene.serve();
    for (url, origin) in [("/plain", &plain), ("/front", &by_front)] {
        // The origin answers only after the client has both hints.
        let told = runtime.block_on(get(port, url, 2, || origin.answers.send(()).unwrap()));
        let links = ["</a.css>; rel=preload", "</b.css>; rel=preload"].map(|link| (link.to_owned(), 0));
        assert_eq!((told.status, told.result.as_str(), &told.hints[..]), (200, "MISS", &links[..]), "{url}");
        // Neither merged nor stored.
        assert!(!told.has_link);
        let told = runtime.block_on(get(port, url, 0, || ()));
        assert_eq!((told.status, told.result.as_str(), told.has_link), (200, "HIT", false), "{url}");
        assert_eq!(origin.asked.load(Ordering::Relaxed), 1);
    }
    // Of two that wait for one fetch, one has the hints, and both have the answer.
    let both = async {
        let first = get(port, "/plain/both", 2, || ());
        let second = async {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            get(port, "/plain/both", 0, || plain.answers.send(()).unwrap()).await
        };
        tokio::join!(first, second)
    };
    let (first, second) = runtime.block_on(both);
    assert_eq!((first.status, first.hints.len(), second.status, second.hints.len()), (200, 2, 200, 0));
    assert_eq!(plain.asked.load(Ordering::Relaxed), 2);
}
