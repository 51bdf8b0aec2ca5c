//! Takes objects out of a varnishd's cache, by ghost's control socket.

use std::time::Duration;

use model::invalidation::{Invalidation, MOST_AT_ONCE, Order, Outcome};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{Error, State, reload};

/// A varnishd that starts, or starts again, is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Carries all of them out, few requests for many. Returns for each: the results of its paths, then of its tags.
pub async fn invalidate(state: &watch::Receiver<State>, all: &[Invalidation]) -> Vec<Vec<Outcome>> {
    let deadline = Instant::now() + PATIENCE;
    let mut outcomes: Vec<Vec<Outcome>> = all.iter().map(|_| Vec::new()).collect();
    for Batch { order, of } in batches(all) {
        let counts: Vec<usize> =
            order.invalidations.iter().map(|one| one.paths.len() + one.tags.len()).collect();
        let answers = match send(state, &order, deadline).await {
            Ok(answers) => answers,
            Err(e) => {
                let failed = Outcome { objects: None, error: Some(e) };
                counts.iter().map(|count| vec![failed.clone(); *count]).collect()
            }
        };
        for (at, part) in of.into_iter().zip(answers) {
            outcomes[at].extend(part);
        }
    }
    let failed = outcomes.iter().flatten().filter(|outcome| outcome.error.is_some()).count();
    let all = outcomes.iter().map(Vec::len).sum::<usize>();
    state.borrow().tally.invalidated(all - failed, failed);
    outcomes
}

/// One request, and the invalidation that each of its parts is of.
struct Batch {
    order: Order,
    of: Vec<usize>,
}

/// Cut into pieces that ghost takes, in order.
fn batches(all: &[Invalidation]) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut room = 0;
    for (at, one) in all.iter().enumerate() {
        let empty = || Invalidation {
            method: one.method,
            hostname: one.hostname.clone(),
            owner: one.owner.clone(),
            ..Invalidation::default()
        };
        let (mut paths, mut tags) = (one.paths.as_slice(), one.tags.as_slice());
        while !paths.is_empty() || !tags.is_empty() {
            if room == 0 {
                batches.push(Batch { order: Order::default(), of: Vec::new() });
                room = MOST_AT_ONCE;
            }
            let mut part = empty();
            let (now, later) = paths.split_at(paths.len().min(room));
            (part.paths, paths, room) = (now.to_vec(), later, room - now.len());
            let (now, later) = tags.split_at(tags.len().min(room));
            (part.tags, tags, room) = (now.to_vec(), later, room - now.len());
            if let Some(batch) = batches.last_mut() {
                batch.order.invalidations.push(part);
                batch.of.push(at);
            }
        }
    }
    batches
}

async fn send(
    state: &watch::Receiver<State>,
    order: &Order,
    deadline: Instant,
) -> Result<Vec<Vec<Outcome>>, String> {
    loop {
        // Not within the call below: changing the state must not wait for ghost.
        let control = state.borrow().control.clone();
        let why = match control {
            None => "varnishd does not run".to_owned(),
            Some(control) => match reload::invalidate(&control, order).await {
                Ok(outcomes) if outcomes.outcomes.len() == order.invalidations.len() => {
                    return Ok(outcomes.outcomes);
                }
                Ok(_) => return Err("ghost's answer does not fit the question: this is a bug".to_owned()),
                Err(Error::ReloadRefused { cause }) => return Err(format!("ghost refused: {cause}")),
                // After a restart its cache is empty, and it reports that.
                Err(e) => e.to_string(),
            },
        };
        if Instant::now() >= deadline {
            return Err(why);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: usize, tags: usize) -> Invalidation {
        let name = |n: usize| format!("/{n}");
        Invalidation {
            hostname: Some("a".to_owned()),
            paths: (0..paths).map(name).collect(),
            tags: (0..tags).map(name).collect(),
            ..Invalidation::default()
        }
    }

    #[test]
    fn many_small_ones_are_one_request_and_a_large_one_is_several() {
        assert_eq!(batches(&vec![of(1, 0); 300]).len(), 2);
        let cut = batches(&[of(200, 200), of(0, 1)]);
        let counts: Vec<Vec<(usize, usize)>> = cut
            .iter()
            .map(|batch| {
                batch.order.invalidations.iter().map(|one| (one.paths.len(), one.tags.len())).collect()
            })
            .collect();
        assert_eq!(counts, [vec![(200, 56)], vec![(0, 144), (0, 1)]]);
        assert_eq!(cut[1].of, [0, 1]);
        assert!(batches(&[of(0, 0)]).is_empty());
        let owned = Invalidation { owner: Some("shop".to_owned()), ..of(300, 0) };
        for batch in batches(&[owned]) {
            assert!(batch.order.invalidations.iter().all(|one| one.owner.as_deref() == Some("shop")));
        }
    }
}
