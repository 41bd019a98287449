//! The protocols served over streams, and the state of each.

use std::io;

use minos_net::{Address, Listener};
use minos_proto::memcache::{Limits, text};

use crate::{ServerConfig, access::Guard, memcache::MemcacheSession};

/// The protocol of a listener and of the connections that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// memcached's text and meta commands.
    Memcache,
    /// The same, from another node of the rack.
    Peer,
    /// The same, once that node has proven to know the rack's secret, and which rack and node it means.
    ProvenPeer,
}

/// The state of a connection's protocol between two visits.
pub(crate) enum Session {
    /// Of memcached's protocol.
    Memcache(MemcacheSession),
}

impl Session {
    /// Who the connection is, if the server has users.
    pub(crate) fn guard(&mut self) -> Option<&mut Guard> {
        match self {
            Self::Memcache(session) => session.guard.as_deref_mut(),
        }
    }

    /// The last words on a connection: `line` of memcached's text protocol, in the form that the client reads.
    pub(crate) fn farewell(&self, line: &[u8]) -> Vec<u8> {
        match self {
            Self::Memcache(session) => session.farewell(line),
        }
    }
}

impl Protocol {
    /// The state of a connection that has not sent anything yet.
    pub(crate) fn session(self, config: &ServerConfig) -> Session {
        match self {
            Self::Memcache | Self::Peer | Self::ProvenPeer => {
                let limits = Limits {
                    value_bytes_max: config.value_bytes_max,
                    line_bytes_max: config.buffer_bytes_max,
                };
                let mut session = MemcacheSession::new(limits, config.replies_bytes_max());
                session.awaits_hello = self == Self::Peer;
                session.is_peer = self == Self::ProvenPeer;
                let access = config.access.as_ref().filter(|_| self == Self::Memcache);
                session.guard = access.map(|access| Guard::new(&access.authority));
                Session::Memcache(session)
            }
        }
    }

    /// The reply to a client beyond the connection limit.
    pub(crate) fn too_many_connections(self) -> &'static [u8] {
        match self {
            Self::Memcache | Self::Peer | Self::ProvenPeer => text::TOO_MANY_CONNECTIONS,
        }
    }
}

/// A listening socket of one protocol.
pub(crate) struct StreamListener {
    pub(crate) listener: Listener,
    /// The protocol of the connections that it accepts.
    pub(crate) protocol: Protocol,
    /// True if they speak it over TLS.
    pub(crate) over_tls: bool,
}

impl StreamListener {
    /// Listens on `address` for clients that speak `protocol`, over TLS or not.
    pub(crate) fn bind(address: &Address, protocol: Protocol, over_tls: bool) -> io::Result<Self> {
        let listener = match protocol {
            Protocol::Memcache => Listener::bind(address)?,
            Protocol::Peer | Protocol::ProvenPeer => Listener::bind_private(address)?,
        };
        Ok(Self { listener, protocol, over_tls })
    }
}
