//! One UDP listener: sessions between clients and endpoints.
//!
//! Each thread has a socket of its own on the port, and the kernel gives all datagrams of one client to the same one: sessions
//! never cross threads. A session has a connected socket, so that it relays no answer but its endpoint's.
//!
//! What forged source addresses can take is bounded: sessions by [`crate::UdpLimits`] and [`ALL_SESSIONS`], new ones within a
//! second by the rules of the [`table`] and [`lane`]. Beyond, a datagram of an unknown client costs one lookup.

mod lane;
mod session;
mod table;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use self::lane::Lane;
use super::Target;
use crate::bind::{bind_udp, udp_advice};
use crate::run::Shared;
use crate::{Event, lanes};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Sessions of all listeners together. Each needs a port of its own towards endpoints, and Linux has 28,232 for that by
/// default, also for others.
const ALL_SESSIONS: usize = 20_480;

/// This part of all sessions is reserved for listeners with few sessions, in equal shares: a flood on other listeners cannot take it.
const RESERVE: usize = 4;

/// Where new sessions go.
pub(crate) type Targets = watch::Receiver<Arc<Target>>;

/// A listener of the configuration.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) socket: Arc<str>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

/// Sessions that are open.
#[derive(Debug)]
pub(crate) struct AllSessions {
    count: Arc<AtomicUsize>,
    most: usize,
    listeners: Arc<AtomicUsize>,
}

impl AllSessions {
    /// How many sessions there may be for a listener with `count` of them to begin another.
    fn most_for(&self, count: usize) -> usize {
        let listeners = self.listeners.load(Ordering::Relaxed).max(1);
        let reserve = self.most / RESERVE;
        if listeners == 1 || count < reserve / listeners { self.most } else { self.most - reserve }
    }

    fn listens(&self) -> Listens {
        self.listeners.fetch_add(1, Ordering::Relaxed);
        Listens(Arc::clone(&self.listeners))
    }
}

/// One listener of those that share all sessions, until it is dropped.
#[derive(Debug)]
struct Listens(Arc<AtomicUsize>);

impl Drop for Listens {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for AllSessions {
    fn default() -> Self {
        // Accepted connections need descriptors, too.
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4;
        let most = usize::try_from(descriptors).unwrap_or(usize::MAX).min(ALL_SESSIONS);
        Self { count: Arc::default(), most, listeners: Arc::default() }
    }
}

/// The right to one session. Given back when dropped.
#[derive(Debug)]
struct Room([Arc<AtomicUsize>; 2]);

impl Room {
    fn take(of_listener: &Arc<AtomicUsize>, most: usize, all: &AllSessions) -> Option<Self> {
        let below = |most: usize| move |count: usize| (count < most).then_some(count + 1);
        let order = Ordering::Relaxed;
        let here = of_listener.fetch_update(order, order, below(most)).ok()?;
        if all.count.fetch_update(order, order, below(all.most_for(here))).is_err() {
            of_listener.fetch_sub(1, order);
            return None;
        }
        Some(Self([Arc::clone(of_listener), Arc::clone(&all.count)]))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Listens until the sender of `targets` is gone. When the gateway stops, sessions are served until they are silent.
pub(crate) async fn listen(port: Port, shared: Arc<Shared>, mut targets: Targets) {
    let opened = tokio::select! {
        opened = open(&port, &shared) => opened,
        () = closed(&mut targets) => return,
    };
    let (address, sockets) = opened;
    let listens = shared.sessions.listens();
    let (alive, mut all_gone) = mpsc::channel::<Infallible>(1);
    let sessions = Arc::new(AtomicUsize::new(0));
    let Port { socket: name, .. } = port;
    for (number, socket) in sockets.into_iter().enumerate() {
        let (name, shared, targets) = (Arc::clone(&name), Arc::clone(&shared), targets.clone());
        let (sessions, alive) = (Arc::clone(&sessions), alive.clone());
        lanes::spawn_on(number, async move {
            if let Ok(lane) = Lane::new(name, socket, sessions, shared, alive) {
                lane.run(targets).await;
            }
        });
    }
    drop((alive, targets));
    (shared.reporter)(Event::Listening { socket: name.to_string(), address });
    while all_gone.recv().await.is_some() {}
    drop(listens);
    (shared.reporter)(Event::Closed { socket: name.to_string() });
}

async fn closed(targets: &mut Targets) {
    while targets.changed().await.is_ok() {}
}

/// Tries until the port can be had.
async fn open(port: &Port, shared: &Shared) -> (SocketAddr, Vec<UdpSocket>) {
    let mut pause = FIRST_PAUSE;
    let mut told = String::new();
    loop {
        match bind_udp(port.address, port.port, lanes::count()) {
            Ok(opened) => return opened,
            Err(e) => {
                let why = udp_advice(&e, port.port);
                if why != told {
                    let socket = port.socket.to_string();
                    (shared.reporter)(Event::CannotListen { socket, why: why.clone() });
                    told = why;
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_limited_by_the_listener_and_by_all_and_given_back() {
        let all = AllSessions { count: Arc::default(), most: 3, listeners: Arc::default() };
        let (one, other) = (Arc::default(), Arc::default());
        let first = Room::take(&one, 2, &all);
        let second = Room::take(&one, 2, &all);
        assert!(first.is_some() && second.is_some());
        assert!(Room::take(&one, 2, &all).is_none());
        let third = Room::take(&other, 2, &all);
        assert!(third.is_some());
        assert!(Room::take(&other, 2, &all).is_none());
        drop(first);
        assert!(Room::take(&other, 2, &all).is_some());
        drop((second, third));
        assert_eq!((one.load(Ordering::Relaxed), all.count.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn listeners_that_are_flooded_leave_each_other_one_its_share() {
        let all = AllSessions { count: Arc::default(), most: 400, listeners: Arc::default() };
        let fill = |listener: &Arc<AtomicUsize>, most: usize| -> Vec<Room> {
            std::iter::from_fn(|| Room::take(listener, most, &all)).collect()
        };
        let alone = all.listens();
        let one = Arc::default();
        assert_eq!(fill(&one, 1000).len(), 400, "a listener alone may have all");
        let _others: Vec<Listens> = (0..3).map(|_| all.listens()).collect();
        let (two, three, four) = (Arc::default(), Arc::default(), Arc::default());
        let flooded = [fill(&one, 1000), fill(&two, 1000)];
        // The first two take three quarters, and the second one its share of the rest.
        assert_eq!(flooded.each_ref().map(Vec::len), [300, 25]);
        assert_eq!(fill(&three, 1000).len(), 25);
        let of_four = fill(&four, 10);
        assert_eq!(of_four.len(), 10, "its own limit holds as before");
        drop((flooded, of_four, alone));
        assert_eq!(all.count.load(Ordering::Relaxed), 0);
        assert_eq!(all.listeners.load(Ordering::Relaxed), 3);
    }
}
