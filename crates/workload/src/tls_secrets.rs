//! A Gateway's pairs in Secrets, which hold at most 1 MiB.
//!
//! Takes the pairs, and where each lies now; gives the data of Secrets number 0, 1, 2 and so on. Guarantees that a pair
//! stays where it is, so that a new one changes one Secret. Number 0 says how many there are, where it is not alone.

use std::collections::{BTreeMap, BTreeSet};

use certificate::Pem;
use k8s_openapi::ByteString;
use model::names::{certificate_keys, certificate_name};

/// The data of one Secret.
pub type Data = BTreeMap<String, ByteString>;

/// The key that says how many Secrets there are.
const COUNT: &str = "secrets";
/// New pairs go to a Secret with room up to here: a change of one pair sends all of its Secret.
const FILLED: usize = 384 * 1024;
/// A pair that is there may grow up to here; the API server takes 1 MiB.
const FULL: usize = 960 * 1024;
/// More than any Gateway has: what says more is not ours.
pub(crate) const MOST: usize = 4096;

/// Data for the Secrets with the pairs of `names`. Of those that are not among `good`, the last good ones stay: a pod that
/// starts now gets them, too. `there`: what the Secrets hold now, by number.
pub fn place<'n>(
    names: impl Iterator<Item = &'n String>,
    good: &BTreeMap<String, Pem>,
    there: &[Data],
) -> Vec<Data> {
    place_with(names, good, there, (FILLED, FULL))
}

fn place_with<'n>(
    names: impl Iterator<Item = &'n String>,
    good: &BTreeMap<String, Pem>,
    there: &[Data],
    (filled, full): (usize, usize),
) -> Vec<Data> {
    let mut wanted: BTreeSet<&String> = names.collect();
    let mut placed: Vec<Placed> = there.iter().map(|_| Placed::default()).collect();
    for (data, to) in there.iter().zip(&mut placed) {
        for name in data.keys().filter_map(|key| certificate_name(key)) {
            let Some((at, last)) = keys(&name).and_then(|keys| Some((keys.clone(), lies_at(data, &keys)?)))
            else {
                continue;
            };
            let pair = good.get(&name).map_or(last, |pem| [&pem.chain, &pem.key]);
            if wanted.contains(&name) && to.has_room(&pair, full) {
                to.add(at, pair);
                wanted.remove(&name);
            }
        }
    }
    for name in wanted {
        let Some(at) = keys(name) else { continue };
        let last = || there.iter().find_map(|data| lies_at(data, &at));
        let Some(pair) = good.get(name).map(|pem| [&pem.chain, &pem.key]).or_else(last) else { continue };
        let to = placed.iter().position(|to| to.has_room(&pair, filled)).unwrap_or_else(|| {
            placed.push(Placed::default());
            placed.len() - 1
        });
        if let Some(to) = placed.get_mut(to) {
            to.add(at, pair);
        }
    }
    let used = placed.iter().rposition(|placed| !placed.data.is_empty()).map_or(1, |last| last + 1);
    placed.resize_with(used, Placed::default);
    let mut all: Vec<Data> = placed.into_iter().map(|placed| placed.data).collect();
    if let [first, _, ..] = all.as_mut_slice() {
        first.insert(COUNT.to_owned(), ByteString(used.to_string().into_bytes()));
    }
    all
}

/// How many Secrets there are, as number 0 says.
pub fn count(first: &Data) -> usize {
    let text = first.get(COUNT).and_then(|count| std::str::from_utf8(&count.0).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(1).clamp(1, MOST)
}

#[derive(Default)]
struct Placed {
    data: Data,
    bytes: usize,
}

impl Placed {
    /// One that is larger than all that fits has a Secret of its own.
    fn has_room(&self, pair: &[&Vec<u8>; 2], limit: usize) -> bool {
        self.data.is_empty() || self.bytes + size(pair) <= limit
    }

    fn add(&mut self, at: (String, String), pair: [&Vec<u8>; 2]) {
        self.bytes += size(&pair);
        let [chain, key] = pair.map(|bytes| ByteString(bytes.clone()));
        self.data.insert(at.0, chain);
        self.data.insert(at.1, key);
    }
}

fn size([chain, key]: &[&Vec<u8>; 2]) -> usize {
    chain.len() + key.len()
}

fn keys(name: &str) -> Option<(String, String)> {
    certificate_keys(name)
}

fn lies_at<'d>(data: &'d Data, (chain, key): &(String, String)) -> Option<[&'d Vec<u8>; 2]> {
    Some([&data.get(chain)?.0, &data.get(key)?.0])
}

#[cfg(test)]
mod tests;
