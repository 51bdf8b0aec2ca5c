/// What can keep a source, or one file of it, from working. Bad objects are not errors: they are
/// [`crate::files::Problem`]s.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is nothing to watch: no path was given; pass `-f FILE` or `-f DIR`")]
    NothingToWatch,
    #[error("the file cannot be read: {reason}")]
    Read { reason: String },
    #[error("the symbolic link is broken; remove it, or restore its target")]
    DanglingLink,
    #[error("the file has {bytes} bytes, more than the {limit} that are read; split it into several")]
    TooLarge { bytes: u64, limit: u64 },
    #[error("the file is not UTF-8 (at byte {offset}); save it as UTF-8")]
    NotUtf8 { offset: usize },
    #[error("cannot connect to the cluster: {0}; run it in a pod, or set KUBECONFIG")]
    Cluster(String),
    #[error("line {line}, column {column}: {reason}")]
    Syntax { line: u64, column: u64, reason: String },
}
