//! One port: its socket, and the connections that it accepts.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::bind::{advice, bind};
use crate::connection::{Services, serve};
use crate::http::served_first;
use crate::run::Shared;
use crate::{Event, lanes};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// After an error of accept that others will get too, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A port of the configuration. The hosts are swapped, the rest stays.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) socket: Arc<str>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) services: ArcSwap<Services>,
}

/// Listens and accepts until the other end of `close` is dropped. Those who wait in the backlog by then are still served.
pub(crate) async fn listen(port: Arc<Port>, shared: Arc<Shared>, mut close: oneshot::Receiver<()>) {
    let name = format!("the listener {}", port.socket);
    while tasks::panicked(&name, accept(&port, &shared, &mut close)).await {
        (shared.reporter)(Event::Closed { socket: port.socket.to_string() });
    }
}

async fn accept(port: &Port, shared: &Arc<Shared>, mut close: &mut oneshot::Receiver<()>) {
    let listener = tokio::select! {
        listener = open(port, shared) => listener,
        _ = &mut close => return,
    };
    let mut door = Door { port, shared, trouble: None };
    loop {
        let accepted = tokio::select! {
            biased;
            _ = &mut close => break,
            accepted = async {
                served_first().await;
                listener.accept().await
            } => accepted,
        };
        tokio::select! {
            biased;
            () = door.admit(accepted) => {}
            _ = &mut close => break,
        }
    }
    while let Some(accepted) = at_once(listener.accept()).await {
        if accepted.is_err() || at_once(door.admit(accepted)).await.is_none() {
            break;
        }
    }
    drop(listener);
    (shared.reporter)(Event::Closed { socket: port.socket.to_string() });
}

/// Tries until the port can be had.
async fn open(port: &Port, shared: &Shared) -> TcpListener {
    let mut pause = FIRST_PAUSE;
    let mut told = String::new();
    loop {
        match bind(port.address, port.port).and_then(|listener| Ok((listener.local_addr()?, listener))) {
            Ok((address, listener)) => {
                (shared.reporter)(Event::Listening { socket: port.socket.to_string(), address });
                return listener;
            }
            Err(e) => {
                let why = advice(&e, port.port);
                if why != told {
                    (shared.reporter)(Event::CannotListen {
                        socket: port.socket.to_string(),
                        why: why.clone(),
                    });
                    told = why;
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

struct Door<'a> {
    port: &'a Port,
    shared: &'a Arc<Shared>,
    /// The last reported error of accept.
    trouble: Option<ErrorKind>,
}

impl Door<'_> {
    /// Waits for room, then lets the client in.
    async fn admit(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        match accepted {
            Ok((stream, client)) => {
                self.trouble = None;
                let gate = self.shared.gate.load_full();
                let Some(connection) = gate.enter().await else { return };
                let services = self.port.services.load_full();
                let (socket, shared) = (Arc::clone(&self.port.socket), Arc::clone(self.shared));
                let Ok(stream) = stream.into_std() else { return };
                lanes::spawn(async move {
                    if let Ok(stream) = TcpStream::from_std(stream) {
                        serve(stream, client, socket, services, gate, connection, shared).await;
                    }
                });
            }
            Err(e) if passing(&e) => {}
            Err(e) => {
                if self.trouble.replace(e.kind()) != Some(e.kind()) {
                    let why = format!(
                        "port {}: cannot accept: {e}; are there enough file descriptors?",
                        self.port.port
                    );
                    (self.shared.reporter)(Event::CannotListen { socket: self.port.socket.to_string(), why });
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Errors of one client, not of the socket.
fn passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::Interrupted
    )
}

/// The result, if it is there already.
async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        result = future => Some(result),
        () = std::future::ready(()) => None,
    }
}
