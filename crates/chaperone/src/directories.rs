//! The directories of a varnishd, and the VMOD in them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::{Error, Settings};

/// `sockaddr_un` has 108 bytes for a path, including the terminating zero.
const LONGEST_SOCKET_PATH: usize = 107;

pub(crate) fn vmod_dir(work_dir: &Path) -> PathBuf {
    work_dir.join("vmods")
}

/// The directories, readable for varnishd's own user, to which it drops when it is started as root; and the VMOD
/// in them, since that user cannot read a private checkout.
pub(crate) fn prepare(settings: &Settings) -> Result<(), Error> {
    for path in [
        settings.https_socket(),
        settings.front_socket(),
        settings.backends_socket(),
        settings.events_socket(),
        settings.control_socket(),
    ] {
        if path.as_os_str().len() > LONGEST_SOCKET_PATH {
            return Err(Error::SocketPath { path, longest: LONGEST_SOCKET_PATH });
        }
    }
    for dir in [settings.work_dir.clone(), vmod_dir(&settings.work_dir)] {
        fs::create_dir_all(&dir).map_err(Error::file(&dir))?;
        let mode = fs::metadata(&dir).map_err(Error::file(&dir))?.permissions().mode();
        // A volume of the pod belongs to root, and its mode lets us write. Only its owner may change the mode.
        if mode & 0o755 != 0o755 {
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).map_err(Error::file(&dir))?;
        }
    }
    prepare_control(&settings.control_socket())?;
    if let Some(vmod) = &settings.vmod {
        let to = vmod_dir(&settings.work_dir).join("libvmod_ghost.so");
        if !vmod.exists() {
            return Err(Error::NoVmod { path: vmod.clone() });
        }
        fs::copy(vmod, &to).map_err(Error::file(&to))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o644)).map_err(Error::file(&to))?;
    }
    Ok(())
}

/// The users that varnishd's manager may run its child as, if it runs as root. The first existing one counts.
const CHILD_USERS: [&str; 2] = ["vcache", "varnish"];

/// ghost opens its control socket there: a directory of varnishd's own user, closed to all others but root.
pub(crate) fn prepare_control(socket: &Path) -> Result<(), Error> {
    let Some(dir) = socket.parent() else { return Ok(()) };
    fs::create_dir_all(dir).map_err(Error::file(dir))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(Error::file(dir))?;
    if fs::metadata(dir).map_err(Error::file(dir))?.uid() != 0 {
        return Ok(());
    }
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let id = |user: &str| {
        let line = known.lines().find(|line| line.split(':').next() == Some(user))?;
        line.split(':').nth(2)?.parse().ok()
    };
    match CHILD_USERS.iter().find_map(|user| id(user)) {
        Some(user) => std::os::unix::fs::chown(dir, Some(user), None).map_err(Error::file(dir)),
        None => Ok(()),
    }
}
