//! Lines that wait for the thread that writes them.
//!
//! Each request thread appends to a buffer of its own; the writer swaps full buffers for empty ones. The lock of a buffer is
//! contended only in the moment of that swap. The writer is woken by the first line after a silence, and then looks every few
//! milliseconds: a busy request thread makes no system call for its lines.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use super::{SHARDS, shard};

/// Bytes that wait for the writer, for each thread. Lines beyond are dropped.
const MOST: usize = 512 << 10;
/// Between two looks of a writer that has something to write.
const GATHER: Duration = Duration::from_millis(10);
/// Of one that has nothing.
const REST: Duration = Duration::from_secs(1);

/// The access log of one Gateway.
#[derive(Debug)]
pub struct AccessLog {
    /// `namespace/name`, where one process writes for several.
    pub(crate) gateway: Option<String>,
    pub(crate) query_strings: bool,
    shards: [Shard; SHARDS],
    writer: OnceLock<Thread>,
    /// The writer waits to be woken.
    sleeps: AtomicBool,
    /// No line comes any more.
    is_closed: AtomicBool,
    /// Nothing is written any more.
    has_no_reader: AtomicBool,
    written: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    count: u64,
}

impl AccessLog {
    pub fn new(gateway: Option<String>, query_strings: bool) -> Self {
        Self {
            gateway,
            query_strings,
            shards: Default::default(),
            writer: OnceLock::new(),
            sleeps: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            has_no_reader: AtomicBool::new(false),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Appends one line, which `write` writes with its end.
    pub(crate) fn add(&self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.has_no_reader.load(Ordering::Relaxed) {
            return self.lost(1);
        }
        {
            let mut lines = self.shards[shard()].0.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.bytes.len() >= MOST {
                drop(lines);
                return self.lost(1);
            }
            write(&mut lines.bytes);
            lines.count += 1;
        }
        // The writer says that it sleeps before it looks into the buffer for the last time: the lock orders both.
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }

    /// Waits for lines, and gives them to `write` by whole lines, with their number. False once the log is closed and empty.
    /// For one thread, always the same.
    pub fn wait(&self, spare: &mut Vec<u8>, mut write: impl FnMut(&[u8], u64)) -> bool {
        self.writer.get_or_init(thread::current);
        loop {
            let is_closed = self.is_closed.load(Ordering::Acquire);
            if !is_closed {
                thread::park_timeout(GATHER);
            }
            if self.take(spare, &mut write) {
                return true;
            }
            if is_closed {
                return false;
            }
            self.sleeps.store(true, Ordering::Relaxed);
            if self.is_empty() && !self.is_closed.load(Ordering::Acquire) {
                thread::park_timeout(REST);
            }
            self.sleeps.store(false, Ordering::Relaxed);
        }
    }

    fn take(&self, spare: &mut Vec<u8>, write: &mut impl FnMut(&[u8], u64)) -> bool {
        let mut is_any = false;
        for shard in &self.shards {
            let count = {
                let mut lines = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::swap(&mut lines.bytes, spare);
                std::mem::take(&mut lines.count)
            };
            if count > 0 {
                is_any = true;
                write(spare, count);
            }
            spare.clear();
        }
        is_any
    }

    fn is_empty(&self) -> bool {
        let is_empty = |shard: &Shard| shard.0.lock().unwrap_or_else(PoisonError::into_inner).count == 0;
        self.shards.iter().all(is_empty)
    }

    /// Waiting lines are written, and then [`AccessLog::wait`] returns false.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake();
    }

    /// The reader is gone: lines are dropped from now on.
    pub fn reader_is_gone(&self) {
        self.has_no_reader.store(true, Ordering::Relaxed);
    }

    /// This number of lines was written.
    pub fn wrote(&self, lines: u64) {
        self.written.fetch_add(lines, Ordering::Relaxed);
    }

    /// This number of lines could not be written.
    pub fn lost(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The lines for a writer, until the log is closed.
    fn all(log: &AccessLog) -> (String, u64) {
        let (mut text, mut count, mut spare) = (Vec::new(), 0, Vec::new());
        while log.wait(&mut spare, |bytes, lines| {
            text.extend_from_slice(bytes);
            count += lines;
        }) {}
        (String::from_utf8(text).unwrap(), count)
    }

    #[test]
    fn every_line_reaches_the_writer_once() {
        let log = Arc::new(AccessLog::new(None, false));
        let threads: Vec<_> = (0..4)
            .map(|number| {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    for line in 0..1000 {
                        log.add(|to| to.extend_from_slice(format!("{number} {line}\n").as_bytes()));
                    }
                })
            })
            .collect();
        let (reader, closes) = (Arc::clone(&log), Arc::clone(&log));
        let reader = thread::spawn(move || all(&reader));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        closes.close();
        let (text, count) = reader.join().unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!((lines.len(), count, log.dropped()), (4000, 4000, 0));
    }

    #[test]
    fn a_writer_that_sleeps_is_woken() {
        let log = Arc::new(AccessLog::new(None, false));
        let (tell, told) = std::sync::mpsc::channel();
        let reader = Arc::clone(&log);
        let reader = thread::spawn(move || {
            let mut spare = Vec::new();
            while reader.wait(&mut spare, |bytes, _| tell.send(bytes.len()).unwrap()) {}
        });
        for _ in 0..3 {
            while !log.sleeps.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            log.add(|to| to.push(b'\n'));
            assert_eq!(told.recv(), Ok(1));
        }
        log.close();
        reader.join().unwrap();
    }

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_counted() {
        let log = AccessLog::new(None, false);
        let line = vec![b'x'; 1 << 10];
        for _ in 0..1024 {
            log.add(|to| to.extend_from_slice(&line));
        }
        assert_eq!(log.dropped(), 512);
        log.reader_is_gone();
        log.add(|_| panic!("nothing is formatted for a reader that is gone"));
        assert_eq!(log.dropped(), 513);
        log.close();
        assert_eq!(all(&log).1, 512);
    }
}
