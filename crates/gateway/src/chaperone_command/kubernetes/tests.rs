use model::ghost::Config;
use model::routing::Backend;

use super::*;

fn routing(hosts: &[impl AsRef<str>]) -> Routing {
    let host = |name: &str| {
        let route = Route {
            backends: [Backend {
                service: Some("shop".into()),
                namespace: Some("default".into()),
                port: Some(80),
                ..Backend::default()
            }]
            .into(),
            route_name: format!("default/{name}"),
            ..Route::default()
        };
        (name.to_owned(), Vhost { routes: vec![route], ..Vhost::default() })
    };
    let listeners = vec![model::Listener {
        name: "http".to_owned(),
        socket: "http-80".to_owned(),
        hostname: None,
        tls: None,
    }];
    Routing {
        listeners,
        vhosts: hosts.iter().map(|name| host(name.as_ref())).collect(),
        ..Routing::default()
    }
}

fn hosts(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("h{number}")).collect()
}

fn slice(address: &str) -> Arc<EndpointSlice> {
    let slice = json!({
        "metadata": {"name": "s", "namespace": "default", "labels": {"kubernetes.io/service-name": "shop"}},
        "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": [address]}],
    });
    Arc::new(serde_json::from_value(slice).unwrap())
}

fn stored(new: &Routing, base: &Routing) -> Stored {
    let bytes = serde_json::to_vec(base).unwrap().into();
    Stored {
        main_vcl: Some("vcl 4.1;".to_owned()),
        routing: Some(serde_json::to_string(&new.since(base, "abc")).unwrap()),
        base: Some(source::kubernetes::Base { sha256: "abc".to_owned(), bytes }),
    }
}

#[test]
fn ports_of_the_pod_itself_are_no_endpoints() {
    let on = |address: &str, port: u16| {
        let slice = json!({
            "metadata": {"name": format!("s-{port}"), "namespace": "default", "labels": {"kubernetes.io/service-name": "shop"}},
            "addressType": "IPv4", "ports": [{"port": port}], "endpoints": [{"addresses": [address]}],
        });
        Arc::new(serde_json::from_value::<EndpointSlice>(slice).unwrap())
    };
    let mut routing = routing(&["a"]);
    let listener = |name: &str| json!({"name": name, "socket": name});
    routing.listeners = serde_json::from_value(json!([listener("http-80"), listener("https-443")])).unwrap();
    let text = serde_json::to_string(&routing).unwrap();
    let mut last = Last { own_ports: vec![8081, 6082, 9000], ..Last::default() };
    last.take(Stored { main_vcl: None, routing: Some(text), base: None }, "default").unwrap();
    let own = [8081, 6082, 9000, 80, 443].map(|port| on("127.0.0.1", port));
    let slices: Vec<_> = own.into_iter().chain([on("10.0.0.1", 8081), on("127.0.0.1", 8080)]).collect();
    let desired = last.desired(&slices, &BTreeMap::new(), None, false).unwrap().0;
    let ghost: Config = serde_json::from_slice(&desired.ghost.as_ref().unwrap().bytes).unwrap();
    let endpoints = &ghost.vhosts["a"].routes[0].backends[0].endpoints;
    let used: Vec<String> = endpoints.iter().map(|one| format!("{}:{}", one.address, one.port)).collect();
    assert_eq!(used, ["10.0.0.1:8081", "127.0.0.1:8080"]);
}

#[test]
fn what_has_changed_since_a_base_is_told_to_ghost_with_the_same_base() {
    let (base, new) = (routing(&hosts(0..100)), routing(&hosts(1..101)));
    let mut last = Last::default();
    let mut fed = |new: &Routing, slice: &Arc<EndpointSlice>| {
        last.take(stored(new, &base), "default").unwrap();
        assert!(last.namespaces().contains("default") && !last.is_idle());
        let slices = [Arc::clone(slice)];
        let desired = last.desired(&slices, &BTreeMap::new(), None, false).unwrap().0;
        let ghost = desired.ghost.unwrap();
        let ghost_base = ghost.base.clone().unwrap();
        let head: Config = serde_json::from_slice(&ghost.bytes).unwrap();
        assert_eq!(head.base.as_deref(), Some(&*ghost_base.name));
        let (whole, _) = resolve::resolve(new, &EndpointIndex::new([&**slice]));
        assert_eq!(ghost.config().unwrap(), whole);
        (ghost_base.name, desired.tag, head.vhosts.len())
    };
    let slice_one = slice("10.0.0.1");
    let (first, one, _) = fed(&base, &slice_one);
    let (second, two, changed) = fed(&new, &slice_one);
    assert_eq!((&first, changed), (&second, 1));
    assert_ne!(one, two);
    // Other endpoints of all hosts make another base.
    let (third, again, _) = fed(&new, &slice("10.0.0.2"));
    assert_ne!(second, third);
    assert_eq!(two, again);
}

#[test]
fn namespaces_of_hosts_that_are_gone_are_not_watched() {
    let mut base = routing(&["a", "b", "c"]);
    for (host, namespace) in [("b", "second"), ("c", "third")] {
        base.vhosts.get_mut(host).unwrap().routes[0].backends[0].namespace = Some(namespace.into());
    }
    let mirror = model::routing::Mirror {
        service: "copy".to_owned(),
        namespace: "mirrors".to_owned(),
        ..Default::default()
    };
    base.vhosts.get_mut("b").unwrap().routes[0].mirrors.push(mirror);
    let mut last = Last::default();
    let mut namespaces = |new: &Routing| {
        last.take(stored(new, &base), "default").unwrap();
        Vec::from_iter(last.namespaces()).join(" ")
    };
    assert_eq!(namespaces(&base), "default mirrors second third");
    let mut fewer = base.clone();
    fewer.vhosts.remove("b");
    fewer.vhosts.get_mut("c").unwrap().routes[0].backends[0].namespace = Some("other".into());
    assert_eq!(namespaces(&fewer), "default other");
}

#[test]
fn names_of_listeners_are_those_of_base_and_rest() {
    let with = |names: &[&str]| {
        let hosts = names.iter().map(|name| ((*name).to_owned(), vec!["default/pair".to_owned()]));
        let tls = model::ListenerTls { hosts: hosts.collect(), ..Default::default() };
        let mut routing = routing(&["a", "b"]);
        routing.listeners[0].socket = "https-443".to_owned();
        routing.listeners[0].tls = Some(tls);
        routing
    };
    let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
    let pem = Pem { chain: made.cert.pem().into_bytes(), key: made.signing_key.serialize_pem().into_bytes() };
    let pairs = BTreeMap::from([("default/pair".to_owned(), pem)]);
    let names = |desired: &Desired| -> Vec<String> {
        let hosts = desired.tls.listeners.iter().flat_map(|listener| &listener.hosts);
        hosts.filter_map(|host| host.hostname.clone()).collect()
    };
    let mut last = Last::default();
    last.take(stored(&with(&["b", "c"]), &with(&["a", "b"])), "default").unwrap();
    let (desired, tls) = last.desired(&[slice("10.0.0.1")], &pairs, None, false).unwrap();
    assert_eq!(names(&desired), ["b", "c"]);
    // And a start without API server has them, too.
    let dir = tempfile::tempdir().unwrap();
    let work_dir = dir.path().join("varnish");
    let mut kept = Kept::new(&work_dir);
    kept.write(last.keep(&desired, tls, &pairs).unwrap());
    let found = kept.read().unwrap();
    let mut restored = Last::default();
    restored.restore(&found);
    let (again, _) = restored.desired(&[], &found.certificates(), Some(&found), false).unwrap();
    assert_eq!(names(&again), ["b", "c"]);
    // varnishd reads the work directory: no private key is in there.
    for file in std::fs::read_dir(&work_dir).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("PRIVATE KEY"), "{text}");
    }
}

/// While pods are replaced, those of both arrangements read the same routing.json.
#[test]
fn the_pods_arrangement_decides_who_opens_plain_ports() {
    let base = routing(&["a"]);
    for (http_in_front, written) in [(true, true), (true, false), (false, true), (false, false)] {
        let new = Routing { http_in_front: written, ..routing(&["a", "b"]) };
        let mut last = Last { http_in_front, ..Last::default() };
        last.take(stored(&new, &base), "default").unwrap();
        let (desired, tls) = last.desired(&[slice("10.0.0.1")], &BTreeMap::new(), None, false).unwrap();
        let open = |desired: &Desired| {
            let sockets: Vec<_> = desired.tls.listeners.iter().map(|one| one.socket.clone()).collect();
            (desired.tls.http, sockets)
        };
        let expected = if http_in_front { vec!["http-80".to_owned()] } else { Vec::new() };
        assert_eq!(open(&desired), (http_in_front, expected));
        // So it is after a restart without API server.
        let kept = last.keep(&desired, tls, &BTreeMap::new()).unwrap();
        let mut restored = Last { http_in_front, ..Last::default() };
        restored.restore(&kept);
        let (again, _) = restored.desired(&[], &BTreeMap::new(), Some(&kept), false).unwrap();
        assert_eq!(open(&again), open(&desired));
    }
}

/// A host of version 2, with two backends.
const VERSION_2: &str = r#"{"version":2,"listeners":[{"name":"http","socket":"http-80"}],"vhosts":{"a":{"routes":[
    {"route_name":"default/a","rule_index":0,"priority":1,"service":"shop","port":80,"weight":1},
    {"route_name":"default/a","rule_index":0,"priority":1,"service":"none","port":80,"weight":3}]}},
    "default":{"kind":"Ingress","route_name":"default/b","rule_index":0,"priority":0,"service":"shop","port":80}}"#;

/// An operator of the release before has written it, or this pod before it was upgraded.
#[test]
fn version_2_is_served_and_kept_like_the_present_one() {
    let mut last = Last::default();
    let stored = |text: &str| Stored { main_vcl: None, routing: Some(text.to_owned()), base: None };
    last.take(Stored { main_vcl: Some("vcl 4.1;".to_owned()), ..stored(VERSION_2) }, "default").unwrap();
    let (desired, tls) = last.desired(&[slice("10.0.0.1")], &BTreeMap::new(), None, false).unwrap();
    let ghost = desired.ghost.as_ref().unwrap().config().unwrap();
    let groups = |route: &model::ghost::Route| -> Vec<(u32, usize)> {
        route.backends.iter().map(|group| (group.weight, group.endpoints.len())).collect()
    };
    assert_eq!(groups(&ghost.vhosts["a"].routes[0]), [(1, 1), (3, 0)]);
    assert_eq!(groups(ghost.default.as_ref().unwrap()), [(1, 1)]);
    // A later version is refused, and what is served stays.
    let later = VERSION_2.replace("\"version\":2", "\"version\":4");
    let why = format!("{:#}", last.take(stored(&later), "default").unwrap_err());
    assert!(why.contains("routing.json has version 4"), "{why}");
    assert_eq!(last.desired(&[slice("10.0.0.1")], &BTreeMap::new(), None, false).unwrap().0, desired);
    // What a pod kept of it is read after an upgrade; `front` is part of the same file.
    let front = serde_json::from_str::<serde_json::Value>(VERSION_2).unwrap();
    let kept = last.keep(&desired, tls, &BTreeMap::new()).unwrap();
    let mut json = serde_json::to_value(kept).unwrap();
    json["front"] = front;
    let kept: KeptConfiguration = serde_json::from_value(json).unwrap();
    let mut restored = Last::default();
    restored.restore(&kept);
    for routing in [restored.routing.as_ref().unwrap(), restored.front.as_ref().unwrap()] {
        assert_eq!(routing.vhosts["a"].routes[0].backends.len(), 2);
        assert_eq!(routing.default.as_ref().unwrap().backends.len(), 1);
    }
}

#[test]
fn a_base_that_is_not_the_files_is_refused() {
    let base = routing(&["a"]);
    let wrong = Stored { base: None, ..stored(&base, &base) };
    let error = Last::default().take(wrong, "default").unwrap_err();
    assert!(error.to_string().contains("another base"), "{error}");
}

#[test]
fn a_full_directory_keeps_what_was_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("last-configuration.json");
    kept::put(&path, b"good").unwrap();
    let beside = path.with_extension("new");
    std::os::unix::fs::symlink("/dev/full", &beside).unwrap();
    let error = kept::put(&path, b"newer").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(std::fs::read(&path).unwrap(), b"good");
    assert!(beside.symlink_metadata().is_err(), "half a file is left");
    kept::put(&path, b"newer").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"newer");
}

#[test]
fn what_was_served_is_kept_with_its_base() {
    let dir = tempfile::tempdir().unwrap();
    let mut kept = Kept::new(&dir.path().join("varnish"));
    let base = routing(&hosts(0..100));
    let mut last = Last::default();
    last.take(stored(&routing(&hosts(0..99)), &base), "default").unwrap();
    let (desired, tls) = last.desired(&[slice("10.0.0.1")], &BTreeMap::new(), None, false).unwrap();
    kept.write(last.keep(&desired, tls, &BTreeMap::new()).unwrap());
    let found = kept.read().unwrap();
    let mut restored = Last::default();
    restored.restore(&found);
    let (again, _) = restored.desired(&[], &BTreeMap::new(), Some(&found), false).unwrap();
    assert_eq!(again, desired);
    // Before its base is read, the rest of it is not the whole.
    assert!(restored.desired(&[], &BTreeMap::new(), None, false).is_err());
}
