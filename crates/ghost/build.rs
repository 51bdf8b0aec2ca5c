//! The engine's own vmodtool writes the glue from ghost.vcc; the C shim is compiled against the headers of the
//! engine that is installed (Vinyl Cache or Varnish Cache, c/engine.h), and the VMOD fits exactly that one.

#![allow(clippy::expect_used, reason = "a build that cannot go on stops with the reason")]

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

const WANTED: &str = "install the headers of Varnish Cache or Vinyl Cache: apt-get install libvarnishapi-dev (or libvinylapi-dev) \
                      pkg-config python3";

/// Debian's Vinyl Cache has a `varnishapi.pc` for compatibility, so its own name comes first.
const ENGINES: [&str; 2] = ["vinylapi", "varnishapi"];

fn main() {
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let probe = |name: &'static str| {
        let library = pkg_config::Config::new().cargo_metadata(false).probe(name).ok()?;
        let product = if name == "vinylapi" { "Vinyl Cache" } else { "Varnish Cache" };
        Some((library, pkg_config::get_variable(name, "vmodtool").ok()?, product))
    };
    let (engine, vmodtool, product) = ENGINES.into_iter().find_map(probe).expect(WANTED);
    let mut make = Command::new("python3");
    make.arg(&vmodtool).arg("-o").arg(out.join("vcc_if")).arg("-w").arg(&out).arg("ghost.vcc");
    assert!(make.status().expect(WANTED).success(), "{vmodtool} failed on ghost.vcc");
    fs::write(out.join("config.h"), "").expect("OUT_DIR is writable");

    cc::Build::new()
        .include(&out)
        .include("c")
        .includes(&engine.include_paths)
        // rustc's export list would hide a symbol of C: varnishd finds the descriptor in a static of Rust's (src/lib.rs)
        // that a constructor of the shim fills from the one that vmodtool made.
        .define("Vmod_ghost_Data", "Vmod_ghost_Data_c")
        .flag("-Werror=implicit-function-declaration")
        .flag_if_supported("-Wno-unused-parameter")
        .file(out.join("vcc_if.c"))
        .file("c/shim.c")
        .file("c/index.c")
        .file("c/lookup.c")
        .file("c/tunnel.c")
        .file("c/call.c")
        .link_lib_modifier("+whole-archive")
        .compile("ghostshim");
    println!("cargo:rustc-env=VARNISH_VERSION={}", engine.version);
    println!("cargo:rustc-env=ENGINE={product} {}", engine.version);
    println!("cargo:rerun-if-changed=c");
    println!("cargo:rerun-if-changed=ghost.vcc");
    println!("cargo:rerun-if-changed={vmodtool}");
}
