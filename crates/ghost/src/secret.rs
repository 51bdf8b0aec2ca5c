//! Secrets that the chaperone made for this start of varnishd, in environment variables.

/// Are these the bytes of the secret? Where there is no secret, nothing is it. Takes the same time for each wrong guess of the
/// right length.
pub(crate) fn is(variable: &str, given: &[u8]) -> bool {
    let Some(secret) = std::env::var_os(variable) else { return false };
    let secret = secret.as_encoded_bytes();
    let differs = secret.iter().zip(given).fold(0, |differs, (a, b)| differs | (a ^ b));
    !secret.is_empty() && secret.len() == given.len() && std::hint::black_box(differs) == 0
}
