use super::*;

fn listener(name: &str, port: i32, protocol: &str, hostname: Option<&str>) -> GatewayListeners {
    GatewayListeners {
        name: name.into(),
        port,
        protocol: protocol.into(),
        hostname: hostname.map(str::to_owned),
        ..GatewayListeners::default()
    }
}

/// Reasons of faults after these ListenerSets have joined a Gateway with one listener of port 80.
fn joined(sets: &[(Key, Vec<GatewayListeners>)]) -> Vec<Option<&'static str>> {
    let own = [listener("own", 80, "HTTP", None)];
    let mut listeners = Listener::all(&own);
    Listener::join(&mut listeners, sets.iter().map(|(key, specs)| (key, &specs[..], None)));
    listeners.iter().skip(1).map(|one| one.fault.as_ref().map(|fault| fault.reason)).collect()
}

#[test]
fn a_namespace_takes_no_more_than_its_share_of_listeners() {
    let many = |namespace: &str, name: &str, first: i32| {
        let specs = (0..64).map(|at| listener(&format!("l{at}"), first + at, "HTTP", None));
        (Key::new(namespace, name), specs.collect::<Vec<_>>())
    };
    // Those of no port, and those that are in conflict, take no place.
    let broken =
        (Key::new("a", "broken"), vec![listener("l", 80, "HTTP", None), listener("m", 0, "HTTP", None)]);
    let sets: Vec<_> = (0..5)
        .map(|at| many("a", &format!("set-{at}"), 1000 + 64 * at))
        .chain([broken.clone(), broken, many("b", "set", 5000)])
        .collect();
    let faults = joined(&sets);
    assert!(faults[..256].iter().all(Option::is_none));
    assert!(faults[256..320].iter().all(|fault| *fault == Some("TooManyListeners")));
    assert!(faults[324..].iter().all(Option::is_none), "another namespace has its own share");
    // Together they have a limit, too.
    let sets: Vec<_> = (0..6)
        .flat_map(|namespace| (0..4).map(move |at| (namespace, at)))
        .map(|(namespace, at)| {
            many(&format!("n{namespace}"), &format!("set-{at}"), 1000 + 64 * (4 * namespace + at))
        })
        .collect();
    let served = joined(&sets).iter().filter(|fault| fault.is_none()).count();
    assert_eq!(served, MOST_LISTENERS - 1);
}

#[test]
fn many_listeners_that_are_in_conflict_are_not_compared_with_each_other() {
    let specs: Vec<_> =
        (0..64).map(|at| listener(&format!("l{at}"), 443, "HTTPS", Some("*.example"))).collect();
    let sets: Vec<_> = (0..400).map(|at| (Key::new("a", format!("set-{at}")), specs.clone())).collect();
    let faults = joined(&sets);
    assert_eq!(faults.iter().filter(|fault| fault.is_none()).count(), 1);
    assert_eq!(faults.len(), 25_600);
}

fn conflicts(specs: &[GatewayListeners]) -> Vec<Option<&'static str>> {
    Listener::all(specs).iter().map(|l| l.conflict.as_ref().map(|c| c.reason)).collect()
}

#[test]
fn listeners_that_nothing_tells_apart_are_in_conflict_and_none_wins() {
    for (specs, expected) in [
        (
            vec![listener("a", 80, "HTTP", Some("x.example")), listener("b", 80, "HTTP", Some("X.example"))],
            vec![Some("HostnameConflict"); 2],
        ),
        (
            vec![listener("a", 80, "HTTP", None), listener("b", 80, "HTTP", None)],
            vec![Some("HostnameConflict"); 2],
        ),
        (vec![listener("a", 80, "HTTP", None), listener("b", 80, "HTTP", Some("x.example"))], vec![None; 2]),
        (vec![listener("a", 80, "HTTP", None), listener("b", 81, "HTTP", None)], vec![None; 2]),
        (
            vec![listener("a", 443, "HTTP", None), listener("b", 443, "HTTPS", None)],
            vec![Some("ProtocolConflict"); 2],
        ),
        (
            vec![
                listener("a", 443, "HTTPS", Some("*.example")),
                listener("b", 443, "TLS", Some("*.example")),
            ],
            vec![Some("ProtocolConflict"); 2],
        ),
        (
            vec![
                listener("a", 443, "HTTPS", Some("a.example")),
                listener("b", 443, "TLS", Some("b.example")),
            ],
            vec![None; 2],
        ),
        (
            vec![listener("a", 80, "HTTP", None), listener("b", 80, "TCP", None)],
            vec![Some("ProtocolConflict"); 2],
        ),
        (
            vec![listener("a", 80, "TCP", None), listener("b", 80, "TCP", None)],
            vec![Some("HostnameConflict"); 2],
        ),
        // UDP has ports of its own.
        (vec![listener("a", 80, "TCP", None), listener("b", 80, "UDP", None)], vec![None; 2]),
        (vec![listener("a", 80, "HTTP", None), listener("b", 80, "UDP", None)], vec![None; 2]),
    ] {
        assert_eq!(conflicts(&specs), expected, "{specs:?}");
    }
}

#[test]
fn only_the_parties_of_a_conflict_are_refused() {
    let specs = [
        listener("a", 80, "HTTP", None),
        listener("b", 80, "HTTP", None),
        listener("c", 80, "HTTP", Some("x")),
    ];
    let faults: Vec<_> = Listener::all(&specs).iter().map(|l| l.fault.as_ref().map(|f| f.reason)).collect();
    assert_eq!(faults, [Some("Invalid"), Some("Invalid"), None]);
}
