//! The varnishd process: its arguments, its output, its end.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::names::{
    CONTROL_SOCKET_ENV, CONTROL_TOKEN_ENV, FRONT_PROOF_ENV, FRONT_SOCKET, GHOST_CONFIG_ENV, GHOST_INDEX_ENV,
    GHOST_STORAGE_ENV, HOT_BYTES_ENV, HTTPS_SOCKET, UPGRADE_TOTAL_ENV,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Notify;
use varnishadm::{ReverseListener, Secret};

use crate::reload::Control;
use crate::{Error, Settings, confine, storage};

/// Lines that say why varnishd ended.
const REMEMBERED: usize = 20;
/// How long the child may take to end, and then the manager.
const CHILD_ENDS: Duration = Duration::from_secs(2);
const MANAGER_ENDS: Duration = Duration::from_secs(10);
/// Longer lines of its output are cut into several.
const LONGEST_LINE: u64 = 64 << 10;

/// A log record for every header and VCL step costs a tenth of the throughput of hits. These stay out, unless
/// `-p vsl_mask=+…` in the user's arguments asks for them again: no access log, counter or tool of ours reads them.
const UNREAD_TAGS: &str = "vsl_mask=-VCL_call,-VCL_return,-VCL_acl,-Hit,-HitMiss,-HitPass,-ReqUnset,-BereqUnset,-RespUnset,-BerespUnset,-ObjProtocol,-ObjStatus,-ObjReason,-ObjHeader,-TTL,-Filters,-ExpKill,-Storage,-Length";

/// These cost as much again, and are read by access logs and spans alone: ghost counts and measures by itself.
const REQUEST_TAGS: &str = "vsl_mask=-Timestamp,-ReqAcct";

/// A running manager process of varnishd. When it exits, its child exits, too.
#[derive(Debug)]
pub(crate) struct Varnishd {
    process: Child,
    /// varnishd in `-d` mode exits when this closes: it cannot outlive this process.
    stdin: Option<ChildStdin>,
    last_lines: LastLines,
    child_news: Arc<Notify>,
}

type LastLines = Arc<Mutex<VecDeque<String>>>;

impl Varnishd {
    pub(crate) async fn spawn(
        settings: &Settings,
        listener: &ReverseListener,
        secret: &Secret,
        control: &Control,
        front_proof: &str,
    ) -> Result<Self, Error> {
        let secret_file = settings.work_dir.join("secret");
        secret.write(&secret_file)?;
        let mut command = Command::new(&settings.varnishd);
        let storages = with_storages(&settings.extra_args);
        command
            .args(arguments(settings, &listener.local_addr().to_string(), &secret_file))
            .env(GHOST_CONFIG_ENV, settings.ghost_config())
            // Not on the command line, which everyone on the machine can read.
            .env(CONTROL_SOCKET_ENV, &*control.socket)
            .env(CONTROL_TOKEN_ENV, &*control.token)
            .env(FRONT_PROOF_ENV, front_proof)
            .env(UPGRADE_TOTAL_ENV, settings.upgrade_total.as_secs_f64().to_string())
            .env(GHOST_STORAGE_ENV, storage::sizes(&storages))
            .env(GHOST_INDEX_ENV, storage::index_bytes(&storages, storage::memory()).to_string())
            .env(HOT_BYTES_ENV, settings.hot.max_object_bytes.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A Ctrl-C in the terminal is ours to handle; varnishd must live through the draining.
            .process_group(0)
            .kill_on_drop(true);
        let runtime = tokio::runtime::Handle::current();
        let spawned = confine::with_hidden(&settings.hidden, || {
            let _runtime = runtime.enter();
            command.spawn()
        });
        let mut process = spawned.map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::NoVarnishd { path: settings.varnishd.clone() },
            _ => Error::File { path: settings.varnishd.clone(), source: e },
        })?;
        let last_lines = LastLines::default();
        let child_news = Arc::new(Notify::new());
        if let Some(out) = process.stdout.take() {
            follow(out, &settings.name, &last_lines, &child_news);
        }
        if let Some(err) = process.stderr.take() {
            follow(err, &settings.name, &last_lines, &child_news);
        }
        Ok(Self { stdin: process.stdin.take(), process, last_lines, child_news })
    }

    /// Resolves when the manager has exited; returns its last lines of output.
    pub(crate) async fn ended(&mut self) -> String {
        let status = self.process.wait().await;
        // Its last output may still be in the pipe.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let status = status.map_or_else(|e| e.to_string(), |status| status.to_string());
        let said = self.last_words();
        if said.is_empty() { status } else { format!("{said} ({status})") }
    }

    /// The last lines of output that may contain a reason.
    pub(crate) fn last_words(&self) -> String {
        let lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let said: Vec<_> = lines.iter().filter(|line| !is_small_talk(line)).map(String::as_str).collect();
        said.join(" ")
    }

    /// Resolves when varnishd has printed something about its child.
    pub(crate) fn child_news(&self) -> Arc<Notify> {
        Arc::clone(&self.child_news)
    }

    /// Stops manager and child: by closing its standard input, and with a signal if that does not help. Draining was done before.
    pub(crate) async fn stop(mut self) {
        drop(self.stdin.take());
        if self.has_ended_within(CHILD_ENDS).await {
            return;
        }
        // The child of Vinyl Cache waits for its clients, without a limit. Without its child the manager exits.
        for child in self.children() {
            let _ = kill_process(child, Signal::KILL);
        }
        if !self.has_ended_within(MANAGER_ENDS).await {
            tracing::warn!("varnishd did not end within {MANAGER_ENDS:?}, and is killed");
            let _ = self.process.kill().await;
        }
    }

    async fn has_ended_within(&mut self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.process.wait()).await.is_ok()
    }

    /// The manager has one thread.
    fn children(&self) -> Vec<Pid> {
        let Some(manager) = self.process.id() else { return Vec::new() };
        let children = std::fs::read_to_string(format!("/proc/{manager}/task/{manager}/children"));
        let children = children.unwrap_or_default();
        children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    }
}

/// The greeting of the CLI on standard output, and other lines that give no reason.
fn is_small_talk(line: &str) -> bool {
    let greeting = ["---", "Varnish Cache CLI", "Linux,", "varnish-", "Type '", "(-? gives usage)"];
    let ordinary = ["Debug:", "Info:", "Child launched OK", "Could not delete"];
    greeting.iter().chain(&ordinary).any(|start| line.starts_with(start))
        || line.bytes().all(|b| b.is_ascii_digit() || b == b' ')
}

fn arguments(settings: &Settings, admin: &str, secret: &Path) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    let mut add = |list: &[&str]| all.extend(list.iter().map(OsString::from));
    add(&["-d", "-n"]);
    add(&[&varnishd_dir(settings).to_string_lossy()]);
    for socket in &settings.sockets {
        add(&["-a", &socket.argument()]);
    }
    // All listeners of the front come by this one, so they change without a restart. Only our own user may pretend to be a
    // client of any address.
    if settings.http_in_front {
        add(&["-a", &format!("{FRONT_SOCKET}={},HTTP,mode=600", settings.front_socket().display())]);
    } else {
        add(&["-a", &format!("{HTTPS_SOCKET}={},PROXY,mode=600", settings.https_socket().display())]);
    }
    add(&["-M", admin, "-S", &secret.to_string_lossy(), "-T", "none", "-f", ""]);
    // The chaperone starts the child, so that a crash is noticed and logged, and restarts slow down.
    add(&["-p", "auto_restart=off"]);
    if settings.http_in_front && settings.sockets.is_empty() {
        // The front closes connections that it does not need sooner. The default of 5 seconds is for clients.
        add(&["-p", "timeout_idle=60"]);
    }
    add(&["-p", &format!("pipe_timeout={}", settings.upgrade_idle.as_secs_f64())]);
    // Discarding a VCL waits for idle connections to hosts that have died, up to backend_idle_timeout (60 s). The
    // manager must not take that for a dead child.
    add(&["-p", "cli_timeout=120"]);
    // Clients that waited for an answer that turns out to be private go to the origin at once, and not three at a time.
    add(&["-p", "rush_exponent=1000"]);
    // Ours must not cost a client the room for its own: the default is 64.
    add(&["-p", "http_max_hdr=128"]);
    // A large answer takes the place of as many small objects as it needs. Beyond the default of 50 it would break off. How large
    // it may be, ghost decides.
    add(&["-p", "nuke_limit=1000000"]);
    // By default memory for up to 256 MB of an answer is taken at once, by its Content-Length. Transient would be full before a
    // byte has come.
    add(&["-p", "fetch_maxchunksize=256k"]);
    // Tags come by the hundred, in one header: the defaults are 8k and 32k, and an answer beyond is 503. It must fit into the
    // workspace, with room for what is done with it.
    for parameter in ["http_resp_hdr_len=32k", "http_resp_size=64k", "workspace_backend=128k"] {
        add(&["-p", parameter]);
    }
    // The front offers h2 to its clients, and hands it on as it comes.
    // A request may name the whole https URL.
    add(&["-p", "feature=+http2,+https_scheme"]);
    // Access logs should have whole URLs, up to a limit: the default cuts at 255 bytes.
    add(&["-p", "vsl_reclen=4096"]);
    add(&["-p", UNREAD_TAGS]);
    if settings.log_readers == 0 {
        add(&["-p", REQUEST_TAGS]);
    }
    let extra = with_storages(&settings.extra_args);
    add(&extra.iter().map(String::as_str).collect::<Vec<_>>());
    all
}

/// The user's arguments, after those for storages that they do not name.
pub(crate) fn with_storages(extra_args: &[String]) -> Vec<String> {
    let added = storage::added(extra_args, storage::memory());
    let added = added.into_iter().flat_map(|argument| ["-s".to_owned(), argument]);
    added.chain(extra_args.iter().cloned()).collect()
}

/// Does varnishd speak HTTP/2? We switch it on, and the user's arguments override that.
pub(crate) fn speaks_http2(extra_args: &[String]) -> bool {
    let features =
        extra_args.iter().filter_map(|arg| arg.strip_prefix("-p").unwrap_or(arg).strip_prefix("feature="));
    let words = features.flat_map(|value| value.split(',')).map(str::trim);
    words.fold(true, |on, word| match word {
        "+http2" => true,
        "-http2" | "none" | "default" => false,
        _ => on,
    })
}

/// varnishd's own directory, which it gives to its own user.
pub(crate) fn varnishd_dir(settings: &Settings) -> PathBuf {
    settings.work_dir.join("varnishd")
}

/// Sends varnishd's output through our log, line by line.
fn follow(
    output: impl AsyncRead + Unpin + Send + 'static,
    name: &str,
    last_lines: &LastLines,
    child_news: &Arc<Notify>,
) {
    let (name, last_lines, child_news) = (name.to_owned(), Arc::clone(last_lines), Arc::clone(child_news));
    tokio::spawn(async move {
        let (mut output, mut bytes) = (BufReader::new(output), Vec::new());
        while let Ok(1..) = (&mut output).take(LONGEST_LINE).read_until(b'\n', &mut bytes).await {
            // A panic shows memory, and user VCL writes what it likes: any bytes may come.
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if line.is_empty() {
                continue;
            }
            if line.starts_with("Error:") || line.contains("died") || line.contains("Panic") {
                tracing::warn!(gateway = name, "varnishd: {line}");
            } else {
                tracing::debug!(gateway = name, "varnishd: {line}");
            }
            if line.contains("Child") {
                child_news.notify_one();
            }
            let mut remembered = last_lines.lock().unwrap_or_else(PoisonError::into_inner);
            if remembered.len() == REMEMBERED {
                remembered.pop_front();
            }
            remembered.push_back(line);
        }
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ListenSocket;

    #[tokio::test]
    async fn output_that_is_not_utf_8_does_not_end_the_log() {
        let (last_lines, news) = (LastLines::default(), Arc::new(Notify::new()));
        let long = vec![b'x'; 3 * LONGEST_LINE as usize];
        let output: &'static [u8] =
            [&b"Error: \xff\xfe\n"[..], &long, b"\n\x80\n\0 Child died\n"].concat().leak();
        follow(output, "test", &last_lines, &news);
        tokio::time::timeout(Duration::from_secs(5), news.notified()).await.expect("the last line is read");
        tokio::time::sleep(Duration::from_millis(10)).await;
        let lines: Vec<String> = last_lines.lock().unwrap().iter().cloned().collect();
        assert_eq!(lines.first().map(String::as_str), Some("Error: \u{fffd}\u{fffd}"));
        assert_eq!(lines.last().map(String::as_str), Some("\0 Child died"));
    }

    #[test]
    fn the_user_may_switch_http_2_off() {
        let speaks = |args: &[&str]| speaks_http2(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>());
        assert!(speaks(&[]));
        assert!(speaks(&["-p", "feature=+esi_disable_xml_check"]));
        assert!(speaks(&["-p", "feature=none", "-p", "feature=+http2"]));
        assert!(!speaks(&["-p", "feature=-http2"]));
        assert!(!speaks(&["-pfeature=+esi_disable_xml_check,-http2"]));
        assert!(!speaks(&["-p", "feature=none"]));
    }

    pub(crate) fn settings() -> Settings {
        Settings {
            name: "Gateway default/shop".into(),
            varnishd: "varnishd".into(),
            vmod: None,
            work_dir: "/run/vg".into(),
            ghost_config: None,
            hidden: Vec::new(),
            http_in_front: false,
            sockets: vec![ListenSocket { name: "http-80".into(), address: None, port: 80 }],
            admin_address: ([127, 0, 0, 1], 0).into(),
            secret: None,
            extra_args: vec!["-p".into(), "thread_pool_min=50".into()],
            log_readers: 0,
            observer: None,
            former_args: None,
            hot: front::HotLimits::default(),
            upgrade_idle: Duration::from_secs(300),
            upgrade_total: Duration::from_secs(86_400),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(10),
        }
    }

    #[test]
    fn the_users_arguments_come_last() {
        let settings = settings();
        let args = arguments(&settings, "127.0.0.1:6082", Path::new("/run/vg/secret"));
        let args: Vec<_> = args.iter().map(|a| a.to_string_lossy()).collect();
        let joined = args.join(" ");
        assert!(joined.starts_with(
            "-d -n /run/vg/varnishd -a http-80=:80,HTTP \
                 -a https=/run/vg/https.sock,PROXY,mode=600 -M"
        ));
        assert!(joined.contains("-M 127.0.0.1:6082 -S /run/vg/secret -T none -f  -p auto_restart=off"));
        assert!(joined.ends_with("-p thread_pool_min=50"));
        assert!(!joined.contains("timeout_idle"));
        let in_front = Settings { http_in_front: true, sockets: Vec::new(), ..settings };
        let args = arguments(&in_front, "127.0.0.1:6082", Path::new("/run/vg/secret"));
        let args: Vec<_> = args.iter().map(|a| a.to_string_lossy()).collect();
        let joined = args.join(" ");
        assert!(joined.starts_with("-d -n /run/vg/varnishd -a front=/run/vg/front.sock,HTTP,mode=600 -M"));
        assert!(joined.contains("-p timeout_idle=60"));
    }
}
