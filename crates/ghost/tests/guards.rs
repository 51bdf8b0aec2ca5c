//! A panic that crosses into C aborts varnishd's child: every function that C calls must stop it. And what C reads of the engine's own
//! structs is listed in c/private.h.

#![allow(clippy::unwrap_used, reason = "whatever goes wrong here must fail the test")]

use std::fs;
use std::path::{Path, PathBuf};

/// What the body of such a function begins with.
const GUARDS: [&str; 2] = ["guarded(", "stopped("];

#[test]
fn every_function_that_c_calls_stops_panics() {
    let mut sources = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    let (mut count, mut bare) = (0, Vec::new());
    for path in sources {
        let text = fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("extern \"C\" fn ") {
            let rest = &text[at..];
            let body = &rest[rest.find('{').unwrap() + 1..];
            let code = body.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("//"));
            let code = code.unwrap_or_default();
            count += 1;
            if !GUARDS.iter().any(|guard| code.starts_with(guard)) {
                bare.push(format!("{}: {}", path.display(), rest.lines().next().unwrap()));
            }
        }
    }
    assert!(count > 30, "only {count} functions were found");
    assert!(bare.is_empty(), "these begin with neither of {GUARDS:?}:\n{}", bare.join("\n"));
}

/// Members of `struct vrt_ctx`, `struct vmod_priv`, `struct vrt_backend` and `txt`, which are there for every VMOD, and of our
/// `struct gs_text` (tunnel.h).
const STABLE: &[&str] = &[
    "b",
    "backend_wait_timeout",
    "bo",
    "http_bereq",
    "http_beresp",
    "http_req",
    "http_resp",
    "method",
    "methods",
    "n",
    "now",
    "p",
    "priv",
    "req",
    "sp",
    "vcl",
    "vsl",
    "ws",
];

#[test]
fn every_member_of_the_engines_own_structs_is_listed() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
    let list = fs::read_to_string(dir.join("private.h")).unwrap();
    let (mut count, mut missing) = (0, Vec::new());
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let text = without_comments(&fs::read_to_string(&path).unwrap());
        let ours = text.match_indices("struct gs_").filter_map(|(at, _)| {
            let (head, rest) = text[at..].split_once(" {\n")?;
            (!head.contains(';')).then(|| rest.split_once("\n}"))?
        });
        let ours: Vec<&str> = ours.flat_map(|(body, _)| body.split(|c: char| !is_of_a_name(c))).collect();
        for (at, arrow) in text.match_indices("->") {
            let rest = &text[at + arrow.len()..];
            let member = &rest[..rest.find(|c| !is_of_a_name(c)).unwrap()];
            let is_listed =
                list.contains(&format!(", {member}, ")) || list.contains(&format!(", {member});"));
            count += 1;
            if !is_listed && !STABLE.contains(&member) && !ours.contains(&member) {
                missing.push(format!("{}: {member}", path.display()));
            }
        }
    }
    assert!(count > 100, "only {count} members were found");
    assert!(missing.is_empty(), "add these to c/private.h:\n{}", missing.join("\n"));
}

const fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once("*/").map_or("", |(_, code)| code))
}

fn collect(dir: &Path, to: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, to);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            to.push(path);
        }
    }
}
