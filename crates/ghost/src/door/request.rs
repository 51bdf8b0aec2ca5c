//! The one form of HTTP/1.1 request that the chaperone sends. Pure: takes any bytes, never panics.

const LARGEST_HEAD: usize = 16 << 10;
/// 256 paths of 2048 bytes, plus JSON overhead.
const LARGEST_BODY: usize = 2 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: Vec<u8>,
    pub(crate) url: Vec<u8>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid;

impl Request {
    /// `None` until it is whole.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, Invalid> {
        // An empty line before the request means nothing (RFC 9112, 2.2). A file may come with it.
        let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end.filter(|end| *end <= LARGEST_HEAD) else {
            return if bytes.len() > LARGEST_HEAD { Err(Invalid) } else { Ok(None) };
        };
        let (head, rest) = (&bytes[..end], &bytes[end + 4..]);
        let mut lines =
            head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let mut words = lines.next().unwrap_or_default().split(|byte| *byte == b' ');
        let (Some(method), Some(url), Some(b"HTTP/1.1"), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(Invalid);
        };
        let mut request =
            Self { method: method.to_vec(), url: url.to_vec(), headers: Vec::new(), body: Vec::new() };
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':').filter(|at| *at > 0).ok_or(Invalid)?;
            let (name, value) = (line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii().to_vec());
            // Of two that differ, which one counts? None.
            if request.headers.iter().any(|(known, _)| *known == name) {
                return Err(Invalid);
            }
            request.headers.push((name, value));
        }
        if request.header("Transfer-Encoding").is_some() {
            return Err(Invalid);
        }
        let length = match request.header("Content-Length") {
            None => 0,
            Some(value) => {
                std::str::from_utf8(value).ok().and_then(|text| text.parse::<usize>().ok()).ok_or(Invalid)?
            }
        };
        if length > LARGEST_BODY || rest.len() > length {
            return Err(Invalid);
        }
        request.body = rest.to_vec();
        Ok((rest.len() == length).then_some(request))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| value.as_slice())
    }
}
