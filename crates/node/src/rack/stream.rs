//! Streams of nodes, the coordinator and operators: Unix sockets as they are, and sealed ones over TCP.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    thread,
    time::Duration,
};

use minos_net::{Address, Listener, Socket};
use minos_sealed::{Blocking, Duplex, Ends, Keys, Purpose};

use crate::tcp::connection::Proven;

/// Time that the other end of a stream has to take a packet.
pub(crate) const SEND_MAX: Duration = Duration::from_millis(200);
/// Time for a connection over TCP and its handshake.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// The number by which a coordinator is called.
pub(crate) const COORDINATOR: u16 = u16::MAX;
/// The number by which an operator calls.
pub(crate) const OPERATOR: u16 = u16::MAX - 1;

/// Listens at a Unix socket for processes of this user, whose streams `hear` gets on a thread that ends with the process. The
/// path is removed when the listener is dropped.
///
/// # Errors
/// Somebody listens there, or the kernel refuses.
pub(crate) fn listen_here(
    path: &Path,
    hear: impl Fn(io::Result<ControlStream>) + Send + 'static,
) -> io::Result<Listener> {
    let listener = Listener::bind_private(&Address::Unix(path.to_owned()))?;
    let door = UnixListener::from(listener.as_fd().try_clone_to_owned()?);
    door.set_nonblocking(false)?;
    let accept = move || door.incoming().flatten().for_each(|stream| hear(ControlStream::plain(stream)));
    thread::Builder::new().name("minos-accept".to_owned()).spawn(accept)?;
    Ok(listener)
}

/// A stream for control. Each write ends within [`SEND_MAX`].
pub(crate) enum ControlStream {
    /// Between processes of one user.
    Plain(UnixStream),
    /// Between two that have proven to know the rack's secret.
    Sealed {
        duplex: Duplex,
        /// The number that the other end has proven.
        with: u16,
        receive_max: Option<Duration>,
    },
}

/// An error of a handshake: a stranger is told nothing, and the other end closes.
fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            io::Error::new(error.kind(), "the other end has another --rack-secret, or is of another --rack")
        }
        _ => error,
    }
}

impl ControlStream {
    /// A stream to `address`, from one number to another, which matter if it is sealed.
    ///
    /// # Errors
    /// Nobody is there, or it does not prove to know the secret within a second, or there is none for TCP.
    pub(crate) fn connect(
        address: &Address,
        keys: Option<&Keys>,
        (from, to): (u16, u16),
    ) -> io::Result<Self> {
        match address {
            // A process that is stopped accepts nothing: its callers must not wait for it.
            Address::Unix(path) => {
                let stream = UnixStream::from(OwnedFd::from(Socket::connect(path)?));
                stream.set_nonblocking(false)?;
                Self::plain(stream)
            }
            Address::Tcp(address) => {
                let keys = keys.ok_or_else(|| io::Error::new(ErrorKind::PermissionDenied, "no secret"))?;
                let ends = Ends { purpose: Purpose::Control, from, to };
                let stream = Blocking::connect(Socket::connect_tcp(*address)?, keys, ends, CONNECT_MAX);
                let stream = stream.map_err(explained)?;
                Self::sealed(stream.into_sealed(), to)
            }
        }
    }

    /// A stream over a Unix socket.
    ///
    /// # Errors
    /// As the system call.
    pub(crate) fn plain(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(SEND_MAX))?;
        Ok(Self::Plain(stream))
    }

    /// A stream whose other end has proven to be `with`, as far as that can be proven.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn sealed(sealed: Proven, with: u16) -> io::Result<Self> {
        Ok(Self::Sealed { duplex: Duplex::new(sealed)?, with, receive_max: None })
    }

    /// True if the other end may speak for node `number`.
    pub(crate) fn may_be(&self, number: u32) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Sealed { with, .. } => u32::from(*with) == number,
        }
    }

    /// The same stream, for another thread.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Plain(stream) => Self::Plain(stream.try_clone()?),
            Self::Sealed { duplex, with, .. } => {
                Self::Sealed { duplex: duplex.clone(), with: *with, receive_max: None }
            }
        })
    }

    /// Changes the time that a read waits; without one, until the stream ends.
    ///
    /// # Errors
    /// As the system call.
    pub(crate) fn set_receive_max(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.set_read_timeout(timeout),
            Self::Sealed { receive_max, .. } => {
                *receive_max = timeout;
                Ok(())
            }
        }
    }

    /// Ends both directions, also for other threads.
    pub(crate) fn break_off(&self) {
        match self {
            // It may have ended.
            Self::Plain(stream) => drop(stream.shutdown(Shutdown::Both)),
            Self::Sealed { duplex, .. } => duplex.break_off(),
        }
    }
}

impl Read for ControlStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Sealed { duplex, receive_max, .. } => duplex.receive(buffer, *receive_max),
        }
    }
}

impl Write for ControlStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Sealed { duplex, .. } => duplex.send(bytes, SEND_MAX).map(|()| bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Both ends of a sealed stream from one number to another.
#[cfg(test)]
pub(crate) fn sealed_pair(keys: &Keys, (from, to): (u16, u16)) -> (ControlStream, ControlStream) {
    const LONG: Duration = Duration::from_secs(20);
    let (one, other) = UnixStream::pair().unwrap();
    let socket = |stream: UnixStream| {
        stream.set_nonblocking(true).unwrap();
        Socket::from_nonblocking(stream.into())
    };
    let (one, other) = (socket(one), socket(other));
    std::thread::scope(|scope| {
        let ends = Ends { purpose: Purpose::Control, from, to };
        let opener = scope.spawn(move || Blocking::connect(one, keys, ends, LONG).unwrap());
        let (accepter, from) = Blocking::accept(other, keys, (Purpose::Control, to), LONG).unwrap();
        let opener = opener.join().unwrap().into_sealed();
        let accepter = ControlStream::sealed(accepter.into_sealed(), from);
        (ControlStream::sealed(opener, to).unwrap(), accepter.unwrap())
    })
}
