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
        // As text, so that a person can compare two files.
        Ok(Self::new(random_text().map_err(Error::Random)? + "\n"))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
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

/// 256 random bits of the operating system, in hexadecimal: for every secret and token of ours.
pub fn random_text() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(hex(&bytes))
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
mod tests;
