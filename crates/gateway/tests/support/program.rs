//! The built program as a process of its own, with its log.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use super::processes::{children, descendants, is_alive, name, signal};
use super::wait_for;

const PROGRAM: &str = env!("CARGO_BIN_EXE_varnish-gateway");

/// A running `varnish-gateway`. It and all that it started are killed with this value.
pub(crate) struct Program {
    process: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

/// The two processes of a varnishd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Varnishd {
    pub(crate) manager: u32,
    pub(crate) child: u32,
}

impl Program {
    /// The program, to be given arguments.
    pub(crate) fn command() -> Command {
        static READY: OnceLock<()> = OnceLock::new();
        READY.get_or_init(check_needs);
        let mut command = Command::new(PROGRAM);
        command.env_remove("LOG_LEVEL").env("DASHBOARD_ADDR", "off");
        command
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        follow(process.stdout.take().unwrap(), &lines);
        follow(process.stderr.take().unwrap(), &lines);
        Self { process, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn text(&self) -> String {
        self.lines().join("\n")
    }

    /// Lines that hold all these parts.
    pub(crate) fn count_lines(&self, parts: &[&str]) -> usize {
        self.lines().iter().filter(|line| parts.iter().all(|part| line.contains(part))).count()
    }

    /// Waits for a line that holds all these parts, and gives it.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, parts: &[&str]) -> String {
        self.wait_for_lines(1, parts)
    }

    /// Waits until there are as many such lines, and gives the last.
    #[track_caller]
    pub(crate) fn wait_for_lines(&self, count: usize, parts: &[&str]) -> String {
        let deadline = Instant::now() + super::PATIENCE;
        loop {
            let lines = self.lines();
            let mut found = lines.iter().filter(|line| parts.iter().all(|part| line.contains(part)));
            if let Some(line) = found.nth(count - 1) {
                return line.clone();
            }
            let waiting = Instant::now() < deadline;
            assert!(waiting, "no line number {count} with {parts:?} in\n{}", lines.join("\n"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let process = &mut self.process;
        wait_for("the program ends", || process.try_wait().unwrap())
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }

    /// The only varnishd, once its child runs.
    pub(crate) fn varnishd(&self) -> Varnishd {
        self.varnishd_of("")
    }

    /// The varnishd whose arguments hold this, once its child runs.
    pub(crate) fn varnishd_of(&self, argument: &str) -> Varnishd {
        wait_for(&format!("a varnishd with {argument}"), || {
            let fits = |pid: &u32| super::processes::command_line(*pid).contains(argument);
            let manager =
                children(self.pid()).into_iter().filter(|pid| name(*pid) == "varnishd").find(fits)?;
            // The compiler is a child of the manager, too, for a moment.
            let child = children(manager).into_iter().find(|pid| name(*pid) == "cache-main")?;
            Some(Varnishd { manager, child })
        })
    }

    /// All processes that it has started and that run.
    pub(crate) fn descendants(&self) -> Vec<u32> {
        descendants(self.pid()).into_iter().filter(|pid| is_alive(*pid)).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let started = self.descendants();
        let _ = self.process.kill();
        let _ = self.process.wait();
        for pid in &started {
            signal(*pid, Signal::KILL);
        }
        // They may still write where a test wants to tidy up.
        let deadline = Instant::now() + Duration::from_secs(5);
        while started.iter().any(|pid| is_alive(*pid)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if std::thread::panicking() {
            eprintln!("--- the gateway's log\n{}\n---", self.text());
        }
    }
}

fn follow(output: impl std::io::Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) {
    let lines = Arc::clone(lines);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            lines.lock().unwrap().push(line);
        }
    });
}

/// varnishd, and a VMOD beside the program that is not older than what it is made of.
fn check_needs() {
    let varnishd = Command::new("varnishd").arg("-V").output();
    assert!(varnishd.is_ok(), "varnishd is not installed: apt-get install varnish");
    let vmod = Path::new(PROGRAM).with_file_name("libvmod_ghost.so");
    let release = if PROGRAM.contains("/release/") { " --release" } else { "" };
    let how = format!("run `cargo build -p ghost{release}` first");
    let built = modified(&vmod).unwrap_or_else(|| panic!("{} is missing: {how}", vmod.display()));
    // Cargo's own list, "made: source source…".
    let sources = fs::read_to_string(vmod.with_extension("d")).unwrap_or_default();
    for source in sources.split_whitespace().skip(1) {
        // Tools of this machine's engine are not there in the root of another one.
        let newer = modified(Path::new(source)).map_or(!source.starts_with("/usr/"), |at| at > built);
        assert!(!newer, "{} is older than {source}: {how}", vmod.display());
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}
