//! The server to drive.

use std::{
    fmt, io,
    net::{SocketAddr, SocketAddrV4, TcpStream, ToSocketAddrs},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    str::FromStr,
};

use minos_net::timestamp::enable_arrival_stamps;
use minos_proto::client::Protocol;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::cpu::{datagram_server_pid, server_pid};

/// A server and the language it speaks: `minos://HOST:PORT`, `memcached://HOST:PORT`, `resp://HOST:PORT`; either
/// of the last two with `+unix` and a path, as in `memcached+unix:///run/minos.sock`; or
/// `memcached+udp://HOST:PORT`; or `minos+xdp://HOST:PORT`; or `minos+memif://IP:PORT/PATH?queues=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The language.
    pub protocol: TargetProtocol,
    /// The place.
    pub place: Place,
}

/// The language of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetProtocol {
    /// The native protocol, in datagrams.
    Minos,
    /// memcached's text protocol.
    Memcached,
    /// The protocol of Redis and Valkey.
    Resp,
}

/// Where a target listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A host or an IP address, and a port.
    Tcp(String),
    /// The same, for datagrams.
    Udp(String),
    /// The same, from and to the queues of the card that leads there.
    Card(String),
    /// An address behind the memif of a process beside this one.
    Memif(MemifPlace),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// A server of datagrams at the other end of a memif.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifPlace {
    /// Its address.
    pub address: SocketAddrV4,
    /// The socket by which the two processes meet.
    pub path: PathBuf,
    /// Queues of the server: two for each worker.
    pub queues: u16,
}

/// Why a target could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected minos://HOST:PORT, minos+xdp://HOST:PORT, minos+memif://IP:PORT/PATH?queues=N, memcached://HOST:PORT, \
     resp://HOST:PORT, memcached+udp://HOST:PORT, memcached+unix:///PATH or resp+unix:///PATH"
)]
pub struct ParseTargetError;

impl FromStr for Target {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        let (scheme, rest) = text.split_once("://").ok_or(ParseTargetError)?;
        let (protocol, place) = match scheme {
            "minos" => (TargetProtocol::Minos, port_place(rest).map(Place::Udp)),
            "minos+xdp" => (TargetProtocol::Minos, port_place(rest).map(Place::Card)),
            "minos+memif" => (TargetProtocol::Minos, memif_place(rest).map(Place::Memif)),
            "memcached" => (TargetProtocol::Memcached, port_place(rest).map(Place::Tcp)),
            "memcached+udp" => (TargetProtocol::Memcached, port_place(rest).map(Place::Udp)),
            "memcached+unix" => (TargetProtocol::Memcached, unix_place(rest)),
            "resp" | "redis" => (TargetProtocol::Resp, port_place(rest).map(Place::Tcp)),
            "resp+unix" | "redis+unix" => (TargetProtocol::Resp, unix_place(rest)),
            _ => return Err(ParseTargetError),
        };
        Ok(Self { protocol, place: place.ok_or(ParseTargetError)? })
    }
}

/// HOST:PORT.
fn port_place(rest: &str) -> Option<String> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = rest.rsplit_once(':')?;
    let is_host = !host.is_empty() && !host.contains('/');
    (is_host && port.parse::<u16>().is_ok_and(|port| port > 0)).then(|| rest.to_owned())
}

/// IP:PORT/PATH?queues=N; N is 2 if it is left out.
fn memif_place(rest: &str) -> Option<MemifPlace> {
    let (address, path) = rest.split_at(rest.find('/')?);
    let (path, queues) = match path.split_once("?queues=") {
        Some((path, queues)) => (path, queues.parse().ok().filter(|queues| (1..=256).contains(queues))?),
        None => (path, 2),
    };
    let address: SocketAddrV4 = address.parse().ok().filter(|address: &SocketAddrV4| address.port() > 0)?;
    (path.len() > 1).then(|| MemifPlace { address, path: path.into(), queues })
}

fn unix_place(path: &str) -> Option<Place> {
    path.starts_with('/').then(|| Place::Unix(path.into()))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let language = match self.protocol {
            TargetProtocol::Minos => "minos",
            TargetProtocol::Memcached => "memcached",
            TargetProtocol::Resp => "resp",
        };
        match &self.place {
            Place::Udp(address) if self.protocol == TargetProtocol::Minos => {
                write!(f, "{language}://{address}")
            }
            Place::Udp(address) => write!(f, "{language}+udp://{address}"),
            Place::Card(address) => write!(f, "{language}+xdp://{address}"),
            Place::Memif(MemifPlace { address, path, queues }) => {
                write!(f, "{language}+memif://{address}{}?queues={queues}", path.display())
            }
            Place::Tcp(address) => write!(f, "{language}://{address}"),
            Place::Unix(path) => write!(f, "{language}+unix://{}", path.display()),
        }
    }
}

/// How a target is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Over connections.
    Stream(Protocol),
    Native,
    /// memcached's text in its own frames.
    MemcachedDatagrams,
}

impl Target {
    pub(super) fn manner(&self) -> Manner {
        match (self.protocol, &self.place) {
            (TargetProtocol::Minos, _) => Manner::Native,
            (TargetProtocol::Memcached, Place::Udp(_)) => Manner::MemcachedDatagrams,
            (TargetProtocol::Memcached, _) => Manner::Stream(Protocol::Memcache),
            (TargetProtocol::Resp, _) => Manner::Stream(Protocol::Resp),
        }
    }

    /// Opens a non-blocking connection whose arrivals the kernel stamps if it can; over TCP with a receive
    /// buffer of `receive_buffer` bytes, or of the system's default.
    pub(super) fn connect(&self, receive_buffer: Option<usize>) -> io::Result<OwnedFd> {
        match &self.place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
            Place::Tcp(address) => {
                let stream = match receive_buffer {
                    Some(bytes) => connect_with_room(address, bytes)?,
                    None => TcpStream::connect(address.as_str())?,
                };
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                // Without stamps, arrivals are dated when they are received, as the report shows.
                let _ = enable_arrival_stamps(&stream);
                Ok(stream.into())
            }
            Place::Udp(_) | Place::Card(_) | Place::Memif(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Where datagrams are sent.
    pub(super) fn datagram_address(&self) -> io::Result<SocketAddr> {
        let address = match &self.place {
            Place::Udp(address) | Place::Card(address) => address,
            Place::Memif(place) => return Ok(place.address.into()),
            Place::Tcp(_) | Place::Unix(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        address.to_socket_addrs()?.next().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// The server's process, if it listens on a loopback address of this machine and may be seen.
    pub fn server_pid(&self) -> Option<u32> {
        let (address, find): (_, fn(u16) -> Option<u32>) = match &self.place {
            Place::Tcp(address) => (address, server_pid),
            Place::Udp(address) => (address, datagram_server_pid),
            // A server behind a card is no local one, and one behind a memif has no port here.
            Place::Card(_) | Place::Memif(_) | Place::Unix(_) => return None,
        };
        let mut addresses = address.to_socket_addrs().ok()?;
        addresses.find(|address| address.ip().is_loopback()).and_then(|address| find(address.port()))
    }
}

/// Connects to the first address of `address`. The receive buffer is set before: the window scale is fixed
/// when the connection begins.
fn connect_with_room(address: &str, bytes: usize) -> io::Result<TcpStream> {
    let address = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    // Linux reports twice the size, for its own needs, and silently gives less than requested.
    let given = sockopt::socket_recv_buffer_size(&socket)? / 2;
    if given < bytes {
        return Err(io::Error::other(format!(
            "the system gives a socket {given} bytes to receive with, not {bytes} (net.core.rmem_max)"
        )));
    }
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_the_room_that_is_asked_for() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::Tcp(listener.local_addr().unwrap().to_string());
        let target = Target { protocol: TargetProtocol::Memcached, place };
        let connection = target.connect(Some(100_000)).unwrap();
        assert_eq!(sockopt::socket_recv_buffer_size(&connection).unwrap(), 200_000);
        let error = target.connect(Some(1 << 30)).unwrap_err().to_string();
        assert!(error.contains("net.core.rmem_max"), "{error}");
    }

    #[test]
    fn reads_what_it_prints() {
        for text in [
            "memcached://127.0.0.1:11211",
            "resp://[::1]:6379",
            "memcached://cache.example.org:11211",
            "memcached+unix:///run/minos.sock",
            "memcached+udp://127.0.0.1:11211",
            "minos://127.0.0.1:12000",
            "minos+xdp://10.0.0.1:12000",
            "minos+memif://10.0.0.1:12000/run/minos/memif?queues=4",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn rejects_what_is_no_target() {
        for text in [
            "",
            "127.0.0.1:1",
            "http://127.0.0.1:1",
            "memcached://127.0.0.1",
            "memcached://:1",
            "resp://h:0",
            "resp+udp://h:1",
            "minos+unix:///a",
            "minos://h",
            "minos+memif://10.0.0.1:12000",
            "minos+memif://10.0.0.1:12000/",
            "minos+memif://h:12000/run/memif",
            "minos+memif://10.0.0.1:0/run/memif",
            "minos+memif://10.0.0.1:12000/run/memif?queues=0",
        ] {
            assert_eq!(text.parse::<Target>(), Err(ParseTargetError), "{text}");
        }
    }
}
