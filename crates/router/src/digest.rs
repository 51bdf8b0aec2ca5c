//! One number for all of ghost.json that decides about requests and the cache: two processes that have the same number decide alike.
//!
//! Endpoints do not count, since they come and go and no key contains them. The number is a sum over hosts, so a file and a base
//! together have the number of the one file that says the same.

use std::fmt::Display;
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::{FixedState, FoldHasher};
use model::ghost::{Config, Vhost};
use serde::ser::{self, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use crate::host::normal_hostname;

/// The same in every process. It does not resist a search for collisions, so its users compare what they find by a hash.
const SEED: FixedState = FixedState::with_seed(0x7661_726e_6973_6821);

/// A hash that is the same in all processes of one build.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = SEED.build_hasher();
    hasher.write(bytes);
    hasher.finish()
}

/// The digests of a configuration: of each host, and of all else.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digests {
    frame: u64,
    /// By the hash of the host's name, in order.
    hosts: Box<[(u64, u64)]>,
    sum: u64,
}

impl Digests {
    pub(crate) fn of(config: &Config) -> Self {
        let host = |(name, host): (&String, &Vhost)| {
            let name = hash(normal_hostname(name).as_bytes());
            (name, digest_of(&(name, host)))
        };
        let mut hosts: Box<[(u64, u64)]> = config.vhosts.iter().map(host).collect();
        hosts.sort_unstable();
        let sum = hosts.iter().fold(0, |sum: u64, (_, of)| sum.wrapping_add(*of));
        Self { frame: digest_of(&config.frame()), hosts, sum }
    }

    /// With the hosts of a base, but for those whose names are `covered`.
    pub(crate) fn lay_over<'h>(&mut self, base: &Self, covered: impl Iterator<Item = &'h [u8]>) {
        self.sum = self.sum.wrapping_add(base.sum);
        for name in covered.map(hash) {
            let from = base.hosts.partition_point(|(of, _)| *of < name);
            let below = base.hosts[from..].iter().take_while(|(of, _)| *of == name);
            self.sum = below.fold(self.sum, |sum, (_, of)| sum.wrapping_sub(*of));
        }
    }

    /// Never 0, which stands for no table.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = SEED.build_hasher();
        hasher.write_u64(self.frame);
        hasher.write_u64(self.sum);
        hasher.finish().max(1)
    }
}

fn digest_of(value: &impl Serialize) -> u64 {
    let mut digest = Digest(SEED.build_hasher());
    match value.serialize(&mut digest) {
        Ok(()) => digest.0.finish(),
        // No type of the model has anything that cannot be hashed. If one had, no two tables would be the same.
        Err(NotHashed) => crate::random::next(),
    }
}

/// Hashes what is serialised. The type of each part is hashed too, so that adjacent fields cannot be confused.
struct Digest(FoldHasher<'static>);

#[derive(Debug, thiserror::Error)]
#[error("cannot be hashed")]
struct NotHashed;

impl ser::Error for NotHashed {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

impl Digest {
    fn number(&mut self, kind: u8, number: u64) -> Result<(), NotHashed> {
        self.0.write_u8(kind);
        self.0.write_u64(number);
        Ok(())
    }

    fn bytes(&mut self, kind: u8, bytes: &[u8]) -> Result<(), NotHashed> {
        self.number(kind, bytes.len() as u64)?;
        self.0.write(bytes);
        Ok(())
    }
}

/// The fields of a struct. Endpoints are left out.
struct Fields<'a> {
    digest: &'a mut Digest,
    is_group: bool,
}

impl SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = NotHashed;

    fn serialize_field<T: ?Sized + Serialize>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), NotHashed> {
        if self.is_group && key == "endpoints" {
            return Ok(());
        }
        self.digest.bytes(b'f', key.as_bytes())?;
        value.serialize(&mut *self.digest)
    }

    fn end(self) -> Result<(), NotHashed> {
        self.digest.number(b'e', 0)
    }
}

impl ser::SerializeStructVariant for Fields<'_> {
    type Ok = ();
    type Error = NotHashed;

    fn serialize_field<T: ?Sized + Serialize>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), NotHashed> {
        SerializeStruct::serialize_field(self, key, value)
    }

    fn end(self) -> Result<(), NotHashed> {
        SerializeStruct::end(self)
    }
}

impl SerializeSeq for &mut Digest {
    type Ok = ();
    type Error = NotHashed;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), NotHashed> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), NotHashed> {
        self.number(b'e', 0)
    }
}

impl ser::SerializeTuple for &mut Digest {
    type Ok = ();
    type Error = NotHashed;

    fn serialize_element<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), NotHashed> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), NotHashed> {
        self.number(b'e', 0)
    }
}

impl SerializeMap for &mut Digest {
    type Ok = ();
    type Error = NotHashed;

    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), NotHashed> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), NotHashed> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), NotHashed> {
        self.number(b'e', 0)
    }
}

impl<'a> Serializer for &'a mut Digest {
    type Ok = ();
    type Error = NotHashed;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Impossible<(), NotHashed>;
    type SerializeTupleVariant = Impossible<(), NotHashed>;
    type SerializeMap = Self;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Fields<'a>;

    fn serialize_bool(self, v: bool) -> Result<(), NotHashed> {
        self.number(b'b', v.into())
    }

    fn serialize_i8(self, v: i8) -> Result<(), NotHashed> {
        self.serialize_i64(v.into())
    }

    fn serialize_i16(self, v: i16) -> Result<(), NotHashed> {
        self.serialize_i64(v.into())
    }

    fn serialize_i32(self, v: i32) -> Result<(), NotHashed> {
        self.serialize_i64(v.into())
    }

    fn serialize_i64(self, v: i64) -> Result<(), NotHashed> {
        self.number(b'i', v.cast_unsigned())
    }

    fn serialize_u8(self, v: u8) -> Result<(), NotHashed> {
        self.serialize_u64(v.into())
    }

    fn serialize_u16(self, v: u16) -> Result<(), NotHashed> {
        self.serialize_u64(v.into())
    }

    fn serialize_u32(self, v: u32) -> Result<(), NotHashed> {
        self.serialize_u64(v.into())
    }

    fn serialize_u64(self, v: u64) -> Result<(), NotHashed> {
        self.number(b'u', v)
    }

    fn serialize_f32(self, v: f32) -> Result<(), NotHashed> {
        self.serialize_f64(v.into())
    }

    fn serialize_f64(self, v: f64) -> Result<(), NotHashed> {
        self.number(b'd', v.to_bits())
    }

    fn serialize_char(self, v: char) -> Result<(), NotHashed> {
        self.number(b'c', u64::from(u32::from(v)))
    }

    fn serialize_str(self, v: &str) -> Result<(), NotHashed> {
        self.bytes(b's', v.as_bytes())
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<(), NotHashed> {
        self.bytes(b's', v)
    }

    fn serialize_none(self) -> Result<(), NotHashed> {
        self.number(b'n', 0)
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), NotHashed> {
        self.number(b'o', 0)?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), NotHashed> {
        self.number(b'n', 1)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), NotHashed> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, at: u32, _: &'static str) -> Result<(), NotHashed> {
        self.number(b'v', at.into())
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), NotHashed> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        at: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), NotHashed> {
        self.number(b'v', at.into())?;
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, NotHashed> {
        self.number(b'q', 0)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, NotHashed> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, NotHashed> {
        Err(NotHashed)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, NotHashed> {
        Err(NotHashed)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, NotHashed> {
        self.number(b'm', 0)?;
        Ok(self)
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Fields<'a>, NotHashed> {
        self.number(b'r', 0)?;
        Ok(Fields { digest: self, is_group: name == "Group" })
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        at: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Fields<'a>, NotHashed> {
        self.number(b'v', at.into())?;
        Ok(Fields { digest: self, is_group: false })
    }

    fn is_human_readable(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::ghost::{Config, Endpoint, Group, Route};

    use super::*;
    use crate::Router;

    fn config(hosts: &[&str]) -> Config {
        let route = |host: &str| Route {
            route_name: format!("d/{host}"),
            backends: [Group { weight: 1, name: Some("d/a:80".to_owned()), ..Group::default() }].into(),
            ..Route::default()
        };
        let vhosts = hosts
            .iter()
            .map(|host| ((*host).to_owned(), Vhost { routes: vec![route(host)], ..Vhost::default() }));
        let listeners = vec![model::Listener {
            name: "web".to_owned(),
            socket: "http-80".to_owned(),
            hostname: None,
            tls: None,
        }];
        Config { listeners, vhosts: vhosts.collect(), ..Config::default() }
    }

    fn digest(config: &Config) -> u64 {
        Router::compile(config).unwrap().router.digest()
    }

    #[test]
    fn endpoints_alone_do_not_change_it_and_all_else_does() {
        let plain = config(&["a.com", "b.com"]);
        let first = digest(&plain);
        assert_eq!(first, digest(&plain), "the digest is deterministic");
        assert_ne!(first, 0);
        let mut other = plain.clone();
        let groups = &mut other.vhosts.get_mut("a.com").unwrap().routes[0].backends;
        groups[0].endpoints.push(Endpoint { address: [10, 0, 0, 1].into(), port: 80 });
        assert_eq!(first, digest(&other), "endpoints come and go");
        let change = |change: &dyn Fn(&mut Route)| {
            let mut other = plain.clone();
            change(&mut other.vhosts.get_mut("a.com").unwrap().routes[0]);
            digest(&other)
        };
        assert_ne!(first, change(&|route| route.backends[0].weight = 2));
        assert_ne!(first, change(&|route| route.rule_index = 1));
        assert_ne!(first, change(&|route| route.method = Some("GET".to_owned())));
        assert_ne!(first, change(&|route| route.cache_policy = Some(Box::default())));
        let ttl = |seconds| {
            change(&|route| {
                let policy = model::CachePolicy { default_ttl_seconds: Some(seconds), ..Default::default() };
                route.cache_policy = Some(Box::new(policy));
            })
        };
        assert_ne!(ttl(60.0), ttl(61.0));
        assert_ne!(first, digest(&config(&["a.com"])));
        assert_ne!(first, digest(&config(&["a.com", "c.com"])));
        assert_ne!(first, digest(&Config { cache_status_header: Some(false), ..plain.clone() }));
        assert_ne!(first, digest(&Config { gateway_id: Some("x".to_owned()), ..plain }));
    }

    #[test]
    fn a_file_and_its_base_have_the_digest_of_the_whole() {
        let base = config(&["a.com", "b.com", "c.com"]);
        let mut changed = config(&["b.com", "d.com"]);
        changed.vhosts.get_mut("b.com").unwrap().routes[0].rule_index = 7;
        changed.removed = vec!["c.com".to_owned()];
        let below = Arc::new(Router::compile(&base).unwrap().router);
        let layered = Router::compile_over(&changed, &below).unwrap().unwrap().router;
        assert_eq!(layered.digest(), digest(&changed.over(base)));
        assert_ne!(layered.digest(), below.digest());
        // Endpoints of a host that only the base had until now.
        let mut moved = config(&["a.com"]);
        let groups = &mut moved.vhosts.get_mut("a.com").unwrap().routes[0].backends;
        groups[0].endpoints.push(Endpoint { address: [10, 0, 0, 1].into(), port: 80 });
        let layered = Router::compile_over(&moved, &below).unwrap().unwrap().router;
        assert_eq!(layered.digest(), below.digest());
    }
}
