//! The right to lead a rack, and what keeps its directory.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

use minos_unit::{Directory, Epoch};

#[cfg(feature = "etcd")]
use super::etcd;
use super::{CoordinatorError, Event};

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
    File(FileReign),
    #[cfg(feature = "etcd")]
    Etcd(etcd::Mandate),
}

impl Reign {
    /// True if no other coordinator leads. Whoever grants a lease must have got the node's report before asking this.
    pub(super) fn is_held(&self) -> bool {
        match self {
            Self::File(_) => true,
            #[cfg(feature = "etcd")]
            Self::Etcd(mandate) => mandate.is_held(),
        }
    }

    /// Has the directory written in place of the last one. That it is comes as an event.
    pub(super) fn keep(&self, directory: &Directory) {
        let draft = Draft { epoch: directory.epoch(), bytes: directory.encode() };
        match self {
            Self::File(reign) => reign.keep(draft),
            #[cfg(feature = "etcd")]
            Self::Etcd(mandate) => mandate.keep(draft),
        }
    }
}

/// A directory to be kept. One is under way at a time: the coordinator waits until it is kept.
pub(super) struct Draft {
    pub(super) epoch: Epoch,
    pub(super) bytes: Vec<u8>,
}

/// The right of the only coordinator that has its directory in a file. A thread writes it: the nodes keep their leases
/// while the disk is slow.
pub(super) struct FileReign {
    drafts: Option<Sender<Draft>>,
    writer: Option<JoinHandle<()>>,
    /// Locked, beside the directory, which is another file after each change.
    _lock: File,
}

impl FileReign {
    /// Leads as the only one with its directory in this file.
    ///
    /// # Errors
    /// Another one has it there, no file can be made beside it, or there can be no thread.
    pub(super) fn start(path: &Path, events: Sender<Event>) -> Result<Self, CoordinatorError> {
        let failed = |error| CoordinatorError::Io { path: path.to_owned(), error };
        let lock = File::create(beside(path, ".lock")).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => failed(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another coordinator has its directory there",
            )),
            TryLockError::Error(error) => failed(error),
        })?;
        let (drafts, to_keep) = channel();
        let directory = path.to_owned();
        let write = move || keep_all(&directory, to_keep, &events);
        let writer =
            thread::Builder::new().name("minos-directory".to_owned()).spawn(write).map_err(failed)?;
        Ok(Self { drafts: Some(drafts), writer: Some(writer), _lock: lock })
    }

    fn keep(&self, draft: Draft) {
        // If nobody listens, one was not kept: the coordinator hears of that.
        let _ = self.drafts.as_ref().map(|drafts| drafts.send(draft));
    }
}

impl Drop for FileReign {
    fn drop(&mut self) {
        self.drafts = None;
        // What is under way is written before another one may lead.
        self.writer.take().map(JoinHandle::join);
    }
}

/// Writes drafts to the file until there are no more, or one fails.
fn keep_all(path: &Path, drafts: Receiver<Draft>, events: &Sender<Event>) {
    for Draft { epoch, bytes } in drafts {
        let kept = persist(path, &bytes);
        let has_failed = kept.is_err();
        let kept =
            kept.map(|()| epoch).map_err(|error| CoordinatorError::Io { path: path.to_owned(), error });
        // The process may have ended.
        let _ = events.send(Event::Kept(kept));
        if has_failed {
            break;
        }
    }
}

/// The file beside a directory that is named after it: two directories in one folder have different ones.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Replaces the file by these bytes: after a crash it has the old or the new ones.
fn persist(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = beside(path, ".new");
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
        let (events, _all) = channel();
        let reign = FileReign::start(&path, events.clone()).unwrap();
        let refused = FileReign::start(&path, events.clone()).err().unwrap().to_string();
        assert!(refused.ends_with("directory: another coordinator has its directory there"), "{refused}");
        drop(reign);
        assert!(FileReign::start(&path, events).is_ok());
    }

    /// Before, both wrote to the same draft.
    #[test]
    fn directories_whose_names_differ_at_the_end_have_drafts_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["rack.a", "rack.b"].map(|name| folder.path().join(name));
        assert_ne!(beside(&paths[0], ".new"), beside(&paths[1], ".new"));
        let begun = paths.clone().map(|path| {
            let (events, all) = channel();
            (FileReign::start(&path, events).unwrap(), all)
        });
        // A folder lies where the first draft is to be written.
        fs::create_dir(beside(&paths[0], ".new")).unwrap();
        let kept = begun.map(|(reign, all)| {
            reign.keep(Draft { epoch: 7, bytes: b"seven".to_vec() });
            matches!(all.recv().unwrap(), Event::Kept(Ok(7)))
        });
        assert_eq!(kept, [false, true]);
    }

    #[test]
    fn what_is_kept_is_in_the_file_and_what_is_not_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        let (events, all) = channel();
        let reign = FileReign::start(&path, events).unwrap();
        reign.keep(Draft { epoch: 7, bytes: b"seven".to_vec() });
        assert!(matches!(all.recv().unwrap(), Event::Kept(Ok(7))));
        assert_eq!(fs::read(&path).unwrap(), b"seven");
        // A folder lies where the draft is to be written.
        fs::create_dir(beside(&path, ".new")).unwrap();
        reign.keep(Draft { epoch: 8, bytes: b"eight".to_vec() });
        let Event::Kept(Err(failed)) = all.recv().unwrap() else { panic!("a folder cannot be written") };
        assert!(failed.to_string().contains("directory: "), "{failed}");
        assert_eq!(fs::read(&path).unwrap(), b"seven");
    }
}
