//! What an object is found by, as bytes. Each part begins with its kind and its length, so that no two different requests
//! come to the same bytes.

use smallvec::SmallVec;

use super::content::ABOUT_CONTENT;
use super::query::Parameters;
use crate::decision::Decision;
use crate::digest;

/// A key that is being written. Most fit without an allocation.
#[derive(Debug, Default)]
pub struct Key(SmallVec<[u8; 512]>);

impl Key {
    /// Without a policy, or where nothing was decided, the URL counts as it is.
    ///
    /// `learned`: what the origin has said of this path by No-Vary-Search, with a number that no other word of it has.
    ///
    /// `values` shows all values of a header of the request. `host` and `url` are the client's, or what user VCL made of them; `scheme` is the client's.
    pub fn new(
        decision: Option<&Decision<'_>>,
        scheme: &[u8],
        host: &[u8],
        url: &[u8],
        learned: Option<(&Parameters, u64)>,
        values: impl Fn(&str, &mut dyn FnMut(&[u8])),
    ) -> Self {
        let mut key = Self::default();
        key.part(b'H', host);
        let cache = decision.and_then(Decision::cache);
        let mut normal: SmallVec<[u8; 512]> = SmallVec::new();
        match (cache.and_then(|cache| cache.parameters.as_ref()), learned) {
            (Some(parameters), _) => {
                parameters.write(url, &mut normal);
                key.part(b'U', &normal);
            }
            // By what the origin says: never the same as a URL that counts as it is, nor as one by another word of the origin.
            (None, Some((parameters, id))) => {
                parameters.write(url, &mut normal);
                key.part(b'Q', &normal);
                // In letters: a key is a C string.
                let letters: [u8; 16] = std::array::from_fn(|at| b'a' + (id >> (4 * at) & 15) as u8);
                key.part(b'I', &letters);
            }
            (None, None) => key.part(b'U', url),
        }
        // What an origin answers to http, often a redirect, is not for https.
        if scheme != b"http" {
            key.part(b'S', scheme);
        }
        // The origin learns by which listener and port a request came, and may write them into its answer. Most are these two.
        if let Some(listener) = decision.and_then(Decision::listener)
            && !matches!((scheme, listener.socket()), (b"http", "http-80") | (b"https", "https-443"))
        {
            key.part(b'L', listener.socket().as_bytes());
        }
        let (rule, group) = decision.map(Decision::cache_key).unwrap_or_default();
        if let Some(rule) = rule {
            key.part(b'R', rule.as_bytes());
        }
        if let Some((name, filters)) = group {
            key.part(b'G', name.as_bytes());
            if filters != 0 {
                // As text: Varnish reads a key up to its first zero byte.
                let digits: [u8; 16] =
                    std::array::from_fn(|at| b"0123456789abcdef"[(filters >> (4 * at)) as usize & 15]);
                key.part(b'F', &digits);
            }
        }
        for name in cache.map(|cache| &*cache.key_headers).unwrap_or_default() {
            key.part(b'N', name.as_bytes());
            values(name, &mut |value| key.part(b'V', value));
        }
        if cache.is_some_and(|cache| cache.shares_authorized) {
            // Objects of clients that say who they are, and of those that do not, are never the same.
            let mut is_authorized = false;
            values("authorization", &mut |_| is_authorized = true);
            if is_authorized {
                key.part(b'A', b"");
            }
        }
        key
    }

    /// The content of the request, by a digest without known collisions, and what the request says of it.
    pub fn content(&mut self, digest: &[u8; 32], values: impl Fn(&str, &mut dyn FnMut(&[u8]))) {
        // In letters: a key is a C string.
        let letters: [u8; 64] = std::array::from_fn(|at| {
            let byte = digest[at / 2];
            b'a' + if at % 2 == 0 { byte >> 4 } else { byte & 15 }
        });
        self.part(b'B', &letters);
        for name in ABOUT_CONTENT {
            values(name, &mut |value| {
                self.part(b'M', name.as_bytes());
                self.part(b'V', value);
            });
        }
    }

    /// A header that the client sent, that the origin sees, and that may change its answer.
    pub fn sent(&mut self, name: &[u8], value: &[u8]) {
        let name: SmallVec<[u8; 64]> = name.iter().map(u8::to_ascii_lowercase).collect();
        self.part(b'C', &name);
        self.part(b'V', value);
    }

    fn part(&mut self, kind: u8, text: &[u8]) {
        // The kind, digits, and a colon, from behind.
        let mut lead = [b':'; 22];
        let mut at = lead.len() - 1;
        let mut left = text.len();
        loop {
            at -= 1;
            lead[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        at -= 1;
        lead[at] = kind;
        self.0.reserve(22 + text.len());
        self.0.extend_from_slice(&lead[at..]);
        self.0.extend_from_slice(text);
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same in every process. Different keys may have the same hash: callers compare what they find by it.
    pub fn hash64(&self) -> u64 {
        digest::hash(&self.0)
    }

    /// With a zero byte behind it.
    pub fn into_c_bytes(mut self) -> impl AsRef<[u8]> {
        self.0.push(0);
        self.0
    }
}
