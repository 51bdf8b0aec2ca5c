use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// What we and varnishd (`-S file`) both know. Every byte of the file counts, a newline at its end too.
///
/// Reading and writing block for the length of a small file access: do it at start-up.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Bytes from a file or another source. varnishd refuses an empty file, so don't pass none.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into().into())
    }

    pub fn generate() -> Result<Self> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(Error::Random)?;
        // As text, so that a person can compare two files.
        Ok(Self::new(hex(&bytes) + "\n"))
    }

    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(|source| Error::ReadSecret { path: path.to_owned(), source })?;
        if bytes.is_empty() {
            return Err(Error::EmptySecret { path: path.to_owned() });
        }
        Ok(Self::new(bytes))
    }

    /// Replaces the file in one step, readable for its owner only. varnishd reads it before it drops its
    /// privileges, and again at each authentication with its privileges raised, so root's 0600 is enough.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.replace(path).map_err(|source| Error::WriteSecret { path: path.to_owned(), source })
    }

    fn replace(&self, path: &Path) -> io::Result<()> {
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".{}", std::process::id()));
        let new = path.with_file_name(name);
        // A left-over of a process with our id. An existing file would keep its mode and its readers.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| file.write_all(&self.0))
            .and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            // The error to report is the first one.
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// What varnishd expects as an answer to its challenge.
    pub(crate) fn respond(&self, challenge: &[u8]) -> String {
        let mut hash = Sha256::new();
        hash.update(challenge);
        hash.update(b"\n");
        hash.update(&self.0);
        hash.update(challenge);
        hash.update(b"\n");
        hex(&hash.finalize())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_response_is_the_one_of_the_manual() {
        // The example in the documentation of varnishd's CLI.
        let secret = Secret::new("foo\n");
        assert_eq!(
            secret.respond(b"ixslvvxrgkjptxmcgnnsdxsvdmvfympg"),
            "455ce847f0073c7ab3b1465f74507b75d3dc064c1e7de3b71e00de9092fdc89a"
        );
    }

    #[test]
    fn a_written_secret_reads_back_and_is_its_owners_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "old and public").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();

        let secret = Secret::generate().unwrap();
        secret.write(&path).unwrap();

        assert_eq!(Secret::read(&path).unwrap(), secret);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
        assert_ne!(Secret::generate().unwrap(), secret);
    }

    #[test]
    fn an_empty_or_missing_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let missing = Secret::read(&path).unwrap_err().to_string();
        assert!(missing.contains(path.to_str().unwrap()), "{missing}");
        fs::write(&path, "").unwrap();
        assert!(matches!(Secret::read(&path), Err(Error::EmptySecret { .. })));
    }

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Secret::new("hush")), "Secret(…)");
    }
}
