//! Requests as varnishd logs them: its program `varnishncsa` reads the log, and we read `varnishncsa`.
//!
//! An [`Entry`] is valid text, whatever bytes clients send. It has no secrets: Authorization and cookies are never logged, and
//! the query string only if the settings ask for it.

mod entry;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::sync::watch;

use crate::backoff::Backoff;
use crate::{State, engine};

pub use entry::{Entry, Trace};

/// A line is cut there; varnishd cuts headers long before.
const LONGEST: u64 = 256 << 10;
/// After `varnishncsa` has exited, before it is restarted.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Of what it says on its way out: so many lines, each so long.
const LAST_WORDS: usize = 3;
const LONGEST_WORD: u64 = 1024;
/// For its end, once it has closed its output.
const ENDING: Duration = Duration::from_secs(1);

/// Where requests are logged, and how the program that reads them is started.
#[derive(Debug, Clone)]
pub struct Source {
    /// varnishd's own directory.
    pub varnishd_dir: PathBuf,
    /// Words before `varnishncsa`: a program that becomes it, and lets it end with us.
    pub by: Vec<OsString>,
    /// Other receivers of the entries.
    pub readers: Arc<Readers>,
}

impl Source {
    /// Once varnishd has a directory; `None` where it will have none.
    pub async fn of(mut state: watch::Receiver<State>, by: Vec<OsString>) -> Option<Self> {
        let state = state.wait_for(|state| state.varnishd_dir.is_some()).await.ok()?;
        let varnishd_dir = state.varnishd_dir.as_ref()?.to_path_buf();
        Some(Self { varnishd_dir, by, readers: Arc::clone(&state.log_readers) })
    }
}

/// Those who read varnishd's log.
#[derive(Debug, Default)]
pub struct Readers(Mutex<Vec<Reader>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Starting,
    Process(u32),
    /// It exited, or never started: callers must not wait for it.
    Failed,
}

impl Readers {
    fn all(&self) -> MutexGuard<'_, Vec<Reader>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that cannot even begin.
    pub fn fail(&self) {
        self.all().push(Reader::Failed);
    }

    /// Do so many have the log of the child that runs now? They read from there on, and what was before is lost to them.
    pub(crate) fn are_there(&self, wanted: usize) -> bool {
        let is_there = |reader: &&Reader| match reader {
            Reader::Starting => false,
            Reader::Process(process) => has_the_log(*process),
            Reader::Failed => true,
        };
        self.all().iter().filter(is_there).count() >= wanted
    }
}

/// A log of a child that is gone is gone, too.
fn has_the_log(process: u32) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    maps.lines().any(|line| line.contains("/_.vsm_child/_.Log.") && !line.ends_with("(deleted)"))
}

/// The place of one of them. A task that leaves it has failed.
struct Place<'a> {
    readers: &'a Readers,
    at: usize,
}

impl<'a> Place<'a> {
    fn new(readers: &'a Readers) -> Self {
        let mut all = readers.all();
        all.push(Reader::Starting);
        Self { readers, at: all.len() - 1 }
    }

    fn is_now(&self, reader: Reader) {
        if let Some(place) = self.readers.all().get_mut(self.at) {
            *place = reader;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.is_now(Reader::Failed);
    }
}

/// One program that writes a line for each request.
#[derive(Debug)]
struct Follower {
    process: Child,
    lines: BufReader<ChildStdout>,
    complaints: tokio::task::JoinHandle<Vec<String>>,
}

impl Follower {
    /// Waits for varnishd as long as it takes. `more` are arguments of varnishncsa.
    fn start(source: &Source, more: &[String]) -> std::io::Result<Self> {
        let mut words = source.by.iter().cloned().chain([OsString::from(engine::tool("ncsa"))]);
        let mut process = Command::new(words.next().unwrap_or_default())
            .args(words)
            .args(["-t", "off", "-n"])
            .arg(&source.varnishd_dir)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let missing = || std::io::Error::other("no output");
        let output = process.stdout.take().ok_or_else(missing)?;
        let complaints = tokio::spawn(last_words(process.stderr.take().ok_or_else(missing)?));
        Ok(Self { process, lines: BufReader::new(output), complaints })
    }

    /// The next line, without its end; `None` where the program has ended.
    async fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let read = (&mut self.lines).take(LONGEST).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(n) if n > 0) {
            return None;
        }
        while line.last().is_some_and(|b| matches!(b, b'\n' | b'\r')) {
            line.pop();
        }
        Some(String::from_utf8_lossy(&line).into_owned())
    }

    /// Why it has ended: its last words, and how.
    async fn end(mut self) -> String {
        let status = match tokio::time::timeout(ENDING, self.process.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(e)) => e.to_string(),
            Err(_) => "it closed its output".to_owned(),
        };
        let _ = self.process.start_kill();
        let said = tokio::time::timeout(ENDING, self.complaints).await;
        let said = said.ok().and_then(Result::ok).unwrap_or_default();
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        if said.is_empty() { status } else { format!("{} ({status})", said.join(" ")) }
    }
}

/// Reads everything, so that the program does not block, and keeps only a little.
async fn last_words(from: ChildStderr) -> Vec<String> {
    let (mut from, mut kept) = (BufReader::new(from), Vec::new());
    loop {
        let mut line = Vec::new();
        let read = (&mut from).take(LONGEST_WORD).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(n) if n > 0) {
            return kept;
        }
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        tracing::debug!("varnishncsa: {line}");
        // What comes behind the first complaint is its usage.
        if !line.is_empty() && kept.len() < LAST_WORDS {
            kept.push(line);
        }
    }
}

/// Gives every line to `take`, until it says false or this is dropped. Starts the program again where it ends, and says why
/// it ended: arguments of the user's may be among its own.
pub async fn follow(source: &Source, arguments: &[String], mut take: impl FnMut(String) -> bool) {
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    let place = Place::new(&source.readers);
    loop {
        let started = Follower::start(source, arguments);
        let process = started.as_ref().ok().and_then(|follower| follower.process.id());
        place.is_now(process.map_or(Reader::Failed, Reader::Process));
        let why = match started {
            Ok(mut follower) => {
                while let Some(line) = follower.line().await {
                    if !take(line) {
                        return;
                    }
                }
                follower.end().await
            }
            Err(e) => format!("{e} (it comes with Varnish)"),
        };
        place.is_now(Reader::Failed);
        let again_in = backoff.pause();
        tracing::error!(
            "varnishncsa does not run, and requests are not logged: {why}; if it refuses its arguments, correct the query or \
             the arguments for it; it is started again in {again_in:?}"
        );
        tokio::time::sleep(again_in).await;
    }
}

/// The arguments of varnishncsa for lines that [`Entry::parse`] can read. `query` is a VSL query.
pub fn arguments(query: Option<&str>) -> Vec<String> {
    let mut all = vec!["-j".to_owned(), "-F".to_owned(), engine::log_format(entry::FORMAT)];
    if let Some(query) = query {
        all.extend(["-q".to_owned(), query.to_owned()]);
    }
    all
}
