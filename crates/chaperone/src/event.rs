//! Events and state of a varnishd: for users, probes and the operator.

mod sentence;

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::ghost_files::Ghost;
use crate::log::Readers;
use crate::reload::Control;
use crate::steps::{Change, Steps};
use crate::tally::Tally;

pub use sentence::Severity;

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// varnishd serves, on these addresses by socket name.
    Serving {
        sockets: Vec<(String, SocketAddr)>,
    },
    /// The front listens on a socket.
    Listening {
        socket: String,
        address: SocketAddr,
    },
    /// The front closed a socket.
    Closed {
        socket: String,
    },
    /// A backend could not be reached or verified. Reported once, until it works again or fails for another reason.
    BackendTls {
        why: String,
    },
    /// ghost has loaded a new configuration.
    Reloaded {
        rules: u64,
        backends: u64,
        took: Duration,
    },
    /// A new VCL is in use.
    VclReloaded {
        took: Duration,
    },
    /// A configuration was refused. The previous one is still served, if there was one.
    Refused {
        why: String,
        serving: bool,
    },
    /// The configuration that was refused before was replaced, or is accepted now.
    Recovered,
    /// It serves without one of its sockets, which is tried again.
    NotListening {
        socket: String,
        why: String,
    },
    /// It could not be started, and will be tried again.
    CannotStart {
        why: String,
        again_in: Duration,
    },
    /// varnishd or its child exited unexpectedly, and is started again.
    Died {
        why: String,
        again_in: Duration,
    },
    /// The child runs again.
    Restarted,
    /// A socket that was in use by another process is free now.
    Restarting {
        socket: String,
    },
    /// No new traffic should come; requests are finished.
    Draining,
    Stopped,
}

/// The configurations of ghost and of the front: the newest that each of them has accepted.
#[derive(Clone, Default)]
pub struct Configuration {
    pub ghost: Option<Ghost>,
    pub tls: Arc<front::Config>,
}

impl Configuration {
    /// ghost.json with its base, as one; `None` where it cannot be read.
    pub fn routes(&self) -> Option<model::ghost::Config> {
        self.ghost.as_ref()?.config()
    }

    /// The same object in memory; the bytes are not compared.
    pub fn is(&self, other: &Self) -> bool {
        let same_ghost = match (&self.ghost, &other.ghost) {
            (Some(one), Some(other)) => one.is(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        same_ghost && Arc::ptr_eq(&self.tls, &other.tls)
    }
}

/// Without the bytes: they are long.
impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ghost = self.ghost.as_ref().map(|ghost| ghost.bytes.len());
        let listeners = self.tls.sockets().count();
        f.debug_struct("Configuration").field("ghost", &ghost).field("tls_listeners", &listeners).finish()
    }
}

/// The state that probes report.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// Some good configuration is served. A later failure to reload does not change it.
    pub serving: bool,
    pub draining: bool,
    /// There is nothing to serve, and the settings say that such a pod is not ready.
    pub idle: bool,
    /// The newest configuration is not served, and why.
    pub refused: Option<String>,
    /// Where varnishd's shared memory is: logs and counters.
    pub varnishd_dir: Option<Arc<Path>>,
    /// Who reads that log.
    pub log_readers: Arc<Readers>,
    pub(crate) tally: Arc<Tally>,
    /// varnishd's own, by socket name.
    pub sockets: Vec<(String, SocketAddr)>,
    /// The front's.
    pub front_sockets: Vec<(String, SocketAddr)>,
    /// Sockets that could not be opened, and why.
    pub closed: Vec<(String, String)>,
    /// ghost's control socket, while varnishd is there.
    pub control: Option<Control>,
    /// [`crate::Desired::tag`] of the newest configuration that is served in all its parts.
    pub served: Option<Arc<str>>,
    /// What is served now, in full.
    pub configuration: Configuration,
    /// The newest change of configuration that is served.
    pub last_change: Option<Arc<Change>>,
    /// What was fed last, and the sockets of the front that belong to it.
    pub(crate) fed: Option<(Option<Arc<str>>, Vec<String>, Steps)>,
}

impl State {
    pub fn ready(&self) -> bool {
        self.serving && !self.draining && !self.idle
    }

    /// Endpoints that get no requests from the front for now, since they failed several times in a row.
    pub fn avoided_endpoints(&self) -> Vec<SocketAddr> {
        self.tally.avoided_endpoints()
    }

    /// The last request for this URL that the cache did not answer alone, where the front carries HTTP and remembers it.
    pub fn last_uncached(&self, host: &str, url: &str) -> Option<front::Uncached> {
        self.tally.http()?.last_uncached(host, url)
    }

    /// What was counted of each TCPRoute and UDPRoute.
    pub fn streams(&self) -> Vec<(front::Transport, String, Arc<front::StreamCounters>)> {
        self.tally.clients.streams()
    }

    /// A configuration is served once the front listens where it says.
    fn settle(&mut self) {
        let open = |socket: &String| self.front_sockets.iter().any(|(name, _)| name == socket);
        if let Some((tag, _, steps)) = self.fed.take_if(|(_, sockets, _)| sockets.iter().all(open)) {
            if let Some(change) = steps.end(self.last_change.as_deref()) {
                tracing::debug!(
                    event = "change.served",
                    configuration = tag.as_deref(),
                    "a change is served after {:?}: {:?}",
                    change.took,
                    change.steps
                );
                self.last_change = Some(Arc::new(change));
            }
            if self.served != tag {
                tracing::debug!(
                    event = "change.swapped",
                    configuration = tag.as_deref(),
                    "a new configuration is served"
                );
            }
            self.served = tag;
        }
    }
}

type Listener = dyn Fn(&Event) + Send + Sync;

/// Hands events to listeners, and keeps the state that follows from them.
#[derive(Clone)]
pub struct Reporter {
    listener: Arc<Listener>,
    state: watch::Sender<State>,
    /// What the front counts.
    pub(crate) clients: Arc<front::Counters>,
    pub(crate) backends: Arc<front::BackendCounters>,
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}

impl Reporter {
    pub fn new(listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        let state = watch::Sender::<State>::default();
        let tally = Arc::clone(&state.borrow().tally);
        Self {
            listener: Arc::new(listener),
            state,
            clients: Arc::clone(&tally.clients),
            backends: Arc::clone(&tally.backends),
        }
    }

    /// Is there nothing to serve?
    pub fn set_idle(&self, idle: bool) {
        self.state.send_if_modified(|state| std::mem::replace(&mut state.idle, idle) != idle);
    }

    /// The state, now and whenever it changes.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(crate) fn log_readers(&self) -> Arc<Readers> {
        Arc::clone(&self.state.borrow().log_readers)
    }

    /// Where varnishd keeps its shared memory.
    pub(crate) fn works_in(&self, varnishd_dir: &Path) {
        self.state.send_modify(|state| state.varnishd_dir = Some(Arc::from(varnishd_dir)));
    }

    /// Where ghost listens from now on.
    pub(crate) fn control(&self, control: Option<Control>) {
        self.state.send_modify(|state| state.control = control);
    }

    /// ghost routes by this from now on.
    pub(crate) fn routes_by(&self, ghost: &Ghost) {
        self.state.send_modify(|state| state.configuration.ghost = Some(ghost.clone()));
    }

    /// The front has these listeners and certificates from now on.
    pub(crate) fn shows(&self, tls: &Arc<front::Config>) {
        self.state.send_if_modified(|state| {
            let new = !Arc::ptr_eq(&state.configuration.tls, tls);
            state.configuration.tls = Arc::clone(tls);
            new
        });
    }

    /// varnishd has accepted a configuration, and the front has received these sockets.
    pub(crate) fn fed(&self, tag: Option<Arc<str>>, sockets: Vec<String>, steps: Steps) {
        self.state.send_modify(|state| {
            state.fed = Some((tag, sockets, steps));
            state.settle();
        });
    }

    /// A failing operation is retried again and again: the same reason is reported once.
    pub fn tell(&self, event: &Event) {
        self.state.borrow().tally.note(event);
        let mut new = true;
        self.state.send_modify(|state| match event {
            Event::Serving { sockets } => {
                (state.serving, state.draining) = (true, false);
                state.sockets.clone_from(sockets);
                state.closed.retain(|(socket, _)| sockets.iter().all(|(open, _)| open != socket));
            }
            Event::Restarted => state.serving = true,
            Event::Reloaded { .. } | Event::VclReloaded { .. } => state.refused = None,
            Event::Recovered => new = state.refused.take().is_some(),
            Event::Refused { why, .. } | Event::CannotStart { why, .. } => {
                new = state.refused.replace(why.clone()).as_ref() != Some(why);
            }
            Event::Died { .. } | Event::Stopped => state.serving = false,
            Event::Draining => new = !std::mem::replace(&mut state.draining, true),
            Event::Listening { socket, address } => {
                state.front_sockets.push((socket.clone(), *address));
                state.closed.retain(|(closed, _)| closed != socket);
                state.settle();
            }
            Event::Closed { socket } => {
                state.front_sockets.retain(|(name, _)| name != socket);
                state.closed.retain(|(closed, _)| closed != socket);
            }
            Event::NotListening { socket, why } => {
                state.closed.retain(|(closed, _)| closed != socket);
                state.closed.push((socket.clone(), why.clone()));
            }
            Event::Restarting { .. } | Event::BackendTls { .. } => {}
        });
        if new {
            (self.listener)(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn the_same_reason_is_told_once_until_something_works() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let reporter = Reporter::new({
            let told = Arc::clone(&told);
            move |event| told.lock().unwrap().push(format!("{event:?}"))
        });
        let refused = |why: &str| reporter.tell(&Event::Refused { why: why.to_owned(), serving: true });
        refused("a");
        refused("a");
        refused("b");
        reporter.tell(&Event::VclReloaded { took: Duration::ZERO });
        refused("b");
        assert_eq!(told.lock().unwrap().len(), 4);
        assert_eq!(reporter.state().borrow().refused.as_deref(), Some("b"));
    }

    #[test]
    fn a_configuration_is_served_once_all_its_sockets_are_open() {
        let reporter = Reporter::new(|_| {});
        let served = || reporter.state().borrow().served.clone();
        reporter.fed(Some("one".into()), Vec::new(), Steps::default());
        assert_eq!(served().as_deref(), Some("one"));
        reporter.fed(Some("two".into()), vec!["https-443".to_owned()], Steps::default());
        assert_eq!(served().as_deref(), Some("one"));
        let address = ([127, 0, 0, 1], 443).into();
        reporter.tell(&Event::Listening { socket: "https-443".to_owned(), address });
        assert_eq!(served().as_deref(), Some("two"));
    }

    #[test]
    fn a_failed_reload_does_not_end_readiness_and_draining_does() {
        let reporter = Reporter::new(|_| {});
        let ready = || reporter.state().borrow().ready();
        assert!(!ready());
        reporter.tell(&Event::Serving { sockets: Vec::new() });
        reporter.tell(&Event::Refused { why: "a".to_owned(), serving: true });
        assert!(ready());
        reporter.tell(&Event::Draining);
        assert!(!ready());
        // Drained to be started again.
        reporter.tell(&Event::Serving { sockets: Vec::new() });
        assert!(ready());
    }
}
