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

proptest! {
    #[test]
    fn any_bytes_have_a_reading(field in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = read(&field);
    }
}
