//! One Gateway's varnishd, and the strings to pull.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chaperone::{Desired, Event, LastGood, Reporter, Settings, Shutdown, State, Steps};
use dashboard::Board;
use model::routing::Routing;
use tokio::sync::watch;
use translate::Infra;

use crate::observe::{ObserveArguments, Reports};
use crate::serve::tell;

pub(crate) struct Instance {
    /// `namespace/name`
    gateway: String,
    board: Arc<Board>,
    pub(crate) infra: Infra,
    observe: ObserveArguments,
    /// Arguments that varnishd refused, so that they are reported once.
    pub(crate) refused_args: Option<Vec<String>>,
    desired: watch::Sender<Desired>,
    /// HTTPRoutes in the configuration that was sent last, for the lines that people read.
    routes: Arc<AtomicUsize>,
    last_good: LastGood,
    /// The machine's own, which all Gateways hear.
    machine: watch::Receiver<Shutdown>,
    shutdown: watch::Sender<Shutdown>,
    ended: Ended,
    /// Of the varnishd that runs now.
    state: watch::Receiver<State>,
}

/// The end of a varnishd, for tasks that wait for it.
#[derive(Clone)]
pub(crate) struct Ended(watch::Receiver<()>);

impl Ended {
    pub(crate) fn is_so(&self) -> bool {
        self.0.has_changed().is_err()
    }

    pub(crate) async fn wait(mut self) {
        while self.0.changed().await.is_ok() {}
    }
}

impl Instance {
    /// Starts once those are over.
    pub(crate) fn start(
        (gateway, board): (String, Arc<Board>),
        settings: Settings,
        infra: Infra,
        observe: ObserveArguments,
        machine: watch::Receiver<Shutdown>,
        after: Vec<Ended>,
    ) -> Self {
        let mut instance = Self {
            gateway,
            board,
            infra,
            observe,
            refused_args: None,
            desired: watch::Sender::default(),
            routes: Arc::default(),
            last_good: LastGood::default(),
            machine,
            shutdown: watch::Sender::default(),
            ended: Ended(watch::Sender::default().subscribe()),
            state: watch::Sender::default().subscribe(),
        };
        instance.spawn(settings, after);
        instance
    }

    pub(crate) fn feed(&self, new: Desired, routes: usize) {
        self.routes.store(routes, Ordering::Relaxed);
        self.desired.send_if_modified(|old| {
            // What cannot be decided now stays as it was.
            let new = Desired { vcl: new.vcl.or_else(|| old.vcl.clone()), ..new };
            let differs = *old != new;
            if differs {
                *old = new;
            }
            differs
        });
    }

    /// Another varnishd, once those before it are over; what was good for the old one is good for it.
    pub(crate) fn restart(&mut self, settings: Settings, infra: Infra, after: Vec<Ended>) {
        let former = std::mem::replace(&mut self.infra, infra).varnishd_args;
        let former_args = (former != settings.extra_args).then_some(former);
        self.refused_args = None;
        // The steps of the last change were reported already, and a start is not a change.
        self.desired.send_if_modified(|desired| {
            desired.steps = Steps::default();
            false
        });
        self.spawn(Settings { former_args, ..settings }, after);
    }

    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports().any(|own| own == port)
    }

    /// varnishd's and the front's.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        let tls = Arc::clone(&self.desired.borrow().tls);
        let of_front: Vec<u16> = tls.listeners.iter().map(|listener| listener.port).collect();
        self.infra.sockets.iter().map(|socket| socket.port).chain(of_front)
    }

    /// Drains, then ends.
    pub(crate) fn stop(&self) {
        self.shutdown.send_replace(Shutdown::Drain);
    }

    pub(crate) fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    pub(crate) fn ended(&self) -> Ended {
        self.ended.clone()
    }

    fn spawn(&mut self, mut settings: Settings, after: Vec<Ended>) {
        let (ending, ended) = watch::channel(());
        let (shutdown, heard) = watch::channel(Shutdown::Run);
        let (name, routes) = (settings.name.clone(), Arc::clone(&self.routes));
        let (gateway, board) = (self.gateway.clone(), Arc::clone(&self.board));
        let reporter = Reporter::new(move |event| {
            let mut event = event.clone();
            // People count HTTPRoutes; ghost counts each match of each rule.
            if let Event::Reloaded { rules, .. } = &mut event {
                *rules = routes.load(Ordering::Relaxed) as u64;
            }
            // Readers of the line find it on the page.
            board.tell(&gateway, &event);
            tell(&name, &event);
        });
        self.state = reporter.state();
        // In a task of its own: a slow reader there must not hold up a reload.
        let mut reports = settings.http_in_front.then(|| self.observe.reports(&settings.name));
        settings.observer = reports.as_ref().map(Reports::observer);
        let ending_log = reports.as_mut().map(Reports::ending);
        let observe = self.observe.clone();
        let observing = tokio::spawn(observe.run(settings.name.clone(), reporter.state(), reports));
        let (desired, last_good) = (self.desired.subscribe(), self.last_good.clone());
        let (mut machine, forward) = (self.machine.clone(), shutdown.clone());
        tokio::spawn(async move {
            for ended in after {
                ended.wait().await;
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
            let run = || {
                let (settings, last_good) = (settings.clone(), last_good.clone());
                chaperone::run(settings, desired.clone(), last_good, reporter.clone(), heard.clone())
            };
            let running = async { while tasks::panicked(&settings.name, run()).await {} };
            tokio::select! {
                () = running => {}
                () = pass_on => {}
            }
            observing.abort();
            if let Some(log) = ending_log {
                log.wait().await;
            }
            drop(ending);
        });
        (self.shutdown, self.ended) = (shutdown, Ended(ended));
    }
}

/// HTTPRoutes that have a part in a configuration.
pub(crate) fn count_routes(routing: &Routing) -> usize {
    let names: HashSet<_> = routing.vhosts.values().flat_map(|v| &v.routes).map(|r| &r.route_name).collect();
    names.len()
}
