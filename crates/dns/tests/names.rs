//! Names against a DNS server on loopback.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "names/server.rs"]
mod server;

use std::time::{Duration, Instant};

use dns::{MOST_ADDRESSES, Name, Names, Settings, Times, Wanted};
use server::{DnsServer, Say};

const PATIENCE: Duration = Duration::from_secs(20);

fn name(host: &str) -> Name {
    Name { host: host.to_owned(), public_only: false }
}

fn wanted(hosts: &[&str]) -> Wanted {
    hosts.iter().map(|host| (name(host), [format!("shop/{host}")].into())).collect()
}

fn names(server: &DnsServer, times: Times) -> Names {
    Names::start(Settings { servers: vec![server.address], allow_loopback: false, times })
}

fn quick() -> Times {
    let millis = Duration::from_millis;
    Times { floor: millis(50), ceiling: millis(400), keep: millis(1500), retry: (millis(50), millis(100)) }
}

fn addresses(names: &Names, host: &str) -> Option<Vec<String>> {
    Some(names.known().get(&name(host))?.iter().map(ToString::to_string).collect())
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waits = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waits).await.unwrap_or_else(|_| panic!("{what} did not happen"));
}

#[tokio::test]
async fn a_name_has_its_addresses_sorted_and_without_those_that_are_refused() {
    let server = DnsServer::start();
    server.has(
        "api.example",
        &["10.0.0.2", "127.0.0.1", "10.0.0.1", "169.254.169.254", "10.0.0.2", "0.0.0.0"],
        60,
    );
    server.has("v6.example", &["2001:db8::1", "fe80::1"], 60);
    server.has("evil.example", &["127.0.0.1", "224.0.0.1"], 60);
    let before = dns::counts();
    let names = names(&server, Times::default());
    names.want(wanted(&["api.example", "v6.example", "evil.example", "none.example"]));
    names.settle(PATIENCE).await;
    assert_eq!(addresses(&names, "api.example").unwrap(), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(addresses(&names, "v6.example").unwrap(), ["2001:db8::1"]);
    assert!(addresses(&names, "evil.example").unwrap().is_empty());
    assert!(addresses(&names, "none.example").unwrap().is_empty());
    let after = dns::counts();
    assert!(after.refused >= before.refused + 6 && after.answered >= before.answered + 3, "{after:?}");
    // Not wanted any more, not known any more.
    names.want(wanted(&["api.example"]));
    until("the others are forgotten", || names.known().len() == 1).await;
}

#[tokio::test]
async fn private_addresses_are_refused_where_only_public_ones_are_good() {
    let server = DnsServer::start();
    server.has("api.example", &["10.0.0.2", "8.8.8.8"], 60);
    let names = names(&server, Times::default());
    let public = Name { host: "api.example".to_owned(), public_only: true };
    names.want([(public.clone(), ["shop/api".to_owned()].into())].into());
    names.settle(PATIENCE).await;
    assert_eq!(names.known()[&public].iter().map(ToString::to_string).collect::<Vec<_>>(), ["8.8.8.8"]);
}

#[tokio::test]
async fn an_answer_is_renewed_when_its_ttl_ends_within_floor_and_ceiling() {
    let server = DnsServer::start();
    server.has("long.example", &["10.0.0.1"], 86_400);
    server.has("zero.example", &["10.0.0.1"], 0);
    server.has("two.example", &["10.0.0.1"], 2);
    let times = Times { floor: Duration::from_millis(400), ceiling: Duration::from_secs(5), ..quick() };
    let names = names(&server, times);
    names.want(wanted(&["long.example", "zero.example", "two.example"]));
    names.settle(PATIENCE).await;
    let began = Instant::now();
    server.has("zero.example", &["10.0.0.9"], 0);
    server.has("two.example", &["10.0.0.9"], 2);
    server.has("long.example", &["10.0.0.9"], 86_400);
    let mut took = Vec::new();
    for host in ["zero.example", "two.example", "long.example"] {
        until("a new answer", || addresses(&names, host).unwrap() == ["10.0.0.9"]).await;
        took.push(began.elapsed());
    }
    assert!(took[0] < Duration::from_secs(2), "the floor: {took:?}");
    assert!(took[1] > Duration::from_secs(1) && took[1] < Duration::from_secs(5), "the TTL: {took:?}");
    assert!(took[2] > Duration::from_secs(3), "the ceiling: {took:?}");
    assert!(server.asked("zero.example") < 40, "{} questions", server.asked("zero.example"));
}

#[tokio::test]
async fn the_same_addresses_in_another_order_are_no_change() {
    let server = DnsServer::start();
    server.has("api.example", &["10.0.0.1", "10.0.0.2"], 0);
    let names = names(&server, quick());
    names.want(wanted(&["api.example"]));
    names.settle(PATIENCE).await;
    let mut changes = names.changes();
    changes.mark_unchanged();
    server.has("api.example", &["10.0.0.2", "10.0.0.1"], 0);
    let before = server.asked("api.example");
    until("more questions", || server.asked("api.example") > before + 3).await;
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test]
async fn the_last_good_answer_is_kept_while_dns_fails_and_then_no_longer() {
    for trouble in [Say::ServerFailure, Say::Silence] {
        let server = DnsServer::start();
        server.has("api.example", &["10.0.0.1"], 0);
        // Longer than one question without an answer takes.
        let times = Times { keep: Duration::from_secs(8), ..quick() };
        let names = names(&server, times);
        names.want(wanted(&["api.example"]));
        names.settle(PATIENCE).await;
        server.say("api.example", trouble.clone());
        let (began, before) = (Instant::now(), dns::counts().failed);
        until("a failure", || dns::counts().failed > before).await;
        assert_eq!(addresses(&names, "api.example").unwrap(), ["10.0.0.1"], "{trouble:?}");
        until("the end of what is kept", || addresses(&names, "api.example").unwrap().is_empty()).await;
        assert!(began.elapsed() > Duration::from_secs(6), "{trouble:?}: {:?}", began.elapsed());
        // And it comes back.
        server.has("api.example", &["10.0.0.3"], 60);
        until("a good answer", || addresses(&names, "api.example").unwrap() == ["10.0.0.3"]).await;
    }
}

#[tokio::test]
async fn a_name_that_does_not_exist_any_more_has_no_address() {
    let server = DnsServer::start();
    server.has("api.example", &["10.0.0.1"], 0);
    let names = names(&server, Times { keep: Duration::from_secs(3600), ..quick() });
    names.want(wanted(&["api.example"]));
    names.settle(PATIENCE).await;
    server.say("api.example", Say::NameError);
    until("no address", || addresses(&names, "api.example").unwrap().is_empty()).await;
}

#[tokio::test]
async fn addresses_are_bounded_and_search_domains_are_not_tried() {
    let server = DnsServer::start();
    let many: Vec<String> = (0..70).map(|at| format!("10.0.1.{at}")).collect();
    server.has("many.example", &many.iter().map(String::as_str).collect::<Vec<_>>(), 60);
    server.has("short", &["10.0.0.1"], 60);
    let names = names(&server, Times::default());
    names.want(wanted(&["many.example", "short", "127.0.0.1", "not a name"]));
    names.settle(PATIENCE).await;
    assert_eq!(addresses(&names, "many.example").unwrap().len(), MOST_ADDRESSES);
    assert_eq!(addresses(&names, "short").unwrap(), ["10.0.0.1"]);
    assert!(addresses(&names, "127.0.0.1").unwrap().is_empty(), "digits are a name, too");
    assert!(addresses(&names, "not a name").unwrap().is_empty());
}
