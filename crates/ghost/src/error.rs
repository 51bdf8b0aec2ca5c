//! Why ghost.json could not be taken.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "no file is named: set {} or write ghost.router(\"/path/ghost.json\")",
        model::names::GHOST_CONFIG_ENV
    )]
    NoPath,
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not a ghost.json: {source}", path.display())]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error("{}: {source}", path.display())]
    Version { path: PathBuf, source: model::WrongVersion },
    #[error("{} has the base {base}, which cannot be used: it must be a file beside it", path.display())]
    Base { path: PathBuf, base: String },
    #[error("the control socket {} cannot be opened: {source}", path.display())]
    Control { path: PathBuf, source: std::io::Error },
    #[error("varnishd did not make a backend for {0}")]
    Backend(String),
    #[error("varnishd did not make a director for {0}")]
    Director(String),
    #[error("reading {} ended in a panic: this is a bug in ghost", path.display())]
    Panic { path: PathBuf },
}
