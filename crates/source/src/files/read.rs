//! One file: what it holds now, and what it held when it last made sense.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::admission::{self, Verdict};
use super::document;
use super::object::{Object, ObjectId};
use super::problem::{Problem, Severity};
use crate::Error;

type Digest = [u8; 32];
/// What became of the objects of one document.
type Verdicts = Arc<Vec<Verdict>>;

/// The last good state of a file. An object that is refused keeps its last good version; a file that cannot be parsed
/// or read keeps all of its objects.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Of the bytes that the state below comes from; `None` if they could not be read.
    digest: Option<Digest>,
    /// By the text of the document: the unchanged ones of a changed file are not parsed again.
    documents: HashMap<Digest, Verdicts>,
    objects: Vec<(ObjectId, Object)>,
    problems: Vec<Problem>,
}

impl File {
    /// The objects in use, in the order of the file.
    pub(crate) fn objects(&self) -> &[(ObjectId, Object)] {
        &self.objects
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
            Ok(documents) => self.take(origin, &documents),
            Err(error) => self.keep(origin, &error.to_string()),
        }
    }

    /// The file is there but could not be read.
    pub(crate) fn unreadable(&mut self, origin: &str, error: &Error) {
        self.digest = None;
        self.keep(origin, &error.to_string());
    }

    fn keep(&mut self, origin: &str, reason: &str) {
        let remains = match self.objects.len() {
            0 => "nothing of this file is used".to_owned(),
            1 => "its last good object stays in use".to_owned(),
            count => format!("its last {count} good objects stay in use"),
        };
        self.problems = vec![Problem::of_file(origin, Severity::Error, format!("{reason}; {remains}"))];
    }

    fn parse(&mut self, origin: &str, bytes: &[u8]) -> Result<Vec<Verdicts>, Error> {
        let text = std::str::from_utf8(bytes).map_err(|error| Error::NotUtf8 { offset: error.valid_up_to() })?;
        if origin.ends_with(".json") {
            self.documents.clear();
            let values = document::parse_json(text)?;
            return Ok(values.into_iter().map(|value| Arc::new(admit_all(value))).collect());
        }
        let mut known = HashMap::new();
        let mut verdicts = Vec::new();
        for document in document::split(text) {
            let digest: Digest = Sha256::digest(document.text.as_bytes()).into();
            let seen = known.get(&digest).or_else(|| self.documents.get(&digest)).cloned();
            let seen: Verdicts = match seen {
                Some(seen) => seen,
                None => Arc::new(admit_all(document::parse_yaml(document)?)),
            };
            known.insert(digest, seen.clone());
            verdicts.push(seen);
        }
        self.documents = known;
        Ok(verdicts)
    }

    fn take(&mut self, origin: &str, documents: &[Verdicts]) {
        let verdicts = || {
            let numbered = documents.iter().enumerate();
            numbered.flat_map(|(index, verdicts)| verdicts.iter().map(move |verdict| (index + 1, verdict)))
        };
        let good: HashSet<&ObjectId> = verdicts()
            .filter_map(|(_, verdict)| match verdict {
                Verdict::Admitted { id, .. } => Some(id),
                _ => None,
            })
            .collect();
        let mut before: HashMap<ObjectId, Object> = std::mem::take(&mut self.objects).into_iter().collect();
        let mut taken: HashMap<&ObjectId, usize> = HashMap::new();
        let mut problems = Vec::new();
        for (number, verdict) in verdicts() {
            let mut problem = |severity, shown: &Option<String>, message: String| {
                let document = (documents.len() > 1).then_some(number);
                problems.push(Problem { document, object: shown.clone(), ..Problem::of_file(origin, severity, message) });
            };
            match verdict {
                Verdict::Admitted { id, object } => {
                    if let Some(first) = taken.get(id) {
                        let place = if *first == number { "above".to_owned() } else { format!("in document {first}") };
                        let message = format!("is already {place}, which is used; remove one of them");
                        problem(Severity::Error, &Some(id.to_string()), message);
                    } else {
                        taken.insert(id, number);
                        self.objects.push((id.clone(), object.clone()));
                    }
                }
                Verdict::Refused { id, shown, message } => {
                    let kept = id.as_ref().filter(|id| !good.contains(id)).and_then(|id| before.remove_entry(id));
                    let remains = match kept {
                        Some(kept) => {
                            self.objects.push(kept);
                            "; the last good version stays in use"
                        }
                        None => "",
                    };
                    problem(Severity::Error, shown, format!("{message}{remains}"));
                }
                Verdict::Skipped { shown, message } => problem(Severity::Warning, shown, message.clone()),
            }
        }
        self.problems = problems;
    }
}

fn admit_all(document: serde_json::Value) -> Vec<Verdict> {
    admission::items(document).into_iter().map(admission::admit).collect()
}
