use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::Admin;
use crate::error::Result;

/// A backend or a director, as `backend.list` shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Backend {
    /// `vcl.backend`
    pub name: String,
    /// `backend`, or the name of the director's kind.
    pub kind: String,
    /// `probe` when its probe decides, else what was set: `healthy`, `sick`; and `deleted`.
    pub admin_health: String,
    /// Good probes among the last `probe_window`. Without a probe both are 0.
    pub probe_good: u64,
    pub probe_window: u64,
    /// A director that does not say counts as healthy, unless it was set sick.
    pub healthy: bool,
    /// Seconds since 1970.
    pub last_change: f64,
}

#[derive(Deserialize)]
struct Details {
    #[serde(rename = "type")]
    kind: String,
    admin_health: String,
    probe_message: ProbeMessage,
    last_change: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ProbeMessage {
    Counts(u64, u64, String),
    /// A director of a foreign VMOD writes what it likes.
    Other(IgnoredAny),
}

/// Not a map: while a backend that was dropped is still in use, its successor may have the same name.
struct Backends(Vec<Backend>);

impl Admin {
    /// Those of the active VCL. The child has to run.
    pub async fn backend_list(&self) -> Result<Vec<Backend>> {
        let lists: Vec<Backends> = self.items(&["backend.list", "-j"]).await?;
        Ok(flatten(lists))
    }

    /// Those whose `vcl.backend` matches the pattern: `*.*` is all of all VCLs, `main_1.*` all of one.
    pub async fn backend_list_matching(&self, pattern: &str) -> Result<Vec<Backend>> {
        let lists: Vec<Backends> = self.items(&["backend.list", "-j", pattern]).await?;
        Ok(flatten(lists))
    }
}

fn flatten(lists: Vec<Backends>) -> Vec<Backend> {
    lists.into_iter().flat_map(|list| list.0).collect()
}

impl<'de> Deserialize<'de> for Backends {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Backends;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("backends by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Backends, A::Error> {
                let mut backends = Vec::new();
                while let Some((name, details)) = map.next_entry::<String, Details>()? {
                    let (probe_good, probe_window, healthy) = match details.probe_message {
                        ProbeMessage::Counts(good, window, health) => (good, window, health == "healthy"),
                        ProbeMessage::Other(_) => (0, 0, details.admin_health != "sick"),
                    };
                    backends.push(Backend {
                        name,
                        kind: details.kind,
                        admin_health: details.admin_health,
                        probe_good,
                        probe_window,
                        healthy,
                        last_change: details.last_change,
                    });
                }
                Ok(Backends(backends))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::json::tests::items;

    #[test]
    fn the_list_of_7_1() {
        let list = flatten(items(
            r#"[ 3, ["backend.list", "-j"], 1794756402.656,
  {
    "a.d": {
      "type": "backend",
      "admin_health": "probe",
      "probe_message": [2, 8, "sick"],
      "last_change": 1794756401.418
    },
    "a.d": {
      "type": "backend",
      "admin_health": "healthy",
      "probe_message": [0, 0, "healthy"],
      "last_change": 1794756401.418
    },
    "a.odd": {
      "type": "odd",
      "admin_health": "probe",
      "probe_message": {"mood": "good"},
      "last_change": 1794756401.418
    }
  }
]
"#,
        ));
        assert_eq!(list.len(), 3, "two of one name are two");
        assert_eq!(
            list[0],
            Backend {
                name: "a.d".to_owned(),
                kind: "backend".to_owned(),
                admin_health: "probe".to_owned(),
                probe_good: 2,
                probe_window: 8,
                healthy: false,
                last_change: 1_794_756_401.418,
            }
        );
        assert!(list[1].healthy && list[2].healthy);
    }
}
