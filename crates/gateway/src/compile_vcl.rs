//! `varnishd -C`: does a main.vcl compile, and are varnishd's arguments good?

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use tempfile::TempDir;

use crate::cli::Varnish;
use crate::vmod;

/// What the compiler says.
pub(crate) enum Compiled {
    Yes,
    No(String),
    /// There is no varnishd here.
    NotTried,
}

pub(crate) fn compile(varnish: &Varnish, vcl: &str) -> anyhow::Result<Compiled> {
    let dir = directory()?;
    let file = dir.path().join("main.vcl");
    let text = match vmod::find(varnish.vmod.as_deref()) {
        // varnishd's compiler runs as its own user, who may not reach the place of the original.
        Some(vmod) => {
            let copy = dir.path().join("libvmod_ghost.so");
            std::fs::copy(&vmod, &copy).with_context(|| vmod.display().to_string())?;
            vcl.replacen("import ghost;", &format!("import ghost from \"{}\";", copy.display()), 1)
        }
        None => vcl.to_owned(),
    };
    std::fs::write(&file, text)?;
    Ok(match try_out(varnish, &dir, &file, &[])? {
        Tried::Good => Compiled::Yes,
        Tried::NoVarnishd => Compiled::NotTried,
        Tried::Refused(message) => Compiled::No(chaperone::compiler_message(vcl, &message)),
    })
}

/// What varnishd has against these arguments. Storage on files is left out: trying it would write to them.
pub(crate) fn refused_arguments(varnish: &Varnish, arguments: &[String]) -> anyhow::Result<Option<String>> {
    let mut tried = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (option, value) = word.split_at_checked(2).unwrap_or((word, ""));
        let next = if value.is_empty() { words.next().map_or("", String::as_str) } else { value };
        if option != "-s" || next.starts_with("malloc") || next.contains("=malloc") {
            tried
                .extend([option, next].iter().filter(|text| !text.is_empty()).map(|text| (*text).to_owned()));
        }
    }
    if tried.is_empty() {
        return Ok(None);
    }
    let dir = directory()?;
    let file = dir.path().join("none.vcl");
    std::fs::write(&file, "vcl 4.1;\nbackend none none;\n")?;
    let Tried::Refused(message) = try_out(varnish, &dir, &file, &tried)? else { return Ok(None) };
    let said = message.lines().map(str::trim).filter(|l| !l.is_empty() && *l != "(-? gives usage)");
    Ok(Some(said.collect::<Vec<_>>().join(" ")))
}

/// What varnishd says, on standard error where it refuses.
enum Tried {
    Good,
    Refused(String),
    NoVarnishd,
}

fn try_out(varnish: &Varnish, dir: &TempDir, vcl: &Path, arguments: &[String]) -> anyhow::Result<Tried> {
    let mut command = Command::new(varnish.daemon());
    command.arg("-C").arg("-f").arg(vcl).arg("-n").arg(dir.path().join("varnishd")).args(arguments);
    match command.output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Tried::NoVarnishd),
        Err(e) => Err(e).context("varnishd -C"),
        Ok(output) if output.status.success() => Ok(Tried::Good),
        Ok(output) => Ok(Tried::Refused(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// varnishd's own user must be able to read in it.
fn directory() -> anyhow::Result<TempDir> {
    let dir = tempfile::Builder::new().prefix("varnish-gateway-check-").tempdir()?;
    make_readable(dir.path())?;
    Ok(dir)
}

fn make_readable(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))
}
