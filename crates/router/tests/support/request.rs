//! A request as tests write it down.

use router::Request;

#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) socket: String,
    pub(crate) server_name: Option<String>,
    pub(crate) host: String,
    pub(crate) method: String,
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Sample {
    /// A GET on http-80.
    pub(crate) fn get(host: &str, url: &str) -> Self {
        Self {
            socket: "http-80".into(),
            server_name: None,
            host: host.into(),
            method: "GET".into(),
            url: url.into(),
            headers: Vec::new(),
        }
    }
}

impl Request for Sample {
    fn socket(&self) -> &[u8] {
        self.socket.as_bytes()
    }
    fn server_name(&self) -> Option<&[u8]> {
        self.server_name.as_deref().map(str::as_bytes)
    }
    fn host(&self) -> &[u8] {
        self.host.as_bytes()
    }
    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }
    fn url(&self) -> &[u8] {
        self.url.as_bytes()
    }
    fn any_header(&self, name: &str, seen: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.headers.iter().any(|(n, value)| n.eq_ignore_ascii_case(name) && seen(value.as_bytes()))
    }
}
