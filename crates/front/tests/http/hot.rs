//! Hot objects: what is answered from memory, and above all what is not. A stand-in for varnishd marks its responses as ghost does.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use front::{HotLimits, NotHot, Way};
use model::names::INVALIDATE_METHOD;
use page::{Page, Slot};
use router::cache::Key;
use router::{Request, Router};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;

use crate::support::{Front, Origin, PATIENCE};

/// What the stand-in does with each request.
#[derive(Debug, Clone)]
struct Manner {
    ttl: Duration,
    vary: Option<&'static str>,
    /// Headers beside those of every response.
    more: &'static str,
    body: Vec<u8>,
    is_chunked: bool,
    marks: bool,
    /// Of another key than the request's.
    is_of_other_key: bool,
    result: &'static str,
    reason: &'static str,
    /// The page is raised before the response goes out.
    is_overtaken: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(60),
            vary: None,
            more: "",
            body: b"body".to_vec(),
            is_chunked: false,
            marks: true,
            is_of_other_key: false,
            result: "hit",
            reason: "OK",
            is_overtaken: false,
        }
    }
}

#[derive(Clone)]
struct Ghost {
    path: PathBuf,
    page: Arc<Page>,
    router: Arc<OnceLock<Router>>,
    manner: Arc<Mutex<Manner>>,
    asked: Arc<AtomicU64>,
    asked_hot: Arc<AtomicU64>,
    _directory: Arc<tempfile::TempDir>,
}

/// A request as the stand-in read it.
struct Read<'a> {
    socket: String,
    method: &'a str,
    url: &'a str,
    lines: Vec<(&'a str, &'a str)>,
}

impl<'a> Read<'a> {
    fn parse(head: &'a str) -> Self {
        let mut lines = head.lines();
        let mut first = lines.next().unwrap().split(' ');
        let (method, url) = (first.next().unwrap(), first.next().unwrap());
        let lines: Vec<_> = lines.filter_map(|line| line.split_once(": ")).collect();
        let client = lines.iter().find(|(name, _)| *name == "X-Ghost-Client").unwrap().1;
        Self { socket: client.split(' ').nth(2).unwrap().to_owned(), method, url, lines }
    }

    fn values(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let name = name.to_owned();
        self.lines.iter().filter(move |(of, _)| of.eq_ignore_ascii_case(&name)).map(|(_, value)| *value)
    }
}

impl Request for Read<'_> {
    fn socket(&self) -> &[u8] {
        self.socket.as_bytes()
    }

    fn host(&self) -> &[u8] {
        self.values("host").next().unwrap_or_default().as_bytes()
    }

    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }

    fn url(&self) -> &[u8] {
        self.url.as_bytes()
    }

    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.values(name).any(|value| seen(value.as_bytes()))
    }
}

const SLOT: u16 = 77;

/// What ends hot objects, with its name.
type End<'a> = (&'a str, &'a dyn Fn(&Page));

impl Ghost {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("front.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let ghost = Self {
            path,
            page: Arc::new(Page::create(&directory.path().join("page")).unwrap()),
            router: Arc::default(),
            manner: Arc::default(),
            asked: Arc::default(),
            asked_hot: Arc::default(),
            _directory: Arc::new(directory),
        };
        let serving = ghost.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        ghost
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Manner)) {
        change(&mut self.manner.lock().unwrap());
    }

    async fn serve(self, mut stream: UnixStream) {
        let (mut unread, mut buffer) = (String::new(), [0; 16384]);
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            unread.push_str(&String::from_utf8_lossy(&buffer[..count]));
            while let Some(end) = unread.find("\r\n\r\n") {
                let head: String = unread.drain(..end + 4).collect();
                let answer = self.answer(&head);
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        }
    }

    fn answer(&self, head: &str) -> Vec<u8> {
        if head.starts_with(INVALIDATE_METHOD) {
            return b"HTTP/1.1 204 No Content\r\n\r\n".to_vec();
        }
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let manner = self.manner.lock().unwrap().clone();
        let request = Read::parse(head);
        let gzip = request.values("accept-encoding").any(|value| value.contains("gzip"));
        let mut answer = format!(
            "HTTP/1.1 200 {}\r\nX-Varnish: {number}\r\nAge: 5\r\nX-Cache: HIT\r\nEtag: \"e\"\r\nContent-Type: text/plain\r\n\
             Cache-Status: varnish-gateway; hit; ttl=60\r\nX-Ghost-Result: {}\r\nX-Gzip: {gzip}\r\nConnection: keep-alive\r\n{}",
            manner.reason, manner.result, manner.more
        );
        if request.values("x-ghost-hot").next().is_some() {
            self.asked_hot.fetch_add(1, Ordering::SeqCst);
            let router = self.router.get().unwrap();
            let decision = router.decide(&request, 0);
            let values = |name: &str, seen: &mut dyn FnMut(&[u8])| {
                request.values(name).for_each(|value| seen(value.as_bytes()));
            };
            let key = Key::new(Some(&decision), b"http", request.host(), request.url(), None, values);
            let key = if manner.is_of_other_key { 1 } else { key.hash64() };
            if manner.marks {
                let vary = manner.vary.map(|names| format!(" {names}")).unwrap_or_default();
                answer += &format!("X-Ghost-Hot: {} {key:016x} {SLOT}{vary}\r\n", manner.ttl.as_millis());
            }
        }
        if manner.is_overtaken {
            self.page.raise(&[Slot::from_number(SLOT)]);
        }
        let is_head = request.method == "HEAD";
        let mut answer = answer.into_bytes();
        if manner.is_chunked && !is_head {
            answer.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            for chunk in manner.body.chunks(1000) {
                answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                answer.extend_from_slice(chunk);
                answer.extend_from_slice(b"\r\n");
            }
            answer.extend_from_slice(b"0\r\n\r\n");
        } else {
            answer.extend_from_slice(format!("Content-Length: {}\r\n\r\n", manner.body.len()).as_bytes());
            if !is_head {
                answer.extend_from_slice(&manner.body);
            }
        }
        answer
    }
}

/// A response, read by its length.
#[derive(Debug)]
struct Got {
    head: String,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value).next_back()
    }

    fn is_hot(&self) -> bool {
        self.header("x-varnish").is_none()
    }
}

struct Site {
    front: Front,
    ghost: Ghost,
    client: tokio::sync::Mutex<TcpStream>,
    _origin: Origin,
}

impl Site {
    async fn start(limits: HotLimits, change: impl FnOnce(&mut model::ghost::Config)) -> Self {
        let (ghost, origin) = (Ghost::start(), Origin::start().await);
        let mut config = None;
        let change = |of: &mut model::ghost::Config| {
            change(of);
            config = Some(of.clone());
        };
        let hot = Some((Arc::clone(&ghost.page), limits));
        let front = Front::with_hot(&[origin.address], &ghost.path, change, hot).await;
        let router = Router::compile(&config.unwrap()).unwrap().router;
        ghost.page.set_digest(router.digest());
        ghost.router.set(router).unwrap();
        let client = tokio::sync::Mutex::new(front.connect().await);
        Self { front, ghost, client, _origin: origin }
    }

    async fn plain() -> Self {
        Self::start(HotLimits::default(), |_| ()).await
    }

    async fn ask(&self, method: &str, path: &str, headers: &str) -> Got {
        let mut client = self.client.lock().await;
        let request = format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let read = async {
            let (mut all, mut buffer) = (Vec::new(), vec![0; 65536]);
            loop {
                let count = client.read(&mut buffer).await.unwrap();
                assert!(count > 0, "the front closed the connection: {:?}", String::from_utf8_lossy(&all));
                all.extend_from_slice(&buffer[..count]);
                let Some(end) = all.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
                let got = Got {
                    head: String::from_utf8_lossy(&all[..end + 2]).into_owned(),
                    body: all[end + 4..].to_vec(),
                };
                let has_body = method != "HEAD" && !got.head.starts_with("HTTP/1.1 304");
                let length = got.header("content-length").map(|length| length.parse::<usize>().unwrap());
                let is_whole = match length.filter(|_| has_body) {
                    Some(length) => got.body.len() >= length,
                    None => !has_body || got.body.ends_with(b"0\r\n\r\n"),
                };
                if is_whole {
                    return got;
                }
            }
        };
        timeout(PATIENCE, read).await.unwrap()
    }

    async fn get(&self, path: &str) -> Got {
        self.ask("GET", path, "").await
    }

    /// Asks until the response is hot.
    async fn heat(&self, path: &str, headers: &str) -> Got {
        for _ in 0..200 {
            let got = self.ask("GET", path, headers).await;
            if got.is_hot() {
                return got;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{path} does not become hot: {:?}", self.front.http.hot());
    }

    /// Asks often enough for it to become hot, if it could.
    async fn stays_cold(&self, path: &str, headers: &str) {
        for _ in 0..12 {
            let got = self.ask("GET", path, headers).await;
            assert!(!got.is_hot(), "{got:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn refused(&self, why: NotHot) -> u64 {
        self.front.http.hot().unwrap().refused(why)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_a_hit_twice_is_answered_from_memory() {
    let site = Site::plain().await;
    for n in 1..=3 {
        let got = site.get("/").await;
        assert!(!got.is_hot() && got.body == b"body", "{got:?}");
        assert_eq!(site.ghost.asked(), n);
        assert_eq!(
            site.ghost.asked_hot.load(Ordering::SeqCst),
            u64::from(n > 2),
            "asked for with request {n}"
        );
    }
    for _ in 0..5 {
        let got = site.get("/").await;
        assert!(got.is_hot(), "{got:?}");
        assert_eq!((got.body.as_slice(), got.header("content-length")), (&b"body"[..], Some("4")));
        assert_eq!((got.header("age"), got.header("x-cache")), (Some("5"), Some("HIT")));
        assert!(got.header("cache-status").unwrap().starts_with("varnish-gateway; hit; ttl=5"), "{got:?}");
        assert_eq!((got.header("etag"), got.header("content-type")), (Some("\"e\""), Some("text/plain")));
        assert!(!got.head.to_ascii_lowercase().contains("ghost"), "{got:?}");
    }
    assert_eq!(site.ghost.asked(), 3);
    // The last is counted when its body has gone out.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let http = &site.front.http;
    assert_eq!((http.by_way(Way::Hot), http.by_way(Way::Cache)), (5, 3));
    let hot = http.hot().unwrap();
    assert_eq!((hot.entries(), hot.stored(), hot.evicted()), (1, 1, 0));
    assert!(hot.bytes() > 4 && hot.bytes() < 4096, "{}", hot.bytes());
    let stats = http.stats();
    let route = stats.routes.iter().find(|route| route.route == "test/route").unwrap();
    assert_eq!((route.counts.cache[0], route.counts.ways), (8, [3, 0, 0, 5]));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_after_an_invalidation() {
    let site = Site::plain().await;
    let ends: [End<'_>; 4] = [
        ("slot", &|page| page.raise(&[Slot::from_number(SLOT)])),
        ("global", &Page::raise_global),
        ("no table", &|page| page.set_digest(0)),
        ("another table", &|page| page.set_digest(1)),
    ];
    let digest = site.ghost.page.digest();
    for (what, end) in ends {
        site.ghost.page.set_digest(digest);
        site.heat("/", "").await;
        end(&site.ghost.page);
        let before = site.ghost.asked();
        assert!(!site.get("/").await.is_hot(), "{what}");
        assert_eq!(site.ghost.asked(), before + 1, "{what}");
    }
    // Another slot does not matter.
    site.ghost.page.set_digest(digest);
    site.heat("/", "").await;
    site.ghost.page.raise(&[Slot::from_number(SLOT + 1)]);
    assert!(site.get("/").await.is_hot());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_overtaken_or_is_not_ghosts_word_is_not_stored() {
    let site = Site::plain().await;
    site.ghost.change(|manner| manner.is_overtaken = true);
    site.stays_cold("/overtaken", "").await;
    assert!(site.refused(NotHot::Invalidated) > 0);
    site.ghost.change(|manner| *manner = Manner { is_of_other_key: true, ..Manner::default() });
    site.stays_cold("/key", "").await;
    assert!(site.refused(NotHot::Key) > 0);
    site.ghost.change(|manner| *manner = Manner { marks: false, ..Manner::default() });
    site.stays_cold("/unmarked", "").await;
    assert!(site.refused(NotHot::Unmarked) > 0);
    site.ghost.change(|manner| *manner = Manner { ttl: Duration::from_secs(1), ..Manner::default() });
    site.stays_cold("/short", "").await;
    site.ghost.change(|manner| *manner = Manner { more: "Set-Cookie: a=b\r\n", ..Manner::default() });
    site.stays_cold("/cookie", "").await;
    site.ghost.change(|manner| *manner = Manner { result: "miss", ..Manner::default() });
    site.stays_cold("/miss", "").await;
    assert_eq!(site.front.http.hot().unwrap().stored(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_not_plain_go_to_varnishd() {
    let site = Site::plain().await;
    site.heat("/", "").await;
    for headers in [
        "Range: bytes=0-1\r\n",
        "If-Match: \"e\"\r\n",
        "If-Range: \"e\"\r\n",
        "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "X-Original-Url: /other\r\n",
        "X_Original_Url: /other\r\n",
        "X-Real-Ip: 1.2.3.4\r\n",
        "Cache-Debug: key\r\n",
        "Accept-Encoding: gzip;q=0\r\n",
        "Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n",
    ] {
        let got = site.ask("GET", "/", headers).await;
        assert!(!got.is_hot(), "{headers}: {got:?}");
    }
    let before = site.ghost.asked();
    for (method, headers) in
        [("GET", "Authorization: Basic YTpi\r\n"), ("POST", "Content-Length: 0\r\n"), ("OPTIONS", "")]
    {
        let got = site.ask(method, "/", headers).await;
        assert_eq!(got.body, b"ok", "{method} {headers}: past the cache, to the origin: {got:?}");
    }
    assert_eq!(site.ghost.asked(), before);
    for headers in
        ["X-Forwarded-For: 1.2.3.4\r\n", "Cache-Control: no-cache\r\n", "Cookie: a=b\r\n", "TE: trailers\r\n"]
    {
        let got = site.ask("GET", "/", headers).await;
        assert!(got.is_hot(), "{headers}: {got:?}");
    }
    assert!(!site.get("/other").await.is_hot() && !site.get("/?a").await.is_hot());
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_and_conditions_are_answered_as_varnishd_does() {
    let site = Site::plain().await;
    site.heat("/", "").await;
    let got = site.ask("HEAD", "/", "").await;
    assert!(got.is_hot() && got.body.is_empty(), "{got:?}");
    assert_eq!((got.header("content-length"), got.header("content-type")), (Some("4"), Some("text/plain")));
    for headers in ["If-None-Match: \"x\", W/\"e\"\r\n", "If-None-Match: *\r\n"] {
        let got = site.ask("GET", "/", headers).await;
        assert!(got.is_hot() && got.head.starts_with("HTTP/1.1 304 "), "{got:?}");
        assert_eq!((got.header("etag"), got.header("content-length")), (Some("\"e\""), None));
    }
    for headers in ["If-None-Match: \"x\"\r\n", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"] {
        let got = site.ask("GET", "/", headers).await;
        assert!(got.is_hot() && got.head.starts_with("HTTP/1.1 200 ") && got.body == b"body", "{got:?}");
    }
    site.ghost.change(|manner| manner.reason = "Quite Fine");
    let got = site.heat("/reason", "").await;
    assert!(got.head.starts_with("HTTP/1.1 200 Quite Fine\r\n"), "{got:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn variants_are_kept_apart() {
    let site = Site::plain().await;
    site.ghost.change(|manner| manner.vary = Some("accept-encoding,accept-language"));
    let got = site.heat("/", "Accept-Language: de\r\nAccept-Encoding: br, gzip\r\n").await;
    assert_eq!(got.header("x-gzip"), Some("true"));
    for headers in [
        "Accept-Language: de\r\n",
        "Accept-Encoding: gzip\r\n",
        "Accept-Language: en\r\nAccept-Encoding: gzip\r\n",
        "Accept-Language: \r\nAccept-Encoding: gzip\r\n",
        "Accept-Language: de\r\nAccept-Language: en\r\nAccept-Encoding: gzip\r\n",
    ] {
        let got = site.ask("GET", "/", headers).await;
        assert!(!got.is_hot(), "{headers}: {got:?}");
    }
    let got = site.ask("GET", "/", "Accept-Encoding: gzip, deflate\r\nAccept-Language: de\r\n").await;
    assert!(got.is_hot(), "{got:?}");
    let got = site.heat("/", "Accept-Language: de\r\n").await;
    assert_eq!(got.header("x-gzip"), Some("false"));
    // At most eight of one key.
    for n in 0..20 {
        site.heat("/", &format!("Accept-Language: l{n}\r\n")).await;
    }
    assert!(site.front.http.hot().unwrap().entries() <= 8);
    // By what the gateway or a proxy writes: never.
    site.ghost.change(|manner| manner.vary = Some("x-forwarded-proto"));
    site.stays_cold("/forwarded", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_up_to_the_limit_are_kept_and_larger_ones_are_delivered() {
    let limits = HotLimits { max_object_bytes: 65536, ..HotLimits::default() };
    let site = Site::start(limits, |_| ()).await;
    let body = |length: usize| (0..length).map(|n| b'a' + (n % 23) as u8).collect::<Vec<u8>>();
    for is_chunked in [false, true] {
        let manner = |length| Manner { body: body(length), is_chunked, ..Manner::default() };
        site.ghost.change(|to| *to = manner(65536));
        let path = format!("/fits-{is_chunked}");
        assert!(site.heat(&path, "").await.body == body(65536));
        site.ghost.change(|to| *to = manner(65537));
        let before = site.refused(NotHot::Size);
        let path = format!("/larger-{is_chunked}");
        site.stays_cold(&path, "").await;
        assert!(site.refused(NotHot::Size) > before);
        let got = site.get(&path).await;
        // Where all of it has come before it is sent on, the front knows its length.
        if got.header("content-length").is_some() {
            assert!(got.body == body(65537));
        } else {
            assert!(dechunked(&got.body) == body(65537));
        }
    }
}

fn dechunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return all;
        }
        all.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded_and_what_is_used_stays() {
    let limits = HotLimits { bytes: 256 << 10, ..HotLimits::default() };
    let site = Site::start(limits, |_| ()).await;
    site.ghost.change(|manner| manner.body = vec![b'a'; 8 << 10]);
    site.heat("/used", "").await;
    for n in 0..60 {
        site.heat(&format!("/{n}"), "").await;
        site.get("/used").await;
        let hot = site.front.http.hot().unwrap();
        assert!(hot.bytes() <= 256 << 10, "{} bytes", hot.bytes());
    }
    let hot = site.front.http.hot().unwrap();
    assert!(hot.evicted() > 20, "{}", hot.evicted());
    assert!(hot.entries() < 32, "{}", hot.entries());
    assert!(site.get("/used").await.is_hot());
    site.ghost.page.raise_global();
    hot.clean();
    assert_eq!((hot.entries(), hot.bytes()), (0, 0));
    let stored = hot.stored();
    site.ghost.change(|manner| manner.body = vec![b'a'; 64 << 10]);
    site.stays_cold("/large", "").await;
    assert!(hot.stored() == stored && site.refused(NotHot::Size) > 0, "{}", hot.stored());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_with_the_time_to_live_and_one_request_renews_it() {
    let site = Site::plain().await;
    site.ghost.change(|manner| manner.ttl = Duration::from_millis(1500));
    site.heat("/", "").await;
    let before = site.ghost.asked();
    tokio::time::sleep(Duration::from_millis(1300)).await;
    // From 80 % of the lease one request goes to varnishd, and brings a new one.
    let renewal = site.get("/").await;
    assert!(!renewal.is_hot() && site.ghost.asked() == before + 1, "{renewal:?}");
    assert!(site.get("/").await.is_hot());
    site.ghost.change(|manner| manner.marks = false);
    tokio::time::sleep(Duration::from_millis(1600)).await;
    assert!(!site.get("/").await.is_hot());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_response_is_not_followed_by_the_older_one() {
    let site = Site::plain().await;
    site.ghost.change(|manner| manner.ttl = Duration::from_secs(3));
    site.heat("/", "").await;
    site.ghost.change(|manner| (manner.result, manner.body) = ("miss", b"new".to_vec()));
    tokio::time::sleep(Duration::from_millis(2500)).await;
    // The request that was to renew it finds that varnishd has fetched another.
    assert_eq!(site.get("/").await.body, b"new");
    assert_eq!(site.get("/").await.body, b"new");
}

#[tokio::test(flavor = "multi_thread")]
async fn cors_is_written_for_each_client() {
    let cors = |config: &mut model::ghost::Config| {
        for route in config.vhosts.values_mut().flat_map(|vhost| &mut vhost.routes) {
            let filters = serde_json::json!({"cors": {"allow_origins": ["http://*.example"]}});
            route.filters = Some(serde_json::from_value(filters).unwrap());
        }
    };
    let site = Site::start(HotLimits::default(), cors).await;
    site.heat("/", "Origin: http://a.example\r\n").await;
    for origin in ["http://a.example", "http://b.example"] {
        let got = site.ask("GET", "/", &format!("Origin: {origin}\r\n")).await;
        assert!(got.is_hot(), "{got:?}");
        assert_eq!(got.header("access-control-allow-origin"), Some(origin), "{got:?}");
    }
    let got = site.ask("GET", "/", "Origin: http://evil.test\r\n").await;
    assert!(got.is_hot() && got.header("access-control-allow-origin").is_none(), "{got:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn switched_off_nothing_is_kept() {
    let site = Site::start(HotLimits::OFF, |_| ()).await;
    site.stays_cold("/", "").await;
    assert!(site.front.http.hot().is_none());
    assert_eq!(site.ghost.asked_hot.load(Ordering::SeqCst), 0);
}
