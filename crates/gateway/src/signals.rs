//! Ctrl-C, SIGTERM and a closed terminal: the first drains, the second stops at once.

use chaperone::Shutdown;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Follows the signals from now on.
pub(crate) fn watch_signals() -> std::io::Result<watch::Receiver<Shutdown>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    let (to, state) = watch::channel(Shutdown::Run);
    tokio::spawn(async move {
        for next in [Shutdown::Drain, Shutdown::Now] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            let _ = to.send(next);
        }
        // Tasks that still wait must not see the channel closed.
        std::future::pending::<()>().await;
    });
    Ok(state)
}
