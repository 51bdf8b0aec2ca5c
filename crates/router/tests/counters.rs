//! Requests are counted for their socket and their Service by the way that they took.

use model::ghost::Config;
use model::stats::Flow;
use router::Router;
use router::counters::{HIT, MISS, OTHER, PASS, Registry, RouteCounters, STALE, Way};
use serde_json::json;

/// Rules with these groups each, on two listeners that share a socket and one that has its own.
fn router(rules: &[&[&str]]) -> Result<Router, Box<dyn std::error::Error>> {
    let group =
        |name: &&str| json!({"name": name, "weight": 1, "backends": [{"address": "10.0.0.1", "port": 80}]});
    let routes = rules.iter().enumerate().map(|(index, groups)| {
        let groups: Vec<_> = groups.iter().map(group).collect();
        json!({"route_name": "shop/web", "rule_index": index, "priority": 0, "backend_groups": groups,
               "path_match": {"type": "PathPrefix", "value": format!("/{index}")}})
    });
    let config: Config = serde_json::from_value(json!({
        "version": 2,
        "listeners": [
            {"name": "plain", "socket": "http-80"},
            {"name": "shops", "socket": "http-80", "hostname": "*.shop.com"},
            {"name": "secure", "socket": "https-443"},
        ],
        "vhosts": {"*": {"routes": routes.collect::<Vec<_>>()}},
    }))?;
    Ok(Router::compile(&config)?.router)
}

fn flow(stats: &[model::stats::NamedFlow], name: &str) -> Option<Flow> {
    stats.iter().find(|one| one.name == name).map(|one| one.flow)
}

#[test]
fn ways_are_counted_for_sockets_and_services() {
    let (router, registry) = (router(&[&["a/x:80", "a/y:80"], &["a/x:80"]]).unwrap(), Registry::new());
    let counters = RouteCounters::new(&router, &registry);
    let count = |socket: &str, service: Option<(u32, usize)>, way, status, cache| {
        counters.socket(socket).unwrap().answered(way, status, cache);
        if let Some((rule, group)) = service {
            counters.service(rule, group).unwrap().answered(way, status, cache);
        }
    };
    count("http-80", Some((0, 0)), Way::Cache, 200, HIT);
    count("http-80", Some((1, 0)), Way::Cache, 200, STALE);
    count("http-80", Some((1, 0)), Way::Cache, 503, MISS);
    count("https-443", Some((0, 1)), Way::Direct, 502, PASS);
    count("https-443", None, Way::Own, 404, OTHER);
    let stats = counters.read(&router, None);
    let plain = Flow { requests: [3, 0, 0, 0], errors: [1, 0, 0, 0], hits: 2 };
    assert_eq!(flow(&stats.sockets, "http-80"), Some(plain));
    let secure = Flow { requests: [0, 1, 1, 0], errors: [0, 1, 0, 0], hits: 0 };
    assert_eq!(flow(&stats.sockets, "https-443"), Some(secure));
    assert_eq!(stats.sockets.len(), 2, "listeners of one socket count together");
    // Rules that lead to one Service count together.
    assert_eq!(flow(&stats.services, "a/x:80"), Some(plain));
    assert_eq!(flow(&stats.services, "a/y:80").unwrap().errors, [0, 1, 0, 0]);
    assert!(counters.socket("http-81").is_none());
    assert!(counters.service(0, 2).is_some(), "the position after it is the next rule's");
    assert!(counters.service(1, 1).is_none() && counters.service(2, 0).is_none());
}

#[test]
fn a_reload_goes_on_counting_and_forgets_what_is_gone() {
    let registry = Registry::new();
    let old_router = router(&[&["a/x:80"], &["a/y:80"]]).unwrap();
    let old = RouteCounters::new(&old_router, &registry);
    for rule in [0, 1] {
        old.service(rule, 0).unwrap().answered(Way::Direct, 200, PASS);
        old.of(Some(rule)).unwrap().took(Way::Direct);
    }
    let new_router = router(&[&["a/y:80"]]).unwrap();
    let new = RouteCounters::new(&new_router, &registry);
    drop(old);
    let stats = new.read(&new_router, None);
    assert_eq!(flow(&stats.services, "a/y:80").unwrap().requests, [0, 1, 0, 0]);
    assert_eq!(flow(&stats.services, "a/x:80"), None);
    assert_eq!(stats.routes[0].counts.ways, [0, 1, 0, 0]);
    // It comes back, and begins again.
    let again = RouteCounters::new(&old_router, &registry);
    assert_eq!(flow(&again.read(&old_router, None).services, "a/x:80"), None);
}

#[test]
fn ways_have_the_names_of_the_model() {
    assert_eq!(Way::ALL.map(Way::name), model::stats::WAYS);
}
