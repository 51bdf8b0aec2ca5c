//! Sessions: requests of one client go to the same endpoint, by a token in a cookie or a header (GEP-1619).
//!
//! A token has no address in it: it names its endpoint by a keyed hash, with the times of the session, and is signed. A token
//! that was made up, belongs to another rule, is too old, or whose endpoint is gone counts as none: the endpoint is picked as for a
//! new client, and the answer brings a new token.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use model::{SessionBy, SessionPersistence};
use router::Rule;
use sha2::{Digest, Sha256};

/// Bytes of a token: version, begin, last use, endpoint, signature.
const BYTES: usize = 1 + 4 + 4 + 8 + 16;
/// In base64.
const LENGTH: usize = BYTES.div_ceil(3) * 4;
const VERSION: u8 = 1;
/// Clocks of pods differ.
const AHEAD: u32 = 60;
/// Cookies of the name that are looked at: a browser may have some for several paths.
const MOST_COOKIES: usize = 8;

/// All pods of a Gateway share it; no other party knows it.
#[derive(Clone)]
pub struct SessionKey {
    inner: Sha256,
    outer: Sha256,
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey")
    }
}

impl SessionKey {
    /// Of a secret that serves another purpose, too.
    pub fn of_secret(secret: &[u8]) -> Self {
        Self::for_purpose(secret, b"varnish-gateway session persistence")
    }

    /// Of a secret that serves other purposes, too: what is signed for one is not signed for another.
    pub fn for_purpose(secret: &[u8], purpose: &[u8]) -> Self {
        let secret = Sha256::digest(secret).into();
        Self::new(Self::new(secret).sign(&[purpose]))
    }

    /// HMAC-SHA256 (RFC 2104).
    fn new(key: [u8; 32]) -> Self {
        let padded = |pad: u8| {
            let mut block = [pad; 64];
            block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
            Sha256::new().chain_update(block)
        };
        Self { inner: padded(0x36), outer: padded(0x5c) }
    }

    /// Each part with its length: no two lists are the same bytes.
    pub fn sign(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut inner = self.inner.clone();
        for part in parts {
            inner.update((part.len() as u64).to_be_bytes());
            inner.update(part);
        }
        self.outer.clone().chain_update(inner.finalize()).finalize().into()
    }
}

impl Default for SessionKey {
    /// For this process alone.
    fn default() -> Self {
        let mut key = [0; 32];
        let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
        if random.fill(&mut key).is_err() {
            // Without randomness TLS does not work either.
            key[..8].copy_from_slice(&router::random::next().to_be_bytes());
        }
        Self::new(key)
    }
}

/// The endpoints of one rule, as its tokens name them.
#[derive(Debug)]
pub(crate) struct Sessions {
    key: SessionKey,
    /// Identifies the rule.
    scope: Box<str>,
    /// By group and endpoint.
    names: Box<[Box<[u64]>]>,
}

/// A session that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) group: usize,
    pub(crate) endpoint: usize,
    began: u32,
    used: u32,
}

fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

fn seconds(time: Option<f64>) -> Option<u32> {
    let time = Duration::try_from_secs_f64(time?).ok().filter(|time| !time.is_zero())?;
    u32::try_from(time.as_secs().max(1)).ok()
}

impl Sessions {
    pub(crate) fn new(rule: &Rule, key: &SessionKey) -> Option<Self> {
        let session = rule.session()?;
        let of_rule =
            rule.rule_name().map_or_else(|| rule.rule_index().to_string(), |name| format!("#{name}"));
        let scope = format!("{}\n{}\n{of_rule}\n{}", rule.kind().name(), rule.route_name(), session.name);
        let name = |group: &str, endpoint: &SocketAddr| {
            let hash =
                key.sign(&[b"endpoint", scope.as_bytes(), group.as_bytes(), endpoint.to_string().as_bytes()]);
            u64::from_be_bytes(*hash.first_chunk().unwrap_or(&[0; 8]))
        };
        let names = rule.groups().iter().map(|group| {
            group.endpoints().iter().map(|endpoint| name(group.name(), endpoint)).collect::<Box<[u64]>>()
        });
        let names = names.collect();
        Some(Self { key: key.clone(), scope: scope.into(), names })
    }

    fn signature(&self, said: &[u8]) -> [u8; 16] {
        let whole = self.key.sign(&[b"token", self.scope.as_bytes(), said]);
        *whole.first_chunk().unwrap_or(&[0; 16])
    }

    fn token(&self, (group, endpoint): (usize, usize), began: u32, used: u32) -> Option<String> {
        let name = self.names.get(group)?.get(endpoint)?;
        let mut said = Vec::with_capacity(BYTES);
        said.push(VERSION);
        said.extend_from_slice(&began.to_be_bytes());
        said.extend_from_slice(&used.to_be_bytes());
        said.extend_from_slice(&name.to_be_bytes());
        let signature = self.signature(&said);
        said.extend_from_slice(&signature);
        Some(BASE64.encode(said))
    }

    /// What a token says, if it is ours, is in time, and its endpoint is there.
    fn read(&self, token: &[u8], session: &SessionPersistence, now: u32) -> Option<Found> {
        if token.len() != LENGTH {
            return None;
        }
        let bytes = BASE64.decode(token).ok()?;
        let (said, signature) = bytes.split_last_chunk::<16>()?;
        // In a time that does not depend on where they differ.
        let differs = self.signature(said).iter().zip(signature).fold(0, |differs, (a, b)| differs | (a ^ b));
        if differs != 0 || said.first() != Some(&VERSION) {
            return None;
        }
        let (began, rest) = said.get(1..)?.split_first_chunk()?;
        let (used, name) = rest.split_first_chunk()?;
        let (began, used) = (u32::from_be_bytes(*began), u32::from_be_bytes(*used));
        let name = u64::from_be_bytes(name.try_into().ok()?);
        let is_within = |since: u32, most: Option<f64>| {
            since <= now.saturating_add(AHEAD)
                && seconds(most).is_none_or(|most| now.saturating_sub(since) < most)
        };
        if !is_within(began, session.absolute_seconds) || !is_within(used, session.idle_seconds) {
            return None;
        }
        let (group, endpoint) = self.names.iter().enumerate().find_map(|(group, names)| {
            names.iter().position(|known| *known == name).map(|endpoint| (group, endpoint))
        })?;
        Some(Found { group, endpoint, began, used })
    }

    /// The session that a request shows.
    pub(crate) fn find(&self, session: &SessionPersistence, headers: &HeaderMap) -> Option<Found> {
        let now = now();
        match session.by {
            SessionBy::Header => {
                let name = HeaderName::from_bytes(session.name.as_bytes()).ok()?;
                self.read(headers.get(name)?.as_bytes(), session, now)
            }
            SessionBy::Cookie => cookies(headers, &session.name)
                .take(MOST_COOKIES)
                .find_map(|token| self.read(token, session, now)),
        }
    }

    /// Sends the client the token of its session with the endpoint that has answered, unless the client has it.
    pub(crate) fn tell(
        &self,
        rule: &Rule,
        found: Option<Found>,
        answered: (usize, usize),
        is_tls: bool,
        headers: &mut HeaderMap,
    ) {
        let Some(session) = rule.session() else { return };
        let now = now();
        let known = found.filter(|found| (found.group, found.endpoint) == answered);
        if known.is_some_and(|found| !is_due(found, session, now)) {
            return;
        }
        let began = known.map_or(now, |found| found.began);
        let Some(token) = self.token(answered, began, now) else { return };
        match session.by {
            SessionBy::Header => {
                let name = HeaderName::from_bytes(session.name.as_bytes());
                if let (Ok(name), Ok(token)) = (name, HeaderValue::from_str(&token)) {
                    headers.insert(name, token);
                }
            }
            SessionBy::Cookie => {
                let cookie = cookie(session, rule, &token, is_tls, now.saturating_sub(began));
                if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                    headers.append(header::SET_COOKIE, cookie);
                }
            }
        }
    }
}

/// A use must be written down again before the session would be idle for too long; not with every answer.
fn is_due(found: Found, session: &SessionPersistence, now: u32) -> bool {
    seconds(session.idle_seconds).is_some_and(|idle| now.saturating_sub(found.used) >= (idle / 10).max(1))
}

/// `Secure` only where the client came by TLS: browsers drop such cookies of plain HTTP.
fn cookie(session: &SessionPersistence, rule: &Rule, token: &str, is_tls: bool, age: u32) -> String {
    let mut cookie = format!("{}={token}; Path={}; HttpOnly; SameSite=Lax", session.name, rule.cookie_path());
    if is_tls {
        cookie.push_str("; Secure");
    }
    if session.permanent
        && let Some(most) = seconds(session.absolute_seconds)
    {
        cookie.push_str(&format!("; Max-Age={}", most.saturating_sub(age)));
    }
    cookie
}

/// Values of all cookies of the name.
fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = headers.get_all(header::COOKIE).iter().flat_map(|line| line.as_bytes().split(|b| *b == b';'));
    pairs.filter_map(move |pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
    })
}

#[cfg(test)]
mod tests {
    use model::ghost;
    use router::Router;

    use super::*;

    fn rule(session: &SessionPersistence, endpoints: &[u16]) -> Router {
        let endpoints =
            endpoints.iter().map(|port| ghost::Endpoint { address: [10, 0, 0, 1].into(), port: *port });
        let group = ghost::Group {
            weight: 1,
            endpoints: endpoints.collect(),
            name: Some("shop/cart:80".into()),
            ..ghost::Group::default()
        };
        let route = ghost::Route {
            backends: [group].into(),
            route_name: "shop/cart".into(),
            session_persistence: Some(Box::new(session.clone())),
            ..ghost::Route::default()
        };
        let mut config = ghost::Config::default();
        config.vhosts.insert("*".into(), ghost::Vhost { routes: vec![route], ..ghost::Vhost::default() });
        Router::compile(&config).unwrap().router
    }

    fn session() -> SessionPersistence {
        SessionPersistence {
            name: "sid".into(),
            absolute_seconds: Some(3600.0),
            idle_seconds: Some(600.0),
            ..SessionPersistence::default()
        }
    }

    fn key() -> SessionKey {
        SessionKey::of_secret(b"a secret")
    }

    #[test]
    fn a_token_leads_back_to_its_endpoint_in_every_pod_of_the_gateway() {
        let session = session();
        let (one, other) = (rule(&session, &[80, 81, 82]), rule(&session, &[82, 80, 81]));
        let ours = Sessions::new(&one.rules()[0], &key()).unwrap();
        let token = ours.token((0, 1), 1000, 1000).unwrap();
        assert_eq!(token.len(), LENGTH);
        let read = |sessions: &Sessions, now| sessions.read(token.as_bytes(), &session, now);
        assert_eq!(read(&ours, 1100), Some(Found { group: 0, endpoint: 1, began: 1000, used: 1000 }));
        let theirs = Sessions::new(&other.rules()[0], &key()).unwrap();
        assert_eq!(read(&theirs, 1100).unwrap().endpoint, 2);
        // Too old, idle for too long, from the future.
        assert_eq!(read(&ours, 1600), None);
        let token = ours.token((0, 1), 1000, 4500).unwrap();
        assert!(ours.read(token.as_bytes(), &session, 4599).is_some());
        assert_eq!(ours.read(token.as_bytes(), &session, 4600), None);
        assert_eq!(read(&ours, 900), None);
        // Its endpoint is gone.
        let fewer = rule(&session, &[80, 82]);
        assert_eq!(read(&Sessions::new(&fewer.rules()[0], &key()).unwrap(), 1100), None);
    }

    #[test]
    fn tokens_that_were_made_up_count_as_none() {
        let session = session();
        let router = rule(&session, &[80, 81]);
        let ours = Sessions::new(&router.rules()[0], &key()).unwrap();
        let token = ours.token((0, 1), 1000, 1000).unwrap();
        for at in 0..token.len() {
            let mut forged = token.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let read = ours.read(&forged, &session, 1100);
            assert!(read.is_none(), "{at}: {read:?}");
        }
        for forged in
            ["", "10.0.0.1:81", &token[1..], &format!("{token}A"), &"A".repeat(LENGTH), &"é".repeat(22)]
        {
            assert_eq!(ours.read(forged.as_bytes(), &session, 1100), None, "{forged}");
        }
        let other_key = SessionKey::of_secret(b"another secret");
        let theirs = Sessions::new(&router.rules()[0], &other_key).unwrap();
        assert_eq!(theirs.read(token.as_bytes(), &session, 1100), None);
        let mut other_name = session.clone();
        other_name.name = "other".into();
        let router = rule(&other_name, &[80, 81]);
        let others = Sessions::new(&router.rules()[0], &key()).unwrap();
        assert_eq!(others.read(token.as_bytes(), &session, 1100), None, "of another rule");
        let clear: Vec<u8> = BASE64.decode(&token).unwrap();
        assert!(!clear.windows(4).any(|four| four == [10, 0, 0, 1]), "no address in clear");
    }

    #[test]
    fn cookies_are_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; sid=x;sid=\"y\" ; xsid=no; sidx=no"));
        headers.append(header::COOKIE, HeaderValue::from_static("sid=z"));
        let found: Vec<&[u8]> = cookies(&headers, "sid").collect();
        assert_eq!(found, [b"x", b"y", b"z"]);
    }

    #[test]
    fn signatures_are_those_of_rfc_4231() {
        // Test case 2 has a key of four bytes: padded with zeros it is the same block.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let key = SessionKey::new(key);
        let mut inner = key.inner.clone();
        inner.update(b"what do ya want for nothing?");
        let signed: [u8; 32] = key.outer.chain_update(inner.finalize()).finalize().into();
        assert_eq!(signed[..8], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
    }
}
