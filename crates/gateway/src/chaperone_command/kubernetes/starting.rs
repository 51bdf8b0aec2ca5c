//! What a pod that starts serves before the API server has answered, on an API server of our own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;

const LONG: Duration = Duration::from_secs(60);
/// Longer than the pod waits for a namespace that is new to it.
const SHORT: Duration = Duration::from_secs(8);

/// Status and body by the path of a list. Other paths get no answer at all.
type Answers = Arc<Mutex<BTreeMap<String, (u16, serde_json::Value)>>>;

async fn api_server(answers: Answers) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, Arc::clone(&answers)));
        }
    });
    let mut config = kube::Config::new(url.parse().unwrap());
    config.read_timeout = Some(Duration::from_secs(2));
    Client::try_from(config).unwrap()
}

async fn converse(stream: TcpStream, answers: Answers) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut target = None;
        let mut line = String::new();
        while stream.read_line(&mut line).await.is_ok_and(|read| read > 2) {
            target = target.or_else(|| line.split(' ').nth(1).map(str::to_owned));
            line.clear();
        }
        let Some(target) = target else { return };
        let path = target.split('?').next().unwrap_or_default();
        let answer = answers.lock().unwrap().get(path).cloned();
        let Some((status, body)) = answer.filter(|_| !target.contains("watch=true")) else {
            return std::future::pending().await;
        };
        let body = body.to_string();
        let answer = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn list(kind: &str, api_version: &str, items: &serde_json::Value) -> (u16, serde_json::Value) {
    let list = json!({
        "kind": format!("{kind}List"), "apiVersion": api_version, "metadata": {"resourceVersion": "1"}, "items": items,
    });
    (200, list)
}

fn slices(address: &str) -> (u16, serde_json::Value) {
    let slice = json!({
        "metadata": {"name": "s", "namespace": "shops", "labels": {"kubernetes.io/service-name": "shop"}},
        "addressType": "IPv4", "ports": [{"port": 80}], "endpoints": [{"addresses": [address]}],
    });
    list("EndpointSlice", "discovery.k8s.io/v1", &json!([slice]))
}

fn path(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
}

/// With what the operator wrote: a route to Services in the namespaces shops and others.
fn written() -> Answers {
    let route = |namespace: &str| json!({"path_match": {"type": "PathPrefix", "value": "/"}, "backends": [{"service": "shop", "namespace": namespace, "port": 80}]});
    let routing = json!({"version": 3, "vhosts": {
        "shop.example": {"routes": [route("shops")]}, "other.example": {"routes": [route("others")]},
    }});
    let map = json!({
        "metadata": {"name": "gw-vcl", "namespace": "default"},
        "data": {"main.vcl": "vcl 4.1;", "routing.json": routing.to_string()},
    });
    let answers = [
        ("/api/v1/namespaces/default/configmaps".to_owned(), list("ConfigMap", "v1", &json!([map]))),
        ("/api/v1/namespaces/default/secrets".to_owned(), list("Secret", "v1", &json!([]))),
    ];
    Arc::new(Mutex::new(answers.into()))
}

struct Starting {
    desired: watch::Receiver<Desired>,
    state: watch::Receiver<chaperone::State>,
    _running: tokio::task::JoinHandle<anyhow::Result<()>>,
}

async fn start(answers: &Answers, work_dir: &Path) -> Starting {
    let client = api_server(Arc::clone(answers)).await;
    let reporter = Reporter::new(|_| {});
    let state = reporter.state();
    let feeder = Feeder {
        pod: Pod::watch(client, "default", "gw"),
        namespace: "default".to_owned(),
        own_ports: Vec::new(),
        reporter,
        kept: Kept::new(work_dir),
        http_in_front: false,
        externals: Externals::new(dns::Settings::default()),
    };
    let (to, desired) = watch::channel(Desired::default());
    Starting { desired, state, _running: tokio::spawn(feeder.run(to)) }
}

impl Starting {
    async fn ghost(&mut self, part: &str) -> String {
        let has = |desired: &Desired| {
            desired.ghost.as_ref().is_some_and(|ghost| String::from_utf8_lossy(&ghost.bytes).contains(part))
        };
        let desired = timeout(LONG, self.desired.wait_for(has)).await.unwrap().unwrap();
        String::from_utf8_lossy(&desired.ghost.as_ref().unwrap().bytes).into_owned()
    }
}

/// Without ghost.json varnishd is not started, and the pod is not ready.
#[tokio::test]
async fn a_pod_serves_nothing_before_the_endpoints_of_all_its_namespaces_were_read() {
    let answers = written();
    let refused =
        json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"});
    let broken = json!({"kind": "Status", "status": "Failure", "reason": "ServiceUnavailable", "code": 503, "message": "no"});
    answers.lock().unwrap().extend([(path("others"), (403, refused)), (path("shops"), (503, broken))]);
    let dir = tempfile::tempdir().unwrap();
    let mut pod = start(&answers, dir.path()).await;
    let early = timeout(SHORT, pod.desired.wait_for(|desired| desired.ghost.is_some())).await.is_ok();
    assert!(!early, "it serves without endpoints");
    let why = pod.state.borrow().refused.clone().unwrap();
    // A namespace that may not be read is not waited for.
    assert!(why.contains("EndpointSlices of namespace shops") && !why.contains("others"), "{why}");
    answers.lock().unwrap().insert(path("shops"), slices("10.0.0.7"));
    pod.ghost("10.0.0.7").await;
    assert!(timeout(LONG, pod.state.wait_for(|state| state.refused.is_none())).await.is_ok());
}

#[tokio::test]
async fn a_pod_that_starts_again_serves_what_it_kept_until_the_endpoints_were_read() {
    let answers = written();
    let none = list("EndpointSlice", "discovery.k8s.io/v1", &json!([]));
    answers.lock().unwrap().insert(path("others"), none);
    let dir = tempfile::tempdir().unwrap();
    let kept = KeptConfiguration {
        tag: None,
        vcl: "vcl 4.1;".to_owned(),
        routing: r#"{"version": 2, "vhosts": {}}"#.to_owned(),
        ghost: r#"{"version": 2, "gateway_id": "10.0.0.9"}"#.to_owned(),
        files: None,
        base_name: None,
        front: None,
        tls: TlsGroups::new(),
        certificates: BTreeMap::new(),
    };
    Kept::new(dir.path()).write(kept);
    // Endpoints of the namespace shops are never answered for.
    let mut pod = start(&answers, dir.path()).await;
    pod.ghost("10.0.0.9").await;
    assert!(timeout(SHORT, pod.desired.changed()).await.is_err(), "what was kept is given up");
    answers.lock().unwrap().insert(path("shops"), slices("10.0.0.7"));
    pod.ghost("10.0.0.7").await;
}
