use super::Admin;
use crate::error::{Error, Result};

impl Admin {
    /// Bans what matches, as VCL's `ban()` does: `field operator argument [&& field operator argument …]`, the words
    /// separated by blanks and taken literally, without quotes or escapes.
    ///
    /// So an argument has no blank; in a regular expression `\s` or `\x20` stands for one. The CLI could quote it,
    /// but varnishd 7.1 loses the quotes on the way to the child.
    pub async fn ban(&self, expression: &str) -> Result<()> {
        let mut words = vec!["ban"];
        words.extend(expression.split_whitespace());
        check(&words[1..]).map_err(|why| Error::Argument { command: format!("ban {expression}"), why })?;
        self.ask(&words).await.map(drop)
    }
}

/// Four words a condition, the last without its `&&`. Field names and operators are left to varnishd.
fn check(words: &[&str]) -> Result<(), String> {
    if words.len() % 4 != 3 {
        return Err("a ban is `field operator argument`, joined by && when there are several, and an argument has no blanks"
            .to_owned());
    }
    match words.chunks(4).find_map(|condition| condition.get(3).filter(|word| **word != "&&")) {
        Some(word) => Err(format!("conditions of a ban are joined by &&, not by {word}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_three_words_joined_by_and() {
        let check = |expression: &str| check(&expression.split_whitespace().collect::<Vec<_>>());
        assert_eq!(check(r"req.url ~ ^/a\.b"), Ok(()));
        assert_eq!(check("req.url == /a && obj.http.x != y"), Ok(()));
        assert!(check("").is_err());
        assert!(check("req.url").is_err());
        assert!(check("obj.http.x == \"a b\"").is_err());
        assert!(check("req.url == /a && obj.http.x").is_err());
        assert!(check("req.url == /a || obj.http.x == y").unwrap_err().contains("||"));
    }
}
