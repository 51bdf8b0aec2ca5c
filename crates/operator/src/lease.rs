//! Leader election by a Lease: only one of several replicas writes.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use crate::{Error, Settings};

/// A holder that has not renewed the Lease for this time is considered gone.
const DURATION: Duration = Duration::from_secs(15);
/// A holder that cannot renew gives up before others take over.
const DEADLINE: Duration = Duration::from_secs(10);
const RENEW: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Leadership {
    api: Api<Lease>,
    name: String,
    identity: String,
}

/// The last state of another holder that we saw, and when, by our own clock: the clock of the holder may be wrong.
type Seen = Option<(Option<MicroTime>, Instant)>;

impl Leadership {
    /// `None` outside of a cluster.
    pub(crate) fn new(client: &Client, settings: &Settings) -> Option<Self> {
        let namespace = settings.namespace.as_deref()?;
        Some(Self {
            api: Api::namespaced(client.clone(), namespace),
            name: settings.lease.clone(),
            identity: settings.identity.clone(),
        })
    }

    pub(crate) async fn acquire(&self) {
        let mut seen: Seen = None;
        let mut told = false;
        loop {
            match self.try_acquire(&mut seen).await {
                Ok(None) => break tracing::info!("{} leads", self.identity),
                Ok(Some(other)) if !told => {
                    told = true;
                    tracing::info!("{other} leads; waiting");
                }
                Ok(Some(_)) => {}
                Err(e) => tracing::warn!("Lease {}: {e}", self.name),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Returns when leadership is lost, with the reason.
    pub(crate) async fn keep(&self) -> Error {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(RENEW).await;
            let mut seen = None;
            // The time before the request counts: others see that of its arrival, at the earliest.
            let begun = Instant::now();
            let left = DEADLINE.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, self.try_acquire(&mut seen)).await {
                Ok(Ok(None)) => renewed = begun,
                Ok(Ok(Some(other))) => return Error::LeadershipLost(format!("{other} leads now")),
                Ok(Err(e)) => tracing::debug!("Lease {}: {e}", self.name),
                Err(_) => return Error::LeadershipLost("the Lease was not renewed in time".to_owned()),
            }
        }
    }

    /// Releases the Lease, so that the next leader need not wait.
    pub(crate) async fn release(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.name).await else { return };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(&self.identity) {
            spec.holder_identity = Some(String::new());
            let _ = self.api.replace(&self.name, &PostParams::default(), &lease).await;
        }
    }

    /// `None`: the Lease is ours. Otherwise the name of its holder.
    async fn try_acquire(&self, seen: &mut Seen) -> Result<Option<String>, kube::Error> {
        let now = MicroTime(Timestamp::now());
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.spec(now, 0)),
            };
            self.api.create(&PostParams::default(), &lease).await?;
            return Ok(None);
        };
        let spec = lease.spec.take().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let changes = spec.lease_transitions.unwrap_or_default();
        if holder == self.identity {
            lease.spec = Some(LeaseSpec { acquire_time: spec.acquire_time, ..self.spec(now, changes) });
        } else {
            let silent = match seen {
                Some((renewed, at)) if *renewed == spec.renew_time => at.elapsed() > DURATION,
                _ => {
                    *seen = Some((spec.renew_time.clone(), Instant::now()));
                    false
                }
            };
            if !holder.is_empty() && !silent {
                return Ok(Some(holder));
            }
            lease.spec = Some(self.spec(now, changes + 1));
        }
        // With its resourceVersion: if two replicas try, one fails.
        self.api.replace(&self.name, &PostParams::default(), &lease).await?;
        Ok(None)
    }

    fn spec(&self, now: MicroTime, changes: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(changes),
            ..LeaseSpec::default()
        }
    }
}
