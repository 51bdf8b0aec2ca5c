//! A page by its file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "whatever goes wrong here must fail the test")]

use std::fs;
use std::io::Write;
use std::path::Path;

use page::{Page, SLOTS, Slot, Slots};

/// With a key of zeros.
const SLOT_OF_EXAMPLE: u16 = 26504;

fn created(directory: &Path) -> (Page, Page) {
    let path = directory.join("hot.page");
    let created = Page::create(&path).unwrap();
    (created, Page::open(&path).unwrap())
}

#[test]
fn what_one_process_raises_the_other_sees() {
    let directory = tempfile::tempdir().unwrap();
    let (front, ghost) = created(directory.path());
    let slots = [Slots::default().of_host(b"example.com"), Slots::default().of_url(b"example.com", b"/")];
    let stamp = front.stamp(&slots);
    assert!(front.holds(&stamp));
    ghost.raise(&[Slots::default().of_url(b"example.com", b"/other")]);
    assert!(front.holds(&stamp), "another URL was invalidated");
    ghost.raise(&[Slots::default().of_url(b"example.com", b"/")]);
    assert!(!front.holds(&stamp));
    let stamp = front.stamp(&slots);
    assert!(front.holds(&stamp));
    ghost.raise_global();
    assert!(!front.holds(&stamp));
}

#[test]
fn a_response_is_stored_only_if_nothing_was_invalidated_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let (front, ghost) = created(directory.path());
    let slots = [Slots::default().of_host(b"a")];
    assert_eq!(front.begin(7), None, "ghost has no table yet");
    assert_eq!(front.begin(0), None, "no table is no digest");
    ghost.set_digest(7);
    let ticket = front.begin(7).unwrap();
    let stamp = front.admit(&ticket, &slots).unwrap();
    assert!(front.serves(&stamp, 7) && !front.serves(&stamp, 8));
    ghost.raise(&[]);
    assert_eq!(front.admit(&ticket, &slots), None);
    assert!(front.serves(&stamp, 7), "nothing of its slots was invalidated");
    let ticket = front.begin(7).unwrap();
    for digest in [0, 8, 0, 7] {
        ghost.set_digest(digest);
        assert_eq!(front.admit(&ticket, &slots), None, "the table was another one meanwhile");
        assert!(!front.serves(&stamp, 7), "what was stored by a former table has ended");
    }
    let (before, same) = (front.epoch(), 7);
    ghost.set_digest(same);
    assert_eq!(front.epoch(), before, "nothing has changed");
}

#[test]
fn a_new_page_knows_no_stamp_of_an_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let (old, _) = created(directory.path());
    let stamp = old.stamp(&[Slots::default().of_host(b"a")]);
    let (new, opened) = created(directory.path());
    assert!(!new.holds(&stamp) && !opened.holds(&stamp));
    assert_eq!(new.digest(), 0);
    new.raise_global();
    assert!(old.holds(&stamp), "the old page is still its own");
    assert_eq!(new.global(), opened.global());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn what_is_no_page_is_not_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hot.page");
    assert!(Page::open(&path).is_err(), "there is none");
    for content in [vec![], vec![0; 100], vec![1; 528_384]] {
        fs::write(&path, content).unwrap();
        assert!(Page::open(&path).is_err());
    }
    drop(Page::create(&path).unwrap());
    let longer = fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"x");
    longer.unwrap();
    assert!(Page::open(&path).is_err(), "it has another size");
    drop(Page::create(&path).unwrap());
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(Page::open(&link).is_err(), "a link may lead anywhere");
    assert!(Page::open(directory.path()).is_err());
    assert!(Page::create(&directory.path().join("no/such/directory")).is_err());
}

#[test]
fn slots_are_told_apart_and_spread() {
    assert_ne!(Slots::default().of_host(b"a"), Slots::default().of_tag(b"a"));
    assert_ne!(Slots::default().of_url(b"a", b"/b"), Slots::default().of_host_tag(b"a", b"/b"));
    assert_ne!(Slots::default().of_url(b"a", b"/b"), Slots::default().of_url(b"a/", b"b"));
    let slot = Slots::default().of_url(b"example.com", b"/x");
    assert_eq!(Slot::from_number(slot.number()), slot);
    // Both processes may be of different builds: these numbers are part of the page's version.
    assert_eq!(Slots::default().of_host(b"example.com").number(), SLOT_OF_EXAMPLE);
    let mut counts = vec![0_u32; SLOTS];
    for n in 0..SLOTS {
        counts[usize::from(Slots::default().of_url(b"example.com", format!("/{n}").as_bytes()).number())] +=
            1;
    }
    // By chance, one slot in e is empty.
    let empty = counts.iter().filter(|count| **count == 0).count();
    assert!((20_000..28_000).contains(&empty), "{empty} of {SLOTS} slots are empty");
    assert!(counts.iter().all(|count| *count < 16));
}

#[test]
fn both_sides_of_a_page_have_its_slots_and_another_page_has_others() {
    let ((front, file), (other, _)) = (Page::sealed().unwrap(), Page::sealed().unwrap());
    let ghost = Page::from_sealed(file).unwrap();
    let of = |page: &Page| -> Vec<u16> {
        (0..64_u8).map(|n| page.slots().of_url(b"example.com", &[b'/', n]).number()).collect()
    };
    assert_eq!(of(&front), of(&ghost));
    let same = of(&front).iter().zip(of(&other)).filter(|(one, two)| *one == two).count();
    assert!(same < 8, "{same} of 64 URLs have the same slot in both pages");
}

#[test]
fn a_sealed_page_goes_by_a_socket_and_cannot_be_made_shorter() {
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let (front, file) = Page::sealed().unwrap();
    assert_eq!(page::hand_over(&one, b"\r\n", &file).unwrap(), 2);
    (&one).write_all(b"more").unwrap();
    let mut room = [0; 64];
    let (read, received) = page::receive(&other, &mut room).unwrap();
    assert_eq!(&room[..read], b"\r\n");
    assert!(page::receive(&other, &mut room).unwrap().1.is_none(), "it comes once");
    let received = received.unwrap();
    let shortened = fs::File::from(received.try_clone().unwrap());
    assert!(shortened.set_len(0).is_err() && shortened.set_len(1 << 30).is_err());
    let ghost = Page::from_sealed(received).unwrap();
    ghost.set_digest(7);
    assert_eq!(front.digest(), 7);
    let host = [front.slots().of_host(b"a")];
    assert_eq!(host, [ghost.slots().of_host(b"a")]);
    let stamp = front.stamp(&host);
    ghost.raise(&host);
    assert!(!front.holds(&stamp));
}

#[test]
fn a_file_whose_length_may_change_is_no_sealed_page() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hot.page");
    drop(Page::create(&path).unwrap());
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    assert!(Page::from_sealed(file.into()).is_err());
}

#[test]
fn threads_that_raise_and_serve_never_see_an_old_value_after_an_acknowledgement() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    let directory = tempfile::tempdir().unwrap();
    let (front, ghost) = created(directory.path());
    ghost.set_digest(1);
    let slot = [Slots::default().of_host(b"a")];
    // The version in "varnishd's cache", and the last one whose invalidation was acknowledged.
    let (cache, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for version in 1..20_000 {
                cache.store(version, std::sync::atomic::Ordering::SeqCst);
                ghost.raise(&slot);
                acknowledged.store(version, std::sync::atomic::Ordering::SeqCst);
            }
            done.store(true, Relaxed);
        });
        scope.spawn(|| {
            let mut stored = None;
            while !done.load(Relaxed) {
                if let Some(ticket) = front.begin(1) {
                    let version = cache.load(std::sync::atomic::Ordering::SeqCst);
                    stored = front.admit(&ticket, &slot).map(|stamp| (stamp, version)).or(stored);
                }
                let known = acknowledged.load(std::sync::atomic::Ordering::SeqCst);
                if let Some((stamp, version)) = &stored
                    && front.serves(stamp, 1)
                {
                    assert!(*version >= known, "version {version} after {known} was acknowledged");
                }
            }
        });
    });
}
