//! Recorded requests, and the trace that origins see.

use std::net::SocketAddr;

use front::{Finished, Limits, Observer};
use model::ghost;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::{Front, Origin, PATIENCE, status};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

async fn recorded(
    endpoints: &[SocketAddr],
    ratio: f64,
    trusts: bool,
    queue: usize,
) -> (Front, mpsc::Receiver<Box<Finished>>) {
    let (spans, requests) = mpsc::channel(queue);
    let change = |config: &mut ghost::Config| {
        config.front_trace_sampling = Some(ratio);
        if trusts {
            config.trusted_proxies = vec!["127.0.0.0/8".into()];
        }
    };
    let front = Front::observed(endpoints, change, Limits::default(), Observer::new(None, Some(spans))).await;
    (front, requests)
}

fn with(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{headers}Connection: close\r\n\r\n").into_bytes()
}

/// The header of the last request that an origin has seen.
fn seen(origin: &Origin, name: &str) -> Option<String> {
    let all = origin.seen().concat();
    let last = all.rsplit("GET ").next().unwrap().to_owned();
    last.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_origins_parent_is_the_span_of_its_own_part() {
    let origin = Origin::start().await;
    let (front, mut requests) = recorded(&[origin.address], 0.0, true, 16).await;
    let headers = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: vendor=1\r\n");
    assert_eq!(status(&front.say(&with("/a?secret", &headers)).await), 200);
    let request = timeout(PATIENCE, requests.recv()).await.unwrap().unwrap();
    let upstream = request.upstream.unwrap();
    assert_eq!(seen(&origin, "traceparent"), Some(format!("00-{TRACE}-{:016x}-01", upstream.span)));
    assert_eq!(seen(&origin, "tracestate").as_deref(), Some("vendor=1"));
    let (high, low) = request.trace.trace;
    assert_eq!(
        (format!("{high:016x}{low:016x}"), format!("{:016x}", request.trace.parent)),
        (TRACE.into(), PARENT.into())
    );
    assert_ne!(request.trace.span, upstream.span);
    assert_eq!((upstream.endpoint, upstream.tries), (origin.address, 1));
    assert_eq!(
        (request.path.as_str(), request.status, request.way, request.cache),
        ("/a", Some(200), "direct", "pass")
    );
    assert_eq!(request.route, Some(("HTTPRoute", "test/route".into(), 0)));
    assert!(upstream.first_byte.unwrap() <= request.took);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_do_not_decide_what_is_recorded() {
    let origin = Origin::start().await;
    let (front, mut requests) = recorded(&[origin.address], 0.0, false, 16).await;
    let headers = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    front.say(&with("/a", &headers)).await;
    let parent = seen(&origin, "traceparent").unwrap();
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"), "{parent}");
    assert!(!parent.contains(PARENT), "{parent}");
    assert!(requests.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_or_doubled_trace_is_replaced() {
    let origin = Origin::start().await;
    let (front, _requests) = recorded(&[origin.address], 0.0, true, 16).await;
    let good = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    for bad in [
        "traceparent: 00-0-0-01\r\n".to_owned(),
        "traceparent:\r\n".to_owned(),
        good.repeat(2),
        String::new(),
    ] {
        front.say(&with("/a", &format!("{bad}tracestate: x=1\r\n"))).await;
        let parent = seen(&origin, "traceparent").unwrap();
        assert!(parent.len() == 55 && parent.ends_with("-00") && !parent.contains(TRACE), "{bad}: {parent}");
        assert_eq!(seen(&origin, "tracestate"), None, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_traces_are_handed_on_as_they_are() {
    let origin = Origin::start().await;
    let front = Front::to(&[origin.address]).await;
    front.say(&with("/a", "traceparent: whatever\r\ntracestate: x=1\r\n")).await;
    assert_eq!(seen(&origin, "traceparent").as_deref(), Some("whatever"));
    assert_eq!(seen(&origin, "tracestate").as_deref(), Some("x=1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exporter_that_takes_nothing_holds_up_no_request() {
    let origin = Origin::start().await;
    let (front, requests) = recorded(&[origin.address], 1.0, false, 2).await;
    for _ in 0..5 {
        assert_eq!(status(&front.say(&with("/a", "")).await), 200);
    }
    assert_eq!(front.http.observer().unwrap().spans_dropped(), 3);
    drop(requests);
    assert_eq!(status(&front.say(&with("/a", "")).await), 200);
    assert_eq!(front.http.observer().unwrap().spans_dropped(), 4);
}
