//! An origin that remembers what it was asked.
//!
//! It answers 200 with its name in `X-Origin` and the request's body, or its name where there is none. `/hold…` is
//! answered when the test says so; an upgrade is greeted, then echoed. A test may give it another status and further
//! headers, or let it break off.

use std::io::{self, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::client::{find, read_body, read_head};
use super::{PATIENCE, wait_for};

pub(crate) const GREETING: &[u8] = b"greetings from the origin";

pub(crate) struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    seen: Mutex<Vec<Seen>>,
    /// Answers to `/hold…` wait for this.
    released: (Mutex<bool>, Condvar),
    connections: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
    stopped: AtomicBool,
    /// Leaves open what its peer has closed.
    stubborn: AtomicBool,
    manner: Mutex<Manner>,
}

/// How it answers.
#[derive(Debug, Clone)]
struct Manner {
    /// 0: not at all, the connection ends.
    status: u16,
    /// Whole lines.
    headers: String,
}

/// A request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

impl Origin {
    pub(crate) fn new(name: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            seen: Mutex::default(),
            released: Default::default(),
            connections: AtomicUsize::new(0),
            open: Mutex::default(),
            stopped: AtomicBool::new(false),
            stubborn: AtomicBool::new(false),
            manner: Mutex::new(Manner { status: 200, headers: String::new() }),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accepting.accept(&listener));
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn last_seen(&self) -> Seen {
        self.seen().pop().expect("the origin was asked")
    }

    /// Waits until a request for this URL is here.
    pub(crate) fn wait_for(&self, url: &str) -> Seen {
        wait_for(&format!("{url} at {}", self.shared.name), || self.seen().into_iter().find(|s| s.url == url))
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// From now on it closes no connection, like a host that has died without a word.
    pub(crate) fn fall_silent(&self) {
        self.shared.stubborn.store(true, Ordering::Relaxed);
    }

    /// From now on it answers with this status and these headers. 0: it breaks off instead.
    pub(crate) fn answer_with(&self, status: u16, headers: &[&str]) {
        let headers = headers.iter().map(|header| format!("{header}\r\n")).collect();
        *self.shared.manner.lock().unwrap() = Manner { status, headers };
    }

    /// Holds answers to `/hold…` again.
    pub(crate) fn hold(&self) {
        *self.shared.released.0.lock().unwrap() = false;
    }

    /// Answers what was held, and holds nothing any more.
    pub(crate) fn release(&self) {
        *self.shared.released.0.lock().unwrap() = true;
        self.shared.released.1.notify_all();
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.release();
        let _ = TcpStream::connect(self.address);
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            let Ok(stream) = stream else { continue };
            self.connections.fetch_add(1, Ordering::Relaxed);
            self.open.lock().unwrap().extend(stream.try_clone());
            let shared = Arc::clone(self);
            std::thread::spawn(move || {
                let end = stream.try_clone();
                // Its peer may close at any time; then so do we, though `open` has the stream, too.
                let _ = shared.serve(stream);
                if !shared.stubborn.load(Ordering::Relaxed) {
                    let _ = end.and_then(|stream| stream.shutdown(Shutdown::Both));
                }
            });
        }
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        loop {
            let (line, headers) = read_head(&mut stream)?;
            let mut words = line.split(' ').map(str::to_owned);
            let (method, url) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let body = read_body(&mut stream, &headers)?;
            let seen = Seen { method, url, headers, body };
            self.seen.lock().unwrap().push(seen.clone());
            if seen.header("Upgrade").is_some() {
                return echo(stream);
            }
            if seen.url.starts_with("/hold") {
                let (released, changed) = &self.released;
                drop(changed.wait_timeout_while(released.lock().unwrap(), PATIENCE, |r| !*r).unwrap());
            }
            self.answer(stream.get_mut(), &seen)?;
        }
    }

    fn answer(&self, to: &mut TcpStream, seen: &Seen) -> io::Result<()> {
        // `/bytes/1000/whatever` is answered by so many.
        let wanted = seen.url.strip_prefix("/bytes/").and_then(|rest| rest.split('/').next()?.parse().ok());
        let many = vec![b'x'; wanted.unwrap_or_default()];
        let body = match (wanted, seen.body.is_empty()) {
            (Some(_), _) => &many,
            (None, true) => self.name.as_bytes(),
            (None, false) => &seen.body,
        };
        let (name, length) = (&self.name, body.len());
        let Manner { status, headers } = self.manner.lock().unwrap().clone();
        if status == 0 {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let head = format!(
            "HTTP/1.1 {status} Status\r\nX-Origin: {name}\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        let mut bytes = head.into_bytes();
        if seen.method != "HEAD" && !matches!(status, 204 | 304) {
            bytes.extend_from_slice(body);
        }
        to.write_all(&bytes)
    }
}

fn echo(mut stream: BufReader<TcpStream>) -> io::Result<()> {
    let head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    stream.get_mut().write_all(&[head, GREETING].concat())?;
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        stream.get_mut().write_all(&buffer[..count])?;
    }
}
