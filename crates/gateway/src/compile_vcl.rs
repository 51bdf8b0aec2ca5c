//! `varnishd -C`: does a main.vcl compile?

use std::path::Path;
use std::process::Command;

use anyhow::Context;

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
    let dir = tempfile::Builder::new().prefix("varnish-gateway-check-").tempdir()?;
    make_readable(dir.path())?;
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
    let mut command = Command::new(&varnish.varnishd);
    command.arg("-C").arg("-f").arg(&file).arg("-n").arg(dir.path().join("varnishd"));
    match command.output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Compiled::NotTried),
        Err(e) => Err(e).context("varnishd -C"),
        Ok(output) if output.status.success() => Ok(Compiled::Yes),
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            Ok(Compiled::No(chaperone::compiler_message(vcl, &message)))
        }
    }
}

fn make_readable(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))
}
