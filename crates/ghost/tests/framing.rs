//! Where bodies end. Compiled in from its source: the VMOD itself lives in varnishd only.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub, reason = "a test, and a part of another crate")]

#[path = "../src/framing.rs"]
mod framing;

use framing::Framing;
use proptest::prelude::*;

fn framing(status: u16, encodings: &[&str], lengths: &[&str]) -> Option<Framing> {
    let bytes = |all: &[&str]| all.iter().map(|one| one.as_bytes().to_vec()).collect::<Vec<_>>();
    let (encodings, lengths) = (bytes(encodings), bytes(lengths));
    Framing::of_answer(status, encodings.iter().map(Vec::as_slice), lengths.iter().map(Vec::as_slice))
}

fn chunked() -> Framing {
    framing(200, &["chunked"], &[]).unwrap()
}

#[test]
fn headers_say_how_a_body_is_framed_or_nothing_is_believed() {
    assert_eq!(framing(200, &[], &["7"]), Some(Framing::Length(7)));
    assert_eq!(framing(200, &[], &["7", "7"]), Some(Framing::Length(7)));
    assert_eq!(framing(403, &[], &[]), Some(Framing::UntilClose));
    assert_eq!(framing(304, &["chunked"], &["7"]), Some(Framing::Length(0)));
    assert_eq!(framing(200, &["Chunked "], &[]), Some(chunked()));
    for (encodings, lengths) in [
        (&["gzip, chunked"][..], &[][..]),
        (&["chunked"], &["7"]),
        (&["chunked", "chunked"], &[]),
        (&[], &["7", "8"]),
        (&[], &["+7"]),
        (&[], &[""]),
        (&[], &["99999999999999999999999"]),
    ] {
        assert_eq!(framing(200, encodings, lengths), None, "{encodings:?} {lengths:?}");
    }
}

#[test]
fn what_follows_a_body_is_not_part_of_it() {
    let mut length = Framing::Length(3);
    assert_eq!(length.take(b"abcdef"), Some(3));
    assert!(length.is_done());
    let body = b"5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n";
    let mut whole = chunked();
    assert_eq!(whole.take(&[&body[..], b"HTTP/1.1 200 OK"].concat()), Some(body.len()));
    assert!(whole.is_done());
    for bad in [&b"x\r\n"[..], b"\r\n", b"5\r\nhelloX", b"5g\r\n", b"1111111111111111\r\n"] {
        assert_eq!(chunked().take(bad), None, "{bad:?}");
    }
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_end(chunks in proptest::collection::vec(1..40_usize, 0..8), cuts in proptest::collection::vec(1..9_usize, 1..9)) {
        let mut body = Vec::new();
        for size in chunks {
            body.extend(format!("{size:x}\r\n").bytes());
            body.extend(vec![b'0'; size]);
            body.extend(b"\r\n");
        }
        body.extend(b"0\r\n\r\n");
        let sent = [&body[..], b"0\r\n\r\nmore"].concat();
        let (mut framing, mut taken, mut rest) = (chunked(), 0, &sent[..]);
        for cut in cuts.iter().cycle() {
            if framing.is_done() || rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            taken += framing.take(now).unwrap();
            rest = later;
        }
        prop_assert!(framing.is_done());
        prop_assert_eq!(taken, body.len());
    }

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Some(taken) = chunked().take(&bytes) {
            prop_assert!(taken <= bytes.len());
        }
    }
}
