//! `POST /api/purge`, where actions are allowed.

use std::collections::BTreeMap;

use hyper::StatusCode;
use model::invalidation::{Invalidation, Outcome};
use serde::{Deserialize, Serialize};

use crate::answer::{self, Answer};
use crate::board::Board;

/// The most bytes of a question.
pub(crate) const LARGEST: usize = 64 << 10;

#[derive(Debug, Deserialize)]
struct Question {
    /// `namespace/name`; all where absent.
    #[serde(default)]
    gateway: Option<String>,
    #[serde(flatten)]
    invalidation: Invalidation,
}

#[derive(Debug, Serialize)]
struct Done {
    gateway: String,
    summary: String,
    outcomes: Vec<Outcome>,
}

pub(crate) async fn purge(board: &Board, body: &[u8]) -> Answer {
    let bad = |why: &str| answer::error(StatusCode::BAD_REQUEST, why);
    let Question { gateway, mut invalidation } = match serde_json::from_slice(body) {
        Ok(question) => question,
        Err(e) => return bad(&format!("not understood: {e}")),
    };
    invalidation.hostname =
        invalidation.hostname.map(|host| host.to_ascii_lowercase()).filter(|h| !h.is_empty());
    if let Err(why) = translate::invalidation::check(&invalidation) {
        return bad(&why.to_string());
    }
    if invalidation.paths.is_empty() && invalidation.tags.is_empty() {
        return bad("nothing to purge: give paths or tags");
    }
    if invalidation.hostname.is_none() && !invalidation.paths.is_empty() {
        return bad("hostname is missing: whose paths are they?");
    }
    let mut all = BTreeMap::new();
    for watched in board.gateways() {
        if gateway.as_ref().is_some_and(|gateway| *gateway != watched.name) {
            continue;
        }
        let state = watched.state.clone();
        let outcomes = chaperone::invalidate(&state, std::slice::from_ref(&invalidation)).await.pop();
        let outcomes = outcomes.unwrap_or_default();
        board.invalidated(&watched.name, &invalidation, &outcomes);
        let summary = translate::invalidation::summary_of(invalidation.method, &outcomes);
        all.insert(watched.name.clone(), Done { gateway: watched.name.clone(), summary, outcomes });
    }
    if all.is_empty() {
        return answer::error(StatusCode::NOT_FOUND, "no such Gateway runs here");
    }
    answer::json(&all.into_values().collect::<Vec<_>>())
}
