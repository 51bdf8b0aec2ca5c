//! Hides private keys from varnishd.
//!
//! varnishd runs under our own user in a pod, so file modes do not keep it, and with it user VCL (`std.fileread`), from what
//! we may read. Landlock does: varnishd, its compiler and its child can read every file but those in hidden directories.
//! Landlock has only rules that allow something, so the rules list everything except the path to a hidden directory. A file that
//! is created later directly in a directory on that path is not readable either.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};

/// Runs `start` on a thread that cannot read what is in `hidden`, and neither can the process that it starts.
pub(crate) fn with_hidden<T: Send>(hidden: &[PathBuf], start: impl FnOnce() -> T + Send) -> T {
    let hidden: Vec<PathBuf> = hidden.iter().map(|dir| resolved(dir)).collect();
    if hidden.is_empty() {
        return start();
    }
    let confined = || {
        let names = || hidden.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(" and ");
        match restrict(&hidden) {
            Ok(true) => tracing::debug!("varnishd cannot read {}", names()),
            Ok(false) => tracing::warn!(
                "this kernel has no Landlock: user VCL can read the private keys in {}; Linux 5.13 with CONFIG_SECURITY_LANDLOCK can prevent it",
                names()
            ),
            Err(e) => tracing::warn!("user VCL can read the private keys in {}: Landlock: {e}", names()),
        }
        start()
    };
    // A separate thread, because the restriction cannot be removed.
    std::thread::scope(|scope| match scope.spawn(confined).join() {
        Ok(started) => started,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Without links. Of a directory that does not exist yet, the part that does: what is created later is hidden as well.
fn resolved(dir: &Path) -> PathBuf {
    let known = |ancestor: &Path| {
        let rest = dir.strip_prefix(ancestor).ok()?;
        Some(std::fs::canonicalize(ancestor).ok()?.join(rest))
    };
    // `join` of an empty rest would add a slash, which `Path` ignores.
    dir.ancestors().find_map(known).unwrap_or_else(|| dir.to_owned())
}

/// Restricts this thread. False if the kernel does not support it.
fn restrict(hidden: &[PathBuf]) -> Result<bool, RulesetError> {
    // Renames from one directory to another are refused unless they are named.
    let access = AccessFs::ReadFile | AccessFs::Refer;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(access)?
        .create()?
        .set_compatibility(CompatLevel::BestEffort);
    let mut readable = Vec::new();
    beside(Path::new("/"), hidden, &mut readable);
    for path in readable {
        let Ok(file) = PathFd::new(&path) else { continue };
        let of_files: BitFlags<AccessFs> = AccessFs::from_file(ABI::V1) & access;
        let access = if path.is_dir() { access } else { of_files };
        rules = rules.add_rule(PathBeneath::new(file, access))?;
    }
    let status = rules.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// All that is neither hidden nor holds something hidden. Links are left out: what they lead to counts where it is.
fn beside(dir: &Path, hidden: &[PathBuf], readable: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) || hidden.contains(&path) {
            continue;
        }
        if hidden.iter().any(|hidden| hidden.starts_with(&path)) {
            beside(&path, hidden, readable);
        } else {
            readable.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_started_reads_all_but_what_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let (open, private) = (dir.path().join("open"), dir.path().join("private"));
        for path in [&open, &private] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("file"), "text").unwrap();
        }
        // By another name, too.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&private, &link).unwrap();
        let read = |path: &Path| {
            let mut cat = Command::new("cat");
            cat.arg(path.join("file"));
            with_hidden(std::slice::from_ref(&link), || cat.output()).unwrap().stdout
        };
        assert_eq!(read(&open), b"text");
        // Files that are made later, below a directory that was there.
        fs::write(open.join("aside"), "newer").unwrap();
        fs::rename(open.join("aside"), open.join("file")).unwrap();
        assert_eq!(read(&open), b"newer");
        assert_eq!(read(&private), b"");
        assert_eq!(read(&link), b"");
        // We ourselves are as free as before.
        assert_eq!(fs::read(private.join("file")).unwrap(), b"text");
    }

    #[test]
    fn a_hidden_directory_that_is_created_later_is_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let later = dir.path().join("certificates/private");
        let script = "read line; cat \"$1\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(later.join("file"));
        shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut started = with_hidden(std::slice::from_ref(&later), || shell.spawn()).unwrap();
        fs::create_dir_all(&later).unwrap();
        fs::write(later.join("file"), "text").unwrap();
        drop(started.stdin.take());
        assert_eq!(started.wait_with_output().unwrap().stdout, b"");
    }

    #[test]
    fn nothing_beside_the_way_to_a_hidden_directory_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for path in ["a/b/hidden", "a/c", "d"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("a/b/file"), "").unwrap();
        let mut found = Vec::new();
        beside(&root, &[root.join("a/b/hidden")], &mut found);
        found.sort();
        assert_eq!(found, ["a/b/file", "a/c", "d"].map(|path| root.join(path)));
    }
}
