//! What is new since the last time: nobody wants to read everything at every change.

use std::collections::HashSet;
use std::hash::Hash;

use source::files::Problem;
use translate::{Notice, Severity};

use crate::verdict::Verdict;

/// More accepted routes than this at once are only counted.
const LISTED: usize = 50;

#[derive(Default)]
pub(crate) struct News {
    problems: HashSet<Problem>,
    verdicts: HashSet<Verdict>,
    notices: HashSet<Notice>,
    conflicts: HashSet<String>,
    no_gateway: bool,
}

impl News {
    pub(crate) fn problems(&mut self, now: &[Problem]) {
        let subject = |p: &Problem| p.object.clone().unwrap_or_else(|| p.file.clone());
        let still: HashSet<_> = now.iter().map(subject).collect();
        for mended in self.problems.iter().map(subject).collect::<HashSet<_>>().difference(&still) {
            tracing::info!(event = "mended", object = mended, "{mended}: no longer a problem");
        }
        for problem in replace(&mut self.problems, now.iter().cloned()) {
            if problem.is_error() {
                tracing::error!(event = "bad-input", "{problem}");
            } else {
                tracing::warn!(event = "skipped", "{problem}");
            }
        }
    }

    pub(crate) fn verdicts(&mut self, now: Vec<Verdict>) {
        let objects: HashSet<_> = now.iter().map(|v| v.object.clone()).collect();
        let gone: HashSet<_> =
            self.verdicts.iter().filter(|v| !objects.contains(&v.object)).map(|v| v.object.clone()).collect();
        let new = replace(&mut self.verdicts, now.into_iter());
        let (good, bad): (Vec<_>, Vec<_>) = new.into_iter().partition(|v| v.good);
        for Verdict { object, text, .. } in bad {
            tracing::warn!(event = "rejected", object, "{object}: {text}");
        }
        if good.len() > LISTED {
            tracing::info!(event = "accepted", count = good.len(), "{} objects accepted", good.len());
        } else {
            for Verdict { object, text, .. } in good {
                tracing::info!(event = "accepted", object, "{object}: {text}");
            }
        }
        if gone.len() > LISTED {
            tracing::info!(event = "removed", count = gone.len(), "{} objects removed", gone.len());
        } else {
            for object in gone {
                tracing::info!(event = "removed", object, "{object}: removed");
            }
        }
    }

    pub(crate) fn notices(&mut self, now: Vec<Notice>) {
        for notice in replace(&mut self.notices, now.into_iter()) {
            match notice.severity {
                Severity::Warning => tracing::warn!(event = "notice", object = notice.object, "{notice}"),
                Severity::Info => tracing::info!(event = "notice", object = notice.object, "{notice}"),
            }
        }
    }

    pub(crate) fn conflicts<'a>(&mut self, now: impl Iterator<Item = &'a String>) {
        for conflict in replace(&mut self.conflicts, now.cloned()) {
            tracing::error!(event = "port-conflict", "{conflict}");
        }
    }

    pub(crate) fn no_gateway(&mut self, none: bool) {
        if none && !std::mem::replace(&mut self.no_gateway, none) {
            let controller = model::names::CONTROLLER_NAME;
            tracing::warn!(
                "no Gateway to serve: the files need a GatewayClass with controllerName {controller} and a Gateway of that class"
            );
        }
        self.no_gateway = none;
    }
}

/// Takes the new for the old, and gives what the old did not have, in order.
fn replace<T: Clone + Eq + Hash>(old: &mut HashSet<T>, now: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    let new: Vec<T> = now.filter(|item| seen.insert(item.clone()) && !old.contains(item)).collect();
    *old = seen;
    new
}
