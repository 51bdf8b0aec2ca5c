//! The counters of ghost, for the parts that show them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::stats::Stats;
use tokio::sync::watch;

use crate::{State, reload};

const EVERY: Duration = Duration::from_secs(1);
/// Of the time that we spend on it: thousands of routes take their while to be written and read.
const REST: u32 = 30;

/// The numbers at one time.
#[derive(Debug, Clone)]
pub struct Sample {
    pub at: Instant,
    pub stats: Arc<Stats>,
}

/// The numbers of now: ghost's, and the front's of what ghost did not see. `None` while neither serves.
pub async fn read(state: &watch::Receiver<State>) -> Option<Sample> {
    // Not within the call below: a change of the state must not wait for ghost.
    let (control, tally) = (state.borrow().control.clone(), Arc::clone(&state.borrow().tally));
    let of_ghost = match control {
        Some(control) => reload::stats(&control).await.ok(),
        None => None,
    };
    let of_front =
        tally.http_stats().filter(|stats| stats.per_route || stats.in_flight + stats.ejections > 0);
    let stats = match (of_ghost, of_front) {
        (Some(mut stats), Some(of_front)) => {
            stats.add(&of_front);
            stats
        }
        (stats, of_front) => stats.or(of_front)?,
    };
    Some(Sample { at: Instant::now(), stats: Arc::new(stats) })
}

/// The numbers of each second, as long as the returned receiver is held; less often where there are thousands of routes.
/// Begins to read with the call; `None` while varnishd is not there.
pub fn watch(state: watch::Receiver<State>) -> watch::Receiver<Option<Sample>> {
    let (to, samples) = watch::channel(None);
    tokio::spawn(async move {
        loop {
            let begun = Instant::now();
            let sample = read(&state).await;
            if to.send(sample).is_err() {
                return;
            }
            let pause = EVERY.max(begun.elapsed() * REST).saturating_sub(begun.elapsed());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = to.closed() => return,
            }
        }
    });
    samples
}
