//! varnishd's own counters, by its program `varnishstat`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::engine;

/// It only reads shared memory.
const PATIENCE: Duration = Duration::from_secs(5);
/// 20 counters of 10,000 endpoints are 40 MB.
const LARGEST: u64 = 64 << 20;

/// One number of varnishd's.
#[derive(Debug, Clone, PartialEq)]
pub struct Counter {
    /// `MAIN`, `SMA`, `VBE`
    pub group: String,
    /// `s0`, `boot.10.0.0.1:80`; empty where the group has but one.
    pub instance: String,
    /// `cache_hit`
    pub name: String,
    pub description: String,
    /// Otherwise it is a gauge, which may decrease.
    pub grows: bool,
    pub value: u64,
}

/// All counters of the varnishd in this directory; `None` while it is not there, and where they do not come in time.
pub async fn read(varnishd_dir: &Path) -> Option<Vec<Counter>> {
    let (all, complete) = run(varnishd_dir, &[]).await?;
    if complete {
        return parsed(all).await;
    }
    tracing::debug!("varnishstat says more than {LARGEST} bytes: its counters of backends are left out");
    let (others, complete) = run(varnishd_dir, &["-X", "VBE.*"]).await?;
    if complete { parsed(others).await } else { None }
}

/// Parses megabytes of JSON, off the async threads.
async fn parsed(json: Vec<u8>) -> Option<Vec<Counter>> {
    tokio::task::spawn_blocking(move || parse(&json)).await.ok().flatten()
}

async fn run(varnishd_dir: &Path, arguments: &[&str]) -> Option<(Vec<u8>, bool)> {
    let mut command = Command::new(engine::tool("stat"));
    command
        .args(["-1", "-j", "-t", "1", "-n"])
        .arg(varnishd_dir)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let reading = async {
        let mut process = command.spawn().ok()?;
        let mut said = Vec::new();
        process.stdout.take()?.take(LARGEST + 1).read_to_end(&mut said).await.ok()?;
        let complete = said.len() as u64 <= LARGEST;
        if !complete {
            let _ = process.start_kill();
        }
        let ended = process.wait().await.ok()?;
        (!complete || ended.success()).then_some((said, complete))
    };
    tokio::time::timeout(PATIENCE, reading).await.ok().flatten()
}

fn parse(json: &[u8]) -> Option<Vec<Counter>> {
    let all: Value = serde_json::from_slice(json).ok()?;
    // Versions before 6.5 have no `counters` around it.
    let counters = all.get("counters").unwrap_or(&all).as_object()?;
    let one = |(name, of): (&String, &Value)| {
        let (group, rest) = name.split_once('.')?;
        let (instance, name) = rest.rsplit_once('.').unwrap_or(("", rest));
        Some(Counter {
            group: group.to_owned(),
            instance: instance.to_owned(),
            name: name.to_owned(),
            description: of.get("description")?.as_str()?.to_owned(),
            grows: matches!(of.get("flag").and_then(Value::as_str), Some("c" | "a")),
            value: of.get("value")?.as_u64()?,
        })
    };
    Some(counters.iter().filter_map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let json = br#"{"version": 1, "timestamp": "2026-11-16T00:00:00", "counters": {
            "MAIN.cache_hit": {"description": "Cache hits", "flag": "c", "format": "i", "value": 7},
            "SMA.s0.g_bytes": {"description": "Bytes outstanding", "flag": "g", "format": "B", "value": 5},
            "VBE.boot.127.0.0.1:80.req": {"description": "Requests", "flag": "c", "format": "i", "value": 3},
            "odd": {"value": 1}}}"#;
        let all = parse(json).unwrap();
        let named: Vec<_> =
            all.iter().map(|c| (c.group.as_str(), c.instance.as_str(), c.name.as_str(), c.grows)).collect();
        assert_eq!(
            named,
            [
                ("MAIN", "", "cache_hit", true),
                ("SMA", "s0", "g_bytes", false),
                ("VBE", "boot.127.0.0.1:80", "req", true),
            ]
        );
        assert_eq!(parse(b"{"), None);
    }
}
