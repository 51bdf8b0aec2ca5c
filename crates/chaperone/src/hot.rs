//! The page in shared memory by which ghost reports invalidations to the front. It outlives varnishd: the chaperone creates it at
//! its start, before the front.
//!
//! Guarantees that no earlier hot object is served once varnishd's child has exited or another VCL is in use.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use page::Page;

use crate::reload::{self, Control, GhostStatus};
use crate::{Error, Settings, storage};

/// The memory limit of hot objects: as configured, or derived from the memory of the container.
pub fn hot_limits(enabled: bool, bytes: Option<u64>, max_object_bytes: Option<u64>) -> front::HotLimits {
    let default = front::HotLimits::default();
    front::HotLimits {
        enabled,
        bytes: bytes.unwrap_or_else(|| front::HotLimits::default_bytes(storage::limit_of_group())),
        max_object_bytes: max_object_bytes.unwrap_or(default.max_object_bytes),
    }
}

/// The page of one Gateway; none where hot objects are off.
#[derive(Debug)]
pub(crate) struct Hot {
    made: Option<(OwnedFd, Arc<Page>)>,
}

impl Hot {
    /// The memory file has no name: ghost gets it by its control socket, and no other process can open it.
    pub(crate) fn prepare(settings: &Settings) -> Self {
        if !settings.hot.enabled || !settings.http_in_front {
            return Self { made: None };
        }
        match Page::sealed() {
            Ok((page, file)) => Self { made: Some((file, Arc::new(page))) },
            Err(e) => {
                tracing::warn!("{}: no hot objects: {e}", settings.name);
                Self { made: None }
            }
        }
    }

    pub(crate) fn page(&self) -> Option<&Arc<Page>> {
        self.made.as_ref().map(|(_, page)| page)
    }

    /// Makes the router of the VCL in use publish which table it uses.
    pub(crate) async fn in_use(&self, control: &Control) -> Result<GhostStatus, Error> {
        reload::in_use(control, self.made.as_ref().map(|(file, _)| file)).await
    }

    /// Nothing is hot until ghost has published which table it uses.
    pub(crate) fn withdraw(&self) {
        if let Some(page) = self.page() {
            page.set_digest(0);
        }
    }

    /// varnishd's child has exited, or another VCL is in use: drops all hot objects.
    pub(crate) fn end_all(&self) {
        if let Some(page) = self.page() {
            page.set_digest(0);
            page.raise_global();
        }
    }

    /// Asks the router of the VCL in use to publish its table, unless it has. Without an answer nothing is hot, and we ask again.
    pub(crate) async fn publish(&self, control: &Control) {
        if self.page().is_some_and(|page| page.digest() == 0)
            && let Err(e) = self.in_use(control).await
        {
            tracing::debug!("hot objects wait for ghost: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::varnishd::tests::settings;

    fn in_directory(dir: &Path) -> Settings {
        Settings { work_dir: dir.to_owned(), http_in_front: true, ..settings() }
    }

    #[test]
    fn what_was_hot_ends_with_varnishds_child() {
        let dir = tempfile::tempdir().unwrap();
        let hot = Hot::prepare(&in_directory(dir.path()));
        let page = hot.page().unwrap();
        page.set_digest(7);
        let stamp = page.stamp(&[]);
        assert!(page.serves(&stamp, 7));
        hot.end_all();
        assert!(!page.serves(&stamp, 7));
        page.set_digest(7);
        assert!(!page.serves(&stamp, 7), "the next child serves by the same table");
    }

    #[test]
    fn without_hot_objects_there_is_no_page() {
        let dir = tempfile::tempdir().unwrap();
        let settings = in_directory(dir.path());
        let off = Settings { hot: front::HotLimits::OFF, ..settings.clone() };
        let in_varnish = Settings { http_in_front: false, ..settings };
        for settings in [off, in_varnish] {
            let hot = Hot::prepare(&settings);
            assert!(hot.page().is_none());
            hot.end_all();
        }
    }
}
