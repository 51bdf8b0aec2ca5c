//! VarnishCacheInvalidations in files: each is carried out once, when it appears.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{VarnishCacheInvalidation, VarnishCacheInvalidationSpec};
use chaperone::State;
use dashboard::Board;
use model::invalidation::Outcome;
use tokio::sync::watch;
use translate::snapshot::Objects;
use translate::{Key, invalidation};

/// A varnishd that starts takes its time.
const START: Duration = Duration::from_secs(60);

/// Those that were carried out and are still there. One that goes and comes back is a new one, and so is another content.
#[derive(Default)]
pub(crate) struct Seen {
    all: BTreeMap<Key, VarnishCacheInvalidationSpec>,
    begun: bool,
}

/// One that was not seen before.
pub(crate) struct New {
    pub(crate) key: Key,
    pub(crate) one: Arc<VarnishCacheInvalidation>,
    /// It was there when we began, with an empty cache. It may have been carried out by those before us.
    pub(crate) is_old: bool,
}

impl Seen {
    pub(crate) fn new_ones(&mut self, now: &Objects<VarnishCacheInvalidation>) -> Vec<New> {
        let is_old = !std::mem::replace(&mut self.begun, true);
        self.all.retain(|key, _| now.contains_key(key));
        let is_new =
            |(key, one): &(&Key, &Arc<VarnishCacheInvalidation>)| self.all.get(*key) != Some(&one.spec);
        let new = |(key, one): (&Key, &Arc<VarnishCacheInvalidation>)| New {
            key: key.clone(),
            one: Arc::clone(one),
            is_old,
        };
        let new: Vec<_> = now.iter().filter(is_new).map(new).collect();
        self.all.extend(new.iter().map(|new| (new.key.clone(), new.one.spec.clone())));
        new
    }
}

/// Carries it out, and prints the result.
pub(crate) async fn carry_out(
    key: Key,
    one: Arc<VarnishCacheInvalidation>,
    mut state: watch::Receiver<State>,
    board: Arc<Board>,
) {
    // An error: it ended. The call below says so.
    let _ = tokio::time::timeout(START, state.wait_for(|state| state.control.is_some())).await;
    let order = invalidation::order(&one.spec);
    let outcomes = chaperone::invalidate(&state, std::slice::from_ref(&order)).await;
    let outcomes = outcomes.first().map_or(&[][..], Vec::as_slice);
    board.invalidated(&format!("{}/{}", key.namespace, one.spec.gateway_ref.name), &order, outcomes);
    tell(&key, &one.spec, outcomes);
}

fn tell(key: &Key, spec: &VarnishCacheInvalidationSpec, outcomes: &[Outcome]) {
    let summary = invalidation::summary(spec.kind, outcomes);
    if outcomes.iter().all(|outcome| outcome.error.is_none()) {
        tracing::info!(
            event = "invalidated",
            object = %format_args!("VarnishCacheInvalidation {key}"),
            "VarnishCacheInvalidation {key}: Complete: {summary}"
        );
        return;
    }
    let names = spec.paths.iter().flatten().chain(spec.tags.iter().flatten());
    let bad: Vec<String> = names
        .zip(outcomes)
        .filter_map(|(name, outcome)| Some(format!("\n  {name}: {}", outcome.error.as_ref()?)))
        .collect();
    failed(key, &format!("{summary}{}", bad.concat()));
}

/// Nothing that it could mean is in the cache yet.
pub(crate) fn needless(key: &Key) {
    tracing::info!(
        event = "invalidated",
        object = %format_args!("VarnishCacheInvalidation {key}"),
        "VarnishCacheInvalidation {key}: Complete: it was there at the start, and the cache is empty then"
    );
}

pub(crate) fn failed(key: &Key, why: &str) {
    tracing::warn!(
        event = "not-invalidated",
        object = %format_args!("VarnishCacheInvalidation {key}"),
        "VarnishCacheInvalidation {key}: Failed: {why}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(all: &[(&str, &str)]) -> Objects<VarnishCacheInvalidation> {
        all.iter()
            .map(|(name, path)| {
                let mut one = VarnishCacheInvalidation::default();
                one.spec.paths = Some(vec![(*path).to_owned()]);
                (Key::new("ns", *name), Arc::new(one))
            })
            .collect()
    }

    #[test]
    fn each_is_new_once() {
        let mut seen = Seen::default();
        let mut names = |all: &[(&str, &str)]| -> Vec<String> {
            let name = |new: New| format!("{}{}", new.key.name, if new.is_old { " is old" } else { "" });
            seen.new_ones(&objects(all)).into_iter().map(name).collect()
        };
        assert_eq!(names(&[("a", "/1")]), ["a is old"]);
        assert_eq!(names(&[("a", "/1"), ("b", "/1")]), ["b"]);
        assert_eq!(names(&[("a", "/2"), ("b", "/1")]), ["a"]);
        assert!(names(&[("b", "/1")]).is_empty());
        assert_eq!(names(&[("a", "/2"), ("b", "/1")]), ["a"]);
    }
}
