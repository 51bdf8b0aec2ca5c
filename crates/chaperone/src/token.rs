//! Secrets of one start: by them ghost knows who speaks to it.

use std::sync::Arc;

/// 256 random bits as text. Empty where there is no randomness to be had: an empty one opens nothing.
pub(crate) fn generate() -> Arc<str> {
    let text = varnishadm::random_text();
    text.inspect_err(|e| tracing::error!("cannot read /dev/urandom: {e}")).unwrap_or_default().into()
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
