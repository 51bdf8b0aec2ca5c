//! The objects of one kind, read one by one. Copies share what is the same in them.

use std::sync::Arc;

use kube::Resource;
use model::SharedMap;
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use translate::Key;
use translate::snapshot::Objects;

use super::key;
use crate::kubernetes::read::{Read, Unread};

/// What the API server said of the kind.
pub(super) struct Seen<T> {
    pub(super) objects: Objects<T>,
    pub(super) unread: SharedMap<Key, Arc<Unread>>,
    /// The last good version of those, where there was one, with the metadata of now.
    pub(super) kept: Objects<T>,
    /// Fields that we do not know, of those objects that have any.
    pub(super) ignored: SharedMap<Key, Vec<String>>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self {
            objects: SharedMap::new(),
            unread: SharedMap::new(),
            kept: SharedMap::new(),
            ignored: SharedMap::new(),
        }
    }
}

impl<T: Resource + Clone> Seen<T> {
    /// `last_good`: what counts where this one cannot be read.
    pub(super) fn insert(&mut self, key: Key, read: Read<T>, last_good: Option<T>) {
        self.remove(&key);
        if !read.ignored.is_empty() {
            self.ignored.insert(key.clone(), read.ignored);
        }
        match read.object {
            Ok(object) => drop(self.objects.insert(key, Arc::new(object))),
            Err(unread) => {
                self.unread.insert(key.clone(), Arc::new(unread));
                self.kept.extend(last_good.map(|object| (key, Arc::new(object))));
            }
        }
    }

    /// The last version of this very object that could be read, for one that cannot.
    pub(super) fn last_good(&self, key: &Key, read: &Read<T>) -> Option<T> {
        if read.object.is_ok() {
            return None;
        }
        let known = self.objects.get(key).or_else(|| self.kept.get(key))?;
        (known.meta().uid == read.meta().uid).then(|| {
            let mut object = known.as_ref().clone();
            *object.meta_mut() = read.meta().clone();
            object
        })
    }

    /// What counts: all objects as they are, the last good version of those that cannot be read, else a stand-in.
    pub(super) fn usable(&self, stand_in: impl Fn(&Unread) -> Option<T>) -> Objects<T> {
        let mut all = self.objects.clone();
        all.extend(self.kept.iter().map(|(key, object)| (key.clone(), Arc::clone(object))));
        for (key, unread) in self.unread.iter().filter(|(key, _)| !self.kept.contains_key(*key)) {
            all.extend(stand_in(unread).map(|object| (key.clone(), Arc::new(object))));
        }
        all
    }

    /// What is here for what was here.
    pub(super) fn replace(&mut self, is_here: impl Fn(&Key) -> bool, coming: Self) {
        self.objects.retain(|key, _| !is_here(key));
        self.unread.retain(|key, _| !is_here(key));
        self.kept.retain(|key, _| !is_here(key));
        self.ignored.retain(|key, _| !is_here(key));
        self.objects.extend(coming.objects);
        self.unread.extend(coming.unread);
        self.kept.extend(coming.kept);
        self.ignored.extend(coming.ignored);
    }

    /// True where it was there.
    pub(super) fn remove(&mut self, key: &Key) -> bool {
        self.ignored.remove(key);
        self.kept.remove(key);
        self.objects.remove(key).is_some() | self.unread.remove(key).is_some()
    }
}

/// The objects of a kind among these, as a watch would have them.
pub(in crate::kubernetes) fn list<T>(objects: &[Value], stand_in: impl Fn(&Unread) -> Option<T>) -> Objects<T>
where
    T: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let mut seen = Seen::default();
    let of_kind = |object: &&Value| {
        let is = |field: &str, wanted: &str| object.get(field).and_then(Value::as_str) == Some(wanted);
        is("kind", &T::kind(&())) && is("apiVersion", &T::api_version(&()))
    };
    for read in objects.iter().filter(of_kind).filter_map(|object| Read::<T>::deserialize(object).ok()) {
        seen.insert(key(read.meta()), read, None);
    }
    seen.usable(stand_in)
}

#[cfg(test)]
mod tests {
    use api::VarnishCachePolicy;
    use serde_json::json;

    use super::*;

    fn read(uid: &str, generation: i64, ttl: &Value) -> (Key, Read<VarnishCachePolicy>) {
        let raw = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": uid, "generation": generation},
            "spec": {"targetRef": {"group": "", "kind": "HTTPRoute", "name": "shop"}, "defaultTTL": ttl},
        });
        (Key::new("n", "p"), serde_json::from_value(raw).unwrap())
    }

    fn take(seen: &mut Seen<VarnishCachePolicy>, (key, read): (Key, Read<VarnishCachePolicy>)) {
        let last_good = seen.last_good(&key, &read);
        seen.insert(key, read, last_good);
    }

    fn ttl(seen: &Seen<VarnishCachePolicy>) -> Option<String> {
        let usable = seen.usable(|unread| crate::stand_in::cache_policy(&unread.raw, &unread.why));
        usable[&Key::new("n", "p")].spec.default_ttl.clone()
    }

    #[test]
    fn an_object_that_becomes_unreadable_counts_as_it_last_was() {
        let mut seen = Seen::default();
        take(&mut seen, read("1", 1, &json!("1m")));
        take(&mut seen, read("1", 2, &json!(["1m"])));
        assert_eq!(ttl(&seen).as_deref(), Some("1m"));
        assert_eq!(seen.kept[&Key::new("n", "p")].metadata.generation, Some(2));
        assert!(seen.objects.is_empty(), "statuses are not written for it as for a good one");
        take(&mut seen, read("1", 3, &json!(7)));
        assert_eq!(ttl(&seen).as_deref(), Some("1m"));
        take(&mut seen, read("1", 4, &json!("2m")));
        assert_eq!(ttl(&seen).as_deref(), Some("2m"));
        assert!(seen.kept.is_empty() && seen.unread.is_empty());
    }

    #[test]
    fn one_that_never_was_good_or_is_another_gets_a_stand_in() {
        let mut seen = Seen::default();
        take(&mut seen, read("1", 1, &json!(7)));
        assert_eq!(ttl(&seen), None);
        take(&mut seen, read("1", 2, &json!("1m")));
        take(&mut seen, read("2", 1, &json!(7)));
        assert_eq!(ttl(&seen), None);
        assert!(seen.remove(&Key::new("n", "p")));
        assert!(seen.usable(|_| None).is_empty());
    }
}
