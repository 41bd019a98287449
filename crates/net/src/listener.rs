//! Listening sockets.

use std::{
    io,
    net::SocketAddr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, fchmod},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, getsockname, listen,
        socket_with, sockopt,
    },
};

use crate::{
    Address, Socket,
    inherited::{self, Inherited},
    socket::retry,
};

const BACKLOG: i32 = 1024;
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A listening socket that never blocks. A Unix socket's path is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    address: Address,
    /// The file of a Unix socket; none for another address.
    file: Option<FileId>,
}

/// The identity of a file, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

/// The result of [`Listener::accept`].
#[derive(Debug)]
pub enum Accepted {
    /// A new connection.
    Connection(Socket),
    /// None is waiting.
    Nobody,
    /// None can be accepted now, for lack of descriptors or memory, or because of the network; the caller
    /// should wait before it tries again.
    Later(io::Error),
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one. A socket for it that was inherited is used.
    ///
    /// # Errors
    /// The kernel's error: the address is in use, not allowed or not available. The path of a socket that no
    /// process listens on any more is taken over; any other file stays as it is.
    pub fn bind(address: &Address) -> io::Result<Self> {
        Self::bind_with(address, None)
    }

    /// As [`bind`](Self::bind), but a Unix socket is for the user of this process alone: mode 0600.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_private(address: &Address) -> io::Result<Self> {
        Self::bind_with(address, Some(Mode::RUSR | Mode::WUSR))
    }

    /// Listens, by an inherited socket if there is one; a Unix socket of our own gets `mode`.
    fn bind_with(address: &Address, mode: Option<Mode>) -> io::Result<Self> {
        let inherited = inherited::take(address);
        let is_own = inherited.as_ref().is_none_or(|inherited| inherited.is_own);
        let listener = match (inherited, address) {
            (Some(inherited), _) => Self::inherited(inherited, address.clone()),
            (None, Address::Tcp(address)) => Self::bind_tcp(*address),
            (None, Address::Unix(path)) => Self::bind_unix(path.clone(), mode),
        }?;
        inherited::note(listener.fd.as_fd(), is_own);
        Ok(listener)
    }

    fn inherited(inherited: Inherited, address: Address) -> io::Result<Self> {
        let file = match &address {
            Address::Unix(path) if inherited.is_own => Some(FileId::of(path)?),
            _ => None,
        };
        Ok(Self { fd: inherited.socket, address, file })
    }

    /// The address in use, with the port that was taken.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Accepts one waiting connection.
    ///
    /// # Errors
    /// Only errors that make the listener itself unusable.
    pub fn accept(&self) -> io::Result<Accepted> {
        match retry(|| accept_with(&self.fd, FLAGS)) {
            Ok(fd) => {
                if matches!(self.address, Address::Tcp(_)) {
                    // Replies leave as whole bursts; waiting for more would only add latency.
                    let _ = sockopt::set_tcp_nodelay(&fd, true);
                    let _ = sockopt::set_socket_keepalive(&fd, true);
                }
                Ok(Accepted::Connection(Socket::from_nonblocking(fd)))
            }
            Err(error) => refused(error),
        }
    }

    fn bind_tcp(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = socket_with(family, SocketType::STREAM, FLAGS, None)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        if address.is_ipv6() {
            // An address stands for one family only; both families take two addresses.
            sockopt::set_ipv6_v6only(&fd, true)?;
        }
        bind(&fd, &address)?;
        listen(&fd, BACKLOG)?;
        let address = SocketAddr::try_from(getsockname(&fd)?)?;
        Ok(Self { fd, address: Address::Tcp(address), file: None })
    }

    fn bind_unix(path: PathBuf, mode: Option<Mode>) -> io::Result<Self> {
        let name = SocketAddrUnix::new(&path)?;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        if let Some(mode) = mode {
            // The path gets the mode of the descriptor when it is bound: no other
            // user can connect even for a moment.
            fchmod(&fd, mode)?;
        }
        match bind(&fd, &name) {
            Err(Errno::ADDRINUSE) => {
                remove_abandoned(&path, &name)?;
                bind(&fd, &name)?;
            }
            result => result?,
        }
        listen(&fd, BACKLOG)?;
        let file = Some(FileId::of(&path)?);
        Ok(Self { fd, address: Address::Unix(path), file })
    }
}

impl FileId {
    /// The file at `path` itself: links are not followed.
    fn of(path: &Path) -> io::Result<Self> {
        let file = std::fs::symlink_metadata(path)?;
        Ok(Self { device: file.dev(), inode: file.ino() })
    }
}

/// Removes the file at `path` if it is a socket without a listener.
fn remove_abandoned(path: &Path, name: &SocketAddrUnix) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket lies there"));
    }
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    match rustix::net::connect(&probe, name) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        // A server answers, or the state is unknown.
        _ => Err(Errno::ADDRINUSE.into()),
    }
}

/// Classifies an error of accept: nearly all errors pass.
fn refused(error: Errno) -> io::Result<Accepted> {
    match error {
        Errno::AGAIN => Ok(Accepted::Nobody),
        // The descriptor is not a listening socket; that never changes.
        Errno::BADF | Errno::FAULT | Errno::INVAL | Errno::NOTSOCK => Err(error.into()),
        _ => Ok(Accepted::Later(error.into())),
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        inherited::forget(self.fd.as_fd());
        if inherited::are_kept() {
            return;
        }
        let Address::Unix(path) = &self.address else { return };
        // A successor may have taken the path over.
        if FileId::of(path).ok() == self.file {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_private_socket_is_for_its_user_alone() {
        let path = std::env::temp_dir().join(format!("minos-net-private-{}", std::process::id()));
        let address = Address::Unix(path.clone());
        let listener = Listener::bind_private(&address).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(listener.address(), &address);
        assert!(Listener::bind_private(&address).is_err(), "somebody listens there");
        drop(listener);
        assert!(!path.exists());
    }

    /// A path for a socket that no other test uses, with nothing there.
    fn free_path(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("minos-net-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let path = free_path("file");
        std::fs::write(&path, "precious").unwrap();
        let error = Listener::bind(&Address::Unix(path.clone())).unwrap_err();
        assert!(error.to_string().contains("no socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_link_to_a_socket_stays() {
        let (path, link) = (free_path("linked"), free_path("link"));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Listener::bind(&Address::Unix(link.clone())).is_err());
        assert!(link.is_symlink() && path.exists());
        [path, link].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }

    #[test]
    fn an_abandoned_socket_is_taken_over() {
        let path = free_path("abandoned");
        // The standard library leaves the path behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_successor_keeps_its_path() {
        let path = free_path("successor");
        let address = Address::Unix(path.clone());
        let first = Listener::bind(&address).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Listener::bind(&address).unwrap();
        drop(first);
        std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn errors_of_one_connection_or_the_network_pass() {
        use Errno as E;
        let passing = [
            E::CONNABORTED,
            E::NETDOWN,
            E::PROTO,
            E::NOPROTOOPT,
            E::HOSTDOWN,
            E::NONET,
            E::HOSTUNREACH,
            E::OPNOTSUPP,
            E::NETUNREACH,
            E::PERM,
            E::NOBUFS,
            E::NOMEM,
            E::MFILE,
            E::NFILE,
            E::TIMEDOUT,
        ];
        for error in passing {
            let accepted = refused(error);
            assert!(
                matches!(&accepted, Ok(Accepted::Later(e)) if e.raw_os_error() == Some(error.raw_os_error())),
                "{error}"
            );
        }
        assert!(matches!(refused(E::AGAIN), Ok(Accepted::Nobody)));
        for error in [E::BADF, E::INVAL, E::NOTSOCK, E::FAULT] {
            assert!(refused(error).is_err(), "{error}");
        }
    }
}
