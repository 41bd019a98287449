//! The right to lead a rack, and what keeps its directory.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use minos_unit::{Directory, control::Input};

use super::CoordinatorError;
#[cfg(feature = "etcd")]
use super::etcd;

/// What keeps the directory, and says who leads.
#[derive(Clone, Debug)]
pub enum Keep {
    /// A file, of a rack's only coordinator.
    File(PathBuf),
    /// etcd, which elects one of several coordinators. It needs the cargo feature `etcd`.
    Etcd(EtcdConfig),
}

/// How coordinators find each other in etcd.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// URLs of the servers.
    pub servers: Vec<String>,
    /// What the names of all keys begin with. The name of the rack follows.
    pub prefix: String,
    /// Time after which another coordinator is elected if the leader is silent, in whole seconds. etcd may make it longer.
    pub ttl: Duration,
    /// Name and password, if etcd asks for them.
    pub user: Option<(String, String)>,
}

impl EtcdConfig {
    /// The key that the leader holds.
    #[cfg(feature = "etcd")]
    pub(super) fn leader(&self, rack: &str) -> String {
        format!("{}/{rack}/leader", self.prefix)
    }

    /// The key of the directory.
    pub(super) fn directory(&self, rack: &str) -> String {
        format!("{}/{rack}/directory", self.prefix)
    }
}

/// The right to lead, for as long as it is held.
pub(super) enum Reign {
    /// Held as long as the process lives.
    File {
        /// The directory.
        path: PathBuf,
        /// Locked, beside it: the directory is another file after each change.
        _lock: File,
    },
    #[cfg(feature = "etcd")]
    Etcd(etcd::Mandate),
}

impl Reign {
    /// The right of the only coordinator that has its directory in this file.
    ///
    /// # Errors
    /// Another one has it there, or no file can be made beside it.
    pub(super) fn of_file(path: &Path) -> Result<Self, CoordinatorError> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        let failed = |error| CoordinatorError::Io { path: path.to_owned(), error };
        let lock = File::create(beside).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => failed(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another coordinator has its directory there",
            )),
            TryLockError::Error(error) => failed(error),
        })?;
        Ok(Self::File { path: path.to_owned(), _lock: lock })
    }

    /// True if no other coordinator leads. Whoever grants a lease must have got the node's report before asking this.
    pub(super) fn is_held(&self) -> bool {
        match self {
            Self::File { .. } => true,
            #[cfg(feature = "etcd")]
            Self::Etcd(mandate) => mandate.is_held(),
        }
    }

    /// Keeps the directory in place of the last one. Returns what follows from it; none if that comes as an event.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn keep(&self, directory: &Directory) -> Result<Option<Input>, CoordinatorError> {
        match self {
            Self::File { path, .. } => {
                let failed = |error| CoordinatorError::Io { path: path.clone(), error };
                persist(path, &directory.encode()).map_err(failed)?;
                Ok(Some(Input::Persisted(directory.epoch())))
            }
            #[cfg(feature = "etcd")]
            Self::Etcd(mandate) => {
                mandate.keep(directory);
                Ok(None)
            }
        }
    }
}

/// Replaces the file by these bytes: after a crash it has the old or the new ones.
fn persist(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = File::create(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_coordinator() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        let reign = Reign::of_file(&path).unwrap();
        let refused = Reign::of_file(&path).err().unwrap().to_string();
        assert!(refused.ends_with("directory: another coordinator has its directory there"), "{refused}");
        drop(reign);
        assert!(Reign::of_file(&path).is_ok());
    }
}
