//! One Gateway's varnishd, and the strings to pull.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chaperone::{Desired, Event, Reporter, Settings, Shutdown};
use model::routing::Routing;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use translate::Infra;

use crate::serve::tell;

pub(crate) struct Instance {
    pub(crate) infra: Infra,
    desired: watch::Sender<Desired>,
    /// HTTPRoutes in the configuration that was sent last, for the lines that people read.
    routes: Arc<AtomicUsize>,
    /// The machine's own, which all Gateways hear.
    machine: watch::Receiver<Shutdown>,
    shutdown: watch::Sender<Shutdown>,
    task: JoinHandle<()>,
}

impl Instance {
    pub(crate) fn start(settings: Settings, infra: Infra, machine: watch::Receiver<Shutdown>) -> Self {
        let (desired, routes) = (watch::Sender::default(), Arc::default());
        let (shutdown, task) = spawn(settings, &desired, &routes, &machine, None);
        Self { infra, desired, routes, machine, shutdown, task }
    }

    pub(crate) fn feed(&self, new: Desired, routes: usize) {
        self.routes.store(routes, Ordering::Relaxed);
        self.desired.send_if_modified(|old| {
            // What cannot be decided now stays as it was.
            let new = Desired { vcl: new.vcl.or_else(|| old.vcl.clone()), ..new };
            let differs = *old != new;
            *old = new;
            differs
        });
    }

    /// The old varnishd is drained before the new one takes its ports.
    pub(crate) fn restart(&mut self, settings: Settings, infra: Infra) {
        self.stop();
        let old = std::mem::replace(&mut self.task, tokio::spawn(async {}));
        let (shutdown, task) = spawn(settings, &self.desired, &self.routes, &self.machine, Some(old));
        (self.infra, self.shutdown, self.task) = (infra, shutdown, task);
    }

    pub(crate) fn stop(&self) {
        let _ = self.shutdown.send(Shutdown::Drain);
    }

    /// Resolves when its varnishd is gone.
    pub(crate) async fn ended(self) {
        if let Err(e) = self.task.await {
            tracing::error!("the task of a Gateway failed: {e}");
        }
    }
}

fn spawn(
    settings: Settings,
    desired: &watch::Sender<Desired>,
    routes: &Arc<AtomicUsize>,
    machine: &watch::Receiver<Shutdown>,
    after: Option<JoinHandle<()>>,
) -> (watch::Sender<Shutdown>, JoinHandle<()>) {
    let (shutdown, heard) = watch::channel(Shutdown::Run);
    let (name, routes) = (settings.name.clone(), Arc::clone(routes));
    let reporter = Reporter::new(move |event| match event {
        // People count HTTPRoutes; ghost counts each match of each rule.
        Event::Reloaded { backends, took, .. } => {
            let rules = routes.load(Ordering::Relaxed) as u64;
            tell(&name, &Event::Reloaded { rules, backends: *backends, took: *took });
        }
        other => tell(&name, other),
    });
    let (desired, mut machine, forward) = (desired.subscribe(), machine.clone(), shutdown.clone());
    let task = tokio::spawn(async move {
        if let Some(old) = after {
            let _ = old.await;
        }
        let pass_on = async {
            loop {
                let asked = *machine.borrow_and_update();
                forward.send_if_modified(|now| {
                    let more = asked > *now;
                    *now = asked.max(*now);
                    more
                });
                if machine.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = chaperone::run(settings, desired, reporter, heard) => {}
            () = pass_on => {}
        }
    });
    (shutdown, task)
}

/// HTTPRoutes that have a part in a configuration.
pub(crate) fn count_routes(routing: &Routing) -> usize {
    let names: HashSet<_> = routing.vhosts.values().flat_map(|v| &v.routes).map(|r| &r.route_name).collect();
    names.len()
}
