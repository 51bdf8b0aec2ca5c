//! Writes what `translate` says into a cluster.
//!
//! Takes a client and [`Settings`]. Guarantees that every Gateway of ours converges to what its snapshot asks for, from any
//! earlier state; that a Gateway that fails delays no other; that only the leader writes; and that objects of others are never
//! written. Never decides what an object means.

mod apply;
mod clean_up;
mod crds;
mod definition;
mod error;
mod events;
mod gateway;
mod health;
mod invalidation;
mod lease;
mod metrics;
mod owned;
mod pace;
mod programmed;
mod reconcile;
mod settings;
mod status;
mod sweep;
mod tally;

use std::sync::Arc;

use kube::Client;
use source::kubernetes::Cluster;
use tokio::sync::watch;

pub use clean_up::clean_up;
pub use crds::apply_crds;
pub use error::Error;
pub use settings::Settings;

use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::owned::Owned;

/// Works until `shutdown` becomes true. A process that loses leadership waits for it again.
pub async fn run(
    client: Client,
    settings: Settings,
    mut shutdown: watch::Receiver<bool>,
) -> Result<(), Error> {
    let metrics = Arc::new(Metrics::default());
    let ready = watch::Sender::new(false);
    let serving = health::serve(&settings, Arc::clone(&metrics), ready.subscribe());
    let leadership = Leadership::new(&client, &settings);
    let work = async {
        // A replica that waits for the Lease has read all objects when it gets it.
        let namespaces = &settings.watch_namespaces;
        let (controllers, ingress) = (settings.controllers.clone(), settings.ingress());
        let cluster =
            Arc::new(Cluster::watch(&client, namespaces, controllers, ingress, settings.default_data_path));
        let owned = Arc::new(Owned::watch(&client, namespaces, &settings.controllers.gateway));
        cluster.synced().await;
        owned.synced().await;
        ready.send_replace(true);
        tracing::info!("all kinds are watched");
        let reconcile = || {
            reconcile::run(
                client.clone(),
                &settings,
                Arc::clone(&cluster),
                Arc::clone(&owned),
                Arc::clone(&metrics),
            )
        };
        let Some(leadership) = &leadership else {
            metrics.leader.set(1);
            return reconcile().await;
        };
        loop {
            leadership.acquire().await;
            metrics.leader.set(1);
            tokio::select! {
                done = reconcile() => return done,
                why = leadership.keep() => tracing::warn!("{why}; writing nothing until it is back"),
            }
            metrics.leader.set(0);
        }
    };
    let done = tokio::select! {
        done = work => done,
        failed = serving => failed,
        _ = shutdown.wait_for(|asked| *asked) => Ok(()),
    };
    if let Some(leadership) = &leadership {
        leadership.release().await;
    }
    done
}
