//! routing.json in ConfigMaps, which hold at most 1 MiB.
//!
//! A small one stands in `{gateway}-vcl` as it is, for people to read (`routing.json`); a larger one is compressed
//! (`routing.json.gz`); what is larger still is cut into shards, ConfigMaps of their own, named by what they hold, so that
//! one that is there never changes. The index (`routing.index.json`) is written last, once all shards are there.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// routing.json as it is.
pub const PLAIN: &str = "routing.json";
/// routing.json, compressed.
pub const GZIP: &str = "routing.json.gz";
/// Where the shards are.
pub const INDEX: &str = "routing.index.json";
/// main.vcl, beside it.
pub const MAIN_VCL: &str = "main.vcl";
/// The key in a shard.
pub const PART: &str = "part";

/// Compressed from here on: the API server takes far longer for large objects than we do for compressing them.
const PLAIN_LIMIT: usize = 128 * 1024;
/// A ConfigMap takes 1 MiB; main.vcl must have room beside it.
const PART_LIMIT: usize = 700 * 1024;
/// Nobody's routing.json: what claims to unpack to more is refused.
const LARGEST: u64 = 512 * 1024 * 1024;

/// How one routing.json is to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    pub data: BTreeMap<String, String>,
    pub binary_data: BTreeMap<String, ByteString>,
    /// To be there before the rest is written, by name.
    pub shards: BTreeMap<String, ByteString>,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    Absent,
    Bytes(Vec<u8>),
    Index(Index),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("routing.json.gz cannot be unpacked: {0}")]
    Gzip(#[from] std::io::Error),
    #[error("routing.json.gz is larger than {LARGEST} bytes")]
    TooLarge,
    #[error("routing.index.json cannot be read: {0}")]
    Index(#[from] serde_json::Error),
    #[error("the shards are not those of the index: SHA-256 differs")]
    WrongShards,
}

/// For the Gateway named `gateway`.
pub fn pack(gateway: &str, json: &str) -> Result<Packed, Error> {
    pack_with(gateway, json, PLAIN_LIMIT, PART_LIMIT)
}

fn pack_with(gateway: &str, json: &str, plain: usize, part: usize) -> Result<Packed, Error> {
    let mut packed = Packed { data: BTreeMap::new(), binary_data: BTreeMap::new(), shards: BTreeMap::new() };
    if json.len() <= plain {
        packed.data.insert(PLAIN.to_owned(), json.to_owned());
        return Ok(packed);
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(json.len() / 8), Compression::fast());
    encoder.write_all(json.as_bytes())?;
    let gzip = encoder.finish()?;
    if gzip.len() <= part {
        packed.binary_data.insert(GZIP.to_owned(), ByteString(gzip));
        return Ok(packed);
    }
    let sha256 = hex(&gzip);
    let short = &sha256[..16];
    let name = |at: usize| format!("{gateway}-routing-{short}-{at}");
    packed.shards =
        gzip.chunks(part).enumerate().map(|(at, bytes)| (name(at), ByteString(bytes.to_vec()))).collect();
    // Not the map's order: with ten shards and more it is another.
    let index = Index { shards: (0..packed.shards.len()).map(name).collect(), sha256 };
    packed.data.insert(INDEX.to_owned(), serde_json::to_string(&index)?);
    Ok(packed)
}

/// What a ConfigMap holds.
pub fn stored(config_map: &ConfigMap) -> Result<Stored, Error> {
    let text = |key| config_map.data.as_ref().and_then(|data| data.get(key));
    if let Some(index) = text(INDEX) {
        return Ok(Stored::Index(serde_json::from_str(index)?));
    }
    if let Some(gzip) = config_map.binary_data.as_ref().and_then(|data| data.get(GZIP)) {
        return Ok(Stored::Bytes(unpack(&gzip.0)?));
    }
    Ok(text(PLAIN).map_or(Stored::Absent, |plain| Stored::Bytes(plain.clone().into_bytes())))
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
    use super::*;

    fn config_map(packed: &Packed) -> ConfigMap {
        ConfigMap {
            data: Some(packed.data.clone()),
            binary_data: Some(packed.binary_data.clone()),
            ..ConfigMap::default()
        }
    }

    /// Compresses badly.
    fn json(bytes: usize) -> String {
        let mut text = String::new();
        let mut at = 0_u64;
        while text.len() < bytes {
            text.push_str(&hex(&at.to_le_bytes()));
            at += 1;
        }
        text
    }

    #[test]
    fn a_small_one_stays_readable() {
        let packed = pack("shop", "{}").unwrap();
        assert_eq!(packed.data["routing.json"], "{}");
        assert_eq!(stored(&config_map(&packed)).unwrap(), Stored::Bytes(b"{}".to_vec()));
    }

    #[test]
    fn a_large_one_is_compressed() {
        let json = "x".repeat(PLAIN_LIMIT + 1);
        let packed = pack("shop", &json).unwrap();
        assert!(packed.data.is_empty() && packed.shards.is_empty());
        assert!(packed.binary_data["routing.json.gz"].0.len() < 2000);
        assert_eq!(stored(&config_map(&packed)).unwrap(), Stored::Bytes(json.into_bytes()));
    }

    #[test]
    fn one_that_is_too_large_when_compressed_is_spread_and_put_together_in_order() {
        let json = json(100_000);
        let packed = pack_with("shop", &json, 10, 4_000).unwrap();
        assert!(packed.shards.len() > 10, "{}", packed.shards.len());
        let Stored::Index(index) = stored(&config_map(&packed)).unwrap() else { panic!("no index") };
        let parts: Vec<ByteString> = index.shards.iter().map(|name| packed.shards[name].clone()).collect();
        assert_eq!(join(&index, &parts).unwrap(), json.into_bytes());
        let mut wrong = parts;
        wrong.swap(0, 1);
        assert!(matches!(join(&index, &wrong), Err(Error::WrongShards)));
        assert!(packed.shards.keys().all(|name| name.starts_with("shop-routing-")));
    }

    #[test]
    fn the_hash_tells_vcl_and_routes_apart() {
        assert_ne!(hash("ab", b"c"), hash("a", b"bc"));
        assert_eq!(hash("a", b"b"), hash("a", b"b"));
    }
}
