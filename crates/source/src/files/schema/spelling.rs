//! Finds the known word that is closest to a misspelled one.

/// The name that differs least from `written`, if the difference is small enough to be a slip.
pub(crate) fn closest<'a>(written: &str, names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let lower = written.to_lowercase();
    let allowed = 1 + written.chars().count() / 5;
    let measured = names.map(|name| (strsim::osa_distance(&lower, &name.to_lowercase()), name.as_str()));
    measured.filter(|&(distance, _)| distance <= allowed).min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_different_word_is_not() {
        let names = ["backendRefs", "filters", "matches", "name", "timeouts"].map(str::to_owned);
        let guess = |written| closest(written, names.iter());
        assert_eq!(guess("backendRef"), Some("backendRefs"));
        assert_eq!(guess("BackendRefs"), Some("backendRefs"));
        assert_eq!(guess("macthes"), Some("matches"));
        assert_eq!(guess("timeout"), Some("timeouts"));
        assert_eq!(guess("retry"), None);
        assert_eq!(guess("x"), None);
    }
}
