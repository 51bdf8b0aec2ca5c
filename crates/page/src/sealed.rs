//! A page without a name: a file in memory, sealed so that no process can make it shorter, and handed to ghost by a unix socket.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::{Page, mapping, random_key};

/// Its length cannot change any more.
const LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

impl Page {
    /// A new page, and the file that the other side maps by [`Page::from_sealed`].
    pub fn sealed() -> io::Result<(Self, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = match memfd_create("hot-page", flags | MemfdFlags::NOEXEC_SEAL) {
            // Before Linux 6.3.
            Err(Errno::INVAL) => memfd_create("hot-page", flags),
            made => made,
        };
        let mut file = File::from(made?);
        let key = random_key();
        file.write_all(&mapping::empty(key))?;
        fcntl_add_seals(&file, LENGTH | SealFlags::SEAL)?;
        let page = Self::begin_new(&file, key)?;
        Ok((page, file.into()))
    }

    /// Maps a page that [`Page::sealed`] has made. An error where its length could change.
    pub fn from_sealed(file: OwnedFd) -> io::Result<Self> {
        if !fcntl_get_seals(&file)?.contains(LENGTH) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the page is not sealed"));
        }
        Self::map(&File::from(file))
    }
}

/// Sends these bytes, and the file with them.
pub fn hand_over(socket: impl AsFd, bytes: &[u8], file: impl AsFd) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    let files = [file.as_fd()];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?)
}

/// Reads bytes as `read` does, and a file where one came with them. Of several, the first; the others are closed.
pub fn receive(socket: impl AsFd, room: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let read = recvmsg(socket, &mut [IoSliceMut::new(room)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.by_ref().flatten().next();
    Ok((read.bytes, file))
}
