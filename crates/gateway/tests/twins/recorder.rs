//! An origin that records whole requests, byte by byte, on plain connections.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A whole request. Bytes that are no UTF-8 are escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    malformed: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let recorder =
            Self { address: listener.local_addr().unwrap(), seen: Arc::default(), malformed: Arc::default() };
        let serving = recorder.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let serving = serving.clone();
                std::thread::spawn(move || {
                    // Connections that end are no matter; requests that cannot be read are.
                    if let Err(e) = serving.serve(stream)
                        && e.kind() == io::ErrorKind::Other
                    {
                        serving.malformed.lock().unwrap().push(e.to_string());
                    }
                });
            }
        });
        recorder
    }

    /// What came since the last call.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// What a gateway sent that no strict origin could read.
    pub(crate) fn malformed(&self) -> Vec<String> {
        self.malformed.lock().unwrap().clone()
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::new(stream);
        loop {
            let first = line(&mut stream)?;
            let mut words = first.splitn(3, ' ').map(str::to_owned);
            let mut word = || words.next().unwrap_or_default();
            let mut seen = Seen { method: word(), target: word(), headers: Vec::new(), body: Vec::new() };
            if word() != "HTTP/1.1" {
                return Err(io::Error::other(format!("request line {first:?}")));
            }
            loop {
                let header = line(&mut stream)?;
                if header.is_empty() {
                    break;
                }
                let split = header
                    .split_once(':')
                    .filter(|(name, _)| !name.is_empty() && !name.contains([' ', '\t']));
                let Some((name, value)) = split else {
                    return Err(io::Error::other(format!("header {header:?} of {first:?}")));
                };
                seen.headers.push((name.to_owned(), value.trim().to_owned()));
            }
            let framings = ["transfer-encoding", "content-length"].map(|name| {
                seen.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name)).count()
            });
            if framings[0] + framings[1] > 1 {
                return Err(io::Error::other(format!("two lengths in {seen:?}")));
            }
            if framings[0] == 1 {
                loop {
                    let size = line(&mut stream)?;
                    let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
                    if size == 0 {
                        while !line(&mut stream)?.is_empty() {}
                        break;
                    }
                    read_exactly(&mut stream, size, &mut seen.body)?;
                    if !line(&mut stream)?.is_empty() {
                        return Err(io::Error::other(format!("chunk of {first:?}")));
                    }
                }
            } else if let Some(length) = seen.header("content-length") {
                let length = length.parse().map_err(io::Error::other)?;
                read_exactly(&mut stream, length, &mut seen.body)?;
            }
            let answer = answer(&seen);
            self.seen.lock().unwrap().push(seen);
            stream.get_mut().write_all(&answer)?;
        }
    }
}

fn read_exactly(stream: &mut impl Read, count: usize, to: &mut Vec<u8>) -> io::Result<()> {
    if stream.take(count as u64).read_to_end(to)? < count {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    stream.read_until(b'\n', &mut bytes)?;
    let Some(line) = bytes.strip_suffix(b"\r\n") else { return Err(io::ErrorKind::UnexpectedEof.into()) };
    Ok(match std::str::from_utf8(line) {
        Ok(text) => text.to_owned(),
        Err(_) => line.escape_ascii().to_string(),
    })
}

/// By the target: some ask for a special answer.
fn answer(seen: &Seen) -> Vec<u8> {
    let head = |status: &str, headers: &str, body: &str| {
        let body = if seen.method == "HEAD" { "" } else { body };
        format!("HTTP/1.1 {status}\r\nX-Origin: one\r\n{headers}\r\n{body}").into_bytes()
    };
    let path = seen.target.split('?').next().unwrap_or_default();
    match path.rsplit('/').next().unwrap_or_default() {
        "teapot" => {
            head("418 I am a teapot", "Content-Length: 6\r\nX-Tea: green\r\nx-tea: black\r\n", "teapot")
        }
        "nothing" => head("204 No Content", "", ""),
        "chunks" => head("200 OK", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"),
        "moved" => head("301 Moved Permanently", "Location: /elsewhere\r\nContent-Length: 0\r\n", ""),
        "broken" => head("500 Internal Server Error", "Content-Length: 3\r\n", "bad"),
        "cookies" => {
            head("200 OK", "Content-Length: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2; Secure\r\n", "ok")
        }
        "cached" => head("200 OK", "Content-Length: 2\r\nCache-Control: max-age=60\r\nETag: \"b\"\r\n", "ok"),
        "private" => head(
            "200 OK",
            "Content-Length: 2\r\nX-Ghost-Secret: 1\r\nKeep-Alive: timeout=9\r\nConnection: X-Hop\r\nX-Hop: 1\r\n",
            "ok",
        ),
        _ => head("200 OK", "Content-Length: 2\r\nContent-Type: text/plain\r\n", "ok"),
    }
}
