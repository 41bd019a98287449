//! The place of a socket in the file system, for one process at a time.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};

/// The file of a socket that is made there; removed when dropped. Nobody else of this program makes one there meanwhile.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and number of the socket that was made.
    made: Option<(u64, u64)>,
    /// Locked.
    _lock: fs::File,
}

impl SocketFile {
    /// Takes the place of a process that has ended. `answers` tells if somebody listens at a socket that is there.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another process has the place, or there is a file that is no socket.
    pub(crate) fn take(path: &Path, answers: impl FnOnce() -> bool) -> io::Result<Self> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).custom_flags(no_link).open(beside)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => io::ErrorKind::AddrInUse.into(),
            error => io::Error::from(error),
        })?;
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() && !answers() => fs::remove_file(path)?,
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => {}
        }
        Ok(Self { path: path.to_owned(), made: None, _lock: lock })
    }

    /// Notes the socket that was made.
    pub(crate) fn made(mut self) -> Self {
        self.made = self.there();
        self
    }

    fn there(&self) -> Option<(u64, u64)> {
        let found = fs::symlink_metadata(&self.path).ok()?;
        found.file_type().is_socket().then(|| (found.dev(), found.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.made.is_some() && self.made == self.there() {
            // The next one at this place removes it otherwise.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_an_abandoned_socket_is_replaced_and_only_its_own_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let lock = folder.path().join("socket.lock");
        fs::write(&lock, "kept").unwrap();
        let in_use = |taken: io::Result<SocketFile>| taken.unwrap_err().kind() == io::ErrorKind::AddrInUse;
        fs::write(&path, "somebody's").unwrap();
        assert!(in_use(SocketFile::take(&path, || false)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's");
        fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        assert!(in_use(SocketFile::take(&path, || true)));
        assert!(path.exists());
        let taken = SocketFile::take(&path, || false).unwrap();
        assert!(!path.exists() && in_use(SocketFile::take(&path, || false)));
        let listener = UnixListener::bind(&path).unwrap();
        drop(taken.made());
        assert!(!path.exists());
        // Another's that has come meanwhile.
        let taken = SocketFile::take(&path, || false).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop((taken, listener));
        assert!(path.exists());
        assert_eq!(fs::read_to_string(lock).unwrap(), "kept");
    }
}
