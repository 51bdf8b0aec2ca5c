//! Runs every tests/vtc/*.vtc in a real varnishd, with the VMOD that cargo built and the VCL that users get.
//!
//! `cargo test` does not build a cdylib: run `cargo build -p ghost` first (`make test` does).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, fs, io};

/// One test for each file; `a_name_like_this` stands for `a-name-like-this.vtc`.
macro_rules! cases {
    ($($case:ident)*) => {
        const CASES: &[&str] = &[$(stringify!($case)),*];
        $(#[test] fn $case() { run(stringify!($case)); })*
    };
}

cases! {
    routes_by_host_and_path
}

/// varnishtest's exit code for a case that this machine cannot run, say for want of IPv6.
const SKIPPED: i32 = 77;
const SECONDS_FOR_ONE: &str = "120";
/// varnishtest gives up where a log grows larger.
const LOG_SIZE: &str = "100M";

#[test]
fn every_file_is_a_case() {
    let mut files: Vec<_> = fs::read_dir(crate_dir().join("tests/vtc"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(".vtc").expect("only .vtc files are in tests/vtc").replace('-', "_"))
        .collect();
    files.sort();
    let mut cases = CASES.to_vec();
    cases.sort_unstable();
    assert_eq!(cases, files, "the list in tests/vtc.rs and the files in tests/vtc differ");
}

fn run(case: &str) {
    let file = crate_dir().join(format!("tests/vtc/{}.vtc", case.replace('_', "-")));
    let readable = ReadableFiles::new();
    let at = |name: &str| readable.0.path().join(name).display().to_string();
    let vmods = format!("{}:{}", at(""), varnishs_own_vmods());
    let output = Command::new("varnishtest")
        .args(["-b", LOG_SIZE, "-t", SECONDS_FOR_ONE])
        .args(["-D", &format!("args=-p vmod_path={vmods} -p thread_pool_min=20 -p thread_pool_max=200")])
        .args(["-D", &format!("preamble={}", at("preamble.vcl"))])
        .args(["-D", &format!("postamble={}", at("postamble.vcl"))])
        .arg(&file)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            panic!("varnishtest is not installed; it comes with varnishd: apt-get install varnish")
        }
        Err(e) => panic!("varnishtest does not start: {e}"),
    };
    match output.status.code() {
        Some(0) => {}
        Some(SKIPPED) => eprintln!("{case}: skipped\n{}", String::from_utf8_lossy(&output.stdout)),
        _ => panic!(
            "{}: varnishtest ended with {}\n{}{}",
            file.display(),
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

/// What varnishd reads. Run as root it drops to its own user, who may not be able to look into the checkout.
struct ReadableFiles(tempfile::TempDir);

impl ReadableFiles {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("ghost-vtc.").tempdir().unwrap();
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir.path(), everyone).unwrap();
        let vcl = crate_dir().join("../translate/src/vcl");
        for file in [built_vmod(), vcl.join("preamble.vcl"), vcl.join("postamble.vcl")] {
            let to = dir.path().join(file.file_name().unwrap());
            fs::copy(&file, &to).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        }
        Self(dir)
    }
}

/// The VMOD beside this test's own directory (`target/<profile>/deps`), not older than what it is made of.
fn built_vmod() -> PathBuf {
    let exe = env::current_exe().unwrap();
    let profile = exe.ancestors().nth(2).expect("a test runs in target/<profile>/deps");
    let vmod = profile.join("libvmod_ghost.so");
    let release = if profile.ends_with("release") { " --release" } else { "" };
    let how = format!("run `cargo build -p ghost{release}` first");
    let built = modified(&vmod).unwrap_or_else(|| panic!("{} is missing: {how}", vmod.display()));
    // Cargo's own list, "made: source source…".
    let sources = fs::read_to_string(vmod.with_extension("d")).unwrap_or_default();
    for source in sources.split_whitespace().skip(1) {
        let newer = modified(Path::new(source)).is_none_or(|at| at > built);
        assert!(!newer, "{} is older than {source}: {how}", vmod.display());
    }
    vmod
}

/// Where std and its like are.
fn varnishs_own_vmods() -> String {
    let asked = Command::new("pkg-config").args(["--variable=vmoddir", "varnishapi"]).output();
    let output = asked.expect("pkg-config is not installed: apt-get install pkg-config libvarnishapi-dev");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}

fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
