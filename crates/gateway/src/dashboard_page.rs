//! Where the dashboard listens, and to whom it gives way.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chaperone::Severity;
use dashboard::{Board, Door};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::cli::{DashboardArguments, DashboardAt};
use crate::serve::control;

/// The usual port, and how many after it are tried.
const USUAL: u16 = 9000;
const TRIED: u16 = 10;
/// Between tries to get an address that the user asked for.
const RETRY: Duration = Duration::from_secs(5);

pub(crate) fn board(arguments: &DashboardArguments) -> Arc<Board> {
    Board::new(dashboard::Options { allow_actions: arguments.allow_actions })
}

/// Serves the page until it is dropped. Without it, all else works. `ports` are those of the Gateways: they go first.
/// `ours` says which one is the dashboard's.
pub(crate) async fn run(
    arguments: &DashboardArguments,
    board: Arc<Board>,
    mut ports: watch::Receiver<BTreeSet<u16>>,
    ours: watch::Sender<Option<u16>>,
) {
    let at = match arguments.at.unwrap_or(DashboardAt::Usual) {
        DashboardAt::Off => return std::future::pending().await,
        DashboardAt::Usual => None,
        DashboardAt::Here(address) => Some(address),
    };
    let names: Vec<String> = arguments.hosts.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    loop {
        let (listener, address) = listen(at, &mut ports).await;
        ours.send_replace(Some(address.port()));
        let any_address = !address.ip().is_loopback();
        tracing::info!(event = "dashboard", %address, "dashboard: http://{address}/");
        if any_address {
            tracing::warn!("the dashboard can be reached from beyond this machine, and asks for no password");
        }
        let door = Door { names: names.clone(), any_address };
        tokio::select! {
            () = dashboard::serve(listener, door, Arc::clone(&board)) => {}
            wanted = async { ports.wait_for(|ports| ports.contains(&address.port())).await.is_ok() } => {
                if !wanted {
                    return std::future::pending().await;
                }
            }
        }
        ours.send_replace(None);
        let text = format!("the dashboard gives port {} to a listener", address.port());
        tracing::info!(event = "dashboard", "{text}");
        board.journal.record("", Severity::Info, "dashboard", &text);
    }
}

/// The address that was asked for, once it can be had; otherwise the next free port of loopback.
async fn listen(
    at: Option<SocketAddr>,
    ports: &mut watch::Receiver<BTreeSet<u16>>,
) -> (TcpListener, SocketAddr) {
    let mut told = false;
    loop {
        let taken = ports.borrow_and_update().clone();
        let found = match at {
            None => usual(&taken).await,
            Some(at) if taken.contains(&at.port()) => {
                Err(format!("port {} belongs to a listener of a Gateway", at.port()))
            }
            Some(at) => bound(at).await.map_err(|e| e.to_string()),
        };
        match found {
            Ok(found) => return found,
            Err(why) if !told => {
                told = true;
                let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
                tracing::warn!(event = "no-dashboard", "no dashboard{at}: {why} (it is tried again)");
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn usual(taken: &BTreeSet<u16>) -> Result<(TcpListener, SocketAddr), String> {
    let free = (USUAL..USUAL + TRIED).filter(|port| !taken.contains(port));
    for port in free.chain([0]) {
        if let Ok(found) = bound((Ipv4Addr::LOCALHOST, port).into()).await {
            if found.1.port() != USUAL {
                tracing::info!("port {USUAL} is taken: the dashboard has another");
            }
            return Ok(found);
        }
    }
    Err("there is no free port".to_owned())
}

async fn bound(at: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(at).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// The same for our own user's command line, by a socket in the state directory. Without it, all else works.
pub(crate) async fn run_local(state: &Path, board: Arc<Board>) {
    let path = control::api_socket(state);
    match control::listen(&path) {
        Ok(listener) => dashboard::serve_local(listener, board).await,
        Err(e) => {
            tracing::warn!(
                "{}: {e}; `varnish-gateway status` and `top` will not find this process",
                path.display()
            );
            std::future::pending::<()>().await;
        }
    }
}
