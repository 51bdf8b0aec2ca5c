use proptest::prelude::*;

use super::*;

#[test]
fn a_field_is_a_dictionary_or_nothing() {
    let max_age = |field: &str| read(field.as_bytes()).map(|says| says.max_age);
    assert_eq!(max_age("max-age=60"), Some(Some(60)));
    assert_eq!(max_age("foobar, max-age=60;x=1"), Some(Some(60)));
    assert_eq!(max_age("max-age=1, max-age=60"), Some(Some(60)));
    assert_eq!(max_age("no-store"), Some(None));
    assert!(read(b"no-store, no-cache=\"a\"").is_some_and(|says| says.no_store && says.no_cache));
    assert!(read(b"no-store=?0").is_some_and(|says| !says.no_store));
    for not_valid in [
        "",
        " ",
        "max-age=60, &&&&&",
        "max-age=\"60\"",
        "max-age",
        "max-age=-1",
        "max-age=1.5",
        "MaX-aGe=60",
        "max-age =60",
        "max-age= 60",
        "max-age=(1 2)",
        "private=5",
        "no-store=1",
        "max-age=9999999999999999",
    ] {
        assert_eq!(read(not_valid.as_bytes()), None, "{not_valid}");
    }
}

fn surrogate_of(line: &str) -> Directives<'_> {
    let mut says = Directives::default();
    parts(line.as_bytes()).filter_map(for_all).for_each(|directive| read_surrogate(&mut says, directive));
    says
}

#[test]
fn directives_for_other_surrogates_are_skipped() {
    for (line, max_age) in [
        ("max-age=3600", Some(3600)),
        ("max-age=3600;akamai", None),
        ("max-age=3600 ; akamai, max-age=60", Some(60)),
        ("max-age=60, max-age=3600;\"a\"", Some(60)),
        ("max-age=60;, no-store;akamai", Some(60)),
        ("content=\"a;b, c\", max-age=60", Some(60)),
        ("content=\"a;b, max-age=60", Some(60)),
    ] {
        let says = surrogate_of(line);
        assert_eq!((says.max_age, says.no_store), (max_age, false), "{line}");
    }
    assert!(surrogate_of("max-age=60;akamai, no-store").no_store);
}

#[test]
fn max_age_of_a_surrogate_may_say_for_how_long_it_is_stale() {
    for (line, max_age, stale) in [
        ("max-age=600+30", Some(600), Some(30)),
        ("Max-Age=600+0", Some(600), Some(0)),
        ("max-age=600+30;akamai, max-age=5", Some(5), None),
        ("max-age=5, max-age=600+30", Some(5), None),
        ("max-age=600+30, stale-while-revalidate=9", Some(600), Some(30)),
        // None of them is a number.
        ("max-age=600+", Some(0), None),
        ("max-age=600+soon", Some(0), None),
        ("max-age=+30", Some(0), None),
        ("max-age=1+2+3", Some(0), None),
        ("max-age=\"600+30\"", Some(0), None),
    ] {
        let says = surrogate_of(line);
        assert_eq!((says.max_age, says.stale_while_revalidate), (max_age, stale), "{line}");
    }
}

proptest! {
    #[test]
    fn any_bytes_of_surrogates_have_a_reading(line in "[a-z=+;\", \\\\0-9-]{0,40}") {
        let behind = format!("{line}, no-store");
        prop_assert!(surrogate_of(&behind).no_store, "{}", behind);
    }

    #[test]
    fn any_bytes_have_a_reading(field in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = read(&field);
    }
}
