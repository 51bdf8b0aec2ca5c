//! The index of objects against a slow, obvious one. It is compiled in from its source: the VMOD itself lives in varnishd only.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "a test, and a part of another crate")]

#[path = "../src/index/bans.rs"]
mod bans;
#[path = "../src/index/known.rs"]
mod known;
#[path = "../src/index/map.rs"]
mod map;
#[path = "../src/index/owners.rs"]
mod owners;
#[path = "../src/index/recent.rs"]
mod recent;
#[path = "../src/index/tags.rs"]
mod tags;
#[path = "../src/index/urls.rs"]
mod urls;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use map::Map;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Insert(usize, BTreeSet<u64>),
    Remove(usize),
    Look(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Few objects and keys, so that they meet; one key that many share.
    let keys = proptest::collection::btree_set(0..12_u64, 0..5);
    prop_oneof![
        4 => (1..60_usize, keys).prop_map(|(object, keys)| Step::Insert(object * 64, keys)),
        2 => (1..60_usize).prop_map(|object| Step::Remove(object * 64)),
        2 => (0..12_u64).prop_map(Step::Look),
    ]
}

proptest! {
    #[test]
    fn what_is_found_is_what_was_put_in(steps in proptest::collection::vec(step(), 1..400)) {
        let map = Map::default();
        let mut model: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(object, keys) => {
                    map.insert(object, keys.iter().copied().chain(keys.iter().copied()).collect());
                    if keys.is_empty() { model.remove(&object); } else { model.insert(object, keys); }
                }
                Step::Remove(object) => {
                    map.remove(object);
                    model.remove(&object);
                }
                Step::Look(key) => {
                    let mut seen = BTreeSet::new();
                    let count = map.each(key, |object| seen.insert(object));
                    let expected: BTreeSet<usize> =
                        model.iter().filter(|(_, keys)| keys.contains(&key)).map(|(object, _)| *object).collect();
                    prop_assert_eq!(count as usize, seen.len());
                    prop_assert_eq!(seen, expected);
                }
            }
            let keys: BTreeSet<u64> = model.values().flatten().copied().collect();
            prop_assert_eq!(map.len(), (model.len(), keys.len()));
        }
        for object in model.keys() {
            map.remove(*object);
        }
        // Nothing is left behind.
        prop_assert_eq!(map.len(), (0, 0));
        prop_assert_eq!(map.charged(), 0);
    }

    /// Whatever had to be forgotten, no purge is lost; and while little is known, nothing else is taken for purged.
    #[test]
    fn no_purge_is_lost(notes in proptest::collection::vec((0..40_u64, 0.0..400.0_f64), 0..300),
        then in 0.0..400.0_f64, later in 0.0..400.0_f64, key in 0..40_u64) {
        let recent = recent::Recent::default();
        let mut notes = notes;
        notes.sort_by(|a, b| a.1.total_cmp(&b.1));
        notes.iter().for_each(|(key, at)| recent.note(*key, 1000.0 + at));
        let last = notes.last().map_or(0.0, |(_, at)| *at);
        let said = recent.is_any_since(|| vec![key], 1000.0 + then, 1000.0 + last.max(then) + later);
        let meant = notes.iter().any(|(of, at)| *of == key && *at >= then);
        prop_assert!(said || !meant);
        if last < 50.0 && later < 10.0 && then < 50.0 {
            prop_assert_eq!(said, meant);
        }
    }

    #[test]
    fn no_ban_is_lost(notes in proptest::collection::vec((0..4_u8, 0..6_u8, 0.0..400.0_f64, 1..4_usize), 0..200),
        then in 0.0..400.0_f64, later in 0.0..400.0_f64, host in 0..4_u8, url in 0..6_u8) {
        let all = bans::Bans::default();
        let mut notes = notes;
        notes.sort_by(|a, b| a.2.total_cmp(&b.2));
        for (host, url, at, mebibytes) in &notes {
            all.note(&[*host], Large(*url, mebibytes << 20), 1000.0 + at);
            prop_assert!(all.bytes() <= bans::MOST_BYTES);
        }
        let last = notes.last().map_or(0.0, |(.., at, _)| *at);
        let now = 1000.0 + last.max(then) + later;
        let said = all.is_any_since(&[host], &[url], 1000.0 + then, now);
        let meant = notes.iter().any(|(of, what, at, _)| (*of, *what) == (host, url) && *at >= then);
        prop_assert!(said || !meant);
        // Bans of other hosts make nothing coarser here.
        if !notes.iter().any(|(of, ..)| *of == host) {
            prop_assert!(!said);
        }
    }

    #[test]
    fn tags_are_words(words in proptest::collection::vec("[a-zA-Z0-9:/_.-]{1,20}", 0..40), blanks in "[ ,\t]{1,3}") {
        let line = words.join(&blanks);
        let read: Vec<&[u8]> = tags::tags(line.as_bytes()).collect();
        prop_assert_eq!(read, words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
    }
}

/// An object must not be looked at after `remove` has returned: by then varnishd frees it.
#[test]
fn nobody_looks_at_an_object_that_was_removed() {
    const OBJECTS: usize = 2000;
    let map = Map::default();
    let alive: Vec<AtomicBool> = (0..OBJECTS).map(|_| AtomicBool::new(false)).collect();
    let (looks, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    map.each(7, |object| {
                        looks.fetch_add(1, Ordering::Relaxed);
                        assert!(alive[object / 64 - 1].load(Ordering::SeqCst), "a dead object was looked at");
                        true
                    });
                }
            });
        }
        for round in 0..20 {
            for (at, one) in alive.iter().enumerate() {
                one.store(true, Ordering::SeqCst);
                map.insert((at + 1) * 64, vec![7, (round * at) as u64]);
            }
            for (at, one) in alive.iter().enumerate() {
                map.remove((at + 1) * 64);
                one.store(false, Ordering::SeqCst);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(looks.load(Ordering::Relaxed) > 0);
    assert_eq!(map.len(), (0, 0));
}

#[test]
fn keys_of_urls_and_tags_do_not_meet() {
    let map = Map::default();
    let keys = [
        map.url_key(b"a", 0, b"/b"),
        map.url_key(b"a/", 0, b"b"),
        map.url_key(b"", 0, b"a/b"),
        map.url_key(b"a", map.kept_as(Some(&"exclude x")), b"/b"),
        map.url_key(b"a", map.kept_as(Some(&"exclude y")), b"/b"),
        map.tag_key(b"a/b"),
        map.tag_key(b""),
    ];
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    assert_eq!(map.url_key(b"a", map.kept_as(None::<&u8>), b"/b"), keys[0]);
}

#[test]
fn long_tags_are_none() {
    let line = format!("a {} b", "x".repeat(tags::LONGEST + 1));
    assert_eq!(tags::tags(line.as_bytes()).collect::<Vec<_>>(), [b"a", b"b"]);
}

#[test]
fn a_purge_is_remembered_and_what_is_forgotten_may_have_been_one() {
    let recent = recent::Recent::default();
    let since = |then, now| recent.is_any_since(|| vec![1, 2], then, now);
    assert!(!since(0.5, 1000.0));
    recent.note(2, 1000.0);
    assert!(since(999.0, 1001.0) && since(1000.0, 1001.0));
    assert!(!since(1000.5, 1001.0), "the fetch began after it");
    recent.note(3, 1062.0);
    assert!(since(999.0, 1063.0));
    // It is no longer known what was purged then.
    recent.note(3, 1200.0);
    assert!(since(999.0, 1300.0));
    assert!(!since(1100.0, 1300.0), "the fetch began after all that was forgotten");
    recent.note(1, 1300.0);
    recent.clear();
    assert!(!since(0.5, 1301.0));
}

#[test]
fn too_many_purges_are_taken_for_purges_of_everything() {
    let recent = recent::Recent::default();
    for key in 0..150_000 {
        recent.note(key, 1000.0 + key as f64 / 1000.0);
    }
    let since = |key, then| recent.is_any_since(|| vec![key], then, 1150.0);
    assert!(since(149_999, 1149.0) && !since(149_000, 1149.5));
    assert!(since(1_000_000, 1000.0), "a purge of it may be among those that were forgotten");
    assert!(!since(1_000_000, 1149.0));
}

#[test]
fn old_purges_take_no_memory() {
    let recent = recent::Recent::default();
    (0..200_000).for_each(|key| recent.note(key, 1000.0));
    assert!(recent.len() <= 100_000);
    assert!(!recent.is_any_since(Vec::new, 1001.0, 1121.0));
    assert_eq!(recent.len(), 0);
    assert!(recent.is_any_since(|| vec![7], 999.0, 1121.0), "a fetch that began before is still meant");
}

struct Begins(&'static [u8]);

impl bans::Matches for Begins {
    fn matches(&self, url: &[u8]) -> bool {
        url.starts_with(self.0)
    }

    fn bytes(&self) -> usize {
        1000
    }
}

/// Matches one URL of one byte.
struct Large(u8, usize);

impl bans::Matches for Large {
    fn matches(&self, url: &[u8]) -> bool {
        url == [self.0]
    }

    fn bytes(&self) -> usize {
        self.1
    }
}

#[test]
fn too_many_bans_of_a_host_become_one_of_all_its_urls() {
    let all = bans::Bans::default();
    for second in 0..20 {
        all.note(b"a", Large(b'x', 1 << 20), 1000.0 + f64::from(second));
    }
    assert!(all.bytes() <= bans::MOST_BYTES_OF_HOST);
    let since = |host: &[u8], then| all.is_any_since(host, b"y", then, 1020.0);
    assert!(since(b"a", 1001.0), "bans until 1011 are forgotten, and may have meant it");
    assert!(!since(b"a", 1015.0), "later ones are known one by one");
    assert!(!since(b"b", 1001.0), "another host");
    all.note(b"c", Large(b'x', 100 << 20), 1020.0);
    assert!(since(b"c", 1019.0), "one that is too large to be known");
    // Nothing is held once no fetch can be meant.
    assert!(!all.is_any_since(b"a", b"x", 1200.0, 1201.0));
    assert_eq!(all.bytes(), 0);
    assert!(all.is_any_since(b"a", b"y", 1019.0, 1201.0));
}

#[test]
fn bans_of_many_hosts_are_forgotten_together() {
    let all = bans::Bans::default();
    for host in 0..30_000_u32 {
        all.note(&host.to_be_bytes(), Large(b'x', 100), 1000.0 + f64::from(host) / 1000.0);
    }
    assert!(all.bytes() <= 1_000_000);
    assert!(all.is_any_since(b"other", b"y", 1000.0, 1030.0));
    assert!(!all.is_any_since(b"other", b"y", 1029.9, 1030.0));
}

#[test]
fn ways_to_leave_parameters_out_are_forgotten_when_nothing_is_kept_by_them() {
    let ways = known::Known::default();
    let learn = |names: &[u64], now, with_objects: &[u64]| {
        let mut gone =
            ways.learn(names.iter().map(|name| (*name, name)), now, |way| with_objects.contains(&way));
        gone.sort_unstable();
        gone
    };
    assert!(learn(&[1, 2, 3], 1000.0, &[]).is_empty());
    assert!(learn(&[3], 1001.0, &[]).is_empty(), "a fetch may still be on its way");
    assert_eq!(learn(&[3], 5000.0, &[1]), [2_u64], "objects are kept by 1, and 3 is in use");
    assert!(ways.contains(1) && ways.contains(3) && !ways.contains(2));
    // Too many: the oldest go, and their objects with them.
    for way in 10..1010 {
        learn(&[way], 6000.0 + way as f64, &[1]);
        assert!(ways.len() <= known::MOST + 1);
    }
    assert!(!ways.contains(1) && ways.contains(1009) && ways.contains(900));
    let many: Vec<u64> = (5000..6000).collect();
    learn(&many, 8000.0, &[]);
    assert!(many.iter().all(|way| ways.contains(*way)), "what the newest configuration names is known");
}

#[test]
fn the_fuller_the_index_the_fewer_tags_an_object_may_have() {
    let most = |bytes| tags::most(bytes, 1000);
    assert_eq!([0, 499, 500, 750, 999].map(most), [Some(256), Some(256), Some(64), Some(16), Some(16)]);
    assert_eq!(most(1000), None);
    assert_eq!(tags::most(0, 0), None);
}

#[test]
fn what_is_charged_is_about_what_it_takes_and_goes_with_it() {
    let map = Map::default();
    // 20,000 objects with a URL, a host, four tags of their own and one that all share.
    for object in 1..=20_000_usize {
        let own = (0..4).map(|n| map.tag_key(format!("{object}-{n}").as_bytes()));
        let url = map.url_key(b"a", 0, object.to_string().as_bytes());
        map.insert(
            object * 64,
            own.chain([url, map.host_key(b"a", object * 64), map.tag_key(b"all")]).collect(),
        );
    }
    let (charged, bytes) = (map.charged(), map.bytes());
    assert!(charged > bytes * 2 / 3 && charged < bytes * 2, "{charged} {bytes}");
    (1..=20_000).for_each(|object| map.remove(object * 64));
    assert_eq!(map.charged(), 0);
    assert!(map.bytes() < bytes / 10, "tables that were large become small: {}", map.bytes());
}

#[test]
fn a_ban_is_held_against_what_was_asked_for_before_it() {
    let bans = bans::Bans::default();
    let since =
        |host: &str, url: &str, then| bans.is_any_since(host.as_bytes(), url.as_bytes(), then, 1001.0);
    assert!(!since("a", "/b", 999.0));
    bans.note(b"a", Begins(b"/b"), 1000.0);
    assert!(since("a", "/b", 999.0) && since("a", "/bc", 1000.0));
    assert!(!since("a", "/b", 1000.5), "the fetch began after it");
    assert!(!since("a", "/c", 999.0) && !since("b", "/b", 999.0));
    bans.note(b"b", Begins(b"/"), 1000.5);
    assert!(since("a", "/b", 999.0) && since("b", "/b", 1000.2) && !since("a", "/c", 999.0));
    // Those of long ago are forgotten: whatever was asked for before may have been meant, of the same host.
    bans.note(b"c", Begins(b"/"), 1200.0);
    assert!(since("a", "/c", 999.0) && !since("a", "/c", 1100.0) && !since("d", "/c", 999.0));
    bans.clear();
    assert!(!since("a", "/b", 999.0));
}

#[test]
fn expressions_are_linear_and_say_what_is_wrong_with_them() {
    let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let matches =
        |all: &[&str], url: &[u8]| urls::Urls::all(&texts(all)).iter().any(|urls| urls.matches(url));
    assert!(matches(&["^/a/", "^/b/"], b"/b/1") && !matches(&["^/a/", "^/b/"], b"/c/a/"));
    assert!(matches(&["a.c"], b"/a\xffc"), "bytes that are no text");
    // What takes others forever.
    let long = [b"/images/".as_slice(), &b"a/".repeat(3000)].concat();
    assert!(!matches(&["^/images/(.*/)*[^/]*[.]png$", "(a+)+$", "x.*/y.*z"], &long));
    assert!(matches(&["^/images/(.*/)*[^/]*$"], &long));
    for (bad, why) in [
        ("(", "unclosed group"),
        ("(?1)", "unrecognized flag"),
        (r"(a)\1", "backreferences are not supported"),
        ("a(?=b)", "look-around"),
        ("(.{1000}){1000}", "too large"),
        ("(?u)/a.c", "needs Unicode for `(?u)`"),
    ] {
        let said = urls::check(&bad.to_owned()).unwrap_err();
        assert!(said.starts_with("Regex compile error: ") && said.contains(why), "{bad}: {said}");
    }
    // Too large together: still all of them.
    let many: Vec<String> = (0..256).map(|n| format!("^/{n}/[a-z0-9]{{3,400}}$")).collect();
    many.iter().for_each(|one| urls::check(one).unwrap());
    let sets = urls::Urls::all(&many);
    assert!(
        sets.iter().any(|urls| urls.matches(b"/255/abc"))
            && !sets.iter().any(|urls| urls.matches(b"/255/ab"))
    );
}

#[test]
fn objects_of_a_host_are_found_by_its_keys() {
    let map = Map::default();
    for object in (64..64_000).step_by(64) {
        map.insert(object, vec![map.host_key(if object % 128 == 0 { b"a" } else { b"b" }, object)]);
    }
    let mut found = BTreeSet::new();
    let counted: u64 = map.host_keys(b"a").map(|key| map.each(key, |object| found.insert(object))).sum();
    assert_eq!(counted, 499);
    assert!(found.iter().all(|object| object % 128 == 0));
}

#[test]
fn a_namespaces_tag_of_a_host_is_found_without_a_look_at_others() {
    let map = Map::default();
    let key =
        |owner: &str, host: &str| map.owned_key(owner.as_bytes(), map.host_tag_key(host.as_bytes(), b"news"));
    for (at, (owner, host)) in [("a", "x.com"), ("b", "x.com"), ("a", "y.com")].iter().enumerate() {
        for object in 0..1000 {
            map.insert((at * 1000 + object + 1) * 64, vec![map.tag_key(b"news"), key(owner, host)]);
        }
    }
    let mut looks = 0;
    map.each(key("b", "x.com"), |object| {
        looks += 1;
        assert!((1001..=2000).contains(&(object / 64)));
        true
    });
    assert_eq!(looks, 1000);
    assert_eq!(map.each(key("b", "y.com"), |_| true), 0);
    assert_eq!(map.each(map.tag_key(b"news"), |_| true), 3000);
}

#[test]
fn owners_are_known_until_there_are_too_many() {
    let owners = owners::Owners::default();
    owners.add(b"a");
    owners.add(b"a");
    assert_eq!(owners.all(), Some(vec![b"a".as_slice().into()]));
    (0..2 * owners::MOST).for_each(|n| owners.add(n.to_string().as_bytes()));
    assert_eq!(owners.all(), None);
    owners.clear();
    assert_eq!(owners.all(), Some(Vec::new()));
}
