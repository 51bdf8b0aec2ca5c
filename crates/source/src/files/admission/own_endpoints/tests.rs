use super::*;

fn service(endpoints: &str, ports: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "web",
        "annotations": {ANNOTATION: endpoints}}, "spec": {"ports": ports}})
}

#[test]
fn addresses_become_slices_by_kind_and_port() {
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080, "appProtocol": "kubernetes.io/h2c"}]);
    let slices = slices(&service("127.0.0.1, 127.0.0.2\n10.0.0.1:9001, [::1]:9001 fd00::1", &ports));
    let found: Vec<_> = slices
        .iter()
        .map(|slice| {
            (text(slice, "addressType"), slice["ports"][0]["port"].as_i64(), list(slice, "endpoints").len())
        })
        .collect();
    assert_eq!(
        found,
        [("IPv4", Some(8080), 2), ("IPv4", Some(9001), 1), ("IPv6", Some(8080), 1), ("IPv6", Some(9001), 1)]
    );
    assert_eq!(slices[0]["metadata"]["namespace"], "web");
    assert_eq!(slices[0]["metadata"]["labels"]["kubernetes.io/service-name"], "shop");
    assert_eq!(slices[0]["ports"][0]["name"], "http");
    assert_eq!(slices[0]["ports"][0]["appProtocol"], "kubernetes.io/h2c");
}

#[test]
fn what_makes_no_sense_is_named_and_becomes_nothing() {
    let one = json!([{"port": 80}]);
    let two = json!([{"name": "a", "port": 80, "targetPort": "web"}, {"name": "b", "port": 81}]);
    for (said, ports, expected) in [
        ("", &one, "names no endpoint"),
        ("localhost:80", &one, "`localhost:80`, which is no IP address"),
        ("127.0.0.1:0", &one, "no IP address"),
        ("127.0.0.1:9001", &two, "has not one port"),
        ("127.0.0.1", &two, "needs ports"),
    ] {
        let mut violations = Violations::new(false);
        check(&service(said, ports), &mut violations);
        let message = violations.into_message();
        assert!(message.contains(expected), "{said}: {message}");
    }
    assert!(slices(&service("localhost", &one)).is_empty());
    let mut violations = Violations::new(false);
    check(&service("127.0.0.1:9001", &one), &mut violations);
    assert!(violations.is_empty());
}
