use super::*;

#[test]
fn a_summary_counts_objects_or_names_the_first_error() {
    let found = |n| Outcome { objects: Some(n), error: None };
    assert_eq!(summary(InvalidationType::Purge, &[found(1)]), "1 object purged");
    assert_eq!(summary(InvalidationType::SoftPurge, &[found(1), found(2)]), "3 objects made stale");
    assert_eq!(summary(InvalidationType::Ban, &[Outcome::default()]), "1 expression banned");
    let bad = Outcome { objects: None, error: Some("no".to_owned()) };
    assert_eq!(summary(InvalidationType::Ban, &[bad, Outcome::default()]), "1 of 2 failed: no");
}

#[test]
fn a_host_is_what_a_request_may_have() {
    let of = |host: &str| check(&Invalidation { hostname: Some(host.to_owned()), ..Invalidation::default() });
    for good in ["shop.example.com", "a_b.example.com", "localhost", "10.0.0.1", "[::1]"] {
        assert_eq!(of(good), Ok(()), "{good}");
    }
    for bad in ["", "a..b", "shop:80", "https://shop", "*.example.com", "[::1]:80", "[x]", "a\" || 1", "-a"] {
        assert!(of(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_ttl_is_an_hour_where_absent() {
    let of = |ttl: Option<&str>| ttl.map(str::to_owned);
    let spec =
        |text| VarnishCacheInvalidationSpec { ttl: of(text), ..VarnishCacheInvalidationSpec::default() };
    assert_eq!(ttl(&spec(None)), Duration::from_secs(3600));
    assert_eq!(ttl(&spec(Some("1m30s"))), Duration::from_secs(90));
    assert_eq!(ttl(&spec(Some("0s"))), Duration::ZERO);
}
