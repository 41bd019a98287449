//! Listening sockets.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    fs::{Mode, fchmod},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, getsockname, listen,
        socket_with, sockopt,
    },
};

use crate::{Address, Socket, socket::retry};

const BACKLOG: i32 = 1024;
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// A listening socket that never blocks. A Unix socket's path is removed when it is dropped.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    address: Address,
}

/// What a call of [`Listener::accept`] came to.
#[derive(Debug)]
pub enum Accepted {
    /// A new connection.
    Connection(Socket),
    /// None is waiting.
    Nobody,
    /// The process has no descriptor left; the caller should wait before it tries again.
    NoDescriptor,
}

impl Listener {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// Whatever the kernel answers: the address is in use, not allowed or not there. A Unix socket's
    /// path that nobody listens on any more is taken over.
    pub fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => Self::bind_tcp(*address),
            Address::Unix(path) => Self::bind_unix(path.clone(), None),
        }
    }

    /// As [`bind`](Self::bind), but a Unix socket is for the user of this process alone: mode 0600.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_private(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => Self::bind_tcp(*address),
            Address::Unix(path) => Self::bind_unix(path.clone(), Some(Mode::RUSR | Mode::WUSR)),
        }
    }

    /// The address in use, with the port that was taken.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Takes one waiting connection.
    ///
    /// # Errors
    /// Only what makes the listener itself unusable.
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
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::PROTO | Errno::PERM) => Ok(Accepted::Nobody),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Ok(Accepted::NoDescriptor),
            Err(error) => Err(error.into()),
        }
    }

    fn bind_tcp(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = socket_with(family, SocketType::STREAM, FLAGS, None)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        if address.is_ipv6() {
            // Each address says exactly what it means; both families take two addresses.
            sockopt::set_ipv6_v6only(&fd, true)?;
        }
        bind(&fd, &address)?;
        listen(&fd, BACKLOG)?;
        let address = SocketAddr::try_from(getsockname(&fd)?)?;
        Ok(Self { fd, address: Address::Tcp(address) })
    }

    fn bind_unix(path: PathBuf, mode: Option<Mode>) -> io::Result<Self> {
        let name = SocketAddrUnix::new(&path)?;
        let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
        if let Some(mode) = mode {
            // The path gets the mode of the descriptor when it is bound: nobody else can connect even for a moment.
            fchmod(&fd, mode)?;
        }
        match bind(&fd, &name) {
            Err(Errno::ADDRINUSE) if is_abandoned(&name) => {
                std::fs::remove_file(&path)?;
                bind(&fd, &name)?;
            }
            result => result?,
        }
        listen(&fd, BACKLOG)?;
        Ok(Self { fd, address: Address::Unix(path) })
    }
}

/// Whether the socket file at `name` has no listener behind it.
fn is_abandoned(name: &SocketAddrUnix) -> bool {
    let Ok(probe) = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None) else { return false };
    matches!(rustix::net::connect(&probe, name), Err(Errno::CONNREFUSED))
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            // It may have been removed by somebody else already.
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
}
