//! What is wrong with a pair, for people. No message holds a byte of the input.

/// What is wrong with a pair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{0} has more than 1 MiB; a chain has a few KiB, so this is another file")]
    TooLarge(&'static str),
    #[error("tls.crt {0}")]
    Chain(String),
    #[error("tls.key {0}")]
    Key(String),
    #[error("ca.crt {0}")]
    Authorities(String),
    #[error("tls.crt and tls.key do not fit: {0}")]
    Pair(String),
}
