//! What a pod keeps on disk, for a container that starts while the API server is away.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use certificate::Pem;
use chaperone::{Ghost, LastGood};
use model::routing::Routing;
use resolve::TlsGroups;
use serde::{Deserialize, Serialize};

/// A configuration on disk: in the pod's memory, and gone with it.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::chaperone_command) struct KeptConfiguration {
    #[serde(skip)]
    pub(super) tag: Option<Arc<str>>,
    pub(super) vcl: String,
    pub(super) routing: String,
    pub(super) ghost: String,
    /// Both of its files. The base is in one of its own: it is large, and seldom another.
    #[serde(skip)]
    pub(super) files: Option<Ghost>,
    #[serde(default)]
    pub(super) base_name: Option<String>,
    /// What a base and the rest say to the front.
    #[serde(default, deserialize_with = "of_any_version")]
    pub(super) front: Option<Routing>,
    /// Endpoints of TLSRoutes.
    #[serde(default)]
    pub(super) tls: TlsGroups,
    /// In a file of their own, which varnishd cannot read.
    #[serde(skip)]
    pub(super) certificates: BTreeMap<String, (String, String)>,
}

fn of_any_version<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Routing>, D::Error> {
    let json: Option<serde_json::Value> = Option::deserialize(from)?;
    json.map(Routing::from_json).transpose().map_err(serde::de::Error::custom)
}

impl KeptConfiguration {
    pub(super) fn certificates(&self) -> BTreeMap<String, Pem> {
        let pem = |(chain, key): &(String, String)| Pem {
            chain: chain.clone().into_bytes(),
            key: key.clone().into_bytes(),
        };
        self.certificates.iter().map(|(name, pair)| (name.clone(), pem(pair))).collect()
    }
}

/// The files of it: in the work directory, and private keys where neither varnishd nor the log sidecar can read them.
#[derive(Debug, Clone)]
pub(in crate::chaperone_command) struct Kept {
    configuration: PathBuf,
    certificates: PathBuf,
    /// Those that were written last.
    written: Arc<BTreeMap<String, (String, String)>>,
}

impl Kept {
    pub(in crate::chaperone_command) fn new(work_dir: &Path) -> Self {
        Self {
            configuration: work_dir.join("last-configuration.json"),
            certificates: crate::chaperone_command::private_dir(work_dir).join("last-certificates.json"),
            written: Arc::default(),
        }
    }

    /// It must be there before varnishd starts, to be hidden from it.
    pub(in crate::chaperone_command) fn prepare(&self) {
        let Some(dir) = self.certificates.parent() else { return };
        if let Err(e) = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir) {
            tracing::warn!("{}: {e}; a restart without API server would have no certificates", dir.display());
        }
    }

    /// The VCL that was last in use.
    pub(in crate::chaperone_command) fn last_good(&self) -> LastGood {
        self.read().map_or_else(LastGood::default, |kept| LastGood::of(&kept.vcl))
    }

    pub(super) fn read(&self) -> Option<KeptConfiguration> {
        let json = std::fs::read(&self.configuration).ok()?;
        let mut kept: KeptConfiguration = serde_json::from_slice(&json).ok()?;
        // Without them, plain HTTP is served all the same.
        let pairs = std::fs::read(&self.certificates).ok();
        kept.certificates = pairs.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
        let base = match &kept.base_name {
            Some(name) => Some((name.as_str(), std::fs::read(self.base(name)).ok()?.into())),
            None => None,
        };
        kept.files = Some(Ghost::read(kept.ghost.as_bytes().into(), base).ok()?);
        Some(kept)
    }

    fn base(&self, name: &str) -> PathBuf {
        self.configuration.with_file_name(format!("last-{name}"))
    }

    /// [`Self::write`] aside from all tasks. Gives itself back, as it knows what it wrote.
    pub(super) async fn write_aside(&self, configuration: KeptConfiguration) -> Self {
        let mut kept = self.clone();
        let writing = tokio::task::spawn_blocking(move || {
            kept.write(configuration);
            kept
        });
        // A writer that panicked knows nothing.
        writing.await.unwrap_or_else(|_| Self { written: Arc::default(), ..self.clone() })
    }

    /// Whole or not at all. Without it, a restart waits for the API server. What is there already is not written again.
    pub(super) fn write(&mut self, mut configuration: KeptConfiguration) {
        let certificates = std::mem::take(&mut configuration.certificates);
        let base = configuration.files.as_ref().and_then(|files| files.base.as_ref());
        let written = serde_json::to_vec(&configuration).map_err(std::io::Error::other).and_then(|json| {
            if let Some(base) = base
                && !self.base(&base.name).exists()
            {
                put(&self.base(&base.name), &base.bytes)?;
            }
            if certificates != *self.written || !self.certificates.exists() {
                put(&self.certificates, &serde_json::to_vec(&certificates)?)?;
            }
            put(&self.configuration, &json)
        });
        match written {
            Ok(()) => {
                self.written = Arc::new(certificates);
                self.tidy(base.map(|base| &*base.name));
            }
            Err(e) => tracing::warn!(
                "{}: {e}; a restart without API server would have nothing to serve",
                self.configuration.display()
            ),
        }
    }

    /// Takes bases away that nothing names any more.
    fn tidy(&self, kept: Option<&str>) {
        let Some(files) = self.configuration.parent().and_then(|dir| std::fs::read_dir(dir).ok()) else {
            return;
        };
        for file in files.flatten() {
            let name = file.file_name();
            let base = name.to_str().and_then(|name| name.strip_prefix("last-ghost-base-"));
            let is_kept = kept.is_some_and(|kept| self.base(kept) == file.path());
            if base.is_some() && !is_kept {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

pub(super) fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let beside = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes).and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
        // Half a file takes room that a full directory needs.
        let _ = std::fs::remove_file(&beside);
    })
}
