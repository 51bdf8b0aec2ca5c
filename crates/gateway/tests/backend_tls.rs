//! BackendTLSPolicy: varnishd reaches backends through the front, which verifies them.

use std::any::Any;
use std::net::SocketAddr;

use crate::support::{
    Ask, Authority, Certificate, Leaf, Origin, PickyOrigin, Program, Scene, TlsOrigin, config_map, free_port,
    get, secret, shop_on, until,
};

/// For Service `shop`; `validation` as in YAML's flow style.
fn policy(name: &str, validation: &str) -> String {
    format!(
        "\
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: {name}}}
spec:
  targetRefs: [{{group: '', kind: Service, name: shop}}]
  validation: {validation}
---
"
    )
}

const BY_CA: &str = "{hostname: shop.internal, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}";

/// Gateway `web` with one route to Service `shop`, whose endpoint speaks TLS.
struct Site {
    port: u16,
    origin: Origin,
    /// What speaks TLS there.
    _tls: Box<dyn Any>,
    program: Program,
    scene: Scene,
}

impl Site {
    fn new(leaf: &Leaf, more: &[String]) -> Self {
        let origin = Origin::new("shop");
        let tls = TlsOrigin::new(leaf, origin.address());
        let address = tls.address();
        Self::of(origin, Box::new(tls), address, more)
    }

    /// Whose endpoint takes certificates of these clients alone.
    fn picky(leaf: &Leaf, clients: &Authority, more: &[String]) -> Self {
        let tls = PickyOrigin::new(leaf, clients);
        let address = tls.address();
        Self::of(Origin::new("shop"), Box::new(tls), address, more)
    }

    fn of(origin: Origin, tls: Box<dyn Any>, endpoint: SocketAddr, more: &[String]) -> Self {
        let port = free_port();
        let scene = Scene::new(&shop_on(port, &[endpoint]));
        scene.write("more.yaml", &more.concat());
        let program = scene.serve();
        Self { port, origin, _tls: tls, program, scene }
    }

    fn status(&self) -> u16 {
        get(self.port, "shop.example.com", "/").status
    }

    #[track_caller]
    fn is_refused(&self, why: &str) {
        assert!(matches!(self.status(), 502 | 503));
        self.program.wait_for_line(&["is not reached by TLS (default/shop", why]);
        assert_eq!(self.origin.seen().len(), 0, "nothing reaches a backend that is not verified");
    }
}

#[test]
fn a_backend_is_verified_by_its_ca_and_name_and_its_connections_are_kept() {
    let ca = Authority::new();
    let site = Site::new(&ca.leaf(&["shop.internal"]), &[ca.config_map("ca"), policy("shop", BY_CA)]);
    for _ in 0..5 {
        let answer = get(site.port, "shop.example.com", "/a");
        assert_eq!((answer.status, answer.origin()), (200, "shop"));
    }
    let sent = vec![b'x'; 300_000];
    let answer = Ask::new("POST", "shop.example.com", "/upload").body(sent.clone()).send(site.port);
    assert_eq!(answer.body, sent);
    assert_eq!(
        site.origin.last_seen().header("Host"),
        Some("shop.example.com"),
        "the client's, as without TLS"
    );
    // Six requests. One with a body gets a fresh one, since it could not be sent twice; one that comes too early, too.
    assert!(site.origin.connections() <= 4, "varnishd pools");
}

#[test]
fn what_cannot_be_verified_gets_nothing() {
    let (ca, other) = (Authority::new(), Authority::new());
    for (leaf, why) in [
        (other.leaf(&["shop.internal"]), "does the BackendTLSPolicy name the CA"),
        (ca.leaf(&["other.internal"]), "compare hostname and subjectAltNames"),
        (ca.expired(&["shop.internal"]), "renew its certificate"),
        (self_signed("shop.internal"), "does the BackendTLSPolicy name the CA"),
    ] {
        let site = Site::new(&leaf, &[ca.config_map("ca"), policy("shop", BY_CA)]);
        site.is_refused(why);
    }
}

fn self_signed(name: &str) -> Leaf {
    let Certificate { chain, key, .. } = Certificate::new(name);
    Leaf { chain, key }
}

#[test]
fn a_self_signed_certificate_counts_where_it_is_named_itself() {
    let leaf = self_signed("shop.internal");
    let site = Site::new(&leaf, &[config_map("ca", &leaf.chain), policy("shop", BY_CA)]);
    assert_eq!(site.status(), 200);
}

#[test]
fn the_systems_cas_are_believed_where_the_policy_says_so() {
    let (port, origin, ca) = (free_port(), Origin::new("shop"), Authority::new());
    let tls = TlsOrigin::new(&ca.leaf(&["shop.internal"]), origin.address());
    let system = policy("shop", "{hostname: shop.internal, wellKnownCACertificates: System}");
    let all = [shop_on(port, &[tls.address()]), system];
    let scene = Scene::new(&all.concat());
    let file = scene.path("system.pem");
    for (known, status) in [(Authority::new(), 503), (ca, 200)] {
        std::fs::write(&file, &known.pem).unwrap();
        let mut command = Program::command();
        command.env("SSL_CERT_FILE", &file).env_remove("SSL_CERT_DIR");
        command.args(["serve", "--bind", "127.0.0.1", "-f"]).arg(scene.path("manifests"));
        let program = Program::spawn(command);
        program.wait_for_line(&["Gateway default/web: reloaded"]);
        assert_eq!(get(port, "x", "/").status, status);
        drop(program);
    }
}

/// What is wrong with what clients of backends show: none of it, or the last good one.
#[test]
fn a_broken_client_pair_leaves_the_last_good_one_in_use() {
    let (ca, clients) = (Authority::new(), Authority::new());
    let (mine, other) = (clients.leaf(&["gateway"]), clients.leaf(&["other"]));
    let more = [ca.config_map("ca"), policy("shop", BY_CA), secret("mine", &mine.chain, &mine.key)];
    let site = Site::picky(&ca.leaf(&["shop.internal"]), &clients, &more);
    let all = std::fs::read_to_string(site.scene.manifest("all.yaml")).unwrap();
    let with = "  gatewayClassName: varnish\n  tls: {backend: {clientCertificateRef: {name: mine}}}\n";
    site.scene.write("all.yaml", &all.replace("  gatewayClassName: varnish\n", with));
    until("the certificate is shown", || site.status() == 200);
    let broken = [ca.config_map("ca"), policy("shop", BY_CA), secret("mine", &mine.chain, &other.key)];
    site.scene.write("more.yaml", &broken.concat());
    site.program.wait_for_line(&["InvalidClientCertificateRef", "the key is of another certificate"]);
    assert_eq!(site.status(), 200);
}

#[test]
fn a_backend_without_tls_gets_nothing() {
    let (port, origin, ca) = (free_port(), Origin::new("shop"), Authority::new());
    let all = [shop_on(port, &[origin.address()]), ca.config_map("ca"), policy("shop", BY_CA)];
    let scene = Scene::new(&all.concat());
    let program = scene.serve();
    assert!(matches!(get(port, "x", "/").status, 502 | 503));
    assert_eq!(origin.seen().len(), 0);
    drop(program);
}

#[test]
fn a_policy_that_cannot_be_carried_out_is_no_plain_text() {
    let ca = Authority::new();
    let site = Site::new(&ca.leaf(&["shop.internal"]), &[policy("shop", BY_CA)]);
    site.program
        .wait_for_line(&["BackendTLSPolicy default/shop: rejected", "ConfigMap default/ca does not exist"]);
    assert_eq!(site.status(), 500);
    for bad in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"] {
        site.scene.write("ca.yaml", &config_map("ca", bad));
        assert_eq!(site.status(), 500);
    }
    site.scene.write("ca.yaml", &ca.config_map("ca"));
    until("the CA is there", || site.status() == 200);
    // Another CA counts at once, also for connections that are kept.
    site.scene.write("ca.yaml", &Authority::new().config_map("ca"));
    until("the backend is refused", || site.status() == 503);
    site.scene.write("more.yaml", "");
    site.scene.remove("ca.yaml");
    // TLS in the clear is no HTTP: whatever comes, it is no 200 of the origin.
    until("the policy is gone", || site.status() != 200);
}

#[test]
fn names_are_verified_instead_of_the_hostname_where_they_are_given() {
    let ca = Authority::new();
    let leaf = ca.with_uri(&["other.internal"], "spiffe://cluster.local/ns/shop/sa/shop");
    let with = |names: &str| {
        policy(
            "shop",
            &format!(
                "{{hostname: shop.internal, subjectAltNames: {names}, caCertificateRefs: [{{group: '', kind: ConfigMap, name: ca}}]}}"
            ),
        )
    };
    let uri = with(
        "[{type: Hostname, hostname: a.internal}, {type: URI, uri: 'spiffe://cluster.local/ns/shop/sa/shop'}]",
    );
    let site = Site::new(&leaf, &[ca.config_map("ca"), uri]);
    assert_eq!(site.status(), 200);
    site.scene.write(
        "more.yaml",
        &[ca.config_map("ca"), with("[{type: URI, uri: 'spiffe://cluster.local/ns/x'}]")].concat(),
    );
    until("another name is asked for", || site.status() == 503);
    site.scene.write(
        "more.yaml",
        &[ca.config_map("ca"), with("[{type: Hostname, hostname: other.internal}]")].concat(),
    );
    until("its own name is asked for", || site.status() == 200);
}

#[test]
fn a_backend_is_shown_the_gateways_certificate() {
    let (ca, clients) = (Authority::new(), Authority::new());
    let more = [ca.config_map("ca"), policy("shop", BY_CA)];
    let site = Site::picky(&ca.leaf(&["shop.internal"]), &clients, &more);
    // In TLS 1.3 it says so after the handshake, instead of an answer.
    site.is_refused("CertificateRequired");
    let mine = clients.leaf(&["gateway"]);
    let port = site.port;
    site.scene.write(
        "all.yaml",
        &std::fs::read_to_string(site.scene.manifest("all.yaml")).unwrap().replace(
            "  gatewayClassName: varnish\n",
            "  gatewayClassName: varnish\n  tls: {backend: {clientCertificateRef: {name: mine}}}\n",
        ),
    );
    site.program
        .wait_for_line(&["Gateway default/web", "clientCertificateRef: Secret default/mine does not exist"]);
    site.scene.write("mine.yaml", &secret("mine", &mine.chain, &mine.key));
    until("the certificate is shown", || get(port, "x", "/").status == 200);
}

#[test]
fn an_endpoint_that_is_down_is_followed_by_another() {
    let (port, origin, ca) = (free_port(), Origin::new("shop"), Authority::new());
    let tls = TlsOrigin::new(&ca.leaf(&["shop.internal"]), origin.address());
    let down = ([127, 0, 0, 1], free_port()).into();
    let all = [shop_on(port, &[tls.address(), down]), ca.config_map("ca"), policy("shop", BY_CA)];
    let scene = Scene::new(&all.concat());
    let program = scene.serve();
    for round in 0..20 {
        let ask = Ask::new("POST", "x", "/").body(vec![b'x'; round * 1000]);
        assert_eq!(ask.send(port).status, 200, "round {round}");
    }
    drop(program);
}

#[test]
fn a_policy_that_is_refused_still_keeps_plain_text_away() {
    let ca = Authority::new();
    // No file has this policy in a form that an API server would take.
    for bad in [
        "{hostname: '*.internal', wellKnownCACertificates: System}",
        "{hostname: shop.internal}",
        "{hostname: shop.internal, caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}], subjectAltNames: [{type: Nonsense}]}",
    ] {
        let (port, origin) = (free_port(), Origin::new("shop"));
        let all = [shop_on(port, &[origin.address()]), ca.config_map("ca")];
        let scene = Scene::new(&all.concat());
        scene.write("policy.yaml", &policy("shop", bad));
        let program = scene.serve();
        program.wait_for_line(&["BackendTLSPolicy default/shop", "until it is corrected"]);
        assert_eq!(get(port, "x", "/").status, 500, "{bad}");
        // One that is there in a wrong version, too.
        scene.write("policy.yaml", &policy("shop", bad).replace("k8s.io/v1", "k8s.io/v1alpha3"));
        program.wait_for_line(&["v1alpha3", "until it is corrected"]);
        assert_eq!(get(port, "x", "/").status, 500, "{bad}");
        assert_eq!(origin.seen().len(), 0);
        scene.remove("policy.yaml");
        until("plain text is asked for", || get(port, "x", "/").status == 200);
    }
}

#[test]
fn a_policy_for_a_port_that_is_not_there_keeps_plain_text_away() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let slip = policy("shop", "{hostname: shop.internal, wellKnownCACertificates: System}")
        .replace("name: shop}]", "name: shop, sectionName: wep}]");
    let all = [shop_on(port, &[origin.address()]), slip];
    let scene = Scene::new(&all.concat());
    let program = scene.serve();
    program.wait_for_line(&["BackendTLSPolicy default/shop", "has no port named wep"]);
    assert_eq!(get(port, "x", "/").status, 500);
    assert_eq!(origin.seen().len(), 0);
}

fn with_options(options: &str) -> String {
    policy("tls", BY_CA).replace("  validation", &format!("  options: {options}\n  validation"))
}

#[test]
fn options_of_a_policy_say_which_versions_and_suites_a_backend_may_choose() {
    const MIN: &str = "gateway.varnish-software.com/tls-min-version";
    const SUITES: &str = "gateway.varnish-software.com/tls-cipher-suites";
    let ca = Authority::new();
    let leaf = ca.leaf(&["shop.internal"]);
    let old = ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"];
    let strong = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    for (options, reached) in [
        ("{}".to_owned(), true),
        (format!("{{{MIN}: '1.2'}}"), true),
        (format!("{{{MIN}: '1.3'}}"), false),
        (format!("{{{SUITES}: TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}"), true),
        (format!("{{{SUITES}: '{strong}'}}"), false),
        (format!("{{{SUITES}: '{strong}, TLS_AES_128_GCM_SHA256'}}"), false),
    ] {
        let tls = PickyOrigin::with_options(&leaf, &old);
        let address = tls.address();
        let more = [ca.config_map("ca"), with_options(&options)];
        let site = Site::of(Origin::new("shop"), Box::new(tls), address, &more);
        let status = site.status();
        assert!(if reached { status == 200 } else { matches!(status, 502 | 503) }, "{options}: {status}");
    }
}

#[test]
fn an_option_that_nobody_knows_is_refused_and_no_request_goes_out() {
    let ca = Authority::new();
    let unknown = with_options("{example.com/fast: 'yes'}");
    let site = Site::new(&ca.leaf(&["shop.internal"]), &[ca.config_map("ca"), unknown]);
    assert_eq!(site.status(), 500);
    site.program.wait_for_line(&["BackendTLSPolicy default/tls", "example.com/fast is not supported"]);
    assert_eq!(site.origin.seen().len(), 0);
}
