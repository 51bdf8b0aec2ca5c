//! `top` of a cluster: the metrics of every pod, through the API server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use chaperone::stats::Sample;
use dashboard::view::{Second, Stream, Top};
use dashboard::{StreamTraffic, Traffic};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Client;
use model::stats::Stats;

use super::summed::{Summed, SummedStreams};
use super::{Cluster, pods, text};
use crate::api_server;
use crate::running::scrape;

/// Pods that are asked at once.
const AT_ONCE: usize = 16;
/// For one pod: the others shall not wait for one that hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// What has been seen of one Gateway.
#[derive(Default)]
pub(super) struct Watched {
    summed: Summed,
    traffic: Traffic,
    summed_streams: SummedStreams,
    streams: StreamTraffic,
}

impl Cluster {
    /// The first look needs two.
    pub(crate) async fn top(&mut self, seconds: u64, limit: usize) -> anyhow::Result<Top> {
        if self.watched.is_empty() {
            self.look().await?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        }
        let notes = self.look().await?;
        let gateways = self.watched.iter().map(|(name, watched)| Second {
            streams: watched.streams.seconds(seconds, limit),
            ..watched.traffic.second(name, 1, limit)
        });
        Ok(Top { gateways: gateways.collect(), by_way: false, notes })
    }

    /// Returns what could not be seen.
    async fn look(&mut self) -> anyhow::Result<Vec<String>> {
        let (known, _) = self.known().await?;
        self.watched.retain(|name, _| known.contains_key(name));
        let (mut asked, mut notes) = (Vec::new(), Vec::new());
        for name in known.keys() {
            let (namespace, short) = name.split_once('/').unwrap_or_default();
            let Some(pods) = pods::listed(self, namespace, short).await? else {
                notes.push(format!(
                    "Gateway {name}: pods of namespace {namespace} may not be listed: ask for this right"
                ));
                continue;
            };
            let ready: Vec<Pod> = pods.into_iter().filter(pods::is_ready).collect();
            if ready.is_empty() {
                notes.push(format!(
                    "Gateway {name}: none of its pods is ready (`varnish-gateway status` says why)"
                ));
            }
            asked.extend(ready.into_iter().map(|pod| (name.clone(), pod)));
        }
        let client = &self.client;
        let looks = asked.into_iter().map(|(gateway, pod)| async move {
            let stats = stats(client, &pod).await;
            (gateway, pod, Instant::now(), stats)
        });
        let looked: Vec<_> = futures::stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        if let (true, Some(Err(why))) =
            (looked.iter().all(|(.., stats)| stats.is_err()), looked.first().map(|(.., stats)| stats))
        {
            bail!("{why}");
        }
        for name in known.into_keys() {
            let watched = self.watched.entry(name.clone()).or_default();
            let (mut seen, mut streams) = (Vec::new(), Vec::new());
            let mut at = Instant::now();
            for (_, pod, when, stats) in looked.iter().filter(|(gateway, ..)| *gateway == name) {
                match stats {
                    Ok((stats, of_streams)) => {
                        at = at.min(*when);
                        let uid = text(&pod.metadata.uid).to_owned();
                        streams.push((uid.clone(), of_streams.clone()));
                        seen.push((uid, stats.clone()));
                    }
                    Err(why) => notes.push(why.clone()),
                }
            }
            let stats = watched.summed.take(seen);
            watched.streams.take(at, watched.summed_streams.take(streams));
            watched.traffic.take(Some(&Sample { at, stats: Arc::new(stats) }));
        }
        notes.sort();
        Ok(notes)
    }
}

/// Metrics are where the probe is.
async fn stats(client: &Client, pod: &Pod) -> Result<(Stats, Vec<Stream>), String> {
    let (namespace, name) = (text(&pod.metadata.namespace), text(&pod.metadata.name));
    let whose = format!("metrics of pod {namespace}/{name}");
    let port =
        port(pod).ok_or_else(|| format!("{whose}: it has no readiness probe: of which version is it?"))?;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics");
    let request = hyper::Request::get(&path).body(Vec::new()).map_err(|e| format!("{whose}: {e}"))?;
    match tokio::time::timeout(PATIENCE, client.request_text(request)).await {
        Ok(Ok(text)) => Ok((scrape::parse(&text), scrape::streams(&text))),
        Ok(Err(e)) if api_server::is_forbidden(&e) => Err(format!(
            "{whose} cannot be read: `top` takes the right to get pods/proxy in namespace {namespace}: {}",
            api_server::sentence(&e)
        )),
        Ok(Err(e)) => Err(format!("{whose} cannot be read: {}", api_server::sentence(&e))),
        Err(_) => Err(format!("{whose}: no answer within {} s", PATIENCE.as_secs())),
    }
}

fn port(pod: &Pod) -> Option<String> {
    let mut containers = pod.spec.as_ref()?.containers.iter();
    let probe = containers.find_map(|container| container.readiness_probe.as_ref()?.http_get.as_ref())?;
    Some(match &probe.port {
        IntOrString::Int(port) => port.to_string(),
        IntOrString::String(name) => name.clone(),
    })
}
