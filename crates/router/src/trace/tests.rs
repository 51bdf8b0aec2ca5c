use super::*;

const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn a_valid_trace_is_continued_with_a_span_of_our_own() {
    let trace = Trace::begin(Some(GIVEN.as_bytes()), 0.0, true);
    assert!(trace.sampled && !trace.is_new() && trace.span != 0xb7ad_6b71_6920_3331);
    let text = format!("00-0af7651916cd43dd8448eb211c80319c-{:016x}-01", trace.span);
    assert_eq!(trace.header(trace.span).as_bytes(), text.as_bytes());
    // Flags beyond the first, and what newer versions add, are not understood and not handed on.
    let newer = GIVEN.replacen("00-", "01-", 1).replace("-01", "-03-more");
    assert_eq!(Trace::begin(Some(newer.as_bytes()), 0.0, true).trace, trace.trace);
}

#[test]
fn only_a_trusted_proxy_decides_what_is_recorded() {
    assert!(!Trace::begin(Some(GIVEN.as_bytes()), 0.0, false).sampled);
    let unsampled = GIVEN.replace("-01", "-00");
    assert!(Trace::begin(Some(unsampled.as_bytes()), 1.0, false).sampled);
    assert!(!Trace::begin(Some(unsampled.as_bytes()), 1.0, true).sampled);
}

#[test]
fn an_invalid_trace_is_replaced() {
    let zeros = "0".repeat(32);
    for bad in [
        "".to_owned(),
        "00".to_owned(),
        GIVEN.to_ascii_uppercase(),
        format!("{GIVEN}-more"),
        GIVEN.replacen("00-", "ff-", 1),
        GIVEN.replace("0af7651916cd43dd8448eb211c80319c", &zeros),
        GIVEN.replace("b7ad6b7169203331", &zeros[..16]),
        GIVEN.replace("-01", "-1"),
        GIVEN.replace("-01", "-0\u{e9}"),
    ] {
        let trace = Trace::begin(Some(bad.as_bytes()), 1.0, true);
        assert!(trace.is_new() && trace.trace != (0, 0) && trace.span != 0, "{bad}");
    }
}
