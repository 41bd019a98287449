//! The place of a socket in the file system, for one process at a time.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

/// The file of a socket, which may be made there; removed when dropped. Nobody else makes one there meanwhile.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Locked. To ask the socket itself would not do: DPDK ends its process if a peer leaves early.
    _lock: File,
}

impl SocketFile {
    /// Takes the place of a process that has ended.
    pub(crate) fn take(path: &Path) -> io::Result<Self> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        let lock = File::create(beside)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => io::ErrorKind::AddrInUse.into(),
            error => io::Error::from(error),
        })?;
        if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            fs::remove_file(path)?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The next one at this place removes it otherwise.
        let _ = fs::remove_file(&self.path);
    }
}
