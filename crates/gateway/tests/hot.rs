//! Hot objects, through the real thing: what is answered from the front's memory, and that no acknowledged invalidation is followed by
//! what it has ended. The origin counts versions, and clients check them.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::processes::signal;
use crate::support::{
    Ask, Connection, Program, Response, Scene, cache_policy, class, free_port, front_carries_http, gateway,
    get, route_to, service,
};

const HOST: &str = "shop.example.com";
const PATHS: usize = 8;
const READERS: usize = 32;
const WRITERS: usize = 4;
/// Acknowledged invalidations of all writers together, unless HOT_WRITES says otherwise: 10,000 take a minute.
const WRITES: u64 = 2_000;

/// An origin whose responses have a version, which a POST of the same path raises.
struct Versions {
    address: SocketAddr,
    of_path: Arc<[AtomicU64; PATHS]>,
}

impl Versions {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let of_path: Arc<[AtomicU64; PATHS]> = Arc::default();
        let shared = Arc::clone(&of_path);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || Self::serve(&stream, &shared));
            }
        });
        Self { address, of_path }
    }

    /// Until the other side closes.
    fn serve(stream: &TcpStream, of_path: &[AtomicU64; PATHS]) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut from = BufReader::new(stream);
        loop {
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                if from.read_line(&mut line).ok()? == 0 {
                    return None;
                }
                if line.trim_end().is_empty() {
                    break;
                }
                lines.push(line);
            }
            let mut first = lines.first()?.split(' ');
            let (method, path) = (first.next()?, first.next()?);
            let at: usize = path.trim_start_matches("/p").parse().ok().filter(|at| *at < PATHS)?;
            let version = match method {
                "POST" => of_path[at].fetch_add(1, Ordering::SeqCst) + 1,
                _ => of_path[at].load(Ordering::SeqCst),
            };
            let body = format!("{version:08}");
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: max-age=600\r\nSurrogate-Key: t{at} all\r\nETag: \"{version}\"\r\n\r\n{body}",
                body.len()
            );
            (&*stream).write_all(answer.as_bytes()).ok()?;
        }
    }
}

fn version(response: &Response) -> Option<u64> {
    response.text().parse().ok().filter(|_| response.status == 200)
}

/// The headers by which engines tell the numbers that they gave to a request.
const NUMBERS: [&str; 2] = ["x-varnish", "x-vinyl"];

fn has_number(response: &Response) -> bool {
    NUMBERS.iter().any(|name| response.header(name).is_some())
}

fn is_hot(response: &Response) -> bool {
    response.header("X-Cache") == Some("HIT") && !has_number(response)
}

/// Asks until the response is hot.
#[track_caller]
fn heat(port: u16, ask: &Ask) -> Response {
    let mut connection = Connection::open(port).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let response = connection.exchange(ask);
        if is_hot(&response) {
            return response;
        }
        assert!(Instant::now() < until, "it does not become hot: {response:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

struct Site {
    port: u16,
    dashboard: u16,
    versions: Versions,
    program: Program,
    scene: Scene,
}

impl Site {
    fn start(policy: &str) -> Self {
        let (port, dashboard, versions) = (free_port(), free_port(), Versions::start());
        let objects = [
            class(),
            gateway("web", &[port]),
            service("shop", &[versions.address]),
            route_to("shop", "/", "shop"),
            cache_policy("shop", "shop", policy),
        ];
        let scene = Scene::new(&objects.concat());
        let program = scene.start_with(&["--dashboard", &format!("127.0.0.1:{dashboard}")]);
        program.wait_for_line(&["Gateway default/web: reloaded"]);
        Self { port, dashboard, versions, program, scene }
    }

    /// Responses to unsafe methods that went out before ghost had confirmed what they invalidate.
    fn not_invalidated(&self) -> u64 {
        let text = get(self.dashboard, "localhost", "/metrics").text();
        let lines = text.lines().filter(|line| line.starts_with("varnish_gateway_not_invalidated_total"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    #[track_caller]
    fn done(&self, words: &[&str]) {
        let mut command = Program::command();
        command.args(words).arg("--state-dir").arg(self.scene.path("state"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// What readers have seen.
#[derive(Default)]
struct Seen {
    responses: AtomicU64,
    hot: AtomicU64,
    failed: AtomicU64,
    old: AtomicU64,
}

/// Reads all paths until `over`: a version that is older than what was acknowledged before the request is counted.
fn read(port: u16, start: usize, acknowledged: &[AtomicU64; PATHS], seen: &Seen, over: &AtomicBool) {
    let mut connection = None;
    for n in start.. {
        if over.load(Ordering::SeqCst) {
            return;
        }
        let at = n % PATHS;
        let least = acknowledged[at].load(Ordering::SeqCst);
        let open = match connection.take() {
            Some(open) => Some(open),
            None => Connection::open(port).ok(),
        };
        let Some(mut open) = open else { continue };
        let Ok(response) = open.try_exchange(&Ask::get(HOST, &format!("/p{at}"))) else { continue };
        connection = Some(open);
        match version(&response) {
            Some(version) if version < least => {
                seen.old.fetch_add(1, Ordering::SeqCst);
                eprintln!("/p{at}: version {version} after {least}: {response:?}");
            }
            Some(_) => {}
            None => drop(seen.failed.fetch_add(1, Ordering::SeqCst)),
        }
        seen.responses.fetch_add(1, Ordering::SeqCst);
        seen.hot.fetch_add(u64::from(is_hot(&response)), Ordering::SeqCst);
    }
}

#[test]
fn no_acknowledged_invalidation_is_followed_by_what_it_has_ended() {
    if !front_carries_http() {
        return;
    }
    let writes = std::env::var("HOT_WRITES").ok().map_or(WRITES, |given| given.parse().unwrap());
    let writes = writes / WRITERS as u64 * WRITERS as u64;
    let site = Site::start("  forcedTTL: 10m\n  grace: 0s");
    let acknowledged: [AtomicU64; PATHS] = Default::default();
    let (seen, over) = (Seen::default(), AtomicBool::new(false));
    let child = site.program.varnishd().child;
    thread::scope(|scope| {
        for start in 0..READERS {
            let (acknowledged, seen, over) = (&acknowledged, &seen, &over);
            let port = site.port;
            scope.spawn(move || read(port, start, acknowledged, seen, over));
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (acknowledged, port) = (&acknowledged, site.port);
                scope.spawn(move || {
                    let mut connection = Connection::open(port).unwrap();
                    let mut written = 0;
                    for n in 0..writes / WRITERS as u64 {
                        let at = writer + WRITERS * (n as usize % (PATHS / WRITERS));
                        let post = Ask::new("POST", HOST, &format!("/p{at}")).body(vec![]);
                        let response = connection.exchange(&post);
                        let version = version(&response).unwrap_or_else(|| panic!("{response:?}"));
                        acknowledged[at].fetch_max(version, Ordering::SeqCst);
                        written += 1;
                        // Time to become hot again, now and then.
                        if n % 50 == 0 {
                            thread::sleep(Duration::from_millis(200));
                        }
                    }
                    written
                })
            })
            .collect();
        let others = scope.spawn(|| {
            // Versions that change without a POST, and the commands that say so.
            let commands: [&[&str]; 5] = [
                &["purge", HOST, "/p0"],
                &["purge", "--tag", "t0"],
                &["ban", HOST, "^/p0"],
                &["purge", HOST, "--tag", "all"],
                &["purge", "--soft", HOST, "/p0"],
            ];
            for n in 0..25 {
                let version = site.versions.of_path[0].fetch_add(1, Ordering::SeqCst) + 1;
                site.done(commands[n % commands.len()]);
                acknowledged[0].fetch_max(version, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(100));
            }
        });
        let written: u64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        others.join().unwrap();
        over.store(true, Ordering::SeqCst);
        assert_eq!(written, writes);
    });
    let [responses, hot, failed, old] =
        [&seen.responses, &seen.hot, &seen.failed, &seen.old].map(|counter| counter.load(Ordering::SeqCst));
    eprintln!("{responses} responses, {hot} of them hot");
    // A response to POST that ghost has not confirmed within a second goes out all the same: such a one acknowledges nothing.
    assert_eq!(
        site.not_invalidated(),
        0,
        "invalidations took too long: this machine is too busy for the test"
    );
    assert_eq!(old, 0, "of {responses} responses, {hot} of them hot");
    assert_eq!(failed, 0, "of {responses} responses");
    assert!(hot > 200, "{hot} of {responses} responses were hot");
    assert_eq!(site.program.varnishd().child, child, "varnishd goes on");
}

#[test]
fn nothing_hot_outlives_varnishd_or_a_changed_route() {
    if !front_carries_http() {
        return;
    }
    let site = Site::start("  forcedTTL: 10m");
    let ask = Ask::get(HOST, "/p1");
    assert_eq!(version(&heat(site.port, &ask)), Some(0));
    // The cache is empty with the new child, so the origin is asked.
    site.versions.of_path[1].store(1, Ordering::SeqCst);
    let child = site.program.varnishd().child;
    signal(child, Signal::KILL);
    let until = Instant::now() + Duration::from_secs(20);
    while version(&ask.send(site.port)) != Some(1) {
        assert!(Instant::now() < until, "the old object is still served");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(version(&heat(site.port, &ask)), Some(1));
    // The rule has another name: its objects are others.
    site.versions.of_path[1].store(2, Ordering::SeqCst);
    let objects = [
        class(),
        gateway("web", &[site.port]),
        service("shop", &[site.versions.address]),
        route_to("other", "/", "shop"),
        cache_policy("other", "other", "  forcedTTL: 10m"),
    ];
    site.scene.write("all.yaml", &objects.concat());
    let until = Instant::now() + Duration::from_secs(20);
    while version(&ask.send(site.port)) != Some(2) {
        assert!(Instant::now() < until, "the object of the old rule is still served");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(version(&heat(site.port, &ask)), Some(2));
}

#[test]
fn two_gateways_in_one_process_share_no_hot_object() {
    if !front_carries_http() {
        return;
    }
    let (ports, origins) = ([free_port(), free_port()], [Versions::start(), Versions::start()]);
    origins[1].of_path[1].store(7, Ordering::SeqCst);
    let objects = [
        class(),
        gateway("one", &ports[..1]),
        gateway("two", &ports[1..]),
        service("one", &[origins[0].address]),
        service("two", &[origins[1].address]),
        route_to("one", "/", "one").replace("name: web", "name: one"),
        route_to("two", "/", "two").replace("name: web", "name: two"),
        cache_policy("one", "one", "  forcedTTL: 10m"),
        cache_policy("two", "two", "  forcedTTL: 10m"),
    ];
    let scene = Scene::new(&objects.concat());
    let program = scene.start();
    for name in ["one", "two"] {
        program.wait_for_line(&[&format!("Gateway default/{name}: reloaded")]);
    }
    let ask = Ask::get(HOST, "/p1");
    for (port, its_own) in ports.into_iter().zip([0, 7]) {
        assert_eq!(version(&heat(port, &ask)), Some(its_own));
    }
    for (port, its_own) in ports.into_iter().zip([0, 7]) {
        let response = get(port, HOST, "/p1");
        assert!(is_hot(&response) && version(&response) == Some(its_own), "{response:?}");
    }
}

#[test]
fn hot_responses_are_varnishds_but_for_their_number() {
    if !front_carries_http() {
        return;
    }
    let site = Site::start("  forcedTTL: 10m");
    let mut connection = Connection::open(site.port).unwrap();
    let ask = Ask::get(HOST, "/p2").header("Accept-Encoding", "gzip");
    connection.exchange(&ask);
    let cold = connection.exchange(&ask);
    assert!(has_number(&cold) && cold.header("X-Cache") == Some("HIT"), "{cold:?}");
    let hot = heat(site.port, &ask);
    let names = |response: &Response| {
        let mut names: Vec<String> = response
            .headers
            .iter()
            .map(|(name, _)| name.to_ascii_lowercase())
            .filter(|name| !NUMBERS.contains(&name.as_str()))
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&hot), names(&cold));
    assert_eq!((hot.status, &hot.body), (cold.status, &cold.body));
    let of = |response: &Response, name: &str| response.header(name).unwrap_or_default().to_owned();
    for name in ["ETag", "Cache-Control", "Surrogate-Key", "Via", "X-Cache"] {
        assert_eq!(of(&hot, name), of(&cold, name), "{name}");
    }
    let ages = [&cold, &hot].map(|response| of(response, "Age").parse::<u64>().unwrap());
    assert!(ages[0] <= ages[1], "{ages:?}");
    let head = connection.exchange(&Ask::new("HEAD", HOST, "/p2").header("Accept-Encoding", "gzip"));
    assert!(is_hot(&head) && head.header("Content-Length") == Some("8"), "{head:?}");
    let tag = hot.header("ETag").unwrap();
    let unchanged = connection.exchange(&ask.clone().header("If-None-Match", tag));
    assert!(unchanged.status == 304 && is_hot(&unchanged), "{unchanged:?}");
    let part = connection.exchange(&ask.clone().header("Range", "bytes=0-1"));
    assert!(part.status == 206 && has_number(&part), "{part:?}");
}
