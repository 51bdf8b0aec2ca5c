//! tls.frontend: what clients must show.

use crate::support::{
    Authority, Certificate, Connection, Origin, Program, Scene, class, config_map, free_port, gateway_of,
    get, get_with, route_to, service, until,
};

struct Site {
    port: u16,
    tls: u16,
    other: u16,
    _shop: Origin,
    _program: Program,
    scene: Scene,
}

/// A plain listener, and two with HTTPS: the second asks for what `other` says.
fn site(default: &str, other: &str, more: &str) -> Site {
    let (port, tls, second, shop) = (free_port(), free_port(), free_port(), Origin::new("shop"));
    let https = |name: &str, port: u16| {
        format!("{{name: {name}, protocol: HTTPS, port: {port}, tls: {{certificateRefs: [{{name: cert}}]}}}}")
    };
    let listeners =
        [format!("{{name: http, protocol: HTTP, port: {port}}}"), https("one", tls), https("two", second)];
    let per_port = if other.is_empty() {
        String::new()
    } else {
        format!(", perPort: [{{port: {second}, tls: {{validation: {other}}}}}]")
    };
    let gateway = gateway_of("web", &listeners).replace(
        "  gatewayClassName: varnish\n",
        &format!("  gatewayClassName: varnish\n  tls: {{frontend: {{default: {{validation: {default}}}{per_port}}}}}\n"),
    );
    let all = [
        class(),
        gateway,
        Certificate::new("shop.example.com").secret("cert"),
        service("shop", &[shop.address()]),
        route_to("shop", "/", "shop"),
        more.to_owned(),
    ];
    let scene = Scene::new(&all.concat());
    let program = scene.serve();
    Site { port, tls, other: second, _shop: shop, _program: program, scene }
}

const BY_CA: &str = "{caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}";

#[test]
fn only_clients_with_a_certificate_of_the_ca_come_in() {
    let (ca, other) = (Authority::new(), Authority::new());
    let fallback =
        "{mode: AllowInsecureFallback, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}";
    let site = site(BY_CA, fallback, &ca.config_map("ca"));
    let status =
        |port: u16, leaf| get_with(port, "shop.example.com", leaf, "/").ok().map(|answer| answer.status);
    let (good, expired, foreign) = (ca.leaf(&["me"]), ca.expired(&["me"]), other.leaf(&["me"]));
    until("the port is open", || status(site.tls, Some(&good)) == Some(200));
    for bad in [None, Some(&expired), Some(&foreign)] {
        assert_eq!(status(site.tls, bad), None);
    }
    for any in [Some(&good), Some(&expired), Some(&foreign), None] {
        assert_eq!(status(site.other, any), Some(200));
    }
    site._program.wait_for_line(&["AllowInsecureFallback", "ConfigurationChanged"]);
    assert_eq!(get(site.port, "x", "/").status, 200, "plain HTTP asks for nothing");
}

#[test]
fn a_port_whose_clients_cannot_be_checked_is_closed() {
    let ca = Authority::new();
    let site = site(BY_CA, "", &config_map("ca", "nonsense"));
    site._program.wait_for_line(&["listener one", "NoValidCACertificate"]);
    assert!(Connection::open(site.tls).is_err());
    assert_eq!(get(site.port, "x", "/").status, 200);
    let good = ca.leaf(&["me"]);
    let text = std::fs::read_to_string(site.scene.manifest("all.yaml")).unwrap();
    let head = text.split("apiVersion: v1\nkind: ConfigMap").next().unwrap().to_owned();
    site.scene.write("all.yaml", &(head + &ca.config_map("ca")));
    until("the CA is there", || get_with(site.tls, "shop.example.com", Some(&good), "/").is_ok());
    assert!(get_with(site.tls, "shop.example.com", None, "/").is_err());
}
