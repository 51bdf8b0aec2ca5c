//! Beginning, accidents, and the end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::processes::{is_alive, signal};
use crate::support::{
    Ask, Connection, Origin, Program, Scene, class, free_port, gateway, get, parameters, route_to, service,
    shop_on, until,
};

/// Gateway `web` in front of an origin that can hold its answers.
struct Site {
    port: u16,
    shop: Origin,
    program: Program,
    scene: Scene,
}

impl Site {
    fn new(arguments: &[&str]) -> Self {
        let (port, shop) = (free_port(), Origin::new("shop"));
        let all = [shop_on(port, &[shop.address()])];
        let scene = Scene::new(&all.concat());
        let program = scene.start_with(arguments);
        program.wait_for_line(&["reloaded 1 routes"]);
        Self { port, shop, program, scene }
    }

    /// A request that the origin has, and does not answer yet.
    fn ask_and_hold(&self) -> Connection {
        let mut connection = Connection::open(self.port).unwrap();
        connection.write(&Ask::get("x", "/hold")).unwrap();
        self.shop.wait_for("/hold");
        connection
    }
}

fn a_signal_drains(which: Signal) {
    let mut site = Site::new(&["--drain-timeout", "25"]);
    let mut in_flight = site.ask_and_hold();
    let processes = site.program.descendants();
    assert!(processes.len() >= 2, "{processes:?}");
    site.program.signal(which);
    site.program.wait_for_line(&["Gateway default/web: draining"]);
    assert!(site.program.is_running());
    site.shop.release();
    assert_eq!(in_flight.read("GET").unwrap().status, 200);
    assert!(site.program.wait_for_exit().success());
    assert_eq!(processes.into_iter().find(|pid| is_alive(*pid)), None, "no process is left");
    site.program.wait_for_line(&["Gateway default/web: stopped"]);
    assert!(Connection::open(site.port).is_err());
}

#[test]
fn sigterm_finishes_what_has_begun() {
    a_signal_drains(Signal::TERM);
}

#[test]
fn ctrl_c_finishes_what_has_begun() {
    a_signal_drains(Signal::INT);
}

#[test]
fn draining_has_a_limit() {
    let mut site = Site::new(&["--drain-timeout", "0.5"]);
    let _in_flight = site.ask_and_hold();
    site.program.signal(Signal::TERM);
    site.program.wait_for_line(&["warning: Gateway default/web", "still ran after"]);
    assert!(site.program.wait_for_exit().success());
}

#[test]
fn the_second_signal_stops_at_once() {
    let mut site = Site::new(&["--drain-timeout", "1000"]);
    let _in_flight = site.ask_and_hold();
    let processes = site.program.descendants();
    site.program.signal(Signal::INT);
    site.program.wait_for_line(&["Gateway default/web: draining"]);
    let asked = Instant::now();
    site.program.signal(Signal::INT);
    site.program.wait_for_exit();
    assert!(asked.elapsed() < Duration::from_secs(25), "took {:?}", asked.elapsed());
    assert_eq!(processes.into_iter().find(|pid| is_alive(*pid)), None, "no process is left");
}

#[test]
fn an_open_websocket_is_drained_like_a_request() {
    let mut site = Site::new(&["--drain-timeout", "1"]);
    let mut connection = Connection::open(site.port).unwrap();
    let upgrade = Ask::get("x", "/chat").header("Connection", "Upgrade").header("Upgrade", "websocket");
    assert_eq!(connection.exchange(&upgrade).status, 101);
    site.program.signal(Signal::TERM);
    site.program.wait_for_line(&["still ran after"]);
    assert!(site.program.wait_for_exit().success());
}

#[test]
fn a_temporary_state_directory_goes_with_the_program() {
    let port = free_port();
    let scene = Scene::new(&[class(), gateway("web", &[port])].concat());
    let temporary = scene.path("tmp");
    fs::create_dir(&temporary).unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Program::command();
    command
        .env("TMPDIR", &temporary)
        .args(["serve", "--bind", "127.0.0.1", "-f"])
        .arg(scene.path("manifests"));
    let mut program = Program::spawn(command);
    program.wait_for_line(&["Gateway default/web: reloaded"]);
    let left = || fs::read_dir(&temporary).unwrap().count();
    assert_eq!(left(), 1);
    program.signal(Signal::TERM);
    assert!(program.wait_for_exit().success());
    assert_eq!(left(), 0);
}

#[test]
fn a_temporary_state_directory_of_a_killed_one_goes_with_the_next() {
    let port = free_port();
    let scene = Scene::new(&[class(), gateway("web", &[port])].concat());
    let temporary = scene.path("tmp");
    fs::create_dir(&temporary).unwrap();
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755)).unwrap();
    // Of another program, by its name alone.
    fs::create_dir(temporary.join("varnish-gateway-of-mine")).unwrap();
    let start = || {
        let mut command = Program::command();
        command
            .env("TMPDIR", &temporary)
            .args(["serve", "--bind", "127.0.0.1", "-f"])
            .arg(scene.path("manifests"));
        Program::spawn(command)
    };
    let left = || fs::read_dir(&temporary).unwrap().count();
    let mut killed = start();
    killed.wait_for_line(&["Gateway default/web: reloaded"]);
    killed.signal(Signal::KILL);
    killed.wait_for_exit();
    assert_eq!(left(), 2);
    let runs = start();
    runs.wait_for_line(&["removed; its `serve` was killed"]);
    runs.wait_for_line(&["Gateway default/web: reloaded"]);
    assert_eq!(left(), 2, "the new one's, and what is not ours");
    // One that runs keeps its own.
    let other = start();
    other.wait_for_line(&["is taken by another process"]);
    assert_eq!(left(), 3);
}

#[test]
fn a_state_directory_of_the_users_is_used_kept_and_used_again() {
    let mut site = Site::new(&[]);
    let config = fs::read_to_string(site.scene.state("web", "ghost.json")).unwrap();
    assert!(config.contains("default/shop"), "{config}");
    site.program.signal(Signal::KILL);
    site.program.wait_for_exit();
    // What the killed one left behind is no hindrance.
    let again = site.scene.serve();
    assert_eq!(get(site.port, "x", "/").origin(), "shop");
    drop(again);
}

#[test]
fn a_killed_gateway_leaves_no_varnishd_behind() {
    let mut site = Site::new(&[]);
    let varnishd = site.program.varnishd();
    site.program.signal(Signal::KILL);
    site.program.wait_for_exit();
    until("manager and child are gone", || !is_alive(varnishd.manager) && !is_alive(varnishd.child));
    until("the port is free", || Connection::open(site.port).is_err());
}

#[test]
fn a_child_that_dies_is_told_and_started_again() {
    let site = Site::new(&[]);
    let before = site.program.varnishd();
    for round in 1..=2 {
        let child = site.program.varnishd().child;
        signal(child, Signal::KILL);
        site.program.wait_for_lines(round, &["error: Gateway default/web", "child died"]);
        site.program.wait_for_lines(round, &["Gateway default/web: varnishd's child runs again"]);
        assert_eq!(get(site.port, "x", "/").origin(), "shop");
    }
    let after = site.program.varnishd();
    assert_eq!(before.manager, after.manager);
    assert_ne!(before.child, after.child);
    // It still hears of changes.
    site.scene.write("new.yaml", &route_to("new", "/new", "nowhere"));
    until("changes are taken", || get(site.port, "x", "/new").status == 500);
}

#[test]
fn a_new_child_begins_with_the_last_good_file_whoever_wrote_to_it() {
    let site = Site::new(&[]);
    fs::write(site.scene.state("web", "ghost.json"), r#"{"version": 9, "vhosts": {}}"#).unwrap();
    signal(site.program.varnishd().child, Signal::KILL);
    site.program.wait_for_line(&["Gateway default/web: varnishd's child runs again"]);
    assert_eq!(get(site.port, "x", "/").origin(), "shop");
}

#[test]
fn a_change_while_the_child_is_dead_is_not_lost() {
    let site = Site::new(&[]);
    for round in 0..5 {
        let path = format!("/lost/{round}");
        signal(site.program.varnishd().child, Signal::KILL);
        site.scene.write("new.yaml", &route_to("new", &path, "nowhere"));
        until("the change is in force", || {
            Ask::get("x", &path).try_send(site.port).is_ok_and(|response| response.status == 500)
        });
    }
}

#[test]
fn a_manager_that_dies_is_told_and_started_again() {
    let site = Site::new(&[]);
    let before = site.program.varnishd();
    signal(before.manager, Signal::KILL);
    let line = site.program.wait_for_line(&["error: Gateway default/web: varnishd ended", "SIGKILL"]);
    assert!(!line.contains("Varnish Cache CLI"), "no small talk: {line}");
    site.program.wait_for_lines(2, &["Gateway default/web: reloaded"]);
    until("the old child is gone", || !is_alive(before.child));
    assert_ne!(site.program.varnishd().manager, before.manager);
    assert_eq!(get(site.port, "x", "/").origin(), "shop");
}

#[test]
fn the_end_of_a_gateway_that_was_just_removed_is_waited_for() {
    let mut site = Site::new(&["--drain-timeout", "20"]);
    let mut in_flight = site.ask_and_hold();
    let processes = site.program.descendants();
    site.scene.write("all.yaml", &class());
    site.program.wait_for_line(&["Gateway default/web: draining"]);
    site.program.signal(Signal::TERM);
    // Long enough to end, if it did not wait.
    std::thread::sleep(Duration::from_millis(500));
    assert!(site.program.is_running());
    site.shop.release();
    assert_eq!(in_flight.read("GET").unwrap().status, 200);
    assert!(site.program.wait_for_exit().success());
    assert_eq!(processes.into_iter().find(|pid| is_alive(*pid)), None, "no process is left");
}

#[test]
fn arguments_that_varnishd_refuses_take_nothing_down() {
    let (port, shop) = (free_port(), Origin::new("shop"));
    let rest = [gateway("web", &[port]), service("shop", &[shop.address()]), route_to("shop", "/", "shop")];
    let with = |arguments: &str| {
        [parameters(&format!("{{varnishdExtraArgs: {arguments}}}")), rest.concat()].concat()
    };
    let scene = Scene::new(&with("[-p, thread_pool_min=10]"));
    let program = scene.start();
    program.wait_for_line(&["reloaded 1 routes"]);
    let before = program.varnishd().manager;
    scene.write("all.yaml", &with("[-p, nosuchparam=1]"));
    program.wait_for_line(&["Gateway default/web", "Unknown parameter", "nosuchparam"]);
    assert_eq!(program.varnishd().manager, before);
    assert_eq!(get(port, "x", "/").status, 200);
    // One that only a start shows: what ran before runs again.
    scene.write("all.yaml", &with("[-h, 'critbit,x']"));
    program.wait_for_line(&["started with its previous arguments"]);
    until("served again", || Ask::get("x", "/").try_send(port).is_ok_and(|answer| answer.status == 200));
    scene.write("all.yaml", &with("[-p, thread_pool_min=11]"));
    program.varnishd_of("thread_pool_min=11");
}

#[test]
fn a_second_serve_leaves_the_state_directory_of_the_first_alone() {
    let mut site = Site::new(&[]);
    let second = Scene::new(&[class(), gateway("web", &[free_port()])].concat());
    let on_state_of_first = |mut command: std::process::Command| {
        command.arg("--state-dir").arg(site.scene.path("state"));
        command
    };
    let serve = || {
        let mut command = Program::command();
        command.args(["serve", "--bind", "127.0.0.1", "-f"]).arg(second.path("manifests"));
        Program::spawn(on_state_of_first(command))
    };
    let mut refused = serve();
    assert_eq!(refused.wait_for_exit().code(), Some(1));
    refused.wait_for_line(&["error: ", "state", "is used by another process", "--state-dir"]);
    assert_eq!(get(site.port, "x", "/").status, 200);
    for words in [&["status"][..], &["purge", "x", "/"]] {
        let mut command = Program::command();
        command.args(words);
        let output = on_state_of_first(command).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
    }
    // One that was killed has no claim.
    site.program.signal(Signal::KILL);
    site.program.wait_for_exit();
    serve().wait_for_line(&["Gateway default/web: reloaded"]);
}

#[test]
fn json_logs_are_one_object_a_line() {
    let port = free_port();
    let scene = Scene::new(&[class(), gateway("web", &[port]), route_to("lost", "/", "nowhere")].concat());
    let mut program = scene.start_with(&["--log", "json"]);
    program.wait_for_line(&["\"event\":\"reloaded\""]);
    scene.write("broken.yaml", "a: [b");
    program.wait_for_line(&["\"event\":\"bad-input\""]);
    program.signal(Signal::TERM);
    program.wait_for_exit();
    program.wait_for_line(&["\"event\":\"stopped\""]);
    let lines: Vec<serde_json::Value> = program
        .lines()
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    for line in &lines {
        for field in ["timestamp", "level", "message"] {
            assert!(line[field].is_string(), "{field} in {line}");
        }
    }
    let find = |event: &str| lines.iter().find(|line| line["event"] == event).unwrap();
    assert_eq!(find("listening")["object"], "Gateway default/web");
    assert_eq!(find("listening")["address"], format!("127.0.0.1:{port}"));
    assert_eq!(find("rejected")["object"], "HTTPRoute default/lost");
    assert_eq!(find("reloaded")["rules"], 1);
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let scene = Scene::new("");
    let mut command = Program::command();
    command.args(["serve", "--state-dir", "/proc/nowhere/state", "-f"]).arg(scene.path("manifests"));
    let mut program = Program::spawn(command);
    assert!(!program.wait_for_exit().success());
    program.wait_for_line(&["error: ", "/proc/nowhere/state"]);
}
