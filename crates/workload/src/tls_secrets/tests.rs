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
