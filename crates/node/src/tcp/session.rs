//! The protocols served over streams, and the state of each.

use std::io;

use minos_base::limits::ITEM_KEY_BYTES_MAX;
use minos_net::{Address, Listener};
use minos_proto::{
    memcache::{Limits, text},
    resp,
};

use crate::{
    ServerConfig,
    access::Guard,
    memcache::MemcacheSession,
    resp::RespSession,
    server::settings::Tuning,
    tracking::{set_heard_origin, set_origin},
};

/// The protocol of a listener and of the connections that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// memcached's text and meta commands.
    Memcache,
    /// The same, from another node of the rack.
    Peer,
    /// Redis' commands.
    Resp,
}

/// The state of a connection's protocol between two visits.
pub(crate) enum Session {
    /// Of memcached's protocol.
    Memcache(MemcacheSession),
    /// Of Redis' protocol.
    Resp(RespSession),
}

impl Session {
    /// Who the connection is, if the server has users.
    pub(crate) fn guard(&mut self) -> Option<&mut Guard> {
        match self {
            Self::Memcache(session) => session.guard.as_deref_mut(),
            Self::Resp(session) => session.guard.as_deref_mut(),
        }
    }
}

impl Protocol {
    /// True between nodes of a rack.
    pub(crate) fn is_link(self) -> bool {
        self == Self::Peer
    }

    /// The state of connection `number`, which has not sent anything yet.
    pub(crate) fn session(self, config: &ServerConfig, tuning: &Tuning, number: u64) -> Session {
        match self {
            Self::Memcache | Self::Peer => {
                let mut session = MemcacheSession::new(memcache_limits(tuning), tuning.replies_bytes_max());
                session.awaits_hello = self == Self::Peer;
                let access = config.access.as_ref().filter(|_| self == Self::Memcache);
                session.guard = access.map(Guard::new);
                Session::Memcache(session)
            }
            Self::Resp => {
                let guard = config.access.as_ref().map(Guard::new);
                let mut session =
                    RespSession::new(resp_limits(tuning), tuning.replies_bytes_max(), number, guard);
                session.set_pause(tuning.pause);
                Session::Resp(session)
            }
        }
    }

    /// The reply to a client beyond the connection limit.
    pub(crate) fn too_many_connections(self) -> &'static [u8] {
        match self {
            Self::Memcache | Self::Peer => text::TOO_MANY_CONNECTIONS,
            Self::Resp => b"-ERR max number of clients reached\r\n",
        }
    }
}

fn memcache_limits(tuning: &Tuning) -> Limits {
    Limits { value_bytes_max: tuning.value_bytes_max, line_bytes_max: tuning.buffer_bytes_max as usize }
}

/// Bytes that any argument of Redis' protocol may have: those of the longest key.
const ARGUMENT_BYTES_MAX: u64 = ITEM_KEY_BYTES_MAX as u64;

fn resp_limits(tuning: &Tuning) -> resp::Limits {
    resp::Limits {
        // Keys and other arguments have their own bounds; the store refuses the value.
        bulk_bytes_max: tuning.value_bytes_max.max(ARGUMENT_BYTES_MAX),
        command_bytes_max: tuning.buffer_bytes_max as usize,
    }
}

impl Session {
    /// Takes over limits from settings.
    pub(crate) fn set_limits(&mut self, tuning: &Tuning) {
        match self {
            Self::Memcache(session) => {
                session.limits = memcache_limits(tuning);
                session.replies_bytes_max = tuning.replies_bytes_max();
            }
            Self::Resp(session) => {
                session.limits = resp_limits(tuning);
                session.replies_bytes_max = tuning.replies_bytes_max();
                session.set_pause(tuning.pause);
            }
        }
    }

    /// Makes a change that is this client's, if it is not to be told of its own.
    pub(crate) fn as_its_own<R>(&self, change: impl FnOnce() -> R) -> R {
        match self {
            Self::Memcache(session) => set_heard_origin(session.origin),
            Self::Resp(session) => session.mark_changes(),
        }
        let done = change();
        set_origin(None);
        done
    }

    /// True if a command waits for the end of CLIENT PAUSE.
    pub(crate) fn is_paused(&self) -> bool {
        matches!(self, Self::Resp(session) if session.is_paused)
    }

    /// True if a command since the last reply may have changed something.
    #[inline]
    pub(crate) fn has_changed(&self) -> bool {
        match self {
            Self::Memcache(session) => session.has_changed,
            Self::Resp(session) => session.has_changed,
        }
    }

    /// From now on none has.
    pub(crate) fn forget_change(&mut self) {
        match self {
            Self::Memcache(session) => session.has_changed = false,
            Self::Resp(session) => session.has_changed = false,
        }
    }

    /// The last words on a connection: `line` of memcached's text protocol, in the form that the client reads.
    pub(crate) fn farewell(&self, line: &[u8]) -> Vec<u8> {
        match self {
            Self::Memcache(session) => session.farewell(line),
            Self::Resp(_) => {
                let mut reply = b"-ERR ".to_vec();
                let words = [b"SERVER_ERROR ".as_slice(), b"CLIENT_ERROR "];
                let said = words.iter().find_map(|word| line.strip_prefix(*word));
                reply.extend_from_slice(said.unwrap_or(line));
                reply
            }
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
            Protocol::Memcache | Protocol::Resp => Listener::bind(address)?,
            Protocol::Peer => Listener::bind_private(address)?,
        };
        Ok(Self { listener, protocol, over_tls })
    }
}
