//! The child: the process that serves the traffic, started and watched by the manager, which is who we talk to.

use serde::Deserialize;

use super::{Admin, yes};
use crate::error::{Error, Result};
use crate::wire::CANNOT;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildState {
    Stopped,
    Starting,
    Running,
    Stopping,
    /// The manager is about to start a new one.
    Died,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Pids {
    #[serde(rename = "master")]
    pub manager: u32,
    #[serde(rename = "worker")]
    pub child: Option<u32>,
}

impl Admin {
    pub async fn status(&self) -> Result<ChildState> {
        let words = ["status", "-j"];
        let state: String = self.item(&words).await?;
        ChildState::parse(&state).ok_or_else(|| Error::Answer {
            command: words.join(" "),
            why: format!("the child is in an unknown state, {state}"),
        })
    }

    pub async fn pids(&self) -> Result<Pids> {
        self.item(&["pid", "-j"]).await
    }

    /// Needs a VCL in use, since varnishd was started without one (`-f ''`). Answers when the child serves.
    pub async fn start(&self) -> Result<()> {
        self.ask(&["start"]).await.map(drop)
    }

    /// Ends the child, and with it the cache.
    pub async fn stop(&self) -> Result<()> {
        self.ask(&["stop"]).await.map(drop)
    }

    /// The last panic of a child, with its backtrace, until it is cleared.
    pub async fn panic_show(&self) -> Result<Option<String>> {
        let words = ["panic.show"];
        let answer = self.command(&words).await?;
        if answer.status == CANNOT {
            return Ok(None);
        }
        yes(words.join(" "), answer).map(Some)
    }

    /// Whether there was one.
    pub async fn panic_clear(&self) -> Result<bool> {
        let words = ["panic.clear"];
        let answer = self.command(&words).await?;
        if answer.status == CANNOT {
            return Ok(false);
        }
        yes(words.join(" "), answer).map(|_| true)
    }
}

impl ChildState {
    fn parse(state: &str) -> Option<Self> {
        Some(match state {
            "stopped" => Self::Stopped,
            "starting" => Self::Starting,
            "running" => Self::Running,
            "stopping" => Self::Stopping,
            // "died, (restarting)"
            _ if state.starts_with("died") => Self::Died,
            _ => return None,
        })
    }
}
