//! A real API server takes our CRDs, and with them takes and refuses what admission.yaml says. In the test cluster:
//! `tests/cluster/exec cargo test --offline -p api --test api_server -- --ignored`.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use std::io::Write;
use std::process::{Command, Stdio};

/// Whether it was done, and what kubectl said.
fn kubectl(arguments: &[&str], input: &str) -> (bool, String) {
    let program = std::env::var("KUBECTL").unwrap_or("kubectl".into());
    let mut kubectl = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    kubectl.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = kubectl.wait_with_output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn install() {
    let definitions = api::crd::yaml().unwrap();
    let (done, said) = kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &definitions);
    assert!(done, "{said}");
    let wait = ["wait", "--for=condition=Established", "--timeout=60s", "-f", "-"];
    let (done, said) = kubectl(&wait, &definitions);
    assert!(done, "{said}");
}

#[test]
#[ignore = "needs an API server"]
fn objects_are_taken_and_refused_as_written() {
    install();
    let cases: Vec<&str> = include_str!("admission.yaml").split("\n---\n").collect();
    let mut wrong = Vec::new();
    for case in cases {
        let expected = case.lines().find_map(|line| match line.strip_prefix("# ") {
            Some("taken") => Some(None),
            Some(line) => line.strip_prefix("refused: ").map(Some),
            None => None,
        });
        let (taken, said) =
            kubectl(&["create", "--dry-run=server", "--validate=strict", "-n", "default", "-f", "-"], case);
        let right = match expected.unwrap() {
            None => taken,
            Some(words) => !taken && said.contains(words),
        };
        if !right {
            wrong.push(format!("{case}\n=> {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
#[ignore = "needs an API server"]
fn an_invalidation_cannot_be_changed() {
    install();
    let object = |path: &str| {
        format!(
            "apiVersion: gateway.varnish-software.com/v1alpha1\nkind: VarnishCacheInvalidation\n\
             metadata: {{name: once}}\n\
             spec: {{gatewayRef: {{name: gw}}, type: Purge, hostname: a.example, paths: [{path}]}}\n"
        )
    };
    let apply = ["apply", "--server-side", "-n", "default", "-f", "-"];
    let (done, said) = kubectl(&apply, &object("/a"));
    assert!(done, "{said}");
    let (done, said) = kubectl(&apply, &object("/b"));
    assert!(!done && said.contains("cannot be changed: make another one"), "{said}");
    let (done, said) = kubectl(&["delete", "-n", "default", "-f", "-"], &object("/a"));
    assert!(done, "{said}");
}
