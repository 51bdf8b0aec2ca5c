//! routing.json in ConfigMaps, which hold at most 1 MiB.
//!
//! A small one stands in `{gateway}-vcl` as it is, for people to read (`routing.json`). A large one is compressed and cut into
//! shards, ConfigMaps of their own, named by what they hold, so that one that is there never changes. It is the base of
//! those after it: they stand in `routing.json` by what has changed since, and name it by its hash (`routing.index.json`
//! says where its shards are). So one more host among thousands costs what one host costs. Once too much has changed, there
//! is a new base.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use model::routing::Routing;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// routing.json: the whole, or what has changed since the base.
pub const PLAIN: &str = "routing.json";
/// Where the shards of the base are.
pub const INDEX: &str = "routing.index.json";
/// main.vcl, beside it.
pub const MAIN_VCL: &str = "main.vcl";
/// The GatewayClassParameters that routing.json was made with, for an operator that starts while they are missing.
pub const PARAMETERS: &str = "parameters.json";
/// The key in a shard.
pub const PART: &str = "part";

/// From here on it has a base: the API server takes far longer for large objects than we do for compressing them.
const PLAIN_LIMIT: usize = 128 * 1024;
/// What has changed since the base may be as large.
const CHANGED_LIMIT: usize = 48 * 1024;
/// A ConfigMap takes 1 MiB.
const PART_LIMIT: usize = 700 * 1024;
/// Larger than any routing.json: what claims to unpack to more is refused.
const LARGEST: u64 = 512 * 1024 * 1024;

/// How one routing.json is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// `routing.json`.
    pub json: String,
    /// To be there before the rest is written.
    pub base: Option<Base>,
}

/// A large routing.json as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Base {
    pub index: Index,
    /// By name.
    pub shards: BTreeMap<String, ByteString>,
}

impl Packed {
    /// What belongs into `{gateway}-vcl`.
    pub fn data(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut data = BTreeMap::from([(PLAIN.to_owned(), self.json.clone())]);
        if let Some(base) = &self.base {
            data.insert(INDEX.to_owned(), serde_json::to_string(&base.index)?);
        }
        Ok(data)
    }

    pub fn shards(&self) -> impl Iterator<Item = (&String, &ByteString)> {
        self.base.iter().flat_map(|base| &base.shards)
    }
}

/// The shards of one routing.json.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Of the compressed bytes.
    pub sha256: String,
    /// Names of ConfigMaps, in order.
    pub shards: Vec<String>,
}

/// What a ConfigMap says of routing.json.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stored {
    /// `routing.json`, and where its base is.
    pub json: Option<String>,
    pub base: Option<Index>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the shards of routing.json cannot be unpacked: {0}")]
    Gzip(#[from] std::io::Error),
    #[error("the shards of routing.json unpack to more than {LARGEST} bytes")]
    TooLarge,
    #[error("routing.index.json cannot be read: {0}")]
    Index(#[from] serde_json::Error),
    #[error("routing.json has another base than routing.index.json")]
    WrongBase,
    #[error("the shards are not those of the index: SHA-256 differs")]
    WrongShards,
}

/// For the Gateway named `gateway`. `base`: what is stored already, and the routing that it was made of.
pub fn pack(gateway: &str, routing: &Routing, base: Option<(&Base, &Routing)>) -> Result<Packed, Error> {
    pack_with(gateway, routing, base, (PLAIN_LIMIT, CHANGED_LIMIT, PART_LIMIT))
}

fn pack_with(
    gateway: &str,
    routing: &Routing,
    base: Option<(&Base, &Routing)>,
    (plain, changed, part): (usize, usize, usize),
) -> Result<Packed, Error> {
    if let Some((base, of)) = base
        && routing.is_near(of)
    {
        let json = serde_json::to_string(&routing.since(of, &base.index.sha256))?;
        if json.len() <= changed {
            return Ok(Packed { json, base: Some(base.clone()) });
        }
    }
    let json = serde_json::to_string(routing)?;
    if json.len() <= plain {
        return Ok(Packed { json, base: None });
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(json.len() / 8), Compression::fast());
    encoder.write_all(json.as_bytes())?;
    let gzip = encoder.finish()?;
    let sha256 = hex(&gzip);
    let short = &sha256[..16];
    let name = |at: usize| format!("{gateway}-routing-{short}-{at}");
    let shards: BTreeMap<String, ByteString> =
        gzip.chunks(part).enumerate().map(|(at, bytes)| (name(at), ByteString(bytes.to_vec()))).collect();
    let json = serde_json::to_string(&routing.since(routing, &sha256))?;
    // Not the map's order: with ten shards and more it is another.
    let index = Index { shards: (0..shards.len()).map(name).collect(), sha256 };
    Ok(Packed { json, base: Some(Base { index, shards }) })
}

/// What a ConfigMap holds.
pub fn stored(config_map: &ConfigMap) -> Result<Stored, Error> {
    let text = |key| config_map.data.as_ref().and_then(|data| data.get(key));
    let base = text(INDEX).map(|index| serde_json::from_str(index)).transpose()?;
    Ok(Stored { json: text(PLAIN).cloned(), base })
}

/// The shards of an index, put together.
pub fn join(index: &Index, parts: &[ByteString]) -> Result<Vec<u8>, Error> {
    let gzip: Vec<u8> = parts.iter().flat_map(|part| &part.0).copied().collect();
    if hex(&gzip) != index.sha256 {
        return Err(Error::WrongShards);
    }
    unpack(&gzip)
}

fn unpack(gzip: &[u8]) -> Result<Vec<u8>, Error> {
    let mut json = Vec::with_capacity(gzip.len() * 8);
    GzDecoder::new(gzip).take(LARGEST + 1).read_to_end(&mut json)?;
    if json.len() as u64 > LARGEST { Err(Error::TooLarge) } else { Ok(json) }
}

/// What a chaperone reports that it serves, and an operator wants it to.
pub fn hash(main_vcl: &str, routing: &[u8]) -> String {
    let mut digest = Sha256::new();
    digest.update((main_vcl.len() as u64).to_le_bytes());
    digest.update(main_vcl.as_bytes());
    digest.update(routing);
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use model::routing::{Backend, Route, Vhost};

    use super::*;

    fn config_map(packed: &Packed) -> ConfigMap {
        ConfigMap { data: Some(packed.data().unwrap()), ..ConfigMap::default() }
    }

    /// Compresses badly.
    fn routing(hosts: u64) -> Routing {
        let host =
            |at: u64| (hex(&at.to_le_bytes()), Vhost { same_as: Some(hex(&[at as u8])), ..Vhost::default() });
        Routing { vhosts: (0..hosts).map(host).collect(), ..Routing::default() }
    }

    const LIMITS: (usize, usize, usize) = (1000, 1000, 4_000);

    fn read(packed: &Packed) -> Routing {
        let Stored { json, base } = stored(&config_map(packed)).unwrap();
        let head: Routing = serde_json::from_str(&json.unwrap()).unwrap();
        let Some(index) = base else { return head };
        assert_eq!(head.base.as_ref(), Some(&index.sha256));
        let shards = &packed.base.as_ref().unwrap().shards;
        let parts: Vec<ByteString> = index.shards.iter().map(|name| shards[name].clone()).collect();
        head.over(serde_json::from_slice(&join(&index, &parts).unwrap()).unwrap())
    }

    #[test]
    fn a_small_one_stays_readable() {
        let packed = pack("shop", &routing(1), None).unwrap();
        assert!(packed.base.is_none() && packed.json.starts_with(r#"{"version":3,"#), "{}", packed.json);
        assert_eq!(read(&packed), routing(1));
    }

    #[test]
    fn a_large_one_is_spread_and_put_together_in_order() {
        let packed = pack_with("shop", &routing(1000), None, LIMITS).unwrap();
        let Base { index, shards } = packed.base.as_ref().unwrap();
        assert!(shards.len() > 10, "{}", shards.len());
        assert!(shards.keys().all(|name| name.starts_with("shop-routing-")));
        assert_eq!(read(&packed), routing(1000));
        let mut wrong: Vec<ByteString> = index.shards.iter().map(|name| shards[name].clone()).collect();
        wrong.swap(0, 1);
        assert!(matches!(join(index, &wrong), Err(Error::WrongShards)));
    }

    #[test]
    fn one_host_more_leaves_the_base_as_it_is_and_many_do_not() {
        let old = routing(1000);
        let first = pack_with("shop", &old, None, LIMITS).unwrap();
        let base = first.base.as_ref().unwrap();
        let new = routing(1001);
        let second = pack_with("shop", &new, Some((base, &old)), LIMITS).unwrap();
        assert!(second.base.as_ref() == Some(base) && second.json.len() < 1000, "{}", second.json);
        assert_eq!(read(&second), new);
        let fewer = pack_with("shop", &routing(999), Some((base, &old)), LIMITS).unwrap();
        assert_eq!((fewer.base.as_ref(), read(&fewer)), (Some(base), routing(999)));
        let many = pack_with("shop", &routing(1100), Some((base, &old)), LIMITS).unwrap();
        assert_ne!(many.base.as_ref(), Some(base));
        assert_eq!(read(&many), routing(1100));
        // One that has become small needs none.
        let small = pack_with("shop", &routing(2), Some((base, &old)), LIMITS).unwrap();
        assert_eq!((small.base.is_none(), read(&small)), (true, routing(2)));
    }

    #[test]
    fn one_changed_route_of_20000_moves_its_host_alone() {
        let backend = |service: String, weight: u32| Backend {
            service: Some(service.into()),
            namespace: Some("shop".into()),
            port: Some(80),
            port_name: Some("http".into()),
            weight: Some(weight),
            ..Backend::default()
        };
        let route = |host: usize, rule: u32| Route {
            hostname: format!("h{host}.example"),
            path_match: Some(model::matches::PathMatch::everything()),
            backends: [backend(format!("s{host}-{rule}"), 90), backend(format!("s{host}-next"), 10)].into(),
            listeners: vec!["http-80".to_owned()],
            listener_names: vec!["http".to_owned()],
            route_name: format!("shop/h{host}"),
            rule_index: rule,
            ..Route::default()
        };
        let host = |host: usize| {
            let routes = (0..10).map(|rule| route(host, rule)).collect();
            (format!("h{host}.example"), Vhost { routes, ..Vhost::default() })
        };
        let old = Routing { vhosts: (0..2_000).map(host).collect(), ..Routing::default() };
        let first = pack("shop", &old, None).unwrap();
        let base = first.base.as_ref().unwrap();
        // A canary gets more.
        let mut new = old.clone();
        let changed = new.vhosts.get_mut("h1234.example").unwrap();
        changed.routes[7].backends[1].weight = Some(50);
        let of_host = serde_json::to_string(&changed).unwrap().len();
        let second = pack("shop", &new, Some((base, &old))).unwrap();
        assert_eq!(second.base.as_ref(), Some(base));
        assert!(second.json.len() < of_host + 200, "{} for a host of {of_host}", second.json.len());
        assert_eq!(read(&second), new);
    }

    #[test]
    fn names_with_certificates_stand_in_the_base_and_one_more_is_told_alone() {
        let with = |names: usize| {
            let name = |at: usize| (format!("h{at}.example"), vec!["shop/certificate".to_owned()]);
            let tls = model::ListenerTls { hosts: (0..names).map(name).collect(), ..Default::default() };
            let (name, socket) = ("https".to_owned(), "https-443".to_owned());
            let listener = model::Listener { name, socket, hostname: None, tls: Some(tls) };
            Routing { listeners: vec![listener], ..routing(10) }
        };
        let old = with(25_000);
        let first = pack("shop", &old, None).unwrap();
        let base = first.base.as_ref().unwrap();
        assert!(first.json.len() < 1000, "{}", first.json.len());
        assert_eq!(read(&first), old);
        let second = pack("shop", &with(25_001), Some((base, &old))).unwrap();
        assert!(second.base.as_ref() == Some(base) && second.json.len() < 1000, "{}", second.json.len());
        assert_eq!(read(&second), with(25_001));
    }

    #[test]
    fn the_hash_tells_vcl_and_routes_apart() {
        assert_ne!(hash("ab", b"c"), hash("a", b"bc"));
        assert_eq!(hash("a", b"b"), hash("a", b"b"));
    }
}
