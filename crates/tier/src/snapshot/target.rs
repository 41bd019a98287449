//! The file of a copy: under a name of its own until it is complete.

use super::SnapshotError;
use minos_flash::Work;
use std::{
    fs::{self, DirEntry, File, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};
use tempfile::{Builder, NamedTempFile};

/// Longest name; the rest of what a file system allows is left to the user.
const NAME_BYTES_MAX: usize = 200;

/// A copy that is not complete is named so, with letters and digits between.
const PART: (&str, &str) = (".snapshot-", ".part");
/// The number of these letters and digits.
const PART_LETTERS: usize = 6;

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
        let mut builder = Builder::new();
        builder.prefix(PART.0).suffix(PART.1).rand_bytes(PART_LETTERS);
        let file = builder.make_in(folder, locked).map_err(SnapshotError::Write)?;
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
            ErrorKind::AlreadyExists => SnapshotError::Exists(path.clone()),
            _ => SnapshotError::Write(failed.error),
        })?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(SnapshotError::Write)
    }
}

/// Makes a file, locked until it is complete. If it is lost before, another name is to be tried.
fn locked(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    if is_lost(&file)? { Err(ErrorKind::AlreadyExists.into()) } else { Ok(file) }
}

/// Locks a new file; true if a server that started meanwhile has taken it for a dead one's.
fn is_lost(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(file.metadata()?.nlink() == 0),
        Err(TryLockError::WouldBlock) => Ok(true),
        // Where nothing can be locked, nothing is removed either.
        Err(TryLockError::Error(_)) => Ok(false),
    }
}

/// Removes the incomplete copies in this folder that no living server writes, and logs them. Nothing else is touched.
pub fn remove_stale_snapshots(folder: &Path) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return tracing::warn!(folder = %folder.display(), %error, "cannot look for old copies"),
    };
    for entry in entries.flatten().filter(is_part) {
        let path = entry.path();
        match remove_unlocked(&path) {
            Ok(true) => tracing::info!(path = %path.display(), "removed an incomplete snapshot"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "an incomplete snapshot cannot be removed");
            }
        }
    }
}

fn is_part(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let letters =
        name.to_str().and_then(|name| name.strip_prefix(PART.0)).and_then(|name| name.strip_suffix(PART.1));
    let is_name = letters
        .is_some_and(|it| it.len() == PART_LETTERS && it.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    is_name && entry.file_type().is_ok_and(|kind| kind.is_file())
}

/// False if somebody writes it, or has just completed or removed it.
fn remove_unlocked(path: &Path) -> io::Result<bool> {
    let removed = File::open(path).and_then(|file| match file.try_lock() {
        Ok(()) => fs::remove_file(path).map(|()| true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    });
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_copies_of_dead_servers_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let others =
            [".snapshot-short.part", ".snapshot-abcde-.part", ".snapshot-abcdef.par", "snapshot-abcdef.part"];
        let others = [&others[..], &[".snapshot-abcdef.part.old", "copy"]].concat();
        others.iter().for_each(|name| fs::write(path(name), "letters").unwrap());
        fs::create_dir(path(".snapshot-folder.part")).unwrap();
        std::os::unix::fs::symlink(path("copy"), path(".snapshot-link01.part")).unwrap();
        // That of a server that lives, and afterwards that of one that was killed.
        let target = Target::new(folder.path(), "mine").unwrap();
        let before = names(folder.path());
        fs::write(path(".snapshot-Dead42.part"), "letters").unwrap();
        remove_stale_snapshots(folder.path());
        assert_eq!(names(folder.path()), before);
        target.keep().unwrap();
        let target = Target::new(folder.path(), "next").unwrap();
        let (file, part) = target.file.into_parts();
        part.keep().unwrap();
        drop(file);
        assert_eq!(names(folder.path()).len(), before.len() + 1);
        remove_stale_snapshots(folder.path());
        let after = names(folder.path());
        assert!(after.len() == before.len() && after.contains(&"mine".to_owned()), "{after:?}");
    }

    #[test]
    fn a_part_that_was_taken_before_it_was_locked_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        let file = File::create(&path).unwrap();
        let taker = File::open(&path).unwrap();
        taker.lock().unwrap();
        assert!(is_lost(&file).unwrap());
        taker.unlock().unwrap();
        assert!(!is_lost(&file).unwrap());
        fs::remove_file(&path).unwrap();
        assert!(is_lost(&file).unwrap());
    }

    #[test]
    fn a_part_is_removed_by_nobody_before_it_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            let sweeper = scope.spawn(|| (0..2000).for_each(|_| remove_stale_snapshots(folder.path())));
            let mut number = 0;
            while !sweeper.is_finished() {
                number += 1;
                let target = Target::new(folder.path(), &number.to_string()).unwrap();
                target.resize(1).unwrap();
                target.keep().unwrap();
            }
            assert_eq!(names(folder.path()).len(), number);
        });
    }

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
