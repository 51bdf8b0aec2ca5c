//! `tied`: becomes another program that ends when its parent does, however the parent ends. For programs that do not notice
//! by themselves: varnishncsa waits for a varnishd for ever.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

#[derive(Debug, Args)]
pub(crate) struct TiedArguments {
    /// The process that must live.
    #[arg(long)]
    parent: u32,
    /// The program, and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Words that start another program so that it ends with this one. None where our own program cannot be found.
pub(crate) fn with_us() -> Vec<OsString> {
    // Not by its path: an upgrade may have put another program there, or none.
    const OURSELVES: &str = "/proc/self/exe";
    if !std::path::Path::new(OURSELVES).exists() {
        return Vec::new();
    }
    let parent = std::process::id().to_string();
    vec![OURSELVES.into(), "tied".into(), "--parent".into(), parent.into(), "--".into()]
}

pub(crate) fn run(arguments: &TiedArguments) -> anyhow::Result<ExitCode> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("prctl")?;
    // It may have ended before we asked.
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    ensure!(parent == arguments.parent, "process {} is gone", arguments.parent);
    let (program, rest) = arguments.words.split_first().context("no program")?;
    let failed = std::process::Command::new(program).args(rest).exec();
    Err(failed).with_context(|| program.to_string_lossy().into_owned())
}
