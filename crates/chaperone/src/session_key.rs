//! The key of the tokens of sticky sessions.
//!
//! In a pod it is derived from the secret of varnishd's CLI, which all pods of a Gateway mount ({gateway}-admin): a session
//! works in every pod. Without such a file a key is kept in the work directory, for the next start.

use std::fs;
use std::path::Path;

use front::SessionKey;
use varnishadm::Secret;

use crate::Settings;

const FILE: &str = "session-key";

pub(crate) fn read_or_create(settings: &Settings) -> SessionKey {
    let secret = match &settings.secret {
        Some(path) => fs::read(path).map_err(|e| format!("{}: {e}", path.display())),
        None => kept(&settings.work_dir),
    };
    secret.map_or_else(
        |why| {
            tracing::warn!(
                "{}: the key of sticky sessions cannot be kept ({why}): sessions end when this process does",
                settings.name
            );
            SessionKey::default()
        },
        |secret| SessionKey::of_secret(&secret),
    )
}

/// The key in the work directory, or a new one.
fn kept(dir: &Path) -> Result<Vec<u8>, String> {
    let path = dir.join(FILE);
    if let Ok(secret) = fs::read(&path)
        && !secret.is_empty()
    {
        return Ok(secret);
    }
    fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Secret::generate().and_then(|new| new.write(&path)).map_err(|e| e.to_string())?;
    fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_kept_and_readable_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        let first = kept(&work).unwrap();
        assert_eq!(kept(&work).unwrap(), first);
        let mode = fs::metadata(work.join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(work.join(FILE), "").unwrap();
        assert_ne!(kept(&work).unwrap(), first);
    }
}
