//! A real API server takes the objects that `workload` makes. In the test cluster:
//! `tests/cluster/exec cargo test --offline -p translate --test api_server -- --ignored`.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use std::io::Write;
use std::process::{Command, Stdio};

use serde::Serialize;
use translate::translate;
use workload::{Options, objects};

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

fn apply(object: &impl Serialize) {
    let json = serde_json::to_string(object).unwrap();
    let arguments = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"];
    let (done, said) = kubectl(&arguments, &json);
    assert!(done, "{said}\n{json}");
}

#[test]
#[ignore = "needs an API server"]
fn the_objects_of_every_case_are_taken() {
    for namespace in ["infra", "apps"] {
        let namespace = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{{\"name\":\"{namespace}\"}}}}"
        );
        let (done, said) = kubectl(&["apply", "-f", "-"], &namespace);
        assert!(done, "{said}");
    }
    insta::glob!("workload/*.in.yaml", |path| {
        let (snapshot, problems) =
            source::files::parse_str("case.yaml", &std::fs::read_to_string(path).unwrap());
        assert!(problems.is_empty());
        for (key, plan) in translate(&snapshot).gateways {
            let made = objects(&snapshot.gateways[&key], &plan, &Options::new("example.com/x:1")).unwrap();
            apply(&made.service_account);
            apply(&made.role);
            apply(&made.role_binding);
            apply(&made.service);
            apply(&made.deployment);
            if let Some(budget) = &made.pod_disruption_budget {
                apply(budget);
            }
            for binding in &made.role_bindings {
                apply(binding);
            }
        }
    });
}
