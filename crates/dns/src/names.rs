//! The names that are wanted, and what is known of them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::address::{Refused, refused};
use crate::lookup::{self, Answer};
use crate::{MOST_ADDRESSES, MOST_NAMES, Settings, counts};

/// Questions to DNS at once.
const AT_ONCE: usize = 16;

/// A name to look up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub host: String,
    /// Private addresses are refused.
    pub public_only: bool,
}

/// Names, each with the Services that have it (`namespace/name`), for messages.
pub type Wanted = BTreeMap<Name, BTreeSet<String>>;

/// Addresses of names that were looked up at least once, sorted. Empty: there is none that may be used.
pub type Known = BTreeMap<Name, Arc<[IpAddr]>>;

/// Looks names up, in a task of its own, as long as it lives.
#[derive(Debug)]
pub struct Names {
    wanted: watch::Sender<Wanted>,
    known: watch::Receiver<Known>,
}

impl Names {
    /// Must be called in a runtime of tokio.
    pub fn start(settings: Settings) -> Self {
        let (wanted, mut asked) = watch::channel(Wanted::new());
        let (to, known) = watch::channel(Known::new());
        tokio::spawn(async move {
            // A panic must not end it: the last addresses would be used for ever.
            while tasks::panicked("the lookup of external names", run(&settings, &mut asked, &to)).await {}
        });
        Self { wanted, known }
    }

    /// These names, and no others.
    pub fn want(&self, mut names: Wanted) {
        while names.len() > MOST_NAMES {
            names.pop_last();
        }
        self.wanted.send_if_modified(|old| {
            let differs = *old != names;
            *old = names;
            differs
        });
    }

    /// Tells of every change of [`Self::known`].
    pub fn changes(&self) -> watch::Receiver<Known> {
        self.known.clone()
    }

    pub fn known(&self) -> Known {
        self.known.borrow().clone()
    }

    /// Waits until all wanted names were looked up once, with or without success, or until the time is over.
    pub async fn settle(&self, patience: Duration) {
        let wanted: Vec<Name> = self.wanted.borrow().keys().cloned().collect();
        let mut known = self.known.clone();
        let all = known.wait_for(|known| wanted.iter().all(|name| known.contains_key(name)));
        let _ = tokio::time::timeout(patience, all).await;
    }
}

/// What is known of one name.
#[derive(Debug)]
struct State {
    /// `None` until the first answer.
    addresses: Option<Arc<[IpAddr]>>,
    /// When the last good answer came.
    good_at: Option<Instant>,
    failures: u32,
    next: Instant,
    asking: bool,
    /// What was last said of it, so that it is said once.
    said: Option<String>,
}

async fn run(settings: &Settings, wanted: &mut watch::Receiver<Wanted>, to: &watch::Sender<Known>) {
    let mut states: BTreeMap<Name, State> = BTreeMap::new();
    let mut lookups: JoinSet<(Name, Answer)> = JoinSet::new();
    let mut resolver: Option<TokioResolver> = None;
    loop {
        let names = wanted.borrow_and_update().clone();
        counts::names(names.len());
        take(&mut states, &names);
        // One that panicked has not said whose it was.
        if lookups.is_empty() {
            states.values_mut().for_each(|state| state.asking = false);
        }
        publish(&states, to);
        let now = Instant::now();
        let due = states.iter_mut().filter(|(_, state)| !state.asking && state.next <= now);
        for (name, state) in due.take(AT_ONCE.saturating_sub(lookups.len())) {
            if resolver.is_none() {
                resolver = lookup::resolver(settings)
                    .inspect_err(|error| {
                        tracing::warn!("cannot query DNS: {error}; check /etc/resolv.conf");
                    })
                    .ok();
            }
            state.asking = true;
            let (name, resolver) = (name.clone(), resolver.clone());
            lookups.spawn(async move {
                let answer = match resolver {
                    Some(resolver) => lookup::ask(&resolver, &name.host).await,
                    None => Answer::Failed("no server of DNS is known".to_owned()),
                };
                (name, answer)
            });
        }
        let next = states.values().filter(|state| !state.asking).map(|state| state.next).min();
        let pause = next.map_or(Duration::from_secs(3600), |next| next.saturating_duration_since(now));
        let is_full = lookups.len() >= AT_ONCE;
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            Some(done) = lookups.join_next() => {
                let Ok((name, answer)) = done else { continue };
                if matches!(answer, Answer::Failed(_)) {
                    resolver = None;
                }
                if let Some(state) = states.get_mut(&name) {
                    state.take(&name, answer, settings, names.get(&name));
                }
            }
            () = tokio::time::sleep(pause), if !is_full => {}
        }
    }
}

/// Names that are new are asked for at once; those that are not wanted are forgotten.
fn take(states: &mut BTreeMap<Name, State>, wanted: &Wanted) {
    states.retain(|name, _| wanted.contains_key(name));
    for name in wanted.keys().filter(|name| !states.contains_key(name)).cloned().collect::<Vec<_>>() {
        let state = State {
            addresses: None,
            good_at: None,
            failures: 0,
            next: Instant::now(),
            asking: false,
            said: None,
        };
        states.insert(name, state);
    }
}

fn publish(states: &BTreeMap<Name, State>, to: &watch::Sender<Known>) {
    let known: Known = states
        .iter()
        .filter_map(|(name, state)| Some((name.clone(), Arc::clone(state.addresses.as_ref()?))))
        .collect();
    to.send_if_modified(|old| {
        let differs = *old != known;
        *old = known;
        differs
    });
}

impl State {
    fn take(
        &mut self,
        name: &Name,
        answer: Answer,
        settings: &Settings,
        services: Option<&BTreeSet<String>>,
    ) {
        let times = settings.times;
        let now = Instant::now();
        self.asking = false;
        let host = &name.host;
        match answer {
            Answer::Addresses { addresses, ttl } => {
                let (good, bad) = judge(addresses, name, settings);
                counts::answered(bad.len());
                let mut said = None;
                if !bad.is_empty() {
                    let bad: Vec<String> = bad.iter().map(|(one, why)| format!("{one} ({why})")).collect();
                    said = Some(format!("{host} has addresses that are refused: {}", bad.join(", ")));
                } else if good.len() > MOST_ADDRESSES {
                    said = Some(format!(
                        "{host} has {} addresses, of which {MOST_ADDRESSES} are used",
                        good.len()
                    ));
                }
                self.say(services, said);
                self.addresses = Some(good.into_iter().take(MOST_ADDRESSES).collect());
                (self.good_at, self.failures) = (Some(now), 0);
                self.next = now + ttl.clamp(times.floor, times.ceiling);
            }
            Answer::NoAddress => {
                counts::no_address();
                self.say(services, Some(format!("{host} has no address in DNS: correct spec.externalName")));
                self.addresses = Some(Arc::default());
                self.good_at = None;
                self.back_off(now, settings);
            }
            Answer::Failed(why) => {
                counts::failed();
                let is_kept = self.good_at.is_some_and(|at| now.duration_since(at) < times.keep);
                let kept = if is_kept { "; its last addresses stay in use" } else { "" };
                if !is_kept {
                    self.addresses = Some(Arc::default());
                }
                self.say(services, Some(format!("{host} cannot be looked up: {why}{kept}")));
                self.back_off(now, settings);
                // In time for the end of what is kept.
                if let Some(at) = self.good_at.filter(|_| is_kept) {
                    self.next = self.next.min(at + times.keep);
                }
            }
        }
    }

    fn back_off(&mut self, now: Instant, settings: &Settings) {
        let (first, most) = settings.times.retry;
        self.next = now + first.saturating_mul(1 << self.failures.min(16)).min(most);
        self.failures = self.failures.saturating_add(1);
    }

    /// Each news once, with the Services that it is about.
    fn say(&mut self, services: Option<&BTreeSet<String>>, news: Option<String>) {
        if self.said == news {
            return;
        }
        let names: Vec<&str> = services.into_iter().flatten().map(String::as_str).collect();
        let names = names.join(", ");
        match &news {
            Some(news) => tracing::warn!(event = "external-name", service = names, "Service {names}: {news}"),
            None => tracing::info!(
                event = "external-name",
                service = names,
                "Service {names}: its name is looked up again without a problem"
            ),
        }
        self.said = news;
    }
}

/// Those that may be used, sorted, and those that may not.
fn judge(addresses: Vec<IpAddr>, name: &Name, settings: &Settings) -> (Vec<IpAddr>, Vec<(IpAddr, Refused)>) {
    let all: BTreeSet<IpAddr> = addresses.into_iter().map(|address| address.to_canonical()).collect();
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for address in all {
        match refused(address, name.public_only, settings.allow_loopback) {
            None => good.push(address),
            Some(why) => bad.push((address, why)),
        }
    }
    (good, bad)
}
