//! Access logs: every mode that GatewayClassParameters has, whatever clients send, and programs that do not run.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use rustix::process::Signal;
use serde_json::Value;
use workload::{LOGGING_CONTAINER, Options, objects};

use crate::support::processes::{children, is_alive, name};
use crate::support::{
    Ask, Certificate, Connection, Handshake, Origin, Program, Scene, class, free_port, gateway, gateway_of,
    get, parameters, route_to, service, until,
};

const HOST: &str = "shop.example.com";

fn manifests(class: &str, port: u16, origin: SocketAddr) -> String {
    [class, &gateway("web", &[port]), &service("shop", &[origin]), &route_to("shop", "/", "shop")].concat()
}

/// The objects of a file, one a line.
fn objects_in(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    // The last one may be half written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn whatever_clients_send_is_one_line_of_json() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&manifests(&class(), port, origin.address()));
    let file = scene.path("requests.log");
    let program = scene.start_with(&["--access-log", file.to_str().unwrap(), "--log-query-strings"]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    let long = "x".repeat(7_900);
    let odd: [(&str, Vec<u8>); 7] = [
        ("quotes", b"GET /quotes\"},{\"a\":\"?\"\\\" HTTP/1.1\r\nUser-Agent: \"},{\\\r\n".to_vec()),
        ("utf8", b"GET /utf8/\xc3\xa9\xe2\x82\xac HTTP/1.1\r\nUser-Agent: \xf0\x9f\x98\x80\r\n".to_vec()),
        ("invalid", b"GET /invalid/\xff\xfe\xc3 HTTP/1.1\r\nUser-Agent: \xff\xc3(\r\n".to_vec()),
        (
            "controls",
            b"GET /controls HTTP/1.1\r\nUser-Agent: a\tb\x7f\x1b[31m\r\nReferer: \x01\x02\r\n".to_vec(),
        ),
        ("folded", b"GET /folded HTTP/1.1\r\nUser-Agent: a\r\n {\"time\":\"forged\"}\r\n".to_vec()),
        ("percent", b"GET /percent%0a%22%00 HTTP/1.1\r\nUser-Agent: %h %{x}i \\n\\u000a\r\n".to_vec()),
        ("long", format!("GET /long{long} HTTP/1.1\r\nUser-Agent: {long}\r\n").into_bytes()),
    ];
    for (name, head) in &odd {
        let mut connection = Connection::open(port).unwrap();
        connection.write_bytes(head);
        connection.write_bytes(format!("Host: {HOST}\r\nConnection: close\r\n\r\n").as_bytes());
        // Some of these varnishd refuses, and may just hang up.
        let _ = connection.read("GET");
        get(port, HOST, &format!("/after-{name}"));
    }
    let path = |one: &Value| one["path"].as_str().unwrap_or_default().to_owned();
    until("the last one is logged", || objects_in(&file).iter().any(|one| path(one) == "/after-long"));
    let all = objects_in(&file);
    let of = |start: &str| all.iter().find(|one| path(one).starts_with(start)).cloned();
    for (name, _) in &odd {
        assert!(of(&format!("/after-{name}")).is_some(), "the line behind {name} is missing in {all:?}");
    }
    for one in &all {
        let fields = one.as_object().unwrap();
        assert!(fields.contains_key("time") && one["gateway"] == "default/web", "{one}");
        assert!(one["time"] != "forged");
    }
    match of("/quotes") {
        Some(quotes) => {
            let seen = (path(&quotes), &quotes["user_agent"]);
            assert_eq!(seen, ("/quotes\"},{\"a\":\"".to_owned(), &"\"},{\\".into()));
        }
        // The front's parser takes no quotes in a URL.
        None => assert!(all.iter().any(|one| one["reason"] == "bad_request" && one["status"] == 400)),
    }
    let long = of("/long").map(|one| path(&one).len());
    assert!(long.is_some_and(|length| (4_000..5_000).contains(&length)), "an URL is cut at 4 KB: {long:?}");
    assert!(of("/percent").is_some_and(|one| one["user_agent"] == "%h %{x}i \\n\\u000a"));
}

#[test]
fn requests_over_https_tell_the_version_of_tls() {
    let (tls, origin) = (free_port(), Origin::new("shop"));
    let certificate = Certificate::new(HOST);
    let listener =
        format!("{{name: secure, protocol: HTTPS, port: {tls}, tls: {{certificateRefs: [{{name: cert}}]}}}}");
    let all = [
        class(),
        gateway_of("web", &[listener]),
        certificate.secret("cert"),
        service("shop", &[origin.address()]),
        route_to("shop", "/", "shop"),
    ];
    let scene = Scene::new(&all.concat());
    let file = scene.path("requests.log");
    let program = scene.start_with(&["--access-log", file.to_str().unwrap()]);
    program.wait_for_line(&[&format!("(https-{tls})")]);
    let shake = Handshake { port: tls, name: Some(HOST) };
    shake.get(HOST, "/over-tls");
    until("it is logged", || !objects_in(&file).is_empty());
    let one = &objects_in(&file)[0];
    assert_eq!((&one["tls"], &one["socket"]), (&"TLSv1.3".into(), &format!("https-{tls}").into()));
    assert_eq!((&one["listener"], &one["client"]), (&"secure".into(), &"127.0.0.1".into()));
    // An older client, where curl knows how.
    let url = format!("https://{HOST}:{tls}/older");
    let curl = Command::new("curl")
        .args(["-sk", "--tls-max", "1.2", "--resolve", &format!("{HOST}:{tls}:127.0.0.1"), &url])
        .output();
    if curl.is_ok_and(|done| done.status.success()) {
        until("TLS 1.2 is told", || objects_in(&file).iter().any(|one| one["tls"] == "TLSv1.2"));
    }
}

/// What the container `logging` of a pod runs, on this machine.
struct Sidecar {
    process: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Sidecar {
    /// By the Deployment that these manifests make.
    fn start(manifests: &str, varnishd_dir: &Path) -> Self {
        let (snapshot, problems) = source::files::parse_str("all.yaml", manifests);
        assert!(problems.is_empty());
        let translation = translate::translate(&snapshot);
        let (key, plan) = translation.gateways.iter().next().unwrap();
        let made = objects(&snapshot.gateways[key], plan, &Options::new("x")).unwrap();
        let pod = made.deployment.spec.unwrap().template.spec.unwrap();
        let mut containers = pod.init_containers.unwrap_or_default().into_iter().chain(pod.containers);
        let words = containers.find(|one| one.name == LOGGING_CONTAINER).unwrap().command.unwrap();
        let dir = varnishd_dir.to_str().unwrap();
        let mut words = words.iter().map(|word| if word.ends_with("/varnishd") { dir } else { word });
        let mut command = match words.next().unwrap() {
            "varnish-gateway" => Program::command(),
            other => Command::new(other),
        };
        command.args(words).env("VSM_NOPID", "1").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (output, lines) = (process.stdout.take().unwrap(), Arc::default());
        let keep: Arc<Mutex<Vec<String>>> = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                keep.lock().unwrap().push(line);
            }
        });
        Self { process, lines }
    }

    fn has(&self, parts: &[&str]) -> bool {
        self.lines.lock().unwrap().iter().any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn every_mode_of_gateway_class_parameters_writes_requests() {
    // Mode, more of it, what varnishd must record, what must be seen of `/seen`, what never.
    let modes: [(&str, &str, &str, &[&str]); 6] = [
        // With varnishd as the owner of ports; else the front writes it.
        ("json", "", "+Timestamp,+ReqAcct", &["\"path\":\"/seen\"", "\"route\":\"default/shop\""]),
        ("varnishlog", "", "default", &["ReqURL", "/seen"]),
        ("varnishlog-json", "", "+Timestamp,+ReqAcct", &["\"path\":\"/seen\"", "\"route\":\"default/shop\""]),
        ("varnishlog-json", ", query: 'RespStatus >= 500'", "+Timestamp,+ReqAcct", &["\"path\":\"/broken\""]),
        ("varnishncsa", "", "+Timestamp,+ReqAcct,+VCL_call,+VCL_return", &["/seen HTTP/1.1\" 200"]),
        (
            "varnishncsa",
            ", format: '%m %U %s'",
            "+Timestamp,+ReqAcct,+VCL_call,+VCL_return",
            &["GET /seen 200"],
        ),
    ];
    for (mode, more, mask, wanted) in modes {
        let (port, origin) = (free_port(), Origin::new("shop"));
        let class = parameters(&format!(
            "{{dataPath: Varnish, varnishdExtraArgs: ['-p', 'vsl_mask={mask}'], logging: {{mode: {mode}{more}}}}}"
        ));
        let missing = "  rules:\n  - matches: [{path: {value: /broken}}]\n    backendRefs: [{name: nothing, port: 80}]\n";
        let all =
            [manifests(&class, port, origin.address()), crate::support::route("broken", missing)].concat();
        let scene = Scene::new(&all);
        let program = scene.serve();
        // On one machine no process starts it, and a notice says so.
        program.wait_for_line(&["`logging` in its GatewayClassParameters", "--access-log"]);
        let sidecar = Sidecar::start(&all, &scene.state("web", "varnishd"));
        until(&format!("{mode}{more}: {wanted:?}"), || {
            get(port, HOST, "/seen");
            get(port, HOST, "/broken");
            sidecar.has(wanted)
        });
        // What the gateway asks itself is no request of anybody's.
        assert!(!sidecar.has(&["varnish-ghost"]), "{mode}");
        if more.contains("query") {
            assert!(!sidecar.has(&["/seen"]), "{mode}{more}: only what the query matches");
        }
        if mode == "varnishlog-json" {
            for line in sidecar.lines.lock().unwrap().iter() {
                assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
            }
        }
        drop(sidecar);
        drop(program);
    }
}

#[test]
fn a_reader_that_refuses_its_arguments_is_told() {
    let scene = Scene::new("");
    let output = scene.path("lines");
    let mut command = Program::command();
    command.args(["access-log", "--varnishd-dir"]).arg(scene.path("nothing"));
    command.args(["--vsl-query", "this is no query"]).stdout(fs::File::create(&output).unwrap());
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
    let line = said.find(|line| line.contains("varnishncsa does not run")).unwrap();
    let _ = process.kill();
    let _ = process.wait();
    for part in ["error: ", "requests are not logged", "correct the query", "expression", "exit status: 1"] {
        assert!(line.to_lowercase().contains(part), "{part} in {line}");
    }
    assert_eq!(fs::read_to_string(output).unwrap(), "", "standard output is for requests");
}

#[test]
fn a_killed_gateway_leaves_no_reader_of_its_log_behind() {
    let port = free_port();
    let scene = Scene::new(&[class(), gateway("web", &[port])].concat());
    let mut program = scene.start_with(&["--access-log", "ncsa"]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    let reader = crate::support::wait_for("varnishncsa runs", || {
        children(program.pid()).into_iter().find(|pid| name(*pid) == "varnishncsa")
    });
    program.signal(Signal::KILL);
    program.wait_for_exit();
    until("varnishncsa is gone", || !is_alive(reader));
}

#[test]
fn a_log_that_cannot_be_written_is_told_and_nothing_else_suffers() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&manifests(&class(), port, origin.address()));
    let file = scene.path("no/such/directory/log");
    let program = scene.start_with(&["--access-log", file.to_str().unwrap()]);
    program.wait_for_line(&["error: Gateway default/web: no access log", "no/such/directory/log"]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    assert_eq!(Ask::get(HOST, "/").send(port).origin(), "shop");
}

#[test]
fn what_was_served_before_the_end_is_logged() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let scene = Scene::new(&manifests(&parameters("{dataPath: Auto}"), port, origin.address()));
    let file = scene.path("requests.log");
    let mut program = scene.start_with(&["--access-log", file.to_str().unwrap()]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    for number in 0..50 {
        get(port, HOST, &format!("/{number}"));
    }
    program.signal(Signal::TERM);
    program.wait_for_exit();
    assert_eq!(objects_in(&file).len(), 50);
}

#[test]
fn a_reader_that_stops_reading_holds_up_no_request_of_the_front() {
    let (port, origin, dashboard) = (free_port(), Origin::new("shop"), free_port());
    let scene = Scene::new(&manifests(&parameters("{dataPath: Auto}"), port, origin.address()));
    // This pipe has no reader, and it holds 64 KiB.
    let pipe = scene.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let page = format!("127.0.0.1:{dashboard}");
    let program = scene.start_with(&["--access-log", pipe.to_str().unwrap(), "--dashboard", &page]);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    let long = "x".repeat(4_000);
    let mut connection = Connection::open(port).unwrap();
    // A few megabytes of lines.
    for _ in 0..1_000 {
        let ask = Ask::get(HOST, &format!("/{long}")).header("User-Agent", &long);
        assert_eq!(connection.exchange(&ask).status, 200);
    }
    until("lines are dropped, and counted", || {
        let text = get(dashboard, "localhost", "/metrics").text();
        let part = "varnish_gateway_access_log_lines_total{gateway=\"default/web\",result=\"dropped\"} ";
        let count = text.lines().find_map(|line| line.strip_prefix(part)?.parse::<u64>().ok());
        count.is_some_and(|count| count > 0)
    });
    drop(reader);
}
