//! Loads a desired configuration into a varnishd by the cheapest path, and remembers the last good one.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use varnishadm::Admin;

use crate::event::{Event, Reporter};
use crate::ghost_files::{Ghost, GhostBase};
use crate::reload::{self, Control};
use crate::steps::Steps;
use crate::vcl::VclLoader;
use crate::{Error, Settings};

/// The desired configuration of a varnishd and its front.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Desired {
    /// ghost.json, with the router that was made of it; `None` until it is known.
    pub ghost: Option<Ghost>,
    /// main.vcl; `None` while it cannot be decided: what is served stays, and nothing is started.
    pub vcl: Option<Arc<str>>,
    /// The front's: HTTPS listeners and their certificates.
    pub tls: Arc<front::Config>,
    /// The front's: how backends with TLS are verified.
    pub backends: Arc<front::Profiles>,
    /// What to call this configuration when it is served ([`crate::State::served`]).
    pub tag: Option<Arc<str>>,
    /// Of the change that led to it.
    pub steps: Steps,
}

impl Desired {
    /// The sockets that the front should have.
    pub(crate) fn front_sockets(&self) -> Vec<String> {
        self.tls.sockets().map(str::to_owned).collect()
    }
}

/// The VCL that was last in use. It outlives varnishd: a new one begins with it where the newest is not taken.
#[derive(Debug, Clone, Default)]
pub struct LastGood(Arc<Mutex<Option<Arc<str>>>>);

impl LastGood {
    /// One that was good before we started.
    pub fn of(vcl: &str) -> Self {
        let good = Self::default();
        good.set(&Arc::from(vcl));
        good
    }

    fn get(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, vcl: &Arc<str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(vcl));
    }
}

#[derive(Debug)]
pub(crate) struct Feed {
    ghost_config: PathBuf,
    loader: VclLoader,
    good_ghost: Option<Ghost>,
    /// ghost may have another one: it did not report the result of a reload.
    is_uncertain: bool,
    /// There may be bases that no good configuration names.
    has_other_bases: bool,
    /// In use in the varnishd that runs.
    good_vcl: Option<Arc<str>>,
    last_good: LastGood,
}

impl Feed {
    pub(crate) fn new(settings: &Settings, last_good: LastGood) -> Self {
        Self {
            ghost_config: settings.ghost_config(),
            loader: VclLoader::new(settings.work_dir.clone()),
            good_ghost: None,
            is_uncertain: false,
            has_other_bases: true,
            good_vcl: None,
            last_good,
        }
    }

    /// A new varnishd has loaded nothing.
    pub(crate) fn forget(&mut self) {
        self.good_vcl = None;
    }

    /// The first configuration of a varnishd whose child does not run yet. With the last good VCL, where the newest
    /// is not taken: then it says why.
    pub(crate) async fn begin(&mut self, admin: &Admin, desired: &Desired) -> Result<Option<Error>, Error> {
        let (Some(ghost), Some(vcl)) = (&desired.ghost, &desired.vcl) else { return Ok(None) };
        self.write(ghost).await?;
        let (vcl, refused) = match self.loader.load(admin, vcl).await {
            Ok(()) => (Arc::clone(vcl), None),
            Err(e) => match self.last_good.get().filter(|good| e.keeps_serving() && good != vcl) {
                Some(good) => {
                    self.loader.load(admin, &good).await?;
                    (good, Some(e))
                }
                None => return Err(e),
            },
        };
        self.is_good(ghost).await;
        self.last_good.set(&vcl);
        self.good_vcl = Some(vcl);
        Ok(refused)
    }

    /// Is there anything to do for this configuration?
    pub(crate) fn is_fed(&self, desired: &Desired) -> bool {
        !self.needs_routes(desired) && (desired.vcl.is_none() || desired.vcl == self.good_vcl)
    }

    /// Loads the configuration into ghost. If the state of varnishd's child changes in between, it does not wait for ghost's answer:
    /// the manager holds the sockets, so a request to a dead child gets no answer.
    pub(crate) async fn apply_routes(
        &mut self,
        control: &Control,
        child_news: &Notify,
        desired: &Desired,
        reporter: &Reporter,
    ) -> Result<(), Error> {
        match &desired.ghost {
            Some(ghost) if self.needs_routes(desired) => {
                self.apply_ghost(ghost, control, child_news, reporter).await
            }
            _ => Ok(()),
        }
    }

    /// Is another one desired than ghost has, as far as that is known?
    fn needs_routes(&self, desired: &Desired) -> bool {
        desired.ghost.is_some() && (self.is_uncertain || desired.ghost != self.good_ghost)
    }

    /// Does the configuration have another VCL than varnishd?
    pub(crate) fn needs_vcl(&self, desired: &Desired) -> bool {
        desired.vcl.is_some() && desired.vcl != self.good_vcl
    }

    /// Loads the configuration's VCL into varnishd. This is tried also if the routes were refused: the two do not depend on each
    /// other.
    pub(crate) async fn apply_vcl(
        &mut self,
        admin: &Admin,
        desired: &Desired,
        reporter: &Reporter,
    ) -> Result<(), Error> {
        match &desired.vcl {
            Some(vcl) if desired.vcl != self.good_vcl => self.load(vcl, admin, reporter).await,
            _ => Ok(()),
        }
    }

    async fn apply_ghost(
        &mut self,
        ghost: &Ghost,
        control: &Control,
        child_news: &Notify,
        reporter: &Reporter,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        self.write(ghost).await?;
        let answer = tokio::select! {
            answer = reload::reload(control) => answer,
            () = child_news.notified() => Err(Error::ReloadInterrupted),
        };
        match answer {
            Ok(status) => {
                self.is_good(ghost).await;
                for left_out in &status.left_out {
                    tracing::warn!("ghost left out: {left_out}");
                }
                let (rules, backends) = (status.rules, status.backends);
                reporter.routes_by(ghost);
                reporter.tell(&Event::Reloaded { rules, backends, took: begun.elapsed() });
                Ok(())
            }
            Err(e) => {
                let is_refused = matches!(e, Error::ReloadRefused { .. });
                // The reload may still succeed later. Then the good configuration must be loaded again after it.
                self.is_uncertain |= !is_refused;
                self.has_other_bases = true;
                // A VCL reload or a new child would read the file.
                self.restore().await?;
                if is_refused && !self.is_uncertain {
                    self.remove_other_bases().await;
                }
                Err(e)
            }
        }
    }

    async fn load(&mut self, vcl: &Arc<str>, admin: &Admin, reporter: &Reporter) -> Result<(), Error> {
        let begun = Instant::now();
        self.loader.load(admin, vcl).await?;
        self.good_vcl = Some(Arc::clone(vcl));
        self.last_good.set(vcl);
        reporter.tell(&Event::VclReloaded { took: begun.elapsed() });
        Ok(())
    }

    /// A new child reads the file: it must be the one that was good, even if it was changed since. If it is, nothing is written:
    /// a full directory must not keep a child from starting.
    pub(crate) async fn restore(&self) -> Result<(), Error> {
        let Some(good) = &self.good_ghost else { return Ok(()) };
        let has_base = match &good.base {
            Some(base) => self.has(base).await,
            None => true,
        };
        if has_base && tokio::fs::read(&self.ghost_config).await.is_ok_and(|there| there == *good.bytes) {
            return Ok(());
        }
        self.write(good).await
    }

    fn base_path(&self, base: &GhostBase) -> PathBuf {
        self.ghost_config.with_file_name(&*base.name)
    }

    /// Does the file of the base exist, and is it complete?
    async fn has(&self, base: &GhostBase) -> bool {
        let there = tokio::fs::metadata(self.base_path(base)).await;
        there.is_ok_and(|there| there.is_file() && there.len() == base.bytes.len() as u64)
    }

    /// ghost serves it: other bases are no longer needed.
    async fn is_good(&mut self, ghost: &Ghost) {
        self.is_uncertain = false;
        let before = self.good_ghost.replace(ghost.clone());
        let has_same_base = before.is_some_and(|before| before.base == ghost.base);
        if !has_same_base || self.has_other_bases {
            self.remove_other_bases().await;
        }
    }

    /// Removes all bases but that of the good configuration.
    async fn remove_other_bases(&mut self) {
        self.has_other_bases = false;
        let base = self.good_ghost.as_ref().and_then(|good| good.base.as_ref());
        let Some(dir) = self.ghost_config.parent() else { return };
        let Ok(mut files) = tokio::fs::read_dir(dir).await else { return };
        while let Ok(Some(file)) = files.next_entry().await {
            let name = file.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(GhostBase::PREFIX)) else {
                continue;
            };
            if base.is_none_or(|base| &*base.name != name) {
                let _ = tokio::fs::remove_file(file.path()).await;
            }
        }
    }

    /// The base first: ghost may read at any time.
    async fn write(&self, ghost: &Ghost) -> Result<(), Error> {
        if let Some(base) = &ghost.base {
            let path = self.base_path(base);
            // By its name always the same.
            if !self.has(base).await {
                self.put(&base.bytes, &path).await?;
            }
        }
        self.put(&ghost.bytes, &self.ghost_config).await
    }

    /// Writes the whole file, or nothing.
    async fn put(&self, bytes: &[u8], path: &Path) -> Result<(), Error> {
        let beside = path.with_extension("json.new");
        let written = tokio::fs::write(&beside, bytes).await;
        if written.is_err() {
            // An incomplete file would use space in a full directory.
            let _ = tokio::fs::remove_file(&beside).await;
        }
        written.map_err(|e| match (e.kind(), beside.parent()) {
            (ErrorKind::NotFound, Some(dir)) => Error::Removed { dir: dir.to_owned() },
            _ => Error::File { path: beside.clone(), source: e },
        })?;
        tokio::fs::rename(&beside, path).await.map_err(Error::file(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(dir: &Path) -> Feed {
        Feed {
            ghost_config: dir.join("ghost.json"),
            loader: VclLoader::new(dir.to_owned()),
            good_ghost: None,
            is_uncertain: false,
            has_other_bases: false,
            good_vcl: None,
            last_good: LastGood::default(),
        }
    }

    /// The next write to this file finds no room.
    fn fill(path: &Path) {
        std::os::unix::fs::symlink("/dev/full", path).unwrap();
    }

    #[tokio::test]
    async fn a_full_directory_keeps_the_file_that_was_good() {
        let dir = tempfile::tempdir().unwrap();
        let mut feed = feed(dir.path());
        let of = |text: &str| Ghost { bytes: text.as_bytes().into(), base: None, router: Arc::default() };
        let good = of("good");
        feed.write(&good).await.unwrap();
        feed.is_good(&good).await;
        let beside = dir.path().join("ghost.json.new");
        fill(&beside);
        let error = feed.write(&of("newer")).await.unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
        assert_eq!(std::fs::read(dir.path().join("ghost.json")).unwrap(), b"good");
        assert!(!beside.exists() && beside.symlink_metadata().is_err(), "half a file is left");
        // A child that died is started in any case.
        fill(&beside);
        feed.restore().await.unwrap();
        // What was changed by others is not the good one.
        std::fs::write(dir.path().join("ghost.json"), "bad").unwrap();
        assert!(feed.restore().await.is_err());
        feed.restore().await.unwrap();
        assert_eq!(std::fs::read(dir.path().join("ghost.json")).unwrap(), b"good");
    }

    fn with_base(text: &str) -> Ghost {
        let name = format!("{}{text}.json", GhostBase::PREFIX);
        let base = GhostBase { name: name.into(), bytes: text.as_bytes().into(), router: Arc::default() };
        Ghost { bytes: text.as_bytes().into(), base: Some(base), router: Arc::default() }
    }

    fn bases(dir: &Path) -> Vec<String> {
        let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().file_name());
        let mut bases: Vec<_> = files.map(|name| name.into_string().unwrap()).collect();
        bases.retain(|name| name.starts_with(GhostBase::PREFIX));
        bases.sort();
        bases
    }

    #[tokio::test]
    async fn bases_of_refused_configurations_go_and_half_ones_are_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut feed = feed(dir.path());
        let (good, refused) = (with_base("good"), with_base("refused"));
        feed.write(&good).await.unwrap();
        feed.is_good(&good).await;
        feed.write(&refused).await.unwrap();
        assert_eq!(bases(dir.path()).len(), 2);
        feed.restore().await.unwrap();
        feed.remove_other_bases().await;
        assert_eq!(bases(dir.path()), ["ghost-base-good.json"]);
        let path = dir.path().join("ghost-base-good.json");
        std::fs::write(&path, "go").unwrap();
        feed.restore().await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"good");
        // What ghost may still read stays until it serves another one.
        feed.write(&refused).await.unwrap();
        feed.has_other_bases = true;
        feed.is_good(&good).await;
        assert_eq!(bases(dir.path()), ["ghost-base-good.json"]);
    }

    #[tokio::test]
    async fn a_reload_whose_outcome_is_not_known_is_followed_by_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut feed = feed(dir.path());
        let good = with_base("good");
        feed.write(&good).await.unwrap();
        feed.is_good(&good).await;
        let desired = Desired { ghost: Some(good.clone()), ..Desired::default() };
        assert!(feed.is_fed(&desired));
        // ghost does not answer: its socket is not there.
        let socket = dir.path().join("control.sock");
        let control = Control { socket: socket.as_path().into(), token: "".into() };
        let newer = Desired { ghost: Some(with_base("newer")), ..Desired::default() };
        let (news, reporter) = (Notify::new(), Reporter::new(|_| {}));
        let applied = feed.apply_routes(&control, &news, &newer, &reporter).await;
        assert!(matches!(applied, Err(Error::ReloadUnreachable { .. })));
        assert_eq!(std::fs::read(dir.path().join("ghost.json")).unwrap(), b"good");
        assert!(!feed.is_fed(&desired), "ghost may have the newer one");
        assert!(feed.apply_routes(&control, &news, &desired, &reporter).await.is_err(), "it is asked again");
        feed.is_good(&good).await;
        assert!(feed.is_fed(&desired));
    }
}
