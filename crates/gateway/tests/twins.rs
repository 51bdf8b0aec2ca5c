//! Two gateways with the same manifests, one in each arrangement (`dataPath: Varnish` and `Auto`), in front of one origin that
//! records what it gets. A request must get the same answer from both, and the origin the same request.

mod entrance;
mod recorder;
mod routes;

use std::collections::BTreeSet;

use self::recorder::{Recorder, Seen};
use crate::support::{Ask, Program, Response, Scene, free_port, parameters};

/// Both arrangements, with the ports of their listener.
struct Twins {
    ports: [u16; 2],
    recorder: Recorder,
    /// Before the scenes: the programs end while their files are there.
    _programs: [Program; 2],
    _scenes: [Scene; 2],
}

const NAMES: [&str; 2] = ["Varnish", "Auto"];

impl Twins {
    /// `manifests` gets the listener's port. GatewayClass `varnish` is there, with these fields of parameters beside `dataPath`.
    fn new(fields: &str, recorder: Recorder, manifests: impl Fn(u16) -> String) -> Self {
        let ports = [free_port(), free_port()];
        let scenes = [0, 1].map(|number: usize| {
            let class = parameters(&format!("{{dataPath: {}{fields}}}", NAMES[number]));
            Scene::new(&(class + &manifests(ports[number])))
        });
        let programs = [scenes[0].start(), scenes[1].start()];
        for program in &programs {
            program.wait_for_line(&["Gateway default/web: reloaded"]);
        }
        Self { ports, recorder, _programs: programs, _scenes: scenes }
    }
}

/// Headers of responses that differ by design. ADR 49 says why.
const RESPONSE_MAY_DIFFER: [&str; 8] =
    ["age", "connection", "date", "server", "transfer-encoding", "via", "x-varnish", "x-vinyl"];
/// Headers of requests that differ by design: Varnish names itself in Via, and gives each request a number.
const REQUEST_MAY_DIFFER: [&str; 3] = ["via", "x-varnish", "x-vinyl"];

/// What a client gets, as far as it must be the same. Ports are replaced by a word.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Answer {
    status: u16,
    headers: BTreeSet<String>,
    body: String,
}

impl Answer {
    fn of(response: &Response, port: u16) -> Self {
        let mut headers = lines(&response.headers, &RESPONSE_MAY_DIFFER, port);
        // varnishd may or may not know the length of a body that comes in chunks. The body itself is compared.
        if !response.body.is_empty() {
            headers.retain(|line| !line.starts_with("content-length: "));
        }
        Self { status: response.status, headers, body: response.text().replace(&port.to_string(), "PORT") }
    }
}

/// What the origin gets, as far as it must be the same.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Request {
    line: String,
    headers: BTreeSet<String>,
    body: Vec<u8>,
}

impl Request {
    fn of(seen: &Seen, port: u16) -> Self {
        let mut headers = lines(&seen.headers, &REQUEST_MAY_DIFFER, port);
        // Varnish Cache 7.7 removes it where the body is empty, 7.1 keeps it, Vinyl Cache 9.0 adds it.
        if seen.body.is_empty() {
            headers.remove("content-length: 0");
        }
        Self { line: format!("{} {}", seen.method, seen.target), headers, body: seen.body.clone() }
    }
}

/// Names in lower case, values of one name in their order and in one line (RFC 9110, 5.3).
fn lines(headers: &[(String, String)], left_out: &[&str], port: u16) -> BTreeSet<String> {
    let name = |header: &(String, String)| header.0.to_ascii_lowercase();
    let names: BTreeSet<String> =
        headers.iter().map(name).filter(|name| !left_out.contains(&name.as_str())).collect();
    names
        .into_iter()
        .map(|one| {
            let values: Vec<&str> = headers
                .iter()
                .filter(|header| name(header) == one)
                .map(|(_, value)| value.as_str())
                .collect();
            let line = format!("{one}: {}", values.join(", ")).replace(&port.to_string(), "PORT");
            // Each has an id of its own.
            if one == "cdn-loop" { without_id(&line) } else { line }
        })
        .collect()
}

/// Replaces `vg-` and its 16 digits.
fn without_id(line: &str) -> String {
    match line.find("vg-").and_then(|at| Some((line.get(..at)?, line.get(at + 19..)?))) {
        Some((before, after)) => format!("{before}ID{after}"),
        None => line.to_owned(),
    }
}

/// What becomes of one request in one arrangement.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Outcome {
    answer: Answer,
    requests: Vec<Request>,
}

impl Twins {
    fn ask(&self, ask: impl Fn(u16) -> Ask) -> [Outcome; 2] {
        self.ports.map(|port| {
            // Where the answer comes before the body was sent, the connection may be closed under it.
            let response = (0..50).find_map(|_| ask(port).try_send(port).ok());
            let response = response.unwrap_or_else(|| {
                panic!(
                    "no answer to {:?} on {port} of {:?}: {:?}",
                    ask(port),
                    self.ports,
                    ask(port).try_send(port)
                )
            });
            let requests = self.recorder.take().iter().map(|seen| Request::of(seen, port)).collect();
            Outcome { answer: Answer::of(&response, port), requests }
        })
    }
}
