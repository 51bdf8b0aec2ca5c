//! Two chaperones that serve the same: what an unsafe method changes at one leaves the cache of the other, too.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};

use serde_json::json;

use crate::support::{Ask, Origin, Program, Response, Scene, free_port, get, service, until};

const HOST: &str = "shop.example.com";

struct Pod {
    port: u16,
    health: u16,
    /// Before the scene: the program ends while its files are there.
    _program: Program,
    _scene: Scene,
}

impl Pod {
    /// `in_front`: the front carries HTTP; else varnishd has the port.
    fn start(origin: &Origin, health: u16, peers: &str, secret: &str, in_front: bool) -> Self {
        let (scene, port) = (Scene::new(&service("shop", &[origin.address()])), free_port());
        let path = |name: &str| scene.path(name).display().to_string();
        let vcl = |name: &str| {
            fs::read_to_string(format!("{}/../translate/src/vcl/{name}.vcl", env!("CARGO_MANIFEST_DIR")))
                .unwrap()
        };
        fs::write(scene.path("main.vcl"), [vcl("preamble"), vcl("postamble")].join("\n")).unwrap();
        fs::write(scene.path("secret"), secret).unwrap();
        let routing = json!({"version": 3, "listeners": [{"name": "web", "socket": format!("http-{port}")}],
            "vhosts": {HOST: {"routes": [{"hostname": HOST,
                "backends": [{"service": "shop", "namespace": "default", "port": 80, "weight": 1}],
                "listeners": [format!("http-{port}")], "route_name": "default/shop", "rule_index": 0, "path_match": {"type": "PathPrefix", "value": "/"},
                "cache_policy": {"default_ttl_seconds": 3600}}]}}});
        fs::write(scene.path("routing.json"), routing.to_string()).unwrap();
        let mut command = Program::command();
        command
            .arg("chaperone")
            .current_dir(scene.path(""))
            .env("NAMESPACE", "default")
            .env("HTTP_IN_FRONT", in_front.to_string())
            .env("VARNISH_ADMIN_PORT", free_port().to_string())
            .env("VARNISH_SECRET_PATH", path("secret"))
            .env("VCL_PATH", path("main.vcl"))
            .env("ROUTING_CONFIG_PATH", path("routing.json"))
            .env("ENDPOINTS_PATH", path("manifests"))
            .env("WORK_DIR", path("varnish"))
            .env("HEALTH_ADDR", format!("127.0.0.1:{health}"))
            .env("PEERS", peers)
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST");
        if !in_front {
            command.env("VARNISH_LISTEN", format!("http-{port}=127.0.0.1:{port},http"));
        }
        let program = Program::spawn(command);
        program.wait_for_line(&["chaperone: reloaded"]);
        let pod = Self { port, health, _program: program, _scene: scene };
        until("it listens", || Ask::get(HOST, "/up").try_send(pod.port).is_ok_and(|r| r.status == 200));
        pod
    }

    fn get(&self, url: &str) -> Response {
        get(self.port, HOST, url)
    }

    fn is_hit(&self, url: &str) -> bool {
        self.get(url).header("X-Cache") == Some("HIT")
    }

    fn store(&self, url: &str) {
        until("it is stored", || self.is_hit(url));
    }

    fn counted(&self, result: &str) -> u64 {
        let text = Ask::get("probe", "/metrics").send(self.health).text();
        let name = format!("varnish_gateway_peer_invalidations_total{{result=\"{result}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or_default()
    }
}

#[test]
fn what_one_pod_changes_leaves_the_caches_of_its_peers() {
    writes_are_heard(true);
}

#[test]
fn what_varnishd_carries_leaves_the_caches_of_peers_too() {
    writes_are_heard(false);
}

fn writes_are_heard(in_front: bool) {
    let origin = Origin::new("shop");
    origin.answer_with(200, &["Cache-Groups: \"all\""]);
    let [first, second, stranger] = [free_port(), free_port(), free_port()];
    // Its own address is among them, as in a cluster; and one without a server takes nothing from the others.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let peers = format!("127.0.0.1:{first}, 127.0.0.1:{second}, 127.0.0.1:{stranger}, {gone}");
    let one = Pod::start(&origin, first, &peers, "a shared secret", in_front);
    let two = Pod::start(&origin, second, &peers, "a shared secret", in_front);
    let other = Pod::start(&origin, stranger, &peers, "another secret", in_front);
    for url in ["/a", "/b", "/c"] {
        [&one, &two, &other].into_iter().for_each(|pod| pod.store(url));
    }
    let post = |pod: &Pod, url: &str| Ask::new("POST", HOST, url).body(b"x".to_vec()).send(pod.port);
    origin.answer_with(200, &["Content-Location: /b"]);
    assert_eq!(post(&one, "/a?").status, 200);
    assert_eq!(post(&one, "/a").status, 200);
    origin.answer_with(200, &["Cache-Groups: \"all\""]);
    until("the peer has forgotten both", || two.counted("heard") > 0);
    for url in ["/a", "/b"] {
        assert!(!two.is_hit(url), "{url}");
    }
    assert!(two.is_hit("/c"));
    // Groups too, the other way round.
    origin.answer_with(200, &["Cache-Group-Invalidation: \"all\""]);
    assert_eq!(post(&two, "/elsewhere").status, 200);
    origin.answer_with(200, &[]);
    until("the peer has forgotten the group", || one.counted("heard") > 0);
    assert!(!one.is_hit("/c"));
    // A pod with another secret gets nothing, and its messages do not count.
    until("the stranger has refused", || other.counted("refused") > 0);
    assert!(other.is_hit("/a") && other.counted("heard") == 0);
    assert!(one.counted("told") > 0);
    until("what was not told is counted", || one.counted("failed") > 0);
    // Nor does anybody who guesses.
    let guess = Ask::new("POST", HOST, "/peers/invalidate")
        .header("X-Varnish-Gateway-Signature", &"0".repeat(64))
        .body(br#"{"from":1,"at":1,"order":{"invalidations":[]}}"#.to_vec());
    assert_eq!(guess.send(one.health).status, 403);
    // Slow messages without the secret take no places of peers.
    let slow: Vec<TcpStream> = (0..16)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", two.health)).unwrap();
            let head = format!(
                "POST /peers/invalidate HTTP/1.1\r\nHost: a\r\nX-Varnish-Gateway-Signature: {}\r\nContent-Length: 100\r\n\r\n",
                "0".repeat(64)
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    {
        let url = "/slow";
        [&one, &two].into_iter().for_each(|pod| pod.store(url));
        let heard = two.counted("heard");
        assert_eq!(post(&one, url).status, 200);
        until("the peer has heard of it all the same", || two.counted("heard") > heard);
        assert!(!two.is_hit(url), "{url}");
    }
    drop(slow);
}
