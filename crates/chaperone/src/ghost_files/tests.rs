use std::net::SocketAddr;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use model::Listener;
use model::matches::{PathMatch, PathMatchType};
use model::routing::Backend;
use router::{Action, Request};
use serde_json::json;

use super::*;

const HOSTS: usize = 90;
const SERVICES: usize = 40;

/// A configuration of a Gateway: what each host leads to, and where the Services are.
#[derive(Clone)]
struct World {
    routing: Routing,
    slices: Vec<Arc<EndpointSlice>>,
}

fn route(host: &str, at: usize, service: usize) -> Route {
    Route {
        path_match: Some(PathMatch { kind: PathMatchType::PathPrefix, value: format!("/{at}") }),
        backends: [Backend {
            service: Some(format!("s{service}").into()),
            namespace: Some("default".into()),
            port: Some(80),
            weight: Some(1),
            ..Backend::default()
        }]
        .into(),
        route_name: format!("default/{host}"),
        rule_index: at as u32,
        ..Route::default()
    }
}

fn slice(service: usize, address: u8) -> Arc<EndpointSlice> {
    let slice = json!({
        "metadata": {"name": format!("s{service}"), "namespace": "default", "labels": {"kubernetes.io/service-name": format!("s{service}")}},
        "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": [format!("10.0.{service}.{address}")]}],
    });
    Arc::new(serde_json::from_value(slice).unwrap())
}

fn host(number: usize) -> String {
    format!("h{number}.example.com")
}

impl World {
    fn new() -> Self {
        let listener =
            Listener { name: "http".to_owned(), socket: "http-80".to_owned(), hostname: None, tls: None };
        let hosts = (0..HOSTS).map(|number| {
            let name = host(number);
            let routes = vec![route(&name, 0, number % SERVICES), route(&name, 1, (number + 1) % SERVICES)];
            (name, Vhost { routes, ..Vhost::default() })
        });
        let routing = Routing { listeners: vec![listener], vhosts: hosts.collect(), ..Routing::default() };
        Self { routing, slices: (0..SERVICES).map(|service| slice(service, 1)).collect() }
    }

    /// One change of any kind.
    fn change(&mut self, random: &mut impl FnMut(usize) -> usize) {
        let name = host(random(HOSTS));
        let vhosts = &mut self.routing.vhosts;
        match random(9) {
            0 => drop(vhosts.remove(&name)),
            1 => {
                let other = host(random(HOSTS));
                if vhosts.get(&other).is_some_and(|other| other.same_as.is_none()) && other != name {
                    vhosts.insert(name, Vhost { same_as: Some(other), ..Vhost::default() });
                }
            }
            2 => {
                let wide = ["*.example.com", "*"][random(2)];
                let routes = vec![route(wide, random(3), random(SERVICES))];
                vhosts.insert(wide.to_owned(), Vhost { routes, ..Vhost::default() });
            }
            3 => {
                let service = random(SERVICES);
                self.slices.retain(|slice| slice.metadata.name != Some(format!("s{service}")));
                if random(2) == 0 {
                    self.slices.push(slice(service, random(250) as u8));
                }
            }
            4 => self.routing.cache_status_header = Some(random(2) == 0),
            5 => self.routing.default = (random(2) == 0).then(|| route("default", 0, random(SERVICES))),
            6 => {
                let mut mirrored = route(&name, 0, random(SERVICES));
                let mirror = model::routing::Mirror {
                    service: format!("s{}", random(SERVICES)),
                    namespace: "default".to_owned(),
                    port: Some(80),
                    ..Default::default()
                };
                mirrored.mirrors.push(mirror);
                vhosts.insert(name, Vhost { routes: vec![mirrored], ..Vhost::default() });
            }
            _ => {
                let routes = (0..1 + random(3)).map(|at| route(&name, at, random(SERVICES))).collect();
                vhosts.insert(name, Vhost { routes, ..Vhost::default() });
            }
        }
        // No host shares the routes of a host that is gone, or that shares others'.
        let real: Vec<String> =
            vhosts.iter().filter(|(_, host)| host.same_as.is_none()).map(|(name, _)| name.clone()).collect();
        vhosts.retain(|_, host| host.same_as.as_ref().is_none_or(|of| real.contains(of)));
    }
}

struct Asked<'a> {
    host: &'a str,
    url: &'a str,
}

impl Request for Asked<'_> {
    fn socket(&self) -> &[u8] {
        b"http-80"
    }

    fn host(&self) -> &[u8] {
        self.host.as_bytes()
    }

    fn method(&self) -> &[u8] {
        b"GET"
    }

    fn url(&self) -> &[u8] {
        self.url.as_bytes()
    }

    fn any_header(&self, _: &str, _: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        false
    }
}

/// Everything that a request gets: the rule, the endpoints, those of mirrors.
type Answer = (Action, Option<(String, u32)>, Vec<SocketAddr>, Vec<SocketAddr>);

fn answer(router: &Router, host: &str, url: &str) -> Answer {
    let decision = router.decide(&Asked { host, url }, 7);
    let rule = decision.rule();
    let group = rule.zip(decision.group()).map(|(rule, group)| &rule.groups()[group]);
    let mirrors = rule.into_iter().flat_map(|rule| rule.mirrors());
    (
        decision.action(),
        rule.map(|rule| (rule.route_name().to_owned(), rule.rule_index())),
        group.map(|group| group.endpoints().to_vec()).unwrap_or_default(),
        mirrors.flat_map(|mirror| mirror.group().endpoints().to_vec()).collect(),
    )
}

/// Xorshift: the same numbers each time, by the seed.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    }
}

fn make(
    files: &mut GhostFiles,
    world: &World,
    index: &mut EndpointIndex,
    idle: bool,
) -> (Ghost, Vec<Notice>) {
    *index = index.following(&world.slices);
    let routing = &world.routing;
    files.make(routing, None, routing, index, idle, finish).unwrap()
}

fn finish(config: &mut Config) {
    config.gateway_id = Some("gw".to_owned());
}

#[test]
fn what_is_made_of_changes_decides_and_tells_like_what_is_made_anew() {
    let (mut uppers, mut bases) = (0, BTreeSet::new());
    for seed in 1..12 {
        let mut random = numbers(seed);
        let (mut world, mut files, mut index) =
            (World::new(), GhostFiles::default(), EndpointIndex::default());
        for step in 0..25 {
            for _ in 0..1 + random(3) {
                world.change(&mut random);
            }
            let (ghost, notices) = make(&mut files, &world, &mut index, step % 7 == 6);
            let fresh_index = EndpointIndex::new(world.slices.iter().map(AsRef::as_ref));
            let (mut config, expected) = resolve::resolve(&world.routing, &fresh_index);
            finish(&mut config);
            let fresh = Router::compile(&config).unwrap().router;
            // What is written says the same, for ghost and for the next start.
            let base = ghost.base.as_ref().map(|base| (&*base.name, Arc::clone(&base.bytes)));
            let read = Ghost::read(Arc::clone(&ghost.bytes), base).unwrap();
            for number in 0..HOSTS + 1 {
                for url in ["/0", "/1/x", "/2", "/none"] {
                    let expected = answer(&fresh, &host(number), url);
                    assert_eq!(
                        answer(&ghost.router, &host(number), url),
                        expected,
                        "{seed} {step} {number} {url}"
                    );
                    assert_eq!(
                        answer(&read.router, &host(number), url),
                        expected,
                        "{seed} {step} {number} {url}"
                    );
                }
            }
            let sorted =
                |notices: &[Notice]| notices.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
            assert_eq!(sorted(&notices), sorted(&expected), "{seed} {step}");
            uppers += usize::from(read.router.rules().len() > 1);
            bases.insert(ghost.base.map(|base| base.name));
        }
    }
    // Otherwise nothing was shown.
    assert!(uppers > 50 && bases.len() > 20, "{uppers} {}", bases.len());
}

/// routing.json as version 2 had it: one entry for each backend.
fn version_2(routing: &Routing) -> serde_json::Value {
    let entries = |route: &serde_json::Value| -> Vec<serde_json::Value> {
        let mut route = route.as_object().unwrap().clone();
        route.insert("priority".to_owned(), 10_300.into());
        let backends = route.remove("backends").unwrap_or(json!([{}]));
        let entry = |backend: &serde_json::Value| {
            let mut entry = route.clone();
            for (name, value) in backend.as_object().unwrap() {
                let of_backend = ["filters", "mirrors"].contains(&name.as_str());
                entry
                    .insert(if of_backend { format!("backend_{name}") } else { name.clone() }, value.clone());
            }
            entry.into()
        };
        backends.as_array().unwrap().iter().map(entry).collect()
    };
    let mut file = serde_json::to_value(routing).unwrap();
    file["version"] = 2.into();
    for host in file["vhosts"].as_object_mut().unwrap().values_mut() {
        host["routes"] = host["routes"].as_array().unwrap().iter().flat_map(entries).collect();
    }
    if let Some(default) = file.get_mut("default") {
        *default = entries(default).remove(0);
    }
    file
}

/// ghost.json as version 2 had it.
fn ghost_version_2(config: &Config) -> String {
    let text = serde_json::to_string(&Config { version: 2, ..config.clone() }).unwrap();
    text.replace("\"backends\":", "\"backend_groups\":").replace("\"endpoints\":", "\"backends\":")
}

#[test]
fn files_of_version_2_are_compiled_to_the_same_as_those_of_today() {
    for seed in 1..6 {
        let mut random = numbers(seed);
        let mut world = World::new();
        for _ in 0..20 {
            world.change(&mut random);
        }
        // Several backends, one that is not valid, and what a backend alone may have.
        let mut split = route(&host(3), 0, 1);
        let mirror = model::routing::Mirror {
            service: "s2".to_owned(),
            namespace: "default".to_owned(),
            ..Default::default()
        };
        let second = Backend { weight: Some(3), mirrors: vec![mirror], ..split.backends[0].clone() };
        let third = Backend { weight: Some(2), ..Backend::default() };
        split.backends = [split.backends[0].clone(), second, third].into();
        let closed = Route { backends: Box::default(), ..route(&host(3), 1, 1) };
        let routes = vec![split, closed, route(&host(3), 2, 7)];
        world.routing.vhosts.insert(host(3), Vhost { routes, ..Vhost::default() });

        let old = version_2(&world.routing).to_string();
        assert!(old.contains("\"backend_mirrors\"") && !old.contains("\"backends\""), "{old}");
        let read = Routing::read(old.as_bytes()).unwrap();
        assert_eq!(read, world.routing, "{seed}");
        let index = EndpointIndex::new(world.slices.iter().map(AsRef::as_ref));
        let (config, _) = resolve::resolve(&read, &index);
        let old = ghost_version_2(&config);
        assert!(old.contains("\"backend_groups\"") && !old.contains("\"endpoints\""), "{old}");
        let of_old = Ghost::read(old.as_bytes().into(), None).unwrap().router;
        let of_new = Router::compile(&resolve::resolve(&world.routing, &index).0).unwrap().router;
        for number in 0..HOSTS + 1 {
            for url in ["/0", "/1/x", "/2", "/none"] {
                let expected = answer(&of_new, &host(number), url);
                assert_eq!(answer(&of_old, &host(number), url), expected, "{seed} {number} {url}");
            }
        }
        let groups = |router: &Router| -> Vec<String> {
            router.rules().iter().map(|rule| format!("{:?}", rule.groups())).collect()
        };
        assert_eq!(groups(&of_old), groups(&of_new), "{seed}");
    }
}

#[test]
fn a_change_writes_the_hosts_that_changed() {
    let (mut world, mut files, mut index) = (World::new(), GhostFiles::default(), EndpointIndex::default());
    let (first, _) = make(&mut files, &world, &mut index, false);
    let (same, _) = make(&mut files, &world, &mut index, false);
    assert!(same.is(&first), "the same is made again");
    let changed = |ghost: &Ghost| -> Vec<String> {
        serde_json::from_slice::<Config>(&ghost.bytes).unwrap().vhosts.into_keys().collect()
    };
    assert_eq!(changed(&first), [""; 0]);
    world.slices[7] = slice(7, 99);
    let (second, _) = make(&mut files, &world, &mut index, false);
    // Every 40th host leads to it, and the host before each.
    assert_eq!(changed(&second), [46, 47, 6, 7, 86, 87].map(host));
    assert_eq!(second.base, first.base);
    assert!(Arc::ptr_eq(second.router.base().unwrap(), first.router.base().unwrap()));
    world.routing.vhosts.remove(&host(3));
    world
        .routing
        .vhosts
        .insert("new.example.com".to_owned(), Vhost { routes: vec![route("new", 0, 1)], ..Vhost::default() });
    let (third, _) = make(&mut files, &world, &mut index, false);
    assert_eq!(changed(&third).len(), 7);
    assert_eq!(serde_json::from_slice::<Config>(&third.bytes).unwrap().removed, [host(3)]);
    // What comes back is not written.
    world = World::new();
    let (fourth, _) = make(&mut files, &world, &mut index, false);
    assert_eq!((changed(&fourth).len(), &fourth.base), (0, &first.base));
}

#[test]
fn many_changes_make_a_new_base_when_nothing_waits_and_very_many_at_once() {
    let (mut world, mut files, mut index) = (World::new(), GhostFiles::default(), EndpointIndex::default());
    let (first, _) = make(&mut files, &world, &mut index, false);
    let renamed = |world: &mut World, numbers: std::ops::Range<usize>| {
        for number in numbers {
            world
                .routing
                .vhosts
                .insert(host(number), Vhost { routes: vec![route("other", 0, 1)], ..Vhost::default() });
        }
    };
    renamed(&mut world, 0..20);
    let (second, _) = make(&mut files, &world, &mut index, false);
    assert!(second.base == first.base && files.wants_base());
    let (third, _) = make(&mut files, &world, &mut index, true);
    assert!(third.base != first.base && !files.wants_base());
    renamed(&mut world, 20..HOSTS);
    let (fourth, _) = make(&mut files, &world, &mut index, false);
    assert!(fourth.base != third.base);
    // Few hosts are one file.
    world.routing.vhosts.retain(|name, _| name.starts_with("h1"));
    assert_eq!(make(&mut files, &world, &mut index, false).0.base, None);
}

/// How long a change takes, and where: `cargo test --workspace --lib -- --ignored --nocapture how_long_a_change_takes`.
#[test]
#[ignore = "measures, proves nothing"]
#[allow(clippy::print_stdout, reason = "it is read by people")]
fn how_long_a_change_takes() {
    println!(
        "bytes: routing::Route {}, routing::Backend {}, ghost::Route {}, ghost::Group {}, router::Rule {}, router::Group {}, EndpointSlice {}, Filters {}, CachePolicy {}",
        size_of::<Route>(),
        size_of::<Backend>(),
        size_of::<model::ghost::Route>(),
        size_of::<model::ghost::Group>(),
        size_of::<router::Rule>(),
        size_of::<router::Group>(),
        size_of::<EndpointSlice>(),
        size_of::<model::filters::Filters>(),
        size_of::<model::CachePolicy>(),
    );
    for hosts in [1_000, 2_000] {
        let mut world = World::new();
        world.routing.vhosts = (0..hosts)
            .map(|number| {
                let name = host(number);
                let routes = (0..10).map(|at| route(&name, at, number * 10 + at)).collect();
                (name, Vhost { routes, ..Vhost::default() })
            })
            .collect();
        let at = |service: usize, last: u8| {
            let mut new = (*slice(service, last)).clone();
            new.endpoints.iter_mut().flatten().for_each(|one| {
                one.addresses = vec![format!("10.{}.{}.{last}", service >> 8, service & 255)];
            });
            Arc::new(new)
        };
        world.slices = (0..hosts * 10).map(|service| at(service, 1)).collect();
        let (mut files, mut index) = (GhostFiles::default(), EndpointIndex::default());
        let begun = std::time::Instant::now();
        let (first, _) = make(&mut files, &world, &mut index, false);
        println!("{hosts} hosts with 10 routes each: the first {:?}", begun.elapsed());
        let base = &first.base.as_ref().unwrap().bytes;
        let begun = std::time::Instant::now();
        let parsed: Config = serde_json::from_slice(base).unwrap();
        let read = begun.elapsed();
        let compiled = Router::compile(&parsed).unwrap();
        println!("  {} bytes, read in {read:?}, compiled in {:?}", base.len(), begun.elapsed() - read);
        drop(compiled);
        for number in 0..3 {
            world.slices[number * 70] = at(number * 70, 2);
            let begun = std::time::Instant::now();
            let next = index.following(&world.slices);
            let followed = begun.elapsed();
            let (ghost, _) = files.make(&world.routing, None, &world.routing, &next, false, finish).unwrap();
            let made = begun.elapsed() - followed;
            index = next;
            println!(
                "  endpoint: slices {followed:?}, files and router {made:?}, {} bytes",
                ghost.bytes.len()
            );
        }
        let below = Arc::new(world.routing.clone());
        let mut above =
            Routing { listeners: below.listeners.clone(), base: Some("b".to_owned()), ..Routing::default() };
        let frame = above.front_over(&below);
        for number in 0..3 {
            above
                .vhosts
                .insert(host(number), Vhost { routes: vec![route("other", 0, number)], ..Vhost::default() });
            let begun = std::time::Instant::now();
            let (ghost, _) = files.make(&above, Some(&below), &frame, &index, false, finish).unwrap();
            println!("  route over a base: {:?}, {} bytes", begun.elapsed(), ghost.bytes.len());
        }
    }
}
