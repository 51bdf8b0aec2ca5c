//! `proxy`: one line for a caching proxy, and the manifests that it stands for.

use std::process::Command;

use crate::support::{Ask, Handshake, Origin, Program, Scene, free_port, get};

fn run(arguments: &[&str]) -> Program {
    let mut command = Program::command();
    command.arg("proxy").args(arguments);
    let program = Program::spawn(command);
    program.wait_for_line(&["Gateway default/proxy: reloaded"]);
    program
}

fn printed(arguments: &[&str]) -> (bool, String, String) {
    let mut command: Command = Program::command();
    let output = command.arg("proxy").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn one_line_caches() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let (listen, to) = (format!("127.0.0.1:{port}"), format!("http://{}", origin.address()));
    let _program = run(&["--listen", &listen, "--to", &to, "--cache", "1m"]);
    for expected in ["MISS", "HIT"] {
        let answer = get(port, "any.example", "/a");
        assert_eq!((answer.status, answer.header("X-Cache")), (200, Some(expected)));
    }
}

#[test]
fn routes_go_to_their_origins_and_the_rest_to_the_others() {
    let (port, shop, images) = (free_port(), Origin::new("shop"), Origin::new("images"));
    let listen = format!("127.0.0.1:{port}");
    let route = format!("shop.example/images=http://{}", images.address());
    let to = format!("http://{}", shop.address());
    let _program = run(&["--listen", &listen, "--route", &route, "--to", &to]);
    for (host, path, expected) in [
        ("shop.example", "/images/a", "images"),
        ("shop.example", "/imagesque", "shop"),
        ("other.example", "/images/a", "shop"),
    ] {
        let answer = get(port, host, path);
        assert_eq!(answer.status, 200);
        assert!(String::from_utf8_lossy(&answer.body).contains(expected), "{host}{path}");
        assert_eq!(answer.header("X-Cache"), Some("PASS"), "nothing is cached without --cache");
    }
}

#[test]
fn tls_is_self_signed() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let (listen, to) = (format!("127.0.0.1:{port}"), format!("http://{}", origin.address()));
    let program = run(&["--listen", &listen, "--tls", "shop.example", "--to", &to]);
    program.wait_for_line(&["self-signed", "shop.example"]);
    let handshake = Handshake { port, name: Some("shop.example") };
    assert_eq!(handshake.get("shop.example", "/").status, 200);
}

#[test]
fn what_is_printed_is_what_serve_runs() {
    let (port, origin) = (free_port(), Origin::new("shop"));
    let to = format!("http://{}", origin.address());
    let (is_good, manifests, _) =
        printed(&["--listen", &format!(":{port}"), "--to", &to, "--cache", "1m", "--print"]);
    assert!(is_good);
    let scene = Scene::new(&manifests);
    let program = scene.start();
    program.wait_for_line(&["Gateway default/proxy: reloaded"]);
    for expected in ["MISS", "HIT"] {
        let answer = Ask::get("x", "/").send(port);
        assert_eq!((answer.status, answer.header("X-Cache")), (200, Some(expected)));
    }
    let https = ["--to", "https://shop.example.com", "--tls", "a.example", "--tls", "*.b.example", "--print"];
    let (is_good, manifests, _) = printed(&https);
    assert!(is_good);
    for expected in [
        "kind: BackendTLSPolicy",
        "externalName: shop.example.com",
        "externalNames: Allow",
        "hostname: \"*.b.example\"",
        "PRIVATE KEY",
    ] {
        assert!(manifests.contains(expected), "{expected}: {manifests}");
    }
}

#[test]
fn mistakes_are_named() {
    for (arguments, expected) in [
        (&["--print"][..], "--to http://127.0.0.1:9001"),
        (&["--to", "127.0.0.1:9001"], "a URL is needed"),
        (&["--to", "http://127.0.0.1:9001/shop"], "leave it out"),
        (&["--to", "http://127.0.0.1:9001", "--cache", "1"], "as 30s"),
        (&["--to", "http://127.0.0.1:9001", "--tls", "Shop"], "lower case"),
        (&["--to", "http://127.0.0.1:9001", "--certificate", "a.pem"], "--key"),
    ] {
        let (is_good, _, said) = printed(arguments);
        assert!(!is_good && said.contains(expected), "{arguments:?}: {said}");
    }
}
