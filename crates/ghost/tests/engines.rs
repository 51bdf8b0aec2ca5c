//! The engine that is installed compiles the cases of `crates/translate/tests/engines`, or refuses them, as they say. `scripts/test engine`
//! runs this on the other engines.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "whatever goes wrong here must fail the test"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// `varnishd`, or `vinyld` where that is all there is; and its version as cases name it.
fn engine() -> (&'static str, String) {
    for daemon in ["varnishd", "vinyld"] {
        let said = match Command::new(daemon).arg("-V").output() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            said => said.unwrap(),
        };
        let text = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        let (_, version) = text.split([' ', ')']).nth(1).unwrap().rsplit_once('-').expect(&text);
        let mut parts = version.split('.');
        return (daemon, format!("{}.{}", parts.next().unwrap(), parts.next().unwrap()));
    }
    panic!("neither varnishd nor vinyld is installed: apt-get install varnish");
}

fn cases() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../translate/tests/engines");
    let mut cases: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

#[test]
fn vcl_compiles_where_its_case_says_so() {
    let (daemon, version) = engine();
    if !["7.1", "7.7", "9.0"].contains(&version.as_str()) {
        eprintln!("{daemon} {version} is none of the engines that the cases name");
        return;
    }
    // varnishd's compiler runs as its own user, who may not reach the checkout.
    let dir = tempfile::Builder::new().prefix("ghost-engines.").tempdir().unwrap();
    let mode = |mode| <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(mode);
    fs::set_permissions(dir.path(), mode(0o755)).unwrap();
    let mut wrong = Vec::new();
    for case in cases() {
        let text = fs::read_to_string(&case).unwrap();
        let named = text.lines().find_map(|line| line.strip_prefix("# compiles on: ")).expect("a header");
        let expected = named.split(", ").any(|one| one == version);
        let copy = dir.path().join(case.file_name().unwrap());
        fs::write(&copy, text).unwrap();
        fs::set_permissions(&copy, mode(0o644)).unwrap();
        let said = Command::new(daemon)
            .arg("-C")
            .arg("-f")
            .arg(&copy)
            .arg("-n")
            .arg(dir.path().join("n"))
            .output()
            .unwrap();
        if said.status.success() != expected {
            let message: Vec<&[u8]> = said.stderr.split(|byte| *byte == b'\n').take(5).collect();
            let message = String::from_utf8_lossy(&message.join(&b' ')).into_owned();
            wrong.push(format!("{}: {} {message}", case.display(), said.status));
        }
    }
    assert!(wrong.is_empty(), "{daemon} {version}:\n{}", wrong.join("\n"));
}

#[test]
fn vcl_is_read_as_the_docs_say() {
    let (_, version) = engine();
    // Header of the engine's own, that of the others, ACL entry in the log, cookie.get_string(), req.http.Via,
    // Content-Length of a POST without a body
    let [own, other, entry, cookies, via, length] = match version.as_str() {
        "7.1" => ["X-Varnish", "X-Vinyl", "10.1.0.0", "a=1; b=2;", "^$", "^$"],
        "7.7" => ["X-Varnish", "X-Vinyl", "10.1.0.0", "a=1; b=2", "Varnish", "^$"],
        "9.0" => ["X-Vinyl", "X-Varnish", "10.0.0.0", "a=1; b=2", "Vinyl-Cache", "^0$"],
        other => return eprintln!("{other} is none of the engines that the docs name"),
    };
    let said = Command::new("varnishtest")
        .args(["-t", "60", "-D", &format!("its_own_header={own}"), "-D", &format!("another_header={other}")])
        .args([
            "-D",
            &format!("entry={entry}"),
            "-D",
            &format!("cookies={cookies}"),
            "-D",
            &format!("via={via}"),
        ])
        .args(["-D", &format!("length_of_none={length}")])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engines.vtc"))
        .output()
        .expect("varnishtest comes with varnishd: apt-get install varnish");
    assert!(said.status.success(), "{version}:\n{}", String::from_utf8_lossy(&said.stdout));
}

/// `/metrics` has the engine's own counters under their own names: `MAIN.n_object` is `varnish_main_n_object`.
#[test]
fn the_engine_has_each_counter_that_dashboards_and_alerts_name() {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/varnish-gateway");
    let mut named = BTreeSet::new();
    for file in ["dashboards/gateways.json", "dashboards/operator.json", "alerts.yaml"] {
        let text = fs::read_to_string(chart.join(file)).unwrap();
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let Some((group, counter)) = word.strip_prefix("varnish_").and_then(|rest| rest.split_once('_'))
            else {
                continue;
            };
            match group {
                "main" => named.insert(format!("MAIN.{counter}")),
                "sma" => named.insert(format!("SMA.s0.{counter}")),
                // Our own, and the same whatever the engine.
                "gateway" | "backend" => false,
                other => panic!("{file} has {word}: say here what {other} is in varnishstat"),
            };
        }
    }
    assert!(named.len() > 5, "only {named:?}");
    let expected: String = named.iter().map(|name| format!("varnish v1 -expect {name} >= 0\n")).collect();
    let dir = tempfile::Builder::new().prefix("ghost-engines.").tempdir().unwrap();
    let case = dir.path().join("counters.vtc");
    let start = r#"varnish v1 -arg "-s s0=malloc,10m" -vcl { vcl 4.1; backend none none; } -start"#;
    fs::write(&case, format!("varnishtest \"counters\"\n{start}\n{expected}")).unwrap();
    let said = Command::new("varnishtest").args(["-t", "60"]).arg(&case).output();
    let said = said.expect("varnishtest comes with varnishd: apt-get install varnish");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
}
