//! Where lines of an access log go. A file that was moved away or removed is opened again, so that logs can be rotated.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Lines that wait for their reader.
const WAITING: usize = 8192;
/// A file is looked for once in this time.
const LOOK: Duration = Duration::from_secs(1);
/// A problem is reported once in this time.
const TELL: Duration = Duration::from_secs(60);

pub(crate) enum LogFile {
    Stdout(io::Stdout),
    File {
        path: PathBuf,
        file: File,
        looked: Instant,
        /// It was moved away, and could not be created again: then what is written goes nowhere.
        away: bool,
    },
}

impl LogFile {
    pub(crate) fn stdout() -> Self {
        Self::Stdout(io::stdout())
    }

    pub(crate) fn open(path: &str) -> io::Result<Self> {
        let path = PathBuf::from(path);
        Ok(Self::File { file: append(&path)?, path, looked: Instant::now(), away: false })
    }

    /// In one piece: others may write there, too.
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.write_all(line).and_then(|()| out.flush()),
            Self::File { path, file, looked, away } => {
                if looked.elapsed() >= LOOK {
                    *looked = Instant::now();
                    if !is_at(file, path) {
                        *away = true;
                        *file = append(path)?;
                    }
                    *away = false;
                }
                if *away {
                    return Err(io::Error::other("the file was moved away, and cannot be created again"));
                }
                file.write_all(line)
            }
        }
    }
}

impl std::fmt::Display for LogFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdout(_) => f.write_str("standard output"),
            Self::File { path, .. } => path.display().fmt(f),
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), path.metadata()) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// A thread that writes lines. A reader that does not take them holds up nothing else. The other half tells when all is written.
pub(crate) fn writer(mut out: LogFile, whose: String) -> (SyncSender<String>, oneshot::Receiver<()>) {
    let (to, lines) = sync_channel::<String>(WAITING);
    let (done, writing) = oneshot::channel();
    std::thread::spawn(move || {
        let mut trouble = Trouble::default();
        for line in lines {
            // What could be written of the last line stays alone.
            let begun = if trouble.lost > 0 { out.write(b"\n") } else { Ok(()) };
            match begun.and_then(|()| out.write(line.as_bytes())) {
                Ok(()) => trouble.is_over(&whose),
                // The reader is gone.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => break,
                // A disk that is full may have room later.
                Err(e) => trouble.tell(&whose, &out, &e, 1),
            }
        }
        let _ = done.send(());
    });
    (to, writing)
}

/// A thread that writes what the front logs, until its log is closed. The receiver tells when all is written.
pub(crate) fn write_front(
    mut out: LogFile,
    whose: String,
    log: Arc<front::AccessLog>,
) -> oneshot::Receiver<()> {
    let (done, writing) = oneshot::channel();
    std::thread::spawn(move || {
        let (mut trouble, mut slow, mut spare) = (Trouble::default(), Slow::default(), Vec::new());
        let unwritable = Cell::new(0);
        let mut write = |lines: &[u8], count: u64| {
            // What could be written of the last line stays alone.
            let begun = if trouble.lost > 0 { out.write(b"\n") } else { Ok(()) };
            match begun.and_then(|()| out.write(lines)) {
                Ok(()) => {
                    log.wrote(count);
                    trouble.is_over(&whose);
                }
                Err(e) => {
                    log.lost(count);
                    if e.kind() == io::ErrorKind::BrokenPipe {
                        log.reader_is_gone();
                    } else {
                        trouble.tell(&whose, &out, &e, count);
                        unwritable.set(unwritable.get() + count);
                    }
                }
            }
        };
        while log.wait(&mut spare, &mut write) {
            slow.look(log.dropped() - unwritable.get(), &whose);
        }
        let _ = done.send(());
    });
    writing
}

/// Lines that waited too long for their reader.
#[derive(Default)]
struct Slow {
    told: u64,
    at: Option<Instant>,
}

impl Slow {
    fn look(&mut self, dropped: u64, whose: &str) {
        if dropped > self.told && self.at.is_none_or(|at| at.elapsed() >= TELL) {
            let lost = dropped - self.told;
            tracing::warn!("{whose}: {lost} lines of the access log are lost: their reader was too slow");
            (self.told, self.at) = (dropped, Some(Instant::now()));
        }
    }
}

/// Lines that could not be written.
#[derive(Default)]
struct Trouble {
    lost: u64,
    told: Option<Instant>,
}

impl Trouble {
    fn tell(&mut self, whose: &str, out: &LogFile, e: &io::Error, lines: u64) {
        self.lost += lines;
        if self.told.is_none_or(|at| at.elapsed() >= TELL) {
            self.told = Some(Instant::now());
            let lost = self.lost;
            tracing::error!("{whose}: the access log cannot be written to {out}: {e}; lines lost: {lost}");
        }
    }

    fn is_over(&mut self, whose: &str) {
        if self.lost > 0 {
            tracing::warn!("{whose}: the access log is written again; lines lost: {}", self.lost);
            *self = Self::default();
        }
    }
}

/// Lines whose reader was too slow.
#[derive(Debug, Default)]
pub(crate) struct Lost(u64);

impl Lost {
    /// False where the reader is gone.
    pub(crate) fn send(&mut self, line: String, to: &SyncSender<String>, whose: &str) -> bool {
        match to.try_send(line) {
            Ok(()) if self.0 > 0 => {
                let lost = std::mem::take(&mut self.0);
                tracing::warn!("{whose}: {lost} lines of the access log are lost: their reader was too slow");
            }
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.0 += 1,
            Err(TrySendError::Disconnected(_)) => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_away_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.1"));
        let mut out = LogFile::open(path.to_str().unwrap()).unwrap();
        let mut write = |line: &str, wait: Duration| {
            std::thread::sleep(wait);
            out.write(line.as_bytes()).unwrap();
        };
        write("one\n", Duration::ZERO);
        std::fs::rename(&path, &old).unwrap();
        write("two\n", LOOK);
        std::fs::remove_file(&old).unwrap();
        write("three\n", LOOK);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\nthree\n");
    }

    #[tokio::test]
    async fn what_the_front_logs_is_written_to_its_end_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Arc::new(front::AccessLog::new(None, false));
        let writing =
            write_front(LogFile::open(path.to_str().unwrap()).unwrap(), "x".into(), Arc::clone(&log));
        log.close();
        writing.await.unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), log.dropped()), ("", 0));
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut out = LogFile::open("/dev/full").unwrap();
        assert_eq!(out.write(b"x\n").unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
