use serde::Deserialize;
use serde_json::value::RawValue;

use super::Admin;
use crate::error::{Error, Result};

#[derive(Deserialize)]
struct Parameter {
    value: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Pool {
    min_pool: u64,
    max_pool: u64,
    max_age: Box<RawValue>,
}

impl Admin {
    /// Gives varnishd's remark, if any, for instance that the change takes effect when the child is restarted.
    pub async fn param_set(&self, name: &str, value: &str) -> Result<String> {
        Ok(self.ask(&["param.set", name, value]).await?.trim().to_owned())
    }

    /// The value in a form that [`Admin::param_set`] takes: sizes in bytes, times in seconds, `on` and `off`.
    pub async fn param_show(&self, name: &str) -> Result<String> {
        let words = ["param.show", "-j", name];
        let parameter: Parameter = self.item(&words).await?;
        let why = |why: String| Error::Answer { command: words.join(" "), why };
        let value = parameter.value.ok_or_else(|| {
            why("it has no value; the parameter does not exist on this platform".to_owned())
        })?;
        plain(value.get()).map_err(|error| why(error.to_string()))
    }
}

fn plain(value: &str) -> serde_json::Result<String> {
    Ok(match value.as_bytes().first() {
        Some(b'"') => serde_json::from_str(value)?,
        Some(b'{') => {
            let pool: Pool = serde_json::from_str(value)?;
            format!("{},{},{}", pool.min_pool, pool.max_pool, pool.max_age.get())
        }
        Some(b't') => "on".to_owned(),
        Some(b'f') => "off".to_owned(),
        _ => value.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_they_are_set() {
        for (json, value) in [
            (r#""-Debug,+Hash""#, "-Debug,+Hash"),
            (r#""a \"b\"""#, r#"a "b""#),
            ("60.000", "60.000"),
            ("49152", "49152"),
            ("true", "on"),
            ("false", "off"),
            (r#"{ "min_pool": 10, "max_pool": 100, "max_age": 10 }"#, "10,100,10"),
        ] {
            assert_eq!(plain(json).unwrap(), value);
        }
    }
}
