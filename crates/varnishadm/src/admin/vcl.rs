use std::path::Path;

use serde::Deserialize;

use super::{Admin, yes};
use crate::error::{Error, Result};
use crate::wire::Command;

/// What becomes of a VCL after it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoadState {
    /// Warm now; cold again when it has not been in use for `vcl_cooldown`.
    #[default]
    Auto,
    /// Stays warm: its backends exist and are probed.
    Warm,
    /// Its backends don't exist, and it cannot be used before it is warmed up.
    Cold,
}

impl LoadState {
    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Warm => "warm",
            Self::Cold => "cold",
        }
    }
}

/// An entry of `vcl.list`: a VCL, or a label that stands for one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Vcl {
    pub name: String,
    pub status: VclStatus,
    pub state: VclState,
    pub temperature: Temperature,
    /// Requests, fetches and others that hold it. Unknown while the child is stopped.
    pub busy: Option<u64>,
    /// For a label: what it stands for.
    pub label: Option<VclLabel>,
    /// For a VCL: how many labels stand for it.
    #[serde(default)]
    pub labels: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VclLabel {
    /// The VCL.
    pub name: String,
    /// How many `return (vcl(…))` name the label.
    #[serde(default)]
    pub refs: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VclStatus {
    Active,
    Available,
    /// Gone as soon as nothing holds it any more. Its name is free again.
    Discarded,
    #[serde(untagged)]
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VclState {
    Auto,
    Warm,
    Cold,
    Label,
    #[serde(untagged)]
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Temperature {
    Init,
    Cold,
    Warm,
    /// To become cold, but still held.
    Busy,
    /// Cold, but some of its resources are still held.
    Cooling,
    #[serde(untagged)]
    Other(String),
}

impl Admin {
    /// Compiles and loads a file. Gives what the compiler had to say (warnings), often nothing.
    ///
    /// A large VCL takes the C compiler long (once each, 7.1.1 and gcc on a shared machine: 0.4 s with 100 backends, 9 s
    /// with 1,000, three minutes with 3,000): see [`Admin::with_timeout`]. The error's text has the compiler's whole
    /// message, with file names and lines.
    pub async fn vcl_load(&self, name: &str, path: &Path, state: LoadState) -> Result<String> {
        let path = path.to_str().ok_or_else(|| Error::Argument {
            command: format!("vcl.load {name}"),
            why: format!("the path {} is not UTF-8; rename the file", path.display()),
        })?;
        self.ask(&["vcl.load", name, path, state.word()]).await
    }

    /// As [`Admin::vcl_load`], in state auto. The compiler calls the text `<vcl.inline>`.
    pub async fn vcl_inline(&self, name: &str, text: &str) -> Result<String> {
        let command = Command::with_text(&["vcl.inline", name], text)?;
        let label = command.label().to_owned();
        yes(label, self.send(command).await?)
    }

    pub async fn vcl_state(&self, name: &str, state: LoadState) -> Result<()> {
        self.ask(&["vcl.state", name, state.word()]).await.map(drop)
    }

    pub async fn vcl_use(&self, name: &str) -> Result<()> {
        self.ask(&["vcl.use", name]).await.map(drop)
    }

    /// Makes or moves a label.
    pub async fn vcl_label(&self, label: &str, name: &str) -> Result<()> {
        self.ask(&["vcl.label", label, name]).await.map(drop)
    }

    /// One VCL by its name. varnishd itself takes a pattern here, and `*` would discard them all.
    pub async fn vcl_discard(&self, name: &str) -> Result<()> {
        if name.contains(['*', '?', '[', '\\']) {
            return Err(Error::Argument {
                command: format!("vcl.discard {name}"),
                why: "one VCL is discarded by its name, without wildcards".to_owned(),
            });
        }
        self.ask(&["vcl.discard", name]).await.map(drop)
    }

    pub async fn vcl_list(&self) -> Result<Vec<Vcl>> {
        self.items(&["vcl.list", "-j"]).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::json::tests::items;

    /// As 7.1.1 writes it, indentation included.
    const RUNNING: &str = r#"[ 2, ["vcl.list", "-j"], 1794756401.654,
  {
    "status": "active",
    "state": "auto",
    "temperature": "warm",
    "busy": 3,
    "name": "a",
    "labels": 1
},
  {
    "status": "available",
    "state": "label",
    "temperature": "warm",
    "busy": 0,
    "name": "lab",
    "label": {
      "name": "a",
"refs": 1
      }
},
  {
    "status": "discarded",
    "state": "cold",
    "temperature": "cooling",
    "busy": 1,
    "name": "b"
}
]
"#;

    #[test]
    fn the_list_of_a_running_child() {
        let list: Vec<Vcl> = items(RUNNING);
        let entry = |name: &str, status, state, temperature, busy, label, labels| Vcl {
            name: name.to_owned(),
            status,
            state,
            temperature,
            busy: Some(busy),
            label,
            labels,
        };
        let label = Some(VclLabel { name: "a".to_owned(), refs: 1 });
        assert_eq!(
            list,
            [
                entry("a", VclStatus::Active, VclState::Auto, Temperature::Warm, 3, None, 1),
                entry("lab", VclStatus::Available, VclState::Label, Temperature::Warm, 0, label, 0),
                entry("b", VclStatus::Discarded, VclState::Cold, Temperature::Cooling, 1, None, 0),
            ]
        );
    }

    #[test]
    fn a_stopped_child_and_a_later_varnishd() {
        let list: Vec<Vcl> = items(
            r#"[ 2, ["vcl.list", "-j"], 1.0,
            {"status": "new", "state": "new", "temperature": "tepid", "name": "a", "shape": "round"}]"#,
        );
        assert_eq!(list[0].busy, None);
        assert_eq!(list[0].status, VclStatus::Other("new".to_owned()));
        assert_eq!(list[0].temperature, Temperature::Other("tepid".to_owned()));
    }
}
