//! The part of a UDP listener that one thread serves.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::session::{Session, connect, send, send_to};
use super::table::{Silence, Table};
use super::{Room, Targets};
use crate::http::is_exhausted;
use crate::run::Shared;
use crate::stream::log::Ended;
use crate::stream::{Target, Transport};
use crate::{Loss, Shutdown};

/// The largest datagram.
const LARGEST: usize = 64 << 10;

/// Datagrams that are taken from a socket before others have their turn.
const BATCH: usize = 32;

/// Sessions that one thread may begin within a second, even where the table has room for fewer.
const LEAST_NEW: usize = 1024;

/// How often sessions that are silent for too long are looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Once the gateway is to stop, sessions end when they are silent for this time.
const DRAIN_SILENCE: Duration = Duration::from_secs(5);

/// After an error of the listening socket.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; LARGEST].into_boxed_slice());
}

#[derive(Debug)]
pub(super) struct Lane {
    name: Arc<str>,
    socket: UdpSocket,
    /// Of all lanes of the listener.
    count: Arc<AtomicUsize>,
    shared: Arc<Shared>,
    /// Never contended: all who use it run on this thread.
    table: Mutex<Table<Session>>,
    /// Sessions that began since this time.
    begun: Mutex<(u64, usize)>,
    began: Instant,
    /// Closed once the socket is.
    _alive: mpsc::Sender<Infallible>,
}

/// What a socket said.
enum Taken {
    /// It has no more.
    All,
    /// It may have more.
    Batch,
    Failed(io::Error),
}

impl Lane {
    /// To be called on the thread that serves it.
    pub(super) fn new(
        name: Arc<str>,
        socket: StdSocket,
        count: Arc<AtomicUsize>,
        shared: Arc<Shared>,
        alive: mpsc::Sender<Infallible>,
    ) -> io::Result<Arc<Self>> {
        let socket = UdpSocket::from_std(socket)?;
        let (table, begun, began) = (Mutex::default(), Mutex::default(), Instant::now());
        Ok(Arc::new(Self { name, socket, count, shared, table, begun, began, _alive: alive }))
    }

    /// Until the listener is closed; where the gateway stops, until sessions are silent, or must end now.
    pub(super) async fn run(self: Arc<Self>, mut targets: Targets) {
        let mut shutdown = self.shared.shutdown.clone();
        let now = async {
            if shutdown.wait_for(|asked| *asked == Shutdown::Now).await.is_err() {
                pending::<()>().await;
            }
        };
        let name = format!("the listener {}", self.name);
        let served = async { while tasks::panicked(&name, self.serve(&mut targets)).await {} };
        tokio::select! {
            () = now => {}
            () = served => {}
        }
        let clients: Vec<SocketAddr> = self.table().sessions().map(|(client, _)| *client).collect();
        for client in clients {
            self.end(client, None);
        }
    }

    async fn serve(self: &Arc<Self>, targets: &mut Targets) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_open = true;
        loop {
            tokio::select! {
                changed = targets.changed(), if is_open => {
                    is_open = changed.is_ok();
                    if !is_open && *self.shared.shutdown.borrow() == Shutdown::Run {
                        // The listener is gone, and its sessions with it.
                        return;
                    }
                    let target = Arc::clone(&targets.borrow_and_update());
                    self.keep(&target);
                }
                _ = look.tick() => {
                    let is_draining = targets.borrow().drains;
                    self.expire(is_draining);
                    if !is_open && self.table().len() == 0 {
                        return;
                    }
                }
                ready = self.socket.readable() => {
                    let target = Arc::clone(&targets.borrow());
                    match ready.map(|()| self.take_datagrams(&target)) {
                        Ok(Taken::All) => {}
                        Ok(Taken::Batch) => tokio::task::yield_now().await,
                        Ok(Taken::Failed(_)) | Err(_) => sleep(ERROR_PAUSE).await,
                    }
                }
            }
        }
    }

    fn take_datagrams(self: &Arc<Self>, target: &Arc<Target>) -> Taken {
        let now = self.now();
        BUFFER.with_borrow_mut(|buffer| {
            for _ in 0..BATCH {
                match self.socket.try_recv_from(buffer) {
                    Ok((length, client)) => {
                        self.from_client(client, buffer.get(..length).unwrap_or_default(), target, now);
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => return Taken::All,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Taken::Failed(e),
                }
            }
            Taken::Batch
        })
    }

    fn from_client(self: &Arc<Self>, client: SocketAddr, bytes: &[u8], target: &Arc<Target>, now: u64) {
        {
            let mut table = self.table();
            let Some(session) = table.client_sent(&client, now) else {
                drop(table);
                return self.begin(client, bytes, target, now);
            };
            let sent = send(&session.socket, bytes);
            match sent {
                Ok(_) => {
                    session.up = (session.up.0 + 1, session.up.1 + bytes.len() as u64);
                    session.target.counters.datagram_from_client(bytes.len());
                    return;
                }
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                    session.target.refused(session.endpoint);
                    target.refused(session.endpoint);
                }
                Err(_) => return session.target.counters.lost(Loss::NotSent),
            }
        }
        // Nothing listens there any more: another endpoint gets it.
        self.end(client, Some(Loss::Unreachable));
        self.begin(client, bytes, target, now);
    }

    /// The first datagram of a session.
    fn begin(self: &Arc<Self>, client: SocketAddr, bytes: &[u8], target: &Arc<Target>, now: u64) {
        if let Err(why) = self.try_begin(client, bytes, target, now) {
            target.counters.lost(why);
        }
    }

    fn try_begin(
        self: &Arc<Self>,
        client: SocketAddr,
        bytes: &[u8],
        target: &Arc<Target>,
        now: u64,
    ) -> Result<(), Loss> {
        let (group, endpoints) = target.pick()?;
        if endpoints.is_empty() {
            if target.tells_of_none() {
                let why = "it has no endpoint that is ready".to_owned();
                self.shared.trouble.ill(&group.name, None, why);
            }
            return Err(Loss::NoEndpoint);
        }
        let gate = self.shared.gate.load();
        let limits = &gate.limits;
        self.pace(limits.udp.sessions, now)?;
        let place = match limits.connections_per_address {
            None => None,
            Some(most) => {
                let place = self.shared.addresses.enter_owned(client.ip(), most);
                Some(place.ok_or(Loss::PerAddress)?)
            }
        };
        let room = || Room::take(&self.count, limits.udp.sessions, &self.shared.sessions);
        let room = room().or_else(|| {
            let silent = self.table().replace(now);
            if let Some((client, session)) = silent {
                self.ended(client, session, None);
            }
            room()
        });
        let room = room.ok_or(Loss::TableFull)?;
        for endpoint in endpoints {
            let sent = connect(endpoint).and_then(|socket| {
                socket.send(bytes)?;
                UdpSocket::from_std(socket.into())
            });
            let socket = match sent {
                Ok(socket) => Arc::new(socket),
                Err(e) if has_no_socket(&e) => return Err(Loss::Exhausted),
                // The same datagram would be as large for another endpoint.
                Err(e) if is_not_sent(&e) => return Err(Loss::NotSent),
                Err(e) => {
                    target.refused(endpoint);
                    self.shared.trouble.ill(&group.name, Some(endpoint), e.to_string());
                    continue;
                }
            };
            let service: Arc<str> = group.name.as_str().into();
            let answers = answers(Arc::clone(self), client, Arc::clone(&socket), service, endpoint);
            let session = Session {
                socket,
                endpoint,
                target: Arc::clone(target),
                answers: tokio::spawn(answers).abort_handle(),
                began: Instant::now(),
                up: (1, bytes.len() as u64),
                down: (0, 0),
                _room: room,
                _place: place,
                _open: target.counters.opened(),
            };
            target.counters.datagram_from_client(bytes.len());
            self.table().insert(client, session, now);
            return Ok(());
        }
        Err(Loss::Unreachable)
    }

    /// Sessions that end at once, since nothing listens at their endpoint, do not fill the table. This limits them, too.
    fn pace(&self, sessions: usize, now: u64) -> Result<(), Loss> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_sub(begun.0) >= 1_000 {
            *begun = (now, 0);
        }
        begun.1 += 1;
        if begun.1 > sessions.max(LEAST_NEW) { Err(Loss::TooManyNew) } else { Ok(()) }
    }

    /// Answers that are there. None where the session has ended.
    fn take_answers(&self, client: SocketAddr, socket: &Arc<UdpSocket>, service: &str) -> Option<Taken> {
        let now = self.now();
        BUFFER.with_borrow_mut(|buffer| {
            for _ in 0..BATCH {
                let length = match socket.try_recv(buffer) {
                    Ok(length) => length,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => return Some(Taken::All),
                    Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                    Err(e) => return Some(Taken::Failed(e)),
                };
                let mut table = self.table();
                let (is_first, session) = table.endpoint_sent(&client, now)?;
                if !Arc::ptr_eq(&session.socket, socket) {
                    return None;
                }
                if is_first {
                    session.target.answered(session.endpoint);
                    self.shared.trouble.well(service, session.endpoint);
                }
                let bytes = buffer.get(..length).unwrap_or_default();
                let counters = &session.target.counters;
                if send_to(&self.socket, bytes, client).is_err() {
                    counters.lost(Loss::NotSent);
                    continue;
                }
                counters.datagram_to_client(length);
                session.down = (session.down.0 + 1, session.down.1 + length as u64);
            }
            Some(Taken::Batch)
        })
    }

    /// The endpoint said that nothing listens there.
    fn failed(&self, client: SocketAddr, socket: &Arc<UdpSocket>) {
        {
            let table = self.table();
            let Some(session) = table.get(&client).filter(|one| Arc::ptr_eq(&one.socket, socket)) else {
                return;
            };
            session.target.refused(session.endpoint);
        }
        self.end(client, Some(Loss::Unreachable));
    }

    /// Ends sessions whose endpoint the route does not lead to any more: the next datagram of their client finds another one.
    fn keep(&self, target: &Arc<Target>) {
        let gone: Vec<SocketAddr> = {
            let table = self.table();
            let is_gone = |session: &Session| !target.has(&session.target.stream.route, session.endpoint);
            table.sessions().filter(|(_, session)| is_gone(session)).map(|(client, _)| *client).collect()
        };
        for client in gone {
            self.end(client, None);
        }
    }

    fn expire(&self, is_draining: bool) {
        let limits = self.shared.gate.load().limits.udp;
        let silence = if is_draining {
            Silence::new(
                DRAIN_SILENCE.min(limits.idle_timeout),
                DRAIN_SILENCE.min(limits.established_timeout),
            )
        } else {
            Silence::new(limits.idle_timeout, limits.established_timeout)
        };
        let now = self.now();
        loop {
            let Some((client, session)) = self.table().expire(silence, now) else { return };
            self.ended(client, session, None);
        }
    }

    fn end(&self, client: SocketAddr, loss: Option<Loss>) {
        let session = self.table().remove(&client);
        if let Some(session) = session {
            if let Some(loss) = loss {
                session.target.counters.lost(loss);
            }
            self.ended(client, session, loss);
        }
    }

    fn ended(&self, client: SocketAddr, session: Session, loss: Option<Loss>) {
        Ended {
            transport: Transport::Udp,
            client,
            socket: &self.name,
            route: &session.target.stream.route,
            endpoint: Some(session.endpoint),
            took: session.began.elapsed(),
            bytes: (session.up.1, session.down.1),
            datagrams: Some((session.up.0, session.down.0)),
            loss,
        }
        .log(&self.shared);
        drop(session);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn table(&self) -> MutexGuard<'_, Table<Session>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Brings answers to the client until the session ends.
async fn answers(
    lane: Arc<Lane>,
    client: SocketAddr,
    socket: Arc<UdpSocket>,
    service: Arc<str>,
    endpoint: SocketAddr,
) {
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        match lane.take_answers(client, &socket, &service) {
            None => return,
            Some(Taken::All) => {}
            Some(Taken::Batch) => tokio::task::yield_now().await,
            Some(Taken::Failed(e)) => {
                lane.shared.trouble.ill(&service, Some(endpoint), e.to_string());
                return lane.failed(client, &socket);
            }
        }
    }
}

/// No descriptor, no memory, or no port.
fn has_no_socket(error: &io::Error) -> bool {
    is_exhausted(error)
        || matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable | ErrorKind::OutOfMemory)
}

/// The queue is full, or the datagram is too large.
fn is_not_sent(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
        || rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::MSGSIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, D, E, T>(_: fn(A, B, C, D, E) -> T) -> usize {
        size_of::<T>()
    }

    /// What each session takes, beside its socket: a flood can open thousands.
    #[test]
    fn a_session_is_small() {
        assert!(size(answers) <= 512, "{}", size(answers));
        assert!(size_of::<Session>() <= 256, "{}", size_of::<Session>());
    }
}
