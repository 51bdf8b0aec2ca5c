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
/// New pairs go to a Secret with room up to here: whoever changes one pair sends all of its Secret.
const FILLED: usize = 384 * 1024;
/// A pair that is there may grow up to here; the API server takes 1 MiB.
const FULL: usize = 960 * 1024;
/// Nobody has so many: what says more is not ours.
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
mod tests {
    use super::*;

    const LIMITS: (usize, usize) = (100, 150);

    fn pem(bytes: usize) -> Pem {
        Pem { chain: vec![b'c'; bytes / 2], key: vec![b'k'; bytes - bytes / 2] }
    }

    fn pairs(sizes: &[(&str, usize)]) -> BTreeMap<String, Pem> {
        sizes.iter().map(|(name, size)| (format!("n/{name}"), pem(*size))).collect()
    }

    fn placed(good: &BTreeMap<String, Pem>, there: &[Data]) -> Vec<Data> {
        place_with(good.keys(), good, there, LIMITS)
    }

    fn names(data: &[Data]) -> Vec<Vec<String>> {
        data.iter().map(|data| data.keys().filter_map(|key| certificate_name(key)).collect()).collect()
    }

    #[test]
    fn few_are_in_one_secret_that_says_nothing_of_others() {
        let one = placed(&pairs(&[("a", 40), ("b", 40)]), &[]);
        assert_eq!((one.len(), one[0].len(), count(&one[0])), (1, 4, 1));
        assert_eq!(placed(&BTreeMap::new(), &[]), [Data::new()]);
    }

    #[test]
    fn a_new_pair_changes_one_secret_and_no_other_pair_moves() {
        let old = placed(&pairs(&[("b", 40), ("c", 40), ("d", 40), ("e", 40), ("f", 40)]), &[]);
        assert_eq!(names(&old), [vec!["n/b", "n/c"], vec!["n/d", "n/e"], vec!["n/f"]]);
        assert_eq!(count(&old[0]), 3);
        // By its name it would be the first.
        let more = [("a", 40), ("b", 40), ("c", 40), ("d", 40), ("e", 40), ("f", 40)];
        let new = placed(&pairs(&more), &old);
        assert_eq!(names(&new), [vec!["n/b", "n/c"], vec!["n/d", "n/e"], vec!["n/a", "n/f"]]);
        assert_eq!(old[..2], new[..2]);
        // Whose pair is gone leaves room for another; the last Secrets go once they are empty.
        let fewer = placed(&pairs(&[("d", 40), ("e", 40), ("z", 40)]), &new);
        assert_eq!(names(&fewer), [vec!["n/z"], vec!["n/d", "n/e"]]);
        assert_eq!(count(&fewer[0]), 2);
        assert_eq!(names(&placed(&pairs(&[("z", 40)]), &fewer)), [vec!["n/z"]]);
    }

    #[test]
    fn a_pair_that_grows_stays_until_it_does_not_fit() {
        let old = placed(&pairs(&[("a", 50), ("b", 50)]), &[]);
        assert_eq!(names(&placed(&pairs(&[("a", 50), ("b", 100)]), &old)), [vec!["n/a", "n/b"]]);
        assert_eq!(names(&placed(&pairs(&[("a", 50), ("b", 101)]), &old)), [vec!["n/a"], vec!["n/b"]]);
        assert_eq!(names(&placed(&pairs(&[("a", 900), ("b", 1)]), &[])), [vec!["n/a"], vec!["n/b"]]);
    }

    #[test]
    fn a_broken_pair_leaves_the_last_good_one_and_one_that_nobody_names_goes() {
        let old = placed(&pairs(&[("a", 60), ("b", 60), ("c", 60)]), &[]);
        let (a, b) = ("n/a".to_owned(), "n/b".to_owned());
        let new = place_with([&a, &b].into_iter(), &pairs(&[("a", 10)]), &old, LIMITS);
        assert_eq!(names(&new), [vec!["n/a"], vec!["n/b"]]);
        assert_eq!(new[1], old[1]);
        assert_eq!(new[0]["n.a.crt"].0.len(), 5);
    }

    #[test]
    fn what_is_no_number_is_one() {
        for (text, number) in [("3", 3), ("0", 1), ("x", 1), ("99999999999999999999999", 1), ("5000", MOST)] {
            let first = Data::from([(COUNT.to_owned(), ByteString(text.into()))]);
            assert_eq!(count(&first), number, "{text}");
        }
    }
}
