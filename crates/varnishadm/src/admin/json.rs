//! Answers to commands with `-j`: `[ version, [the command], time, item, … ]`.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{Admin, yes};
use crate::error::{Error, Result};
use crate::wire::{Command, TRUNCATED};

/// What stands before the items.
const PREAMBLE: usize = 3;

impl Admin {
    pub(super) async fn items<T: DeserializeOwned>(&self, words: &[&str]) -> Result<Vec<T>> {
        let command = Command::words(words)?;
        let label = command.label().to_owned();
        let answer = self.send(command).await?;
        if answer.status == TRUNCATED {
            return Err(Error::Truncated { command: label, length: answer.body.len() });
        }
        let body = yes(label.clone(), answer)?;
        parse(&body).map_err(|error| Error::Answer { command: label, why: error.to_string() })
    }

    pub(super) async fn item<T: DeserializeOwned>(&self, words: &[&str]) -> Result<T> {
        let mut items = self.items(words).await?;
        match (items.pop(), items.len()) {
            (Some(item), 0) => Ok(item),
            (last, others) => Err(Error::Answer {
                command: words.join(" "),
                why: format!("one item is wanted, not {}", others + usize::from(last.is_some())),
            }),
        }
    }
}

fn parse<T: DeserializeOwned>(body: &str) -> serde_json::Result<Vec<T>> {
    let parts: Vec<&RawValue> = serde_json::from_str(body)?;
    parts.into_iter().skip(PREAMBLE).map(|item| serde_json::from_str(item.get())).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn items<T: DeserializeOwned>(body: &str) -> Vec<T> {
        parse(body).unwrap()
    }

    #[test]
    fn no_items_is_an_empty_list() {
        assert!(items::<String>("[ 2, [\"vcl.list\", \"-j\"], 1794756361.533\n]\n").is_empty());
    }

    #[test]
    fn half_an_answer_is_an_error() {
        assert!(parse::<String>("[ 2, [\"vcl.list\", \"-j\"], 1794756361.533,\n  {").is_err());
    }
}
