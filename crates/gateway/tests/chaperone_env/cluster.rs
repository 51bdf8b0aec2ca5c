//! Endpoints from the cluster of the kubeconfig.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::{Site, main_vcl, routing};
use crate::support::{Origin, Scene, free_port, get, until};

/// A list of EndpointSlices for the Service of that route, as an API server tells it.
fn listed(origin: &Origin) -> String {
    let address = origin.address();
    let slice = json!({
        "metadata": {
            "name": "api-v2-1", "namespace": "default", "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": "api-v2"},
        },
        "addressType": "IPv4",
        "ports": [{"port": address.port()}],
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
    });
    let metadata = json!({"resourceVersion": "1"});
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "metadata": metadata, "items": [slice]})
        .to_string()
}

/// As much of an API server as one list and one watch need; the namespace `closed` may not be read. Gives the paths that it was asked for.
fn api_server(server: TcpListener, list: String) -> Arc<Mutex<Vec<String>>> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let refusal =
        json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}).to_string();
    std::thread::spawn(move || {
        for stream in server.incoming().map_while(Result::ok) {
            let (list, refusal, log) = (list.clone(), refusal.clone(), Arc::clone(&log));
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                while let Some(request) = lines.next() {
                    let _ = lines.by_ref().find(String::is_empty);
                    log.lock().unwrap().push(request.clone());
                    let is_closed = request.contains("/namespaces/closed");
                    let (status, body) = match is_closed {
                        true => ("403 Forbidden", &refusal),
                        false => ("200 OK", &list),
                    };
                    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n");
                    let answer = match request.contains("watch=true") && !is_closed {
                        // Nothing ever happens.
                        true => format!("{head}Transfer-Encoding: chunked\r\n\r\n"),
                        false => format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
                    };
                    let _ = (&stream).write_all(answer.as_bytes());
                }
            });
        }
    });
    asked
}

fn kubeconfig(server: u16) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": format!("http://127.0.0.1:{server}")}}],
        "users": [{"name": "one", "user": {}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    })
    .to_string()
}

#[test]
fn without_endpoints_path_endpoint_slices_come_from_the_cluster_of_the_kubeconfig() {
    let origin = Origin::new("api");
    let (scene, port, server) = (Scene::new(""), free_port(), free_port());
    // Where kubectl looks, too.
    fs::create_dir(scene.path(".kube")).unwrap();
    fs::write(scene.path(".kube/config"), kubeconfig(server)).unwrap();
    let home = scene.path("").display().to_string();
    let site = Site::start(scene, port, &[("ENDPOINTS_PATH", ""), ("HOME", &home)]);
    site.write("main.vcl", &main_vcl("one"));
    site.write("routing.json", &routing(port, "/v2").to_string());
    // No 500s before endpoints are known: nothing is served, and why is said.
    site.program.wait_for_line(&["EndpointSlices of namespace default", "nothing is served", "KUBECONFIG"]);
    assert_eq!(site.ready(), 503);
    let asked = api_server(TcpListener::bind(("127.0.0.1", server)).unwrap(), listed(&origin));
    site.program.wait_for_line(&["chaperone: reloaded"]);
    assert_eq!(site.get("/v2/users").origin(), "api");
    until("it is ready", || site.ready() == 200);
    let asked = asked.lock().unwrap().clone();
    let slices = "GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices?";
    assert!(asked.iter().all(|request| request.starts_with(slices)), "{asked:?}");
}

#[test]
fn a_namespace_whose_endpoint_slices_may_not_be_read_holds_back_no_other() {
    let origin = Origin::new("api");
    let (scene, port) = (Scene::new(""), free_port());
    let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    fs::write(scene.path("kubeconfig"), kubeconfig(server.local_addr().unwrap().port())).unwrap();
    let _asked = api_server(server, listed(&origin));
    let kubeconfig = scene.path("kubeconfig").display().to_string();
    let site = Site::start(scene, port, &[("ENDPOINTS_PATH", ""), ("KUBECONFIG", &kubeconfig)]);
    site.write("main.vcl", &main_vcl("one"));
    let mut routing = routing(port, "/v2");
    let mut closed = routing["vhosts"]["api.example.com"].clone();
    closed["routes"][0]["hostname"] = json!("closed.example.com");
    closed["routes"][0]["namespace"] = json!("closed");
    routing["vhosts"]["closed.example.com"] = closed;
    site.write("routing.json", &routing.to_string());
    site.program.wait_for_line(&["EndpointSlices of namespace closed", "have no endpoints until then"]);
    site.program.wait_for_line(&["chaperone: reloaded"]);
    assert_eq!(site.get("/v2/users").origin(), "api");
    assert_eq!(get(port, "closed.example.com", "/v2").status, 500);
}

#[test]
fn without_a_cluster_and_without_endpoints_path_it_ends_and_says_what_to_do() {
    let scene = Scene::new("");
    let home = scene.path("").display().to_string();
    let mut site = Site::start(scene, free_port(), &[("ENDPOINTS_PATH", ""), ("HOME", &home)]);
    assert!(!site.program.wait_for_exit().success());
    site.program.wait_for_line(&["error: ", "ENDPOINTS_PATH", "KUBECONFIG"]);
}
