//! Notices that files may have changed.
//!
//! inotify on the directories that matter, and every other second a look at names, sizes and times, for file systems
//! that do not notify (network mounts, some container volumes). Both only say "look again": what has really changed
//! is for [`super::Files::load`] to find out.

mod survey;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::survey::{Directory, Interest, Survey};
use crate::Error;

/// Writers write a file in several steps, and several files one after the other.
const QUIET: Duration = Duration::from_millis(40);
/// A process that never stops writing does not keep the gateway from reading.
const PATIENCE: Duration = Duration::from_millis(400);
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Waits for changes under the paths of [`super::Files`].
#[derive(Debug)]
pub struct Watch {
    paths: Vec<PathBuf>,
    /// None where the system has no inotify (left): looking every other second has to do.
    watcher: Option<RecommendedWatcher>,
    watched: BTreeMap<PathBuf, Directory>,
    shared: Arc<Shared>,
    fingerprint: u64,
    /// Something was noticed that has not been reported yet; survives a `changed` that is cancelled.
    pending: bool,
    next_look: Option<Instant>,
}

/// Between the thread of inotify and the one that waits.
#[derive(Debug, Default)]
struct Shared {
    noticed: Notify,
    /// What matters in each watched directory.
    interests: Mutex<BTreeMap<PathBuf, Interest>>,
}

impl Watch {
    pub(super) fn new(paths: Vec<PathBuf>) -> Result<Self, Error> {
        if paths.is_empty() {
            return Err(Error::NothingToWatch);
        }
        let shared = Arc::new(Shared::default());
        let listener = shared.clone();
        let watcher = notify::recommended_watcher(move |event| listener.hear(event));
        if let Err(error) = &watcher {
            let seconds = LOOK_EVERY.as_secs();
            tracing::warn!(%error, "no inotify: files are looked at every {seconds} s instead");
        }
        let survey = Survey::of(&paths);
        let mut watch = Self {
            paths,
            watcher: watcher.ok(),
            watched: BTreeMap::new(),
            shared,
            fingerprint: survey.fingerprint,
            pending: false,
            next_look: None,
        };
        watch.follow(survey);
        Ok(watch)
    }

    /// Resolves when something under the paths may have changed since it last resolved, once writers have been quiet
    /// for a moment. Loses nothing when it is cancelled.
    pub async fn changed(&mut self) {
        while !self.pending {
            let next_look = *self.next_look.get_or_insert_with(|| Instant::now() + LOOK_EVERY);
            tokio::select! {
                () = self.shared.noticed.notified() => self.pending = true,
                () = tokio::time::sleep_until(next_look) => {
                    let survey = self.survey().await;
                    self.pending = survey.fingerprint != self.fingerprint;
                    self.next_look = None;
                    self.follow(survey);
                }
            }
        }
        let patience = Instant::now() + PATIENCE;
        while Instant::now() < patience
            && tokio::time::timeout(QUIET, self.shared.noticed.notified()).await.is_ok()
        {}
        let survey = self.survey().await;
        self.fingerprint = survey.fingerprint;
        self.follow(survey);
        self.next_look = None;
        self.pending = false;
    }

    /// Off the runtime's threads: thousands of files take their time.
    async fn survey(&self) -> Survey {
        let paths = self.paths.clone();
        match tokio::task::spawn_blocking(move || Survey::of(&paths)).await {
            Ok(survey) => survey,
            // Only a runtime that is shutting down does not run it.
            Err(_) => Survey { fingerprint: self.fingerprint, directories: self.watched.clone() },
        }
    }

    /// Watches what the survey found to matter now, and no more what does not. A directory that was removed and made
    /// again is another directory.
    fn follow(&mut self, survey: Survey) {
        let interests = survey.directories.iter().map(|(path, found)| (path.clone(), found.interest.clone()));
        *self.shared.interests.lock().unwrap_or_else(PoisonError::into_inner) = interests.collect();
        let Some(watcher) = &mut self.watcher else { return };
        let same = |path: &PathBuf, one: &Directory, others: &BTreeMap<PathBuf, Directory>| {
            others.get(path).is_some_and(|other| other.identity == one.identity)
        };
        self.watched.retain(|path, old| {
            let stays = same(path, old, &survey.directories);
            if !stays {
                // Fails where the directory is gone, and the watch with it.
                let _ = watcher.unwatch(path);
            }
            stays
        });
        for (path, found) in survey.directories {
            if self.watched.contains_key(&path) {
                continue;
            }
            match watcher.watch(&path, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(path, found);
                }
                // Tried again at the next look, which finds changes anyhow.
                Err(error) => tracing::debug!(%error, path = %path.display(), "cannot watch"),
            }
        }
    }
}

impl Shared {
    fn hear(&self, event: notify::Result<notify::Event>) {
        let matters = match event {
            Ok(event) => match event.kind {
                // Reading a file is not a change, and this process is the reader.
                EventKind::Access(AccessKind::Close(AccessMode::Write)) => self.matters(&event),
                EventKind::Access(_) => false,
                _ => event.need_rescan() || self.matters(&event),
            },
            Err(_) => true,
        };
        if matters {
            self.noticed.notify_one();
        }
    }

    fn matters(&self, event: &notify::Event) -> bool {
        let interests = self.interests.lock().unwrap_or_else(PoisonError::into_inner);
        event.paths.iter().any(|path| {
            interests.contains_key(path)
                || match (path.parent().and_then(|parent| interests.get(parent)), path.file_name()) {
                    (Some(interest), Some(name)) => interest.includes(name),
                    _ => true,
                }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_inotify_changes_are_noticed_by_looking() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = Watch::new(vec![dir.path().to_owned()]).unwrap();
        watch.watcher = None;
        std::fs::write(dir.path().join("a.yaml"), "a").unwrap();
        // In a separate task, as a caller may do it.
        let waiting = tokio::spawn(async move { watch.changed().await });
        tokio::time::timeout(3 * LOOK_EVERY, waiting).await.unwrap().unwrap();
    }
}
