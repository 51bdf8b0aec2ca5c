//! Versions and cipher suites that a listener asks for.

use front::Host;
use model::{TlsOptions, TlsVersion};
use rustls::CipherSuite;
use rustls::version::{TLS12, TLS13};

use crate::support::{Authority, Client, Front, Upstream, config, host};

#[tokio::test]
async fn each_host_has_its_own_versions_and_suites() {
    let upstream = Upstream::start();
    let authority = Authority::new();
    let pair = authority.ecdsa(&["any.test", "new.test", "suites.test"]);
    let with = |name: &str, options: TlsOptions| Host { options, ..host(name, &[&pair]) };
    let new = TlsOptions { min_version: Some(TlsVersion::Tls13), ..TlsOptions::default() };
    let suites = ["TLS_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"];
    let suites = TlsOptions { cipher_suites: suites.map(str::to_owned).to_vec(), ..TlsOptions::default() };
    let hosts = vec![host("any.test", &[&pair]), with("new.test", new), with("suites.test", suites)];
    let front = Front::start(config(hosts), upstream.path()).await;

    let old = Client::with_versions(&authority, &[&TLS12]);
    assert!(old.connect(front.address, "any.test").await.is_ok());
    assert!(old.connect(front.address, "new.test").await.is_err());
    assert!(Client::new(&authority).connect(front.address, "new.test").await.is_ok());

    let address = front.address;
    let suite = |client: Client| async move {
        let stream = client.connect(address, "suites.test").await.unwrap();
        stream.get_ref().1.negotiated_cipher_suite().unwrap().suite()
    };
    let expected = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    assert_eq!(suite(Client::with_versions(&authority, &[&TLS12])).await, expected);
    let expected = CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
    assert_eq!(suite(Client::with_versions(&authority, &[&TLS13])).await, expected);
}
