//! The entrance, against varnishd's: stored requests and mutated ones go to both arrangements as raw bytes. What both accept must
//! reach the origin as the same requests. Where one refuses what the other takes, [`ALLOWED`] says why.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::Twins;
use super::recorder::{Recorder, Seen};
use crate::support::{gateway, route_to, service, until};

const SEEDS: &str = include_str!("entrance.seeds");
/// Mutated requests, beside the stored ones.
const MUTANTS: usize = 8000;
/// Change it for others. CI runs always the same.
const SEED: u64 = 0x5eed_2026;
const CLIENTS: usize = 8;
/// For a gateway that neither answers nor closes.
const SILENCE: Duration = Duration::from_secs(8);

/// A line of [`SEEDS`] as bytes.
fn unescape(line: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = line.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next().expect("an escape has a letter") {
            b'r' => bytes.push(b'\r'),
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            }
            other => panic!("\\{} in {line}", other as char),
        }
    }
    bytes
}

/// xorshift64*: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most.max(1)
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// What parsers stumble over.
const PIECES: [&[u8]; 40] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"/",
    b"?",
    b"#",
    b"%",
    b"*",
    b"..",
    b"//",
    b"\"",
    b"\\",
    b"\xff",
    b"\xc3\xa9",
    b"\x7f",
    b"\x0b",
    b"0",
    b"1",
    b"-1",
    b"ffffffffffffffff",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"http://b/",
    b"Host: b\r\n",
    b"Content-Length: 4\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"0\r\n\r\n",
    b"4\r\nbody\r\n",
    b"\r\n\r\n",
    b"GET /inner HTTP/1.1\r\nHost: a\r\n\r\n",
];

fn mutate(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(2) {
        let at = random.below(bytes.len() + 1);
        let until = (at + random.below(12)).min(bytes.len());
        match random.below(6) {
            0 => drop(bytes.drain(at..until)),
            1 => drop(bytes.splice(at..at, random.pick(&PIECES).iter().copied())),
            2 => drop(bytes.splice(at..until, random.pick(&PIECES).iter().copied())),
            3 => {
                let copied = bytes[at..until].to_vec();
                drop(bytes.splice(at..at, copied));
            }
            4 => {
                let other = &seeds[random.below(seeds.len())];
                let tail = &other[random.below(other.len())..];
                bytes.truncate(at);
                bytes.extend_from_slice(tail);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
    bytes
}

/// What the origin got, without headers other than Host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Took {
    method: String,
    target: String,
    host: String,
    body: Vec<u8>,
}

impl Took {
    fn of(seen: &Seen) -> Self {
        let host = seen.header("host").unwrap_or_default().to_ascii_lowercase();
        Self { method: seen.method.clone(), target: seen.target.clone(), host, body: seen.body.clone() }
    }
}

/// What one arrangement makes of one input.
#[derive(Debug, Clone, Default)]
struct Fate {
    took: Vec<Took>,
    /// In the order of the answers.
    statuses: Vec<u16>,
    /// It neither answered to the end nor closed.
    hangs: bool,
}

/// The client's address says which input it is: the gateway tells it to the origin.
fn address(number: usize, twin: usize) -> Ipv4Addr {
    let byte = |value: usize| u8::try_from(value).unwrap();
    Ipv4Addr::new(127, byte(1 + twin), byte(number / 250), byte(1 + number % 250))
}

/// Sends all, says that there is no more, and reads to the end.
fn say(port: u16, from: Ipv4Addr, bytes: &[u8]) -> (Vec<u8>, bool) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(IpAddr::V4(from), 0).into()).unwrap();
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    stream.set_write_timeout(Some(SILENCE)).unwrap();
    // One that is refused early may reset the connection.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut got = Vec::new();
    let mut buffer = [0; 16384];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (got, false),
            Ok(count) => got.extend_from_slice(&buffer[..count]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return (got, true),
            Err(_) => return (got, false),
        }
    }
}

/// Bodies of the origin and of the gateway have no such lines.
fn statuses(got: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(got);
    let number = |rest: &str| rest.get(2..5)?.parse().ok();
    text.split("HTTP/1.").skip(1).filter_map(number).filter(|status| *status != 100).collect()
}

/// Why one may refuse what the other takes, or take it otherwise. The first that fits counts.
type Reason = (&'static str, fn(&Input, &Fate, &Fate) -> bool);

/// What was sent, with questions about it. They look at all of it: which request of several is meant, only a parser could say.
struct Input {
    /// Bytes that are no UTF-8 are replaced.
    text: String,
    lower: String,
    is_utf8: bool,
}

impl Input {
    fn new(bytes: &[u8]) -> Self {
        let is_utf8 = std::str::from_utf8(bytes).is_ok();
        let text = String::from_utf8_lossy(bytes).into_owned();
        Self { lower: text.to_ascii_lowercase(), text, is_utf8 }
    }

    fn has(&self, what: &str) -> bool {
        self.lower.contains(what)
    }

    fn count(&self, what: &str) -> usize {
        self.lower.matches(what).count()
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line))
    }

    /// Lines that name a version, and those that stand where a request may begin.
    fn has_request_line(&self, is_such: impl Fn(&str) -> bool) -> bool {
        self.lines().enumerate().any(|(number, line)| {
            (number == 0 || line.to_ascii_lowercase().contains("http/")) && is_such(line)
        })
    }
}

/// `METHOD target HTTP/1.x`, with single spaces and a method that is a token.
fn is_request_line(line: &str) -> bool {
    let is_token = |word: &str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    let words: Vec<&str> = line.split(' ').collect();
    matches!(&words[..], [method, target, "HTTP/1.0" | "HTTP/1.1"] if is_token(method) && !target.is_empty())
}

/// The front has taken less than varnishd, and what it took is the same.
fn is_stricter(varnish: &Fate, front: &Fate) -> bool {
    front.took.len() < varnish.took.len() && varnish.took.starts_with(&front.took)
}

/// The front has refused the request that it read last.
fn refuses(front: &Fate) -> bool {
    front.statuses.last().is_none_or(|status| *status >= 400)
}

const ALLOWED: [Reason; 18] = [
    // The front takes less.
    (
        "varnishd forwards a chunked body that breaks off or is invalid, as a whole one",
        |input, varnish, front| {
            input.has("chunked") && refuses(front) && varnish.took.len() > front.took.len()
        },
    ),
    (
        "the front closes the connection after a request that it refuses; varnishd reads on",
        |_, varnish, front| {
            let last = front.statuses.len().saturating_sub(1);
            is_stricter(varnish, front)
                && refuses(front)
                && varnish.statuses.get(last).is_none_or(|status| *status >= 400)
        },
    ),
    (
        "varnishd takes request lines with other spaces, methods that are no tokens, and HTTP in lower case",
        |input, varnish, front| {
            is_stricter(varnish, front)
                && refuses(front)
                && input.has_request_line(|line| !is_request_line(line))
        },
    ),
    (
        "varnishd takes targets that are no UTF-8, or have a backquote or angle brackets",
        |input, varnish, front| {
            let has_sign = input.has_request_line(|line| line.contains(['`', '<', '>']));
            is_stricter(varnish, front) && refuses(front) && (!input.is_utf8 || has_sign)
        },
    ),
    ("varnishd takes folded header lines", |input, varnish, front| {
        is_stricter(varnish, front)
            && refuses(front)
            && input.lines().any(|line| line.starts_with([' ', '\t']))
    }),
    (
        "beside a URL in the request line, varnishd takes no, several or invalid Host headers",
        |input, varnish, front| {
            is_stricter(varnish, front)
                && refuses(front)
                && input.has_request_line(|line| line.contains("://"))
        },
    ),
    ("the front has no CONNECT, varnishd forwards CONNECT with a path", |input, varnish, front| {
        is_stricter(varnish, front) && refuses(front) && input.has("connect ")
    }),
    ("varnishd takes several Transfer-Encodings", |input, varnish, front| {
        is_stricter(varnish, front) && refuses(front) && input.count("transfer-encoding:") > 1
    }),
    // The front takes more.
    (
        "the front takes Content-Length beside Transfer-Encoding, reads the chunks and closes the connection",
        |input, _, _| input.has("content-length:") && input.has("transfer-encoding:"),
    ),
    (
        "the front takes chunk extensions and trailers; varnishd gives 503 (Vinyl Cache 400), and the origin gets a part",
        |input, varnish, front| {
            let is_vinyl = varnish.statuses.contains(&400) && front.statuses.first() == Some(&200);
            input.has("chunked") && (varnish.statuses.contains(&503) || is_vinyl)
        },
    ),
    ("varnishd takes `Upgrade: h2c` for HTTP/2", |input, varnish, _| {
        input.has("upgrade") && input.has("h2c") && varnish.statuses.is_empty()
    }),
    (
        "the front removes a fragment; varnishd refuses it in a path, and forwards it in a query",
        |input, _, _| input.has_request_line(|line| line.contains('#')),
    ),
    ("the front takes equal Content-Lengths as one", |input, varnish, _| {
        input.count("content-length") > 1 && varnish.statuses.contains(&400)
    }),
    (
        "the front ignores Host and Content-Length in Connection, and removes other headers that it names",
        |input, varnish, _| input.has("connection:") && varnish.statuses.contains(&400),
    ),
    ("varnishd refuses HEAD with a body", |input, varnish, _| {
        input.has("head ") && varnish.statuses.contains(&400)
    }),
    (
        "varnishd refuses HTTP/1.0 requests with a method that wants a body, and no length",
        |input, varnish, _| input.has("http/1.0") && varnish.statuses.contains(&400),
    ),
    ("the front takes a URL without a path, varnishd does not", |input, varnish, _| {
        input.has_request_line(|line| line.contains("://")) && varnish.statuses.contains(&400)
    }),
    // Both take it.
    (
        "without Host, the origin gets the address of the endpoint, from the front with its port",
        |_, varnish, front| {
            let without_port = |took: &Took| Took {
                host: took.host.split(':').next().unwrap_or_default().to_owned(),
                ..took.clone()
            };
            let is_address = |took: &&Took| took.host.starts_with("127.0.0.1:");
            let took: Vec<Took> = front
                .took
                .iter()
                .map(|took| if is_address(&took) { without_port(took) } else { took.clone() })
                .collect();
            took == varnish.took
        },
    ),
];

#[test]
fn the_entrance_takes_what_varnishd_takes_and_in_the_same_way() {
    let recorder = Recorder::start();
    let twins = Twins::new("", recorder.clone(), |port| {
        [gateway("web", &[port]), service("one", &[recorder.address]), route_to("all", "/", "one")].concat()
    });
    let seeds: Vec<Vec<u8>> = SEEDS.lines().filter(|line| !line.starts_with('#')).map(unescape).collect();
    assert!(seeds.len() > 700, "{} seeds", seeds.len());
    let mut random = Random(SEED);
    let mut inputs = seeds.clone();
    inputs.extend((0..MUTANTS).map(|_| mutate(&seeds, &mut random)));
    let fates = replay(&twins, &inputs);
    assert_eq!(twins.recorder.malformed(), Vec::<String>::new());
    judge(&inputs, &fates);
}

fn replay(twins: &Twins, inputs: &[Vec<u8>]) -> Vec<[Fate; 2]> {
    let fates: Mutex<Vec<[Fate; 2]>> = Mutex::new(vec![<[Fate; 2]>::default(); inputs.len()]);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(input) = inputs.get(number) else { return };
                    for twin in 0..2 {
                        let (got, hangs) = say(twins.ports[twin], address(number, twin), input);
                        let fate = &mut fates.lock().unwrap()[number][twin];
                        (fate.statuses, fate.hangs) = (statuses(&got), hangs);
                    }
                }
            });
        }
    });
    // What the gateway still has in its hands after the client is gone.
    let mut seen = Vec::new();
    let mut quiet = 0;
    until("nothing comes any more", || {
        let more = twins.recorder.take();
        quiet = if more.is_empty() { quiet + 1 } else { 0 };
        seen.extend(more);
        quiet > 25
    });
    let mut fates = fates.into_inner().unwrap();
    let numbers: BTreeMap<Ipv4Addr, (usize, usize)> = (0..inputs.len())
        .flat_map(|number| [0, 1].map(|twin| (address(number, twin), (number, twin))))
        .collect();
    for one in seen {
        let client = one.header("x-forwarded-for").and_then(|value| value.rsplit(", ").next()?.parse().ok());
        let (number, twin) = client
            .and_then(|client: Ipv4Addr| numbers.get(&client).copied())
            .unwrap_or_else(|| panic!("whose is {one:?}?"));
        fates[number][twin].took.push(Took::of(&one));
    }
    fates
}

fn judge(inputs: &[Vec<u8>], fates: &[[Fate; 2]]) {
    let mut findings = Vec::new();
    for (bytes, [varnish, front]) in inputs.iter().zip(fates) {
        if varnish.took == front.took && !front.hangs {
            continue;
        }
        let input = Input::new(bytes);
        if !ALLOWED.iter().any(|(_, fits)| fits(&input, varnish, front)) {
            findings.push(format!("{}\n  Varnish {varnish:?}\n  Auto    {front:?}", bytes.escape_ascii()));
        }
    }
    assert!(findings.is_empty(), "{} findings:\n\n{}", findings.len(), findings.join("\n\n"));
}
