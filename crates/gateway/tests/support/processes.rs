//! Processes, as /proc has them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Runs, and is more than an exit code that waits to be read.
pub(crate) fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// In the order of their ids.
pub(crate) fn children(of: u32) -> Vec<u32> {
    let mut found: Vec<u32> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| stat(*pid).is_some_and(|(_, parent)| parent == of))
        .collect();
    found.sort_unstable();
    found
}

/// Children and their children.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    children(of).into_iter().flat_map(|child| std::iter::once(child).chain(descendants(child))).collect()
}

pub(crate) fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

pub(crate) fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// A process that is already gone needs no signal.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).expect("no process has the id 0");
    let _ = kill_process(pid, signal);
}

/// State and parent.
fn stat(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}
