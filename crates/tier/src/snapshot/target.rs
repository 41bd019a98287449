//! The file of a copy: under a name of its own until it is complete.

use super::SnapshotError;
use minos_flash::Work;
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};
use tempfile::{Builder, NamedTempFile};

/// Longest name; the rest of what a file system allows is left to the user.
const NAME_BYTES_MAX: usize = 200;

/// A file that vanishes unless it is kept.
#[derive(Debug)]
pub(super) struct Target {
    file: NamedTempFile,
    folder: PathBuf,
    path: PathBuf,
}

impl Target {
    /// Begins a file, readable by the server's user alone.
    pub(super) fn new(folder: &Path, name: &str) -> Result<Self, SnapshotError> {
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
            && !name.starts_with('.')
            && !name.contains(|char: char| char == '/' || char.is_control());
        if !is_name {
            return Err(SnapshotError::Name(name.to_owned()));
        }
        let path = folder.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(SnapshotError::Exists(path));
        }
        let file = Builder::new().prefix(".snapshot-").suffix(".part").tempfile_in(folder);
        let file = file.map_err(SnapshotError::Write)?;
        Ok(Self { file, folder: folder.to_owned(), path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its size, all zeros.
    pub(super) fn resize(&self, bytes: u64) -> Result<(), SnapshotError> {
        self.file.as_file().set_len(bytes).map_err(SnapshotError::Write)
    }

    pub(super) fn write(&self, work: &Work) -> Result<(), SnapshotError> {
        match work {
            Work::Write { at, bytes } => self.write_at(*at, bytes),
            Work::Read { .. } | Work::Flush => Ok(()),
        }
    }

    pub(super) fn write_at(&self, at: u64, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.file.as_file().write_all_at(bytes, at).map_err(SnapshotError::Write)
    }

    /// Brings what was written to the disk.
    pub(super) fn flush(&self) -> Result<(), SnapshotError> {
        self.file.as_file().sync_all().map_err(SnapshotError::Write)
    }

    /// Keeps it under its name, unless another file has that meanwhile.
    pub(super) fn keep(self) -> Result<(), SnapshotError> {
        self.flush()?;
        let Self { file, folder, path } = self;
        file.persist_noclobber(&path).map_err(|failed| match failed.error.kind() {
            io::ErrorKind::AlreadyExists => SnapshotError::Exists(path.clone()),
            _ => SnapshotError::Write(failed.error),
        })?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(SnapshotError::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/nowhere", folder.path().join("link")).unwrap();
        let long = "x".repeat(201);
        for name in ["", ".", "..", ".hidden", "a/b", "/etc/passwd", "../x", "a\0b", "a\nb", &long] {
            assert!(matches!(Target::new(folder.path(), name), Err(SnapshotError::Name(_))), "{name:?}");
        }
        assert!(matches!(Target::new(folder.path(), "link"), Err(SnapshotError::Exists(_))));
        assert!(matches!(Target::new(&folder.path().join("none"), "x"), Err(SnapshotError::Write(_))));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn a_file_that_came_meanwhile_stays() {
        let folder = tempfile::tempdir().unwrap();
        let target = Target::new(folder.path(), "copy").unwrap();
        target.resize(4096).unwrap();
        std::fs::write(folder.path().join("copy"), "letters").unwrap();
        assert!(matches!(target.keep(), Err(SnapshotError::Exists(_))));
        assert_eq!(std::fs::read(folder.path().join("copy")).unwrap(), b"letters");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left behind");
    }
}
