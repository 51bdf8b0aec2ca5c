//! A panic that crosses into C aborts varnishd's child: every function that C calls must stop it.

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
