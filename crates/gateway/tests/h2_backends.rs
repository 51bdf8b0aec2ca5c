//! Backends that speak HTTP/2, reached straight, for misses of the cache, and in the arrangement in which varnishd gets every request.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    Ask, Authority, Leaf, SHOP_BY_TLS, Scene, cache_policy, class, free_port, gateway, get, parameters,
    route_to, service,
};

/// An origin that speaks HTTP/2 with prior knowledge, and nothing else. Answers with the request's body, or `h2`.
struct H2Origin {
    address: SocketAddr,
    /// Methods and paths.
    seen: Arc<Mutex<Vec<String>>>,
    _runtime: tokio::runtime::Runtime,
}

/// What a TLS server has agreed on with its clients, one for each connection.
type Agreed = Arc<Mutex<Vec<String>>>;

/// A TLS server that takes `h2` and `http/1.1` by ALPN, `h2` rather.
fn tls(leaf: &Leaf) -> tokio_rustls::TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(leaf.chain.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    tokio_rustls::TlsAcceptor::from(Arc::new(config))
}

/// Answers with the protocol that was agreed on.
fn negotiating(leaf: &Leaf) -> (SocketAddr, Agreed, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let (address, acceptor) = (listener.local_addr().unwrap(), tls(leaf));
    let agreed = Agreed::default();
    let of_server = Arc::clone(&agreed);
    runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, agreed) = (acceptor.clone(), Arc::clone(&of_server));
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let protocol = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec).unwrap_or_default();
                let protocol = String::from_utf8(protocol).unwrap();
                agreed.lock().unwrap().push(protocol.clone());
                if protocol != "h2" {
                    let mut buffer = [0; 4096];
                    while let Ok(1..) = stream.read(&mut buffer).await {
                        let head = format!(
                            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{protocol}",
                            protocol.len()
                        );
                        let _ = stream.write_all(head.as_bytes()).await;
                    }
                    return;
                }
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    if let Ok(mut send) = respond.send_response(http::Response::new(()), false) {
                        let _ = send.send_data(Bytes::from_static(b"h2"), true);
                    }
                }
            });
        }
    });
    (address, agreed, runtime)
}

#[test]
fn a_backend_with_tls_is_offered_what_its_app_protocol_says() {
    let ca = Authority::new();
    let leaf = ca.leaf(&["shop.internal"]);
    for (app_protocol, expected) in
        [("h2", "h2"), ("kubernetes.io/h2c", "h2"), ("https", "http/1.1"), ("", "http/1.1")]
    {
        for data_path in ["Auto", "Varnish"] {
            let (port, (endpoint, agreed, _runtime)) = (free_port(), negotiating(&leaf));
            let said = if app_protocol.is_empty() {
                String::new()
            } else {
                format!(", appProtocol: {app_protocol}")
            };
            let shop = service("shop", &[endpoint]).replacen("port: 80", &format!("port: 80{said}"), 1);
            let class = parameters(&format!("{{dataPath: {data_path}}}"));
            let kept = route_to("kept", "/kept", "shop");
            let scene = Scene::new(
                &[
                    &class,
                    &gateway("web", &[port]),
                    &shop,
                    &route_to("shop", "/", "shop"),
                    &kept,
                    &cache_policy("kept", "kept", "  defaultTTL: 1h"),
                    &ca.config_map("ca"),
                    SHOP_BY_TLS,
                ]
                .concat(),
            );
            let _program = scene.serve();
            for path in ["/", "/kept"] {
                let answer = get(port, "shop.example.com", path);
                let got = (answer.status, answer.text());
                assert_eq!(got, (200, expected.to_owned()), "{app_protocol} {data_path} {path}");
            }
            let agreed = agreed.lock().unwrap().clone();
            assert!(agreed.iter().all(|one| one == expected), "{app_protocol} {data_path}: {agreed:?}");
        }
    }
}

impl H2Origin {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let of_server = Arc::clone(&seen);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&of_server);
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
                        tokio::spawn(async move {
                            let breaks_off = request.uri().path() == "/broken";
                            let mut body = request.into_body();
                            let mut all = Vec::new();
                            while let Some(Ok(data)) = body.data().await {
                                let _ = body.flow_control().release_capacity(data.len());
                                all.extend_from_slice(&data);
                            }
                            if all.is_empty() {
                                all.extend_from_slice(b"h2");
                            }
                            let Ok(mut send) = respond.send_response(http::Response::new(()), false) else {
                                return;
                            };
                            let _ = send.send_data(Bytes::from(all), !breaks_off);
                            if breaks_off {
                                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                                send.send_reset(h2::Reason::INTERNAL_ERROR);
                            }
                        });
                    }
                });
            }
        });
        Self { address, seen, _runtime: runtime }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn manifests(data_path: &str, port: u16, origin: &H2Origin) -> String {
    let h2c = service("shop", &[origin.address]).replacen(
        "port: 80",
        "port: 80, appProtocol: kubernetes.io/h2c",
        1,
    );
    assert!(h2c.contains("h2c"), "{h2c}");
    let class = parameters(&format!("{{dataPath: {data_path}}}"));
    let policy = cache_policy("shop", "shop", "  defaultTTL: 1h");
    [class, gateway("web", &[port]), h2c, route_to("shop", "/", "shop"), policy].concat()
}

#[test]
fn an_h2c_backend_is_reached_straight_and_by_misses_in_both_arrangements() {
    for data_path in ["Auto", "Varnish"] {
        let (port, origin) = (free_port(), H2Origin::new());
        let scene = Scene::new(&manifests(data_path, port, &origin));
        let _program = scene.serve();
        for expected in ["MISS", "HIT", "HIT"] {
            let answer = get(port, "shop.example.com", "/a");
            assert_eq!((answer.status, &answer.body[..]), (200, &b"h2"[..]), "{data_path}");
            assert_eq!(answer.header("X-Cache"), Some(expected), "{data_path}");
        }
        let sent = vec![b'x'; 300_000];
        let answer = Ask::new("POST", "shop.example.com", "/upload").body(sent.clone()).send(port);
        assert_eq!((answer.status, answer.body == sent), (200, true), "{data_path}");
        assert_eq!(origin.seen(), ["GET /a", "POST /upload"], "{data_path}");
    }
}

#[test]
fn what_an_h2c_backend_breaks_off_is_neither_complete_nor_kept() {
    for data_path in ["Auto", "Varnish"] {
        let (port, origin) = (free_port(), H2Origin::new());
        let scene = Scene::new(&manifests(data_path, port, &origin));
        let _program = scene.serve();
        for _ in 0..2 {
            let answer = Ask::new("GET", "shop.example.com", "/broken").try_send(port);
            assert!(answer.map_or(true, |answer| answer.status >= 500), "{data_path}");
        }
        assert!(origin.seen().len() >= 2, "{data_path}: {:?}", origin.seen());
    }
}

#[test]
fn hosts_of_one_ingress_have_their_own_h2c_backends() {
    let (port, one, two) = (free_port(), H2Origin::new(), H2Origin::new());
    let h2c = |name: &str, origin: &H2Origin| {
        service(name, &[origin.address]).replacen("port: 80", "port: 80, appProtocol: kubernetes.io/h2c", 1)
    };
    let rule = |host: &str, service: &str| {
        format!(
            "  - {{host: {host}, http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: {service}, \
             port: {{number: 80}}}}}}}}]}}}}\n"
        )
    };
    let ingress = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: shop\n  annotations: \
         {{kubernetes.io/ingress.class: varnish}}\nspec:\n  rules:\n{}{}---\n",
        rule("one.test", "one"),
        rule("two.test", "two")
    );
    let varnish = gateway("web", &[port]).replacen(
        "spec:\n",
        "spec:\n  infrastructure: {labels: {app: varnish-ingress}}\n",
        1,
    );
    let scene = Scene::new(&[class(), varnish, h2c("one", &one), h2c("two", &two), ingress].concat());
    let _program = scene.serve();
    for (host, origin) in [("one.test", &one), ("two.test", &two)] {
        let answer = get(port, host, "/of-one");
        assert_eq!((answer.status, &answer.body[..]), (200, &b"h2"[..]), "{host}");
        assert_eq!(origin.seen(), ["GET /of-one"], "{host}");
    }
}
