//! Which server is driven.

use std::{
    fmt, io,
    net::{TcpStream, ToSocketAddrs},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    str::FromStr,
};

use minos_net::timestamp::enable_arrival_stamps;
use minos_proto::client::Protocol;

/// A server and the language it speaks: `memcached://HOST:PORT`, `resp://HOST:PORT`, or either with
/// `+unix` and a path, as in `memcached+unix:///run/minos.sock`.
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
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Why a target could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTargetError {
    /// The native protocol.
    #[error("minos:// is not there yet; use memcached://HOST:PORT")]
    Native,
    /// Nothing that is known.
    #[error("expected memcached://HOST:PORT, resp://HOST:PORT, memcached+unix:///PATH or resp+unix:///PATH")]
    Unknown,
}

impl FromStr for Target {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<Self, ParseTargetError> {
        let (scheme, rest) = text.split_once("://").ok_or(ParseTargetError::Unknown)?;
        let (language, is_unix) = match scheme.strip_suffix("+unix") {
            Some(language) => (language, true),
            None => (scheme, false),
        };
        let protocol = match language {
            "memcached" => TargetProtocol::Memcached,
            "resp" | "redis" => TargetProtocol::Resp,
            "minos" => return Err(ParseTargetError::Native),
            _ => return Err(ParseTargetError::Unknown),
        };
        let place = if is_unix { unix_place(rest) } else { tcp_place(rest) };
        Ok(Self { protocol, place: place.ok_or(ParseTargetError::Unknown)? })
    }
}

fn tcp_place(rest: &str) -> Option<Place> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = rest.rsplit_once(':')?;
    let is_host = !host.is_empty() && !host.contains('/');
    (is_host && port.parse::<u16>().is_ok_and(|port| port > 0)).then(|| Place::Tcp(rest.to_owned()))
}

fn unix_place(path: &str) -> Option<Place> {
    path.starts_with('/').then(|| Place::Unix(path.into()))
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let language = match self.protocol {
            TargetProtocol::Memcached => "memcached",
            TargetProtocol::Resp => "resp",
        };
        match &self.place {
            Place::Tcp(address) => write!(f, "{language}://{address}"),
            Place::Unix(path) => write!(f, "{language}+unix://{}", path.display()),
        }
    }
}

impl Target {
    pub(super) fn language(&self) -> Protocol {
        match self.protocol {
            TargetProtocol::Memcached => Protocol::Memcache,
            TargetProtocol::Resp => Protocol::Resp,
        }
    }

    /// A connection that does not block, whose arrivals are dated by the kernel where it can.
    pub(super) fn connect(&self) -> io::Result<OwnedFd> {
        match &self.place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address.as_str())?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                // Without stamps arrivals are dated when they are received; the report says so.
                let _ = enable_arrival_stamps(&stream);
                Ok(stream.into())
            }
        }
    }

    /// The port, if the server listens on a loopback address of this machine.
    pub(super) fn local_port(&self) -> Option<u16> {
        let Place::Tcp(address) = &self.place else { return None };
        let mut addresses = address.to_socket_addrs().ok()?;
        addresses.find(|address| address.ip().is_loopback()).map(|address| address.port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_prints() {
        for text in [
            "memcached://127.0.0.1:11211",
            "resp://[::1]:6379",
            "memcached://cache.example.org:11211",
            "memcached+unix:///run/minos.sock",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn says_that_the_native_protocol_is_to_come() {
        let error = "minos://127.0.0.1:1".parse::<Target>().unwrap_err();
        assert_eq!(error, ParseTargetError::Native);
        assert!(error.to_string().contains("not there yet"));
    }

    #[test]
    fn rejects_what_is_no_target() {
        for text in
            ["", "127.0.0.1:1", "http://127.0.0.1:1", "memcached://127.0.0.1", "memcached://:1", "resp://h:0"]
        {
            assert_eq!(text.parse::<Target>(), Err(ParseTargetError::Unknown), "{text}");
        }
    }
}
