//! An HTTP client that shows everything and hides nothing: one request, one answer, byte by byte.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use super::PATIENCE;

/// A request to be sent to a port of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    None,
    Sized(Vec<u8>),
    Chunked(Vec<u8>),
}

#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// GET on a connection of its own.
#[track_caller]
pub(crate) fn get(port: u16, host: &str, url: &str) -> Response {
    Ask::get(host, url).send(port)
}

impl Ask {
    pub(crate) fn new(method: &str, host: &str, url: &str) -> Self {
        let headers = vec![("Host".to_owned(), host.to_owned())];
        Self { method: method.to_owned(), url: url.to_owned(), headers, body: Body::None }
    }

    pub(crate) fn get(host: &str, url: &str) -> Self {
        Self::new("GET", host, url)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn body(self, body: Vec<u8>) -> Self {
        Self { body: Body::Sized(body), ..self }
    }

    pub(crate) fn chunked(self, body: Vec<u8>) -> Self {
        Self { body: Body::Chunked(body), ..self }
    }

    /// On a connection of its own.
    #[track_caller]
    pub(crate) fn send(&self, port: u16) -> Response {
        match self.try_send(port) {
            Ok(response) => response,
            Err(e) => panic!("{} {} on port {port}: {e}", self.method, self.url),
        }
    }

    pub(crate) fn try_send(&self, port: u16) -> io::Result<Response> {
        Connection::open(port)?.try_exchange(&self.clone().header("Connection", "close"))
    }
}

/// A connection that is kept.
pub(crate) struct Connection<S: Read = TcpStream>(BufReader<S>);

impl Connection {
    pub(crate) fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }
}

impl<S: Read + Write> Connection<S> {
    /// HTTP on a stream that is there already.
    pub(crate) fn over(stream: S) -> Self {
        Self(BufReader::new(stream))
    }

    #[track_caller]
    pub(crate) fn exchange(&mut self, ask: &Ask) -> Response {
        self.try_exchange(ask).unwrap_or_else(|e| panic!("{} {}: {e}", ask.method, ask.url))
    }

    pub(crate) fn try_exchange(&mut self, ask: &Ask) -> io::Result<Response> {
        self.write(ask)?;
        self.read(&ask.method)
    }

    pub(crate) fn write(&mut self, ask: &Ask) -> io::Result<()> {
        let Ask { method, url, headers, body } = ask;
        let mut head = format!("{method} {url} HTTP/1.1\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let to = self.0.get_mut();
        match body {
            Body::None => write!(to, "{head}\r\n"),
            Body::Sized(body) => {
                write!(to, "{head}Content-Length: {}\r\n\r\n", body.len())?;
                to.write_all(body)
            }
            Body::Chunked(body) => {
                write!(to, "{head}Transfer-Encoding: chunked\r\n\r\n")?;
                for chunk in body.chunks(7_000) {
                    write!(to, "{:x}\r\n", chunk.len())?;
                    to.write_all(chunk)?;
                    to.write_all(b"\r\n")?;
                }
                to.write_all(b"0\r\n\r\n")
            }
        }
    }

    /// Raw bytes, for what is not HTTP any more.
    pub(crate) fn write_bytes(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    pub(crate) fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The answer to a request of this method.
    pub(crate) fn read(&mut self, method: &str) -> io::Result<Response> {
        let (line, headers) = read_head(&mut self.0)?;
        let status = line.split(' ').nth(1).and_then(|s| s.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status in `{line}`")))?;
        let mut response = Response { status, headers, body: Vec::new() };
        if method != "HEAD" && !matches!(status, 100..=199 | 204 | 304) {
            let framed = response.header("Content-Length").is_some();
            response.body = if framed || response.header("Transfer-Encoding").is_some() {
                read_body(&mut self.0, &response.headers)?
            } else {
                let mut rest = Vec::new();
                self.0.read_to_end(&mut rest)?;
                rest
            };
        }
        Ok(response)
    }
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The name of the origin that answered; empty where none did.
    pub(crate) fn origin(&self) -> &str {
        self.header("X-Origin").unwrap_or_default()
    }
}

pub(crate) fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// First line and headers.
pub(crate) fn read_head(from: &mut impl BufRead) -> io::Result<(String, Vec<(String, String)>)> {
    let mut line = || {
        let mut line = String::new();
        match from.read_line(&mut line)? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            _ => Ok(line.trim_end().to_owned()),
        }
    };
    let first = line()?;
    let mut headers = Vec::new();
    loop {
        let header = line()?;
        let Some((name, value)) = header.split_once(':') else { return Ok((first, headers)) };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
}

/// By length or in chunks; empty without either.
pub(crate) fn read_body(from: &mut impl BufRead, headers: &[(String, String)]) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if find(headers, "Transfer-Encoding").is_none() {
        let length = find(headers, "Content-Length").and_then(|l| l.parse().ok()).unwrap_or(0);
        body.resize(length, 0);
        from.read_exact(&mut body)?;
        return Ok(body);
    }
    loop {
        let mut size = String::new();
        from.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
        let start = body.len();
        body.resize(start + size, 0);
        from.read_exact(&mut body[start..])?;
        from.read_line(&mut String::new())?;
        if size == 0 {
            return Ok(body);
        }
    }
}
