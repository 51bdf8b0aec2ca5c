//! One file: its content now, and its last good content.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::admission::{self, StandIn, Trace, Verdict};
use super::document;
use super::object::{Object, ObjectId};
use super::problem::{Problem, Severity};
use crate::Error;

type Digest = [u8; 32];

/// The last good state of a file. An object that is refused keeps its last good version; a file that cannot be parsed
/// or read keeps all of its objects.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Of the bytes that the state below comes from; `None` if they could not be read.
    digest: Option<Digest>,
    /// By the text of the document: the unchanged ones of a changed file are not parsed again.
    documents: HashMap<Digest, Arc<[Outcome]>>,
    objects: Vec<(ObjectId, Object)>,
    /// Those of them that are in the place of one that never was good.
    stand_ins: HashSet<ObjectId>,
    problems: Vec<Problem>,
}

/// The outcome for one object of a document.
#[derive(Debug, Clone)]
enum Outcome {
    /// It is in use: among the file's objects.
    Used(ObjectId),
    Refused {
        id: Option<ObjectId>,
        /// Objects that it may have been before: those that were missing when it broke. They stay in use as long as it exists.
        was: Vec<ObjectId>,
        shown: Option<String>,
        message: String,
        stand_in: Option<StandIn>,
    },
    Skipped {
        was: Vec<ObjectId>,
        shown: Option<String>,
        message: String,
    },
}

/// One document of the file's new content.
enum Content {
    Known(Digest, Arc<[Outcome]>),
    New(Option<Digest>, Vec<Verdict>),
}

impl File {
    pub(crate) fn objects(&self) -> &[(ObjectId, Object)] {
        &self.objects
    }

    /// The objects in use, in the order of the file.
    pub(crate) fn objects_mut(&mut self) -> &mut [(ObjectId, Object)] {
        &mut self.objects
    }

    pub(crate) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Takes the new content of the file; nothing happens if it is the old one. `origin` names the file in messages.
    pub(crate) fn read(&mut self, origin: &str, bytes: &[u8]) {
        let digest = Sha256::digest(bytes).into();
        if self.digest == Some(digest) {
            return;
        }
        self.digest = Some(digest);
        match self.parse(origin, bytes) {
            Ok(documents) => self.take(origin, documents),
            Err(error) => {
                self.close(origin, bytes);
                self.keep(origin, &error);
            }
        }
    }

    /// A file that never could be parsed may hold a cache policy for anything.
    fn close(&mut self, origin: &str, bytes: &[u8]) {
        let name = b"VarnishCachePolicy";
        if self.objects.is_empty() && bytes.windows(name.len()).any(|window| window == name) {
            let (id, object) = admission::closes_all(origin);
            self.stand_ins.insert(id.clone());
            self.objects.push((id, object));
        }
    }

    /// The file is there but could not be read.
    pub(crate) fn unreadable(&mut self, origin: &str, error: &Error) {
        self.digest = None;
        self.keep(origin, error);
    }

    fn keep(&mut self, origin: &str, error: &Error) {
        let remains = match self.objects.len() - self.stand_ins.len() {
            0 if !self.stand_ins.is_empty() => {
                "nothing of this file is used, and it has a VarnishCachePolicy, so nothing is cached at all"
                    .to_owned()
            }
            0 => "nothing of this file is used".to_owned(),
            1 => "its last good object stays in use".to_owned(),
            count => format!("its last {count} good objects stay in use"),
        };
        self.problems = vec![Problem::of_file(origin, Severity::Error, format!("{error}; {remains}"))];
    }

    fn parse(&self, origin: &str, bytes: &[u8]) -> Result<Vec<Content>, Error> {
        let text =
            std::str::from_utf8(bytes).map_err(|error| Error::NotUtf8 { offset: error.valid_up_to() })?;
        if origin.ends_with(".json") {
            let values = document::parse_json(text)?;
            return Ok(values.into_iter().map(|value| Content::New(None, admit_all(value))).collect());
        }
        let documents = document::split(text).into_iter().map(|document| {
            let digest: Digest = Sha256::digest(document.text.as_bytes()).into();
            Ok(match self.documents.get(&digest) {
                Some(outcomes) => Content::Known(digest, outcomes.clone()),
                None => Content::New(Some(digest), admit_all(document::parse_yaml(document)?)),
            })
        });
        documents.collect()
    }

    fn take(&mut self, origin: &str, documents: Vec<Content>) {
        let mut taking = Taking {
            origin,
            numbered: documents.len() > 1,
            good: documents.iter().flat_map(Content::good).cloned().collect(),
            missing: Vec::new(),
            before: std::mem::take(&mut self.objects)
                .into_iter()
                .filter(|(id, _)| !self.stand_ins.contains(id))
                .collect(),
            stand_ins: HashSet::new(),
            taken: HashMap::new(),
            objects: Vec::new(),
            problems: Vec::new(),
        };
        let named: HashSet<&ObjectId> = documents.iter().flat_map(Content::named).collect();
        let mut missing: Vec<_> = taking.before.keys().filter(|id| !named.contains(id)).cloned().collect();
        missing.sort();
        taking.missing = missing;
        let mut known = HashMap::new();
        for (index, content) in documents.into_iter().enumerate() {
            let (digest, outcomes) = taking.document(index + 1, content);
            if let (Some(digest), Some(outcomes)) = (digest, outcomes) {
                known.insert(digest, outcomes);
            }
        }
        self.documents = known;
        self.objects = taking.objects;
        self.stand_ins = taking.stand_ins;
        self.problems = taking.problems;
    }
}

impl Content {
    fn good(&self) -> impl Iterator<Item = &ObjectId> {
        let (known, new) = match self {
            Self::Known(_, outcomes) => (&outcomes[..], &[][..]),
            Self::New(_, verdicts) => (&[][..], &verdicts[..]),
        };
        let known = known.iter().filter_map(|outcome| match outcome {
            Outcome::Used(id) => Some(id),
            _ => None,
        });
        let new = new.iter().filter_map(|verdict| match verdict {
            Verdict::Admitted { id, .. } => Some(id),
            _ => None,
        });
        known.chain(new)
    }

    /// Those whose identity can be read, good or not.
    fn named(&self) -> impl Iterator<Item = &ObjectId> {
        let (known, new) = match self {
            Self::Known(_, outcomes) => (&outcomes[..], &[][..]),
            Self::New(_, verdicts) => (&[][..], &verdicts[..]),
        };
        let known = known.iter().filter_map(|outcome| match outcome {
            Outcome::Used(id) => Some(id),
            Outcome::Refused { id, stand_in, .. } => id.as_ref().or(stand_in.as_ref().map(|own| &own.id)),
            Outcome::Skipped { .. } => None,
        });
        let new = new.iter().filter_map(|verdict| match verdict {
            Verdict::Admitted { id, .. } => Some(id),
            Verdict::Refused { id, stand_in, .. } => id.as_ref().or(stand_in.as_ref().map(|own| &own.id)),
            Verdict::Skipped { .. } => None,
        });
        known.chain(new)
    }
}

/// The passage from what a file held to what it holds.
struct Taking<'a> {
    origin: &'a str,
    numbered: bool,
    /// Has an admitted version somewhere in the new content.
    good: HashSet<ObjectId>,
    /// Was there, and is named by nothing in the new content.
    missing: Vec<ObjectId>,
    before: HashMap<ObjectId, Object>,
    /// In use, with the number of the document.
    taken: HashMap<ObjectId, usize>,
    objects: Vec<(ObjectId, Object)>,
    stand_ins: HashSet<ObjectId>,
    problems: Vec<Problem>,
}

impl Taking<'_> {
    /// The outcomes are none if the document has to be parsed again next time.
    fn document(&mut self, number: usize, content: Content) -> (Option<Digest>, Option<Arc<[Outcome]>>) {
        match content {
            Content::Known(digest, outcomes) => {
                let mut complete = true;
                for outcome in outcomes.iter() {
                    complete &= match outcome {
                        Outcome::Used(id) => {
                            let object = self.before.remove(id);
                            self.used(number, id, object)
                        }
                        other => self.unused(number, other),
                    };
                }
                (Some(digest), complete.then_some(outcomes))
            }
            Content::New(digest, verdicts) => {
                let mut complete = true;
                let mut outcomes = Vec::with_capacity(verdicts.len());
                for verdict in verdicts {
                    let outcome = match verdict {
                        Verdict::Admitted { id, object } => {
                            complete &= self.used(number, &id, Some(object));
                            outcomes.push(Outcome::Used(id));
                            continue;
                        }
                        Verdict::Refused { id, trace, shown, message, stand_in } => {
                            let was = match &id {
                                Some(id) if self.before.contains_key(id) => Vec::new(),
                                _ => self.once(&trace),
                            };
                            Outcome::Refused { id, was, shown, message, stand_in }
                        }
                        Verdict::Skipped { trace, shown, message } => {
                            let was = trace.map_or_else(Vec::new, |trace| self.once(&trace));
                            Outcome::Skipped { was, shown, message }
                        }
                    };
                    self.unused(number, &outcome);
                    outcomes.push(outcome);
                }
                (digest, complete.then(|| outcomes.into()))
            }
        }
    }

    /// Whether the object is now in use; not if it was there already.
    fn used(&mut self, number: usize, id: &ObjectId, object: Option<Object>) -> bool {
        if let Some(&first) = self.taken.get(id) {
            let place = if first == number { "above".to_owned() } else { format!("in document {first}") };
            let message = format!("the same object is {place}, which comes first and is used; remove one");
            self.problem(number, Severity::Error, Some(id.to_string()), message);
            return false;
        }
        let Some(object) = object else { return false };
        self.taken.insert(id.clone(), number);
        self.objects.push((id.clone(), object));
        true
    }

    /// What a document may have held before its identity broke.
    fn once(&self, trace: &Trace) -> Vec<ObjectId> {
        self.missing.iter().filter(|id| trace.fits(id)).cloned().collect()
    }

    fn unused(&mut self, number: usize, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Used(_) => {}
            Outcome::Refused { id, was, shown, message, stand_in } => {
                let id = id.as_ref().or(stand_in.as_ref().map(|own| &own.id));
                let id = id.filter(|&id| !self.good.contains(id) && !self.stand_ins.contains(id));
                let remains = if let Some(kept) = id.and_then(|id| self.before.remove_entry(id)) {
                    self.objects.push(kept);
                    "; the last good version stays in use".to_owned()
                } else if let Some(remains) = self.keep(was) {
                    remains
                } else if let Some(StandIn { id: own, object, effect }) = stand_in
                    && id.is_some()
                    && !self.taken.contains_key(own)
                {
                    self.objects.push((own.clone(), object.clone()));
                    self.stand_ins.insert(own.clone());
                    format!("; until it is corrected, {effect}")
                } else {
                    String::new()
                };
                self.problem(number, Severity::Error, shown.clone(), format!("{message}{remains}"));
            }
            Outcome::Skipped { was, shown, message } => {
                let (severity, remains) = match self.keep(was) {
                    Some(remains) => (Severity::Error, remains),
                    None => (Severity::Warning, String::new()),
                };
                self.problem(number, severity, shown.clone(), format!("{message}{remains}"));
            }
        }
        true
    }

    /// Those of them that nothing else in the file is about stay in use; says which.
    fn keep(&mut self, was: &[ObjectId]) -> Option<String> {
        let mut kept = Vec::new();
        for id in was.iter().filter(|&id| !self.good.contains(id)) {
            if let Some(entry) = self.before.remove_entry(id) {
                kept.push(id.to_string());
                self.objects.push(entry);
            }
        }
        match &kept[..] {
            [] => None,
            [one] => Some(format!("; {one} was here before, and its last good version stays in use")),
            [one, others @ ..] => Some(format!(
                "; {one} and {} more were here before, and their last good versions stay in use",
                others.len()
            )),
        }
    }

    fn problem(&mut self, number: usize, severity: Severity, object: Option<String>, message: String) {
        let document = self.numbered.then_some(number);
        self.problems.push(Problem { document, object, ..Problem::of_file(self.origin, severity, message) });
    }
}

fn admit_all(document: serde_json::Value) -> Vec<Verdict> {
    admission::items(document).into_iter().map(admission::admit).collect()
}
