use std::collections::BTreeMap;

use model::ghost;
use router::Router;

use super::*;

/// A router with one Service for one route, with these ports as endpoints.
fn router(route: &str, service: &str, tls: Option<&str>, ports: &[u16], turns: bool) -> Router {
    let endpoints =
        ports.iter().map(|port| ghost::Endpoint { address: [127, 0, 0, 1].into(), port: *port }).collect();
    let group = ghost::Group {
        weight: 1,
        endpoints,
        name: Some(service.into()),
        tls: tls.map(Into::into),
        balancing: turns.then_some(model::Balancing::RoundRobin),
        ..ghost::Group::default()
    };
    let route =
        ghost::Route { backends: [group].into(), route_name: route.into(), ..ghost::Route::default() };
    let mut config = ghost::Config::default();
    config.vhosts.insert("*".into(), ghost::Vhost { routes: vec![route], ..ghost::Vhost::default() });
    Router::compile(&config).unwrap().router
}

fn of(router: &Router) -> &router::Group {
    &router.rules()[0].groups()[0]
}

/// One Service, and what is known about it.
struct Service {
    health: Health,
    router: Router,
    group: Arc<Group>,
}

impl Service {
    fn with(endpoints: u16, turns: bool) -> Self {
        let ports: Vec<u16> = (1..=endpoints).collect();
        let router = router("shop/web", "shop/web:80", None, &ports, turns);
        let health = Health::default();
        health.clock.advance(Duration::ZERO);
        let group = health.group("shop/web", of(&router));
        Self { health, router, group }
    }

    fn fails(&self, at: usize, fault: Fault) -> Option<Ejected> {
        self.group.failed(at, fault, &self.health, Instant::now())
    }

    /// Until it is avoided.
    fn ejects(&self, at: usize) -> Ejected {
        (0..FAILURES).find_map(|_| self.fails(at, Fault::Connection)).unwrap()
    }

    fn advance(&self, millis: u64) {
        self.health.clock.advance(Duration::from_millis(millis));
    }

    /// Picks by a fixed sequence of numbers that are spread evenly.
    fn picks(&self, count: u64) -> BTreeMap<usize, u64> {
        let mut picks = BTreeMap::new();
        for number in 0..count {
            let random = ((u128::from(number) << 64) / u128::from(count)) as u64 + 1;
            let at =
                self.group.pick(of(&self.router), &self.health.clock, random, &Tried::default()).unwrap();
            *picks.entry(at).or_default() += 1;
        }
        picks
    }
}

#[test]
fn an_endpoint_is_avoided_after_five_failures_in_a_row() {
    let service = Service::with(3, false);
    for _ in 0..10 {
        for _ in 1..FAILURES {
            assert_eq!(service.fails(1, Fault::Connection), None);
        }
        service.group.succeeded(1, &service.health.clock, Instant::now());
    }
    assert_eq!(service.picks(300).len(), 3, "a success in between begins the count again");
    let ejected = service.ejects(1);
    assert!(ejected.is_first);
    assert!((5..=7).contains(&ejected.time.as_secs()), "{ejected:?}");
    let picks = service.picks(300);
    assert_eq!(picks.keys().copied().collect::<Vec<_>>(), [0, 2], "{picks:?}");
    assert_eq!((service.health.avoided().len(), service.health.ejections()), (1, 1));
}

#[test]
fn the_share_grows_in_slow_start() {
    let service = Service::with(2, false);
    service.ejects(0);
    let until = service.group.endpoints[0].until.load(Ordering::Relaxed);
    assert_eq!(service.group.endpoints[0].share(until - 1), 0);
    assert_eq!(service.group.endpoints[0].share(until), 100);
    assert_eq!(service.group.endpoints[0].share(until + 15_000), 550);
    assert_eq!(service.group.endpoints[0].share(until + 29_999), 999);
    assert_eq!(service.group.endpoints[0].share(until + 30_000), 1_000);
    service.advance(until - service.health.clock.now());
    assert_eq!(service.picks(11_000)[&0], 1_000, "100 of 1100");
    service.advance(15_000);
    assert_eq!(service.picks(15_500)[&0], 5_500, "550 of 1550");
    service.advance(15_000);
    assert_eq!(service.picks(1_000)[&0], 500);
    assert!(service.health.avoided().is_empty());
    // Whole again: nothing of it is left.
    service.advance(10_000);
    service.group.succeeded(0, &service.health.clock, Instant::now());
    assert_eq!(service.group.endpoints[0].until.load(Ordering::Relaxed), 0);
    assert_eq!(service.picks(2)[&0], 1);
    assert_eq!(service.group.restless.load(Ordering::Relaxed), 0);
}

#[test]
fn an_endpoint_that_flaps_is_avoided_for_longer_each_time() {
    let service = Service::with(2, false);
    let mut expected = 5;
    let mut ejected = service.ejects(0);
    for round in 1..12 {
        let seconds = ejected.time.as_secs();
        assert!((expected..=expected + expected / 4 + 1).contains(&seconds), "{round}: {ejected:?}");
        assert_eq!(ejected.is_first, round == 1);
        service.advance(u64::try_from(ejected.time.as_millis()).unwrap() + 1);
        // In slow start one failed connection is enough, but not one failed answer: a client may have caused it.
        assert_eq!(service.fails(0, Fault::Answer), None);
        ejected = service.fails(0, Fault::Connection).unwrap();
        expected = (expected * 2).min(300);
    }
    service.advance(500_000);
    assert!(service.ejects(0).time.as_secs() <= 7, "whole in between: it begins at the first time");
}

#[test]
fn failures_of_requests_that_began_before_the_avoidance_do_not_extend_it() {
    let service = Service::with(2, false);
    let ejected = service.ejects(0);
    for _ in 0..20 {
        assert_eq!(service.fails(0, Fault::Connection), None, "it is avoided already");
    }
    service.advance(u64::try_from(ejected.time.as_millis()).unwrap() + 1);
    let endpoint = &service.group.endpoints[0];
    let (before, now) = (endpoint.since.load(Ordering::Relaxed) - 1, service.health.clock.now());
    for _ in 0..20 {
        assert_eq!(endpoint.failed(Fault::Connection, (before, now), 0), None);
    }
    assert!(endpoint.failed(Fault::Connection, (before + 1, now), 0).is_some());
}

#[test]
fn at_most_half_of_a_group_is_avoided() {
    for (endpoints, failing, avoided) in [(1, 1, 0), (2, 1, 1), (3, 1, 1), (3, 2, 1), (4, 3, 2), (7, 6, 3)] {
        let service = Service::with(endpoints, false);
        for at in 0..failing {
            for _ in 0..FAILURES {
                service.fails(at, Fault::Connection);
            }
        }
        let picks = service.picks(700);
        assert_eq!(picks.len(), usize::from(endpoints) - avoided, "{failing} of {endpoints}: {picks:?}");
        assert_eq!(service.health.avoided().len(), avoided);
        assert!(picks.contains_key(&(usize::from(endpoints) - 1)));
    }
}

#[test]
fn where_all_fail_all_are_used_and_a_success_ends_the_avoidance() {
    for turns in [false, true] {
        let service = Service::with(4, turns);
        for at in 0..4 {
            service.ejects(at);
        }
        let picks = service.picks(400);
        assert!(picks.len() == 4 && picks.values().all(|count| *count == 100), "{turns} {picks:?}");
        assert!(service.health.avoided().is_empty());
        service.group.succeeded(2, &service.health.clock, Instant::now());
        let share = service.group.endpoints[2].share(service.health.clock.now());
        assert_eq!(share, FIRST_SHARE, "slow start begins");
    }
}

#[test]
fn endpoints_that_take_turns_are_avoided_too() {
    let service = Service::with(3, true);
    let picks = service.picks(300);
    assert!(picks.values().all(|count| *count == 100), "{picks:?}");
    service.ejects(0);
    let picks = service.picks(300);
    assert_eq!(picks.keys().copied().collect::<Vec<_>>(), [1, 2], "{picks:?}");
    assert!(picks.values().all(|count| *count >= 100), "{picks:?}");
}

#[test]
fn a_second_try_goes_to_an_endpoint_that_was_not_tried() {
    let service = Service::with(3, false);
    let (group, clock) = (&service.group, &service.health.clock);
    for random in [0, u64::MAX / 2, u64::MAX] {
        let mut tried = Tried::default();
        tried.add(0);
        tried.add(2);
        assert_eq!(group.pick(of(&service.router), clock, random, &tried), Some(1));
        tried.add(1);
        assert!(group.pick(of(&service.router), clock, random, &tried).is_some(), "all were tried");
    }
}

#[test]
fn what_is_known_survives_swaps_for_endpoints_that_stay_and_is_dropped_for_others() {
    let service = Service::with(3, false);
    service.ejects(0);
    service.ejects(2);
    // 127.0.0.1:3 goes, 127.0.0.1:4 comes.
    let next = router("shop/web", "shop/web:80", None, &[4, 1, 2], false);
    let group = service.health.group("shop/web", of(&next));
    let now = service.health.clock.now();
    assert_eq!(group.endpoints.iter().map(|one| one.share(now)).collect::<Vec<_>>(), [WHOLE, 0, WHOLE]);
    drop(service.group);
    service.health.prune();
    assert_eq!(service.health.avoided(), [SocketAddr::from(([127, 0, 0, 1], 1))]);
    let again = service.health.group("shop/web", of(&next));
    assert!(Arc::ptr_eq(&group, &again), "rules with the same endpoints share what is known");
    drop((group, again));
    service.health.prune();
    assert!(service.health.scopes().is_empty());
}

#[test]
fn no_namespace_service_or_profile_decides_about_another() {
    let health = Health::default();
    let ports = &[1, 2];
    let victim = router("shop/web", "shop/web:80", None, ports, false);
    let known = health.group("shop/web", of(&victim));
    for (route, service, tls) in [
        // By a ReferenceGrant.
        ("evil/route", "shop/web:80", None),
        // A Service without a selector, with the addresses of others as endpoints.
        ("evil/route", "evil/copy:80", None),
        ("shop/other", "shop/other:80", None),
        ("shop/web", "shop/web:80", Some("tls-1")),
    ] {
        let other = router(route, service, tls, ports, false);
        let group = health.group(route, of(&other));
        for at in [0, 1] {
            for _ in 0..100 {
                group.failed(at, Fault::Connection, &health, Instant::now());
            }
        }
        let now = health.clock.now();
        assert!(known.endpoints.iter().all(|one| one.share(now) == WHOLE), "{route} {service} {tls:?}");
    }
    // Another route of the same namespace shares what is known about the Service.
    assert!(Arc::ptr_eq(&known, &health.group("shop/third", of(&victim))));
}
