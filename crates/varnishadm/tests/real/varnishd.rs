//! A varnishd for the length of a test.

use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use varnishadm::{Admin, ReverseListener, Secret};

/// A C compiler runs for each VCL, on a machine that may be busy.
pub const SOON: Duration = Duration::from_secs(120);

pub struct Varnishd {
    process: Child,
    dir: TempDir,
    pub listener: ReverseListener,
    pub secret: Secret,
}

impl Varnishd {
    /// The child is not started, as there is no VCL.
    pub async fn launch() -> Self {
        let secret = Secret::generate().unwrap();
        let listener = ReverseListener::bind("127.0.0.1:0").await.unwrap();
        // varnishd run as root becomes another user, who has to find the way to the VCL.
        let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        secret.write(&dir.path().join("secret")).unwrap();
        let process = spawn(dir.path(), listener.local_addr());
        Self { process, dir, listener, secret }
    }

    pub async fn start() -> (Self, Admin) {
        let varnishd = Self::launch().await;
        let admin = varnishd.accept().await;
        (varnishd, admin)
    }

    pub async fn accept(&self) -> Admin {
        self.listener.accept(&self.secret, SOON).await.unwrap().with_timeout(SOON)
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn secret_file(&self) -> PathBuf {
        self.dir.path().join("secret")
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// kill -9 for the manager alone.
    pub fn kill_manager(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn spawn(dir: &Path, cli: SocketAddr) -> Child {
    let log = File::create(dir.join("log")).unwrap();
    let result = Command::new("varnishd")
        .arg("-F")
        .arg("-n")
        .arg(dir.join("work"))
        .args(["-a", "127.0.0.1:0", "-f", "", "-T", "none"])
        .arg("-M")
        .arg(cli.to_string())
        .arg("-S")
        .arg(dir.join("secret"))
        .args(["-p", "thread_pools=1", "-p", "thread_pool_min=10", "-p", "vsl_space=1M"])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        // One group of manager, child and compilers, so that all end together.
        .process_group(0)
        .spawn();
    match result {
        Ok(process) => process,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("varnishd is not installed; these tests need it: apt-get install varnish")
        }
        Err(error) => panic!("cannot run varnishd: {error}"),
    }
}

impl Drop for Varnishd {
    fn drop(&mut self) {
        let group = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).unwrap();
        // Already gone is as good.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            eprintln!("--- varnishd's log ---\n{log}");
        }
    }
}
