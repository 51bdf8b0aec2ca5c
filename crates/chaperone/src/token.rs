//! Secrets that are created at each start: ghost accepts requests only from processes that have them.

use std::sync::Arc;

/// 256 random bits as text. Empty where the operating system gives none: ghost accepts no empty token.
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
