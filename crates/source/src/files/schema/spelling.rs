//! A guess at the word that was meant.

/// The name that differs least from `written`, if the difference is small enough to be a slip.
pub(crate) fn closest<'a>(written: &str, names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let lower = written.to_lowercase();
    let allowed = 1 + written.chars().count() / 5;
    let measured = names.map(|name| (distance(&lower, &name.to_lowercase()), name.as_str()));
    measured.filter(|&(distance, _)| distance <= allowed).min().map(|(_, name)| name)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut cost = (above[j] + usize::from(a != b)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or_default()
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
