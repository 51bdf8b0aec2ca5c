//! A `serve`, or a chaperone, of this machine: HTTP by the socket in its state directory.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use dashboard::view::{Overview, Routes, Row, Top};
use dashboard::{Asked, Explained};
use form_urlencoded::Serializer;
use http_body_util::Full;
use hyper::Request;
use local_http::client;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::Status;
use crate::serve::control;

const PATIENCE: Duration = Duration::from_secs(30);
const LARGEST: usize = 256 << 20;
/// Rows of one answer.
const PAGE: usize = 1000;

pub(super) async fn status(dir: &Path, gateway: Option<&str>) -> anyhow::Result<(Vec<Status>, Vec<Row>)> {
    let mut overview: Overview = get(dir, "/api/state", &[]).await?;
    if let Some(gateway) = gateway.filter(|gateway| overview.gateways.iter().all(|one| one.name != *gateway))
    {
        return Err(no_such(gateway, &overview));
    }
    overview.gateways.retain(|one| gateway.is_none_or(|wanted| wanted == one.name));
    let mut rows = Vec::new();
    loop {
        let (limit, offset) = (PAGE.to_string(), rows.len().to_string());
        let mut query = vec![("limit", limit.as_str()), ("offset", &offset)];
        query.extend(gateway.map(|gateway| ("gateway", gateway)));
        let page: Routes = get(dir, "/api/routes", &query).await?;
        let done = page.rows.is_empty() || rows.len() + page.rows.len() >= page.total;
        rows.extend(page.rows);
        if done {
            break;
        }
    }
    let of = |gateway| Status { gateway, pods: Vec::new(), addresses: Vec::new(), closed: BTreeSet::new() };
    Ok((overview.gateways.into_iter().map(of).collect(), rows))
}

pub(super) async fn explain(
    dir: &Path,
    gateway: Option<&str>,
    asked: &Asked,
    port: Option<u16>,
) -> anyhow::Result<Vec<Explained>> {
    let port = port.map(|port| port.to_string());
    let headers: Vec<String> = asked.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let mut query = vec![("host", asked.host.as_str()), ("path", &asked.path), ("method", &asked.method)];
    query.extend(headers.iter().map(|header| ("header", header.as_str())));
    query.extend(gateway.map(|gateway| ("gateway", gateway)));
    query.extend(port.as_deref().map(|port| ("port", port)));
    get(dir, "/api/explain", &query).await
}

pub(super) async fn top(
    dir: &Path,
    gateway: Option<&str>,
    seconds: u64,
    limit: usize,
) -> anyhow::Result<Top> {
    let (seconds, limit) = (seconds.to_string(), limit.to_string());
    let mut query = vec![("seconds", seconds.as_str()), ("limit", &limit)];
    query.extend(gateway.map(|gateway| ("gateway", gateway)));
    let top: Top = get(dir, "/api/top", &query).await?;
    if let Some(gateway) = gateway.filter(|_| top.gateways.is_empty()) {
        let overview: Overview = get(dir, "/api/state", &[]).await?;
        if overview.gateways.iter().any(|one| one.name == gateway) {
            bail!("Gateway {gateway} does not run: `varnish-gateway status` says why");
        }
        return Err(no_such(gateway, &overview));
    }
    Ok(top)
}

fn no_such(gateway: &str, overview: &Overview) -> anyhow::Error {
    let names: Vec<&str> = overview.gateways.iter().map(|one| one.name.as_str()).collect();
    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    anyhow::anyhow!("no such Gateway: {gateway} (there: {there})")
}

async fn get<T: DeserializeOwned>(dir: &Path, path: &str, query: &[(&str, &str)]) -> anyhow::Result<T> {
    let query = Serializer::new(String::new()).extend_pairs(query).finish();
    let socket = control::api_socket(dir);
    let url = format!("{path}?{query}");
    let body = tokio::time::timeout(PATIENCE, exchange(&socket, &url)).await.context("no answer")?;
    let body = body.with_context(|| format!("{}: is it an older `serve`?", socket.display()))?;
    let value: serde_json::Value = serde_json::from_slice(&body)?;
    if let Some(error) = value["error"].as_str() {
        bail!("{error}");
    }
    serde_json::from_value(value).context("the answer is of another version of this program")
}

async fn exchange(socket: &Path, url: &str) -> anyhow::Result<Bytes> {
    ensure!(url.len() < 15_000, "this request is too long");
    let stream = UnixStream::connect(socket).await?;
    let request = Request::get(url).header("Host", "localhost").body(Full::default())?;
    Ok(client::exchange(stream, request, LARGEST).await?.into_body())
}
