//! Reports what is new since the last change, and nothing twice.

use std::collections::HashSet;
use std::hash::Hash;

use chaperone::Severity as How;
use dashboard::Journal;
use source::files::Problem;
use translate::{Notice, Severity};

use crate::shared_ports::Conflict;
use crate::verdict::Verdict;

/// More accepted routes than this at once are only counted.
const LISTED: usize = 50;

pub(crate) struct News {
    /// For the dashboard.
    journal: Journal,
    problems: HashSet<Problem>,
    verdicts: HashSet<Verdict>,
    notices: HashSet<Notice>,
    conflicts: HashSet<String>,
    no_gateway: bool,
}

impl News {
    pub(crate) fn new(journal: Journal) -> Self {
        Self {
            journal,
            problems: HashSet::new(),
            verdicts: HashSet::new(),
            notices: HashSet::new(),
            conflicts: HashSet::new(),
            no_gateway: false,
        }
    }

    fn record(&self, severity: How, kind: &str, text: &str) {
        self.journal.record("", severity, kind, text);
    }

    pub(crate) fn problems(&mut self, now: &[Problem]) {
        let subject = |p: &Problem| p.object.clone().unwrap_or_else(|| p.file.clone());
        let still: HashSet<_> = now.iter().map(subject).collect();
        for solved in self.problems.iter().map(subject).collect::<HashSet<_>>().difference(&still) {
            tracing::info!(event = "recovered", object = solved, "{solved}: no longer a problem");
            self.record(How::Info, "recovered", &format!("{solved}: no longer a problem"));
        }
        for problem in replace(&mut self.problems, now.iter().cloned()) {
            if problem.is_error() {
                tracing::error!(event = "bad-input", "{problem}");
                self.record(How::Error, "bad-input", &problem.to_string());
            } else {
                tracing::warn!(event = "skipped", "{problem}");
                self.record(How::Warning, "skipped", &problem.to_string());
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
            self.record(How::Warning, "rejected", &format!("{object}: {text}"));
        }
        if good.len() > LISTED {
            tracing::info!(event = "accepted", count = good.len(), "{} objects accepted", good.len());
            self.record(How::Info, "accepted", &format!("{} objects accepted", good.len()));
        } else {
            for Verdict { object, text, .. } in good {
                tracing::info!(event = "accepted", object, "{object}: {text}");
                self.record(How::Info, "accepted", &format!("{object}: {text}"));
            }
        }
        if gone.len() > LISTED {
            tracing::info!(event = "removed", count = gone.len(), "{} objects removed", gone.len());
            self.record(How::Info, "removed", &format!("{} objects removed", gone.len()));
        } else {
            for object in gone {
                tracing::info!(event = "removed", object, "{object}: removed");
                self.record(How::Info, "removed", &format!("{object}: removed"));
            }
        }
    }

    pub(crate) fn notices(&mut self, now: Vec<Notice>) {
        for notice in replace(&mut self.notices, now.into_iter()) {
            match notice.severity {
                Severity::Warning => {
                    tracing::warn!(event = "notice", object = notice.object, "{notice}");
                    self.record(How::Warning, "notice", &notice.to_string());
                }
                Severity::Info => {
                    tracing::info!(event = "notice", object = notice.object, "{notice}");
                    self.record(How::Info, "notice", &notice.to_string());
                }
            }
        }
    }

    pub(crate) fn conflicts(&mut self, now: &[Conflict]) {
        for conflict in replace(&mut self.conflicts, now.iter().map(ToString::to_string)) {
            tracing::error!(event = "port-conflict", "{conflict}");
            self.record(How::Error, "port-conflict", &conflict);
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
