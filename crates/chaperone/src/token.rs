//! Secrets of one start: by them ghost knows who speaks to it.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

/// 256 random bits as text. Empty where there is no randomness to be had: an empty one opens nothing.
pub(crate) fn generate() -> Arc<str> {
    let mut bytes = [0; 32];
    match File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes)) {
        Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
        Err(e) => {
            tracing::error!("/dev/urandom cannot be read: {e}");
            "".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_are_never_the_same() {
        assert_eq!(generate().len(), 64);
        assert_ne!(generate(), generate());
    }
}
