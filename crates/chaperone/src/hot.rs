//! The page by which ghost tells the front what was invalidated. It outlives varnishd: it is made when we start, before the front.
//!
//! Guarantees that no hot object of before is served once varnishd's child has ended or another VCL is in use.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use page::Page;

use crate::reload::{self, Control};
use crate::{Settings, directories, storage, token};

const PREFIX: &str = "hot-";
const SUFFIX: &str = ".page";

/// What hot objects may take: as given, or by the memory of the container.
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
    made: Option<(PathBuf, Arc<Page>)>,
}

impl Hot {
    /// Each start has a file of its own name: another process that uses the same work directory, by mistake, has another page.
    pub(crate) fn prepare(settings: &Settings) -> Self {
        if !settings.hot.enabled || !settings.http_in_front {
            return Self { made: None };
        }
        let socket = settings.control_socket();
        let path = socket.with_file_name(format!("{PREFIX}{}{SUFFIX}", token::generate()));
        let made = directories::prepare_control(&socket)
            .map_err(|e| e.to_string())
            .and_then(|()| Page::create(&path).map_err(|e| format!("{}: {e}", path.display())));
        match made {
            Ok(page) => Self { made: Some((path, Arc::new(page))) },
            Err(e) => {
                tracing::warn!("{}: no hot objects: {e}", settings.name);
                Self { made: None }
            }
        }
    }

    pub(crate) fn page(&self) -> Option<&Arc<Page>> {
        self.made.as_ref().map(|(_, page)| page)
    }

    /// Where ghost finds it.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.made.as_ref().map(|(path, _)| path.as_path())
    }

    /// Removes the pages of former starts. To be called once the work directory is ours alone.
    pub(crate) fn remove_others(&self, settings: &Settings) {
        let socket = settings.control_socket();
        let Some(Ok(entries)) = socket.parent().map(fs::read_dir) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with(PREFIX) && name.ends_with(SUFFIX) && Some(path.as_path()) != self.path() {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Nothing is hot until ghost says by which table it decides.
    pub(crate) fn withdraw(&self) {
        if let Some(page) = self.page() {
            page.set_digest(0);
        }
    }

    /// varnishd's child has ended, or another VCL is in use: what was hot is no more.
    pub(crate) fn end_all(&self) {
        if let Some(page) = self.page() {
            page.set_digest(0);
            page.raise_global();
        }
    }

    /// Asks the router of the VCL in use to say by which table it decides, if it has not. Without an answer nothing is hot, and we ask
    /// again.
    pub(crate) async fn publish(&self, control: &Control) {
        if self.page().is_some_and(|page| page.digest() == 0)
            && let Err(e) = reload::in_use(control).await
        {
            tracing::debug!("hot objects wait for ghost: {e}");
        }
    }
}

impl Drop for Hot {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests;
