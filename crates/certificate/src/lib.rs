//! PEM in, a checked pair of certificate chain and private key out.
//!
//! Takes the bytes of a Secret. Guarantees that a `Pair` can be served: the chain and the key can be read, and the key belongs
//! to the first certificate. Never looks at a clock (an expired pair is a pair), never does IO, never shows a key.

mod authorities;
mod error;
mod name;
mod pair;
mod pem;
mod subject;

pub use authorities::Authorities;
pub use error::Error;
pub use name::Cover;
pub use pair::Pair;
pub use pem::Pem;
pub use subject::Subject;

/// The most bytes that a chain or a key may have. A chain of five RSA certificates has about 10 KiB.
pub const MAXIMUM: usize = 1 << 20;

/// Can this pair be served?
pub fn check(pem: &Pem) -> Result<(), Error> {
    Pair::new(pem).map(|_| ())
}
