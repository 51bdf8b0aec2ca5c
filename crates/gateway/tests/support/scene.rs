//! A directory of its own for each test: the manifests, and the gateway's state.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::Program;

pub(crate) struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    /// With the manifests in one file.
    pub(crate) fn new(manifests: &str) -> Self {
        // varnishd's own user must pass through.
        let passable = fs::Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().prefix("gateway-test-").permissions(passable).tempdir().unwrap();
        let scene = Self { dir };
        fs::create_dir(scene.path("manifests")).unwrap();
        scene.write("all.yaml", manifests);
        scene
    }

    /// Something in the test's own directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn manifest(&self, name: &str) -> PathBuf {
        self.path("manifests").join(name)
    }

    /// Writes a manifest, whole or not at all.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let aside = self.path("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(&aside, self.manifest(name)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.manifest(name)).unwrap();
    }

    /// Something in the state of a Gateway's varnishd.
    pub(crate) fn state(&self, gateway: &str, name: &str) -> PathBuf {
        self.path("state").join(format!("default_{gateway}")).join(name)
    }

    /// `serve` on the manifests. It serves when its log says so.
    pub(crate) fn start(&self) -> Program {
        self.start_with(&[])
    }

    pub(crate) fn start_with(&self, arguments: &[&str]) -> Program {
        let mut command = Program::command();
        command.args(["serve", "--bind", "127.0.0.1", "-f"]).arg(self.path("manifests"));
        command.arg("--state-dir").arg(self.path("state")).args(arguments);
        Program::spawn(command)
    }

    /// `serve`, once Gateway `web` serves.
    pub(crate) fn serve(&self) -> Program {
        let program = self.start();
        program.wait_for_line(&["Gateway default/web: reloaded"]);
        program
    }
}
