//! `--region`: the place of memory that outlives the server.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::PathBuf,
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::ensure;
use minos_engine::{Backing, Engine, Kept, Mode};
use minos_net::{Wait, wait_readable};

use crate::keeper::{Holder, Pages, has_memory, is_name};

/// The name of a memory that has none in `--region`.
const NAME: &str = "minos";
/// Longest sleep.
const SLEEP_MAX: Duration = Duration::from_secs(3600);

/// Where memory lies that outlives the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RegionPlace {
    /// In a file.
    File(PathBuf),
    /// At a keeper, under a name.
    Keeper { socket: PathBuf, name: String },
}

impl RegionPlace {
    /// The place that an argument names.
    pub(super) fn of(text: OsString) -> Self {
        let Some(place) = text.as_bytes().strip_prefix(b"keeper:") else { return Self::File(text.into()) };
        let end = place.iter().rposition(|&byte| byte == b'=');
        let (socket, name) = end.map_or((place, NAME.as_bytes()), |end| (&place[..end], &place[end + 1..]));
        let socket = OsStr::from_bytes(socket).into();
        Self::Keeper { socket, name: String::from_utf8_lossy(name).into_owned() }
    }

    /// Memory there, in the pages that `backing` asks for.
    pub(super) fn backing(&self, backing: Option<&Backing>) -> Backing {
        match self {
            Self::File(path) => Backing::File(path.clone()),
            Self::Keeper { socket, name } => {
                let pages = if backing == Some(&Backing::Hugetlb) { Pages::Huge } else { Pages::Usual };
                Backing::Kept(Kept::by(Arc::new(Holder::new(socket, name, self.to_string(), pages))))
            }
        }
    }

    /// True if there is memory of an earlier server.
    ///
    /// # Errors
    /// Its keeper cannot be asked.
    pub(super) fn is_used(&self) -> anyhow::Result<bool> {
        match self {
            Self::File(path) => Ok(path.exists()),
            Self::Keeper { socket, name } => has_memory(socket, name),
        }
    }

    /// An error if the memory there cannot be as `backing` says, or has a name that no keeper takes.
    pub(super) fn check(&self, backing: Option<&Backing>) -> anyhow::Result<()> {
        match (self, backing) {
            (Self::File(_), None) => Ok(()),
            (Self::File(_), Some(_)) => {
                anyhow::bail!("--backing: a file of --region has the pages of its file system")
            }
            (Self::Keeper { name, .. }, None | Some(Backing::Auto | Backing::Memfd | Backing::Hugetlb)) => {
                ensure!(
                    is_name(name),
                    "--region {self}: a name has 1 to 64 letters, digits, dots, hyphens and underscores"
                );
                Ok(())
            }
            (Self::Keeper { .. }, Some(backing)) => {
                anyhow::bail!("--backing {backing}: a keeper has memfd and hugetlb")
            }
        }
    }
}

impl fmt::Display for RegionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Keeper { socket, name } => write!(f, "keeper:{}={name}", socket.display()),
        }
    }
}

/// A thread that notices the end of the keeper; it ends with this value.
pub(super) struct Watch {
    /// The thread ends when this is closed.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches the keeper of a table, if it has one. Its items may be on flash after a stop.
    ///
    /// # Errors
    /// No thread or descriptor is left.
    pub(super) fn start<M: Mode>(
        backing: &Backing,
        store: &Arc<Engine<M>>,
        keeps_on_flash: bool,
    ) -> anyhow::Result<Option<Self>> {
        let Backing::Kept(kept) = backing else { return Ok(None) };
        let (end, store) = (kept.end()?, Arc::downgrade(store));
        let (stop, stopped) = UnixStream::pair()?;
        let watch = move || watch(&end, &stopped, &store, keeps_on_flash);
        let thread = thread::Builder::new().name("minos-keeper".to_owned()).spawn(watch)?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().map(JoinHandle::join);
    }
}

/// Tells the table when its keeper has ended.
fn watch<M: Mode>(end: &OwnedFd, stopped: &UnixStream, store: &Weak<Engine<M>>, keeps_on_flash: bool) {
    let is_readable = |fd| wait_readable(&[fd], Wait::No).unwrap_or(false);
    loop {
        let waited = wait_readable(&[end.as_fd(), stopped.as_fd()], Wait::For(SLEEP_MAX));
        if waited.is_err() || is_readable(stopped.as_fd()) {
            return;
        }
        if is_readable(end.as_fd())
            && let Some(store) = store.upgrade()
        {
            store.forsake();
            let lost = if keeps_on_flash {
                "what memory holds alone is lost if this server is killed; a stop writes it to flash"
            } else {
                "the items are lost when this server ends"
            };
            tracing::warn!("the keeper has ended: {lost}");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_path_or_a_name_at_a_keeper() {
        let parse = |text: &str| RegionPlace::of(text.into());
        let keeper =
            |socket: &str, name: &str| RegionPlace::Keeper { socket: socket.into(), name: name.into() };
        assert_eq!(parse("/dev/shm/a=b"), RegionPlace::File("/dev/shm/a=b".into()));
        assert_eq!(parse("./keeper:a"), RegionPlace::File("./keeper:a".into()));
        assert_eq!(parse("keeper:/run/k"), keeper("/run/k", "minos"));
        assert_eq!(parse("keeper:/run/k=r0"), keeper("/run/k", "r0"));
        assert_eq!(parse("keeper:/run/k=r0").to_string(), "keeper:/run/k=r0");
        assert!(parse("keeper:/run/k=").check(None).is_err());
        let bytes = |bytes: &[u8]| RegionPlace::of(OsStr::from_bytes(bytes).to_owned());
        assert!(bytes(b"keeper:/run/k=\xff").check(None).is_err() && bytes(b"/\xff").check(None).is_ok());
        assert!(parse("keeper:/run/k").check(Some(&Backing::Hugetlb)).is_ok());
        assert!(parse("keeper:/run/k").check(Some(&Backing::Private)).is_err());
        assert!(parse("/run/k").check(Some(&Backing::Auto)).is_err() && parse("/run/k").check(None).is_ok());
    }
}
