//! VCL reloads by varnishd's CLI: load, use, discard what is old.

use std::path::PathBuf;
use std::time::Duration;

use varnishadm::{Admin, LoadState};

use crate::Error;

/// Our VCLs have this prefix; a VCL that a user loaded by hand is left alone.
const PREFIX: &str = "gateway_";
/// The C compiler is slow on a busy machine.
const COMPILING: Duration = Duration::from_secs(300);

/// Gives every VCL a name of its own.
#[derive(Debug)]
pub(crate) struct VclLoader {
    dir: PathBuf,
    loaded: u64,
}

impl VclLoader {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, loaded: 0 }
    }

    /// Compiles, switches over, and discards the others. On an error, what was in use still is.
    pub(crate) async fn load(&mut self, admin: &Admin, text: &str) -> Result<(), Error> {
        self.loaded += 1;
        let name = format!("{PREFIX}{}", self.loaded);
        let file = self.dir.join("main.vcl");
        tokio::fs::write(&file, text).await.map_err(Error::file(&file))?;
        let loaded = admin.with_timeout(COMPILING).vcl_load(&name, &file, LoadState::Auto).await;
        if let Err(e) = loaded {
            return Err(match e {
                // The name changes from try to try; the reason should not.
                varnishadm::Error::Status { text: message, .. } => {
                    Error::VclCompile { message: compiler_message(text, &message.replace(&name, "main.vcl")) }
                }
                e => e.into(),
            });
        }
        admin.vcl_use(&name).await?;
        discard_others(admin, &name).await;
        Ok(())
    }
}

/// Varnish keeps a discarded VCL until its last request is over.
async fn discard_others(admin: &Admin, used: &str) {
    let Ok(list) = admin.vcl_list().await else { return };
    for old in list.iter().map(|vcl| vcl.name.as_str()).filter(|n| n.starts_with(PREFIX) && *n != used) {
        if let Err(e) = admin.vcl_discard(old).await {
            tracing::debug!("vcl.discard {old}: {e}");
        }
    }
}

/// What varnishd's compiler says of `main_vcl`, in the user's own line numbers without irrelevant lines.
pub fn compiler_message(main_vcl: &str, message: &str) -> String {
    let message = translate::vcl::explain_compiler_message(main_vcl, message);
    let noise = [
        "Message from VCC-compiler:",
        "Running VCC-compiler failed",
        "VCL compilation failed",
        "Could not delete '",
    ];
    let says = |line: &&str| !line.is_empty() && !noise.iter().any(|noise| line.starts_with(noise));
    let mut lines: Vec<_> = message.lines().map(str::trim_end).filter(says).collect();
    if message.contains("(Permission denied)") {
        lines.push(
            "varnishd's own user must be let through every directory on that path: `chmod o+x` them, or choose another",
        );
    }
    lines.join("\n")
}
