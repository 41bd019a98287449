//! The client's knowledge of the server, and the Hellos that renew it.

use std::net::SocketAddr;

use minos_base::KeyHash;
use minos_proto::native::{Access, Flags, Header, Kind, Welcome};

use super::session::Session;
use crate::{QueueBy, Verb};

/// Fraction of a cookie's life after which the client asks for a new one.
const RENEW_AFTER: f64 = 0.75;
const NS_PER_S: u64 = 1_000_000_000;
/// Silence after which a server may have restarted unnoticed.
const QUIET_NS: u64 = NS_PER_S;
/// Age of a server's limits from which a request beyond them asks for the present ones.
const LIMITS_AGE_NS: u64 = NS_PER_S;

/// An unanswered Hello.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) nonce: u64,
    /// True if it asks for a session.
    pub(super) opens: bool,
    pub(super) attempts: u32,
    pub(super) again_at_ns: u64,
    /// Numbers of the first and the last datagram that carried it.
    pub(super) sequences: (u64, u64),
}

/// The changes that a Welcome reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The server has restarted, and lost its state of this client.
    pub(super) is_restart: bool,
    /// The assignment of keys to queues, or their hashes, may have changed.
    pub(super) is_geometry: bool,
}

/// The state of one server as the client knows it.
#[derive(Debug)]
pub(super) struct Link {
    /// Its configured address, with the port of queue 0.
    server: SocketAddr,
    directory: Option<Welcome>,
    cookie: u64,
    /// The number of the first datagram that could carry the cookie.
    cookie_sequence: u64,
    renew_at_ns: u64,
    /// Refusals for seal or version since the server last answered anything else.
    pub(super) strikes: u32,
    /// The time of the last answer.
    heard_ns: u64,
    /// The time of the last Welcome.
    learned_ns: u64,
    /// The epoch and the version of the weights that the last answer told, see [`Header::news`].
    news: (u32, u32),
    /// True if an answer hints at a changed directory.
    is_stale: bool,
    /// True if an operation needs a session.
    pub(super) session_wanted: bool,
    pub(super) session: Option<Session>,
    pub(super) asked: Option<Asked>,
}

impl Link {
    pub(super) fn new(server: SocketAddr, is_sealed: bool) -> Self {
        Self {
            server,
            directory: None,
            cookie: 0,
            cookie_sequence: 0,
            renew_at_ns: 0,
            strikes: 0,
            heard_ns: 0,
            learned_ns: 0,
            news: (0, 0),
            is_stale: false,
            session_wanted: is_sealed,
            session: None,
            asked: None,
        }
    }

    /// The server's description of itself.
    pub(super) fn directory(&self) -> Option<&Welcome> {
        self.directory.as_ref()
    }

    /// The server's description, if requests may be sent to it.
    pub(super) fn usable(&self, is_sealed: bool) -> Option<&Welcome> {
        let may_send = self.cookie != 0 && (self.session.is_some() || !is_sealed);
        self.directory.as_ref().filter(|_| may_send)
    }

    /// True if a Hello is needed, now or at its retry time.
    #[inline]
    pub(super) fn needs_hello(&self, now_ns: u64) -> bool {
        self.cookie == 0
            || self.directory.is_none()
            || self.is_stale
            || now_ns >= self.renew_at_ns
            || self.wants_session()
    }

    /// True if the next Hello asks for a session; this needs a cookie.
    pub(super) fn opens_session(&self) -> bool {
        self.cookie != 0 && self.wants_session()
    }

    #[inline]
    fn wants_session(&self) -> bool {
        self.session_wanted && self.session.is_none()
    }

    /// True if a Hello must be sent now.
    #[inline]
    pub(super) fn is_hello_due(&self, now_ns: u64) -> bool {
        self.needs_hello(now_ns) && self.asked.is_none_or(|asked| now_ns >= asked.again_at_ns)
    }

    /// The time of the next Hello.
    pub(super) fn next_ns(&self, now_ns: u64) -> u64 {
        match self.asked {
            Some(asked) if self.needs_hello(now_ns) => asked.again_at_ns,
            _ if self.needs_hello(now_ns) => now_ns,
            _ => self.renew_at_ns,
        }
    }

    /// True after a long silence of the server. It may have restarted, so a Hello must come before an
    /// operation with a once number, whose outcome would otherwise stay unknown.
    pub(super) fn is_quiet(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.heard_ns) > QUIET_NS
    }

    /// The time of the last answer; 0 without one.
    pub(super) fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// What the server last told of its rack: the epoch of the directory and the version of the weights.
    pub(super) fn news(&self) -> (u32, u32) {
        self.news
    }

    /// True if the server may have other limits than when it last told them.
    pub(super) fn is_old(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.learned_ns) > LIMITS_AGE_NS
    }

    /// Requests a Hello.
    pub(super) fn doubt(&mut self) {
        self.is_stale = true;
    }

    /// Drops the cookie that the datagram with this number carried, after a refusal.
    pub(super) fn cookie_refused(&mut self, sequence: u64) {
        if self.cookie != 0 && sequence >= self.cookie_sequence {
            self.cookie = 0;
            // The next Hello must go out at once, without the refused cookie.
            self.asked = None;
        }
    }

    /// Repeats the refused Hello with this number, which may have been damaged in transit.
    pub(super) fn ask_again(&mut self, sequence: u64, now_ns: u64) {
        if let Some(asked) = &mut self.asked
            && asked.sequences.1 == sequence
        {
            asked.again_at_ns = now_ns;
        }
    }

    /// Takes over a Welcome whose nonce the caller has checked. Returns the changes.
    pub(super) fn learn(&mut self, welcome: &Welcome, now_ns: u64, next_sequence: u64) -> Change {
        let old = self.directory.replace(*welcome);
        let is_restart = old.is_some_and(|old| old.boot != welcome.boot);
        let is_geometry = old.is_none_or(|old| layout(&old) != layout(welcome));
        let opens = self.asked.is_some_and(|asked| asked.opens);
        if is_restart {
            self.session = None;
        }
        if opens && welcome.session != 0 && self.session.is_none() {
            self.session = Some(Session::new(welcome.session, welcome.once_window));
        }
        if self.cookie != welcome.cookie {
            self.cookie = welcome.cookie;
            self.cookie_sequence = next_sequence;
        }
        let life_ns = u64::from(welcome.cookie_seconds).saturating_mul(NS_PER_S);
        let life_ns = (life_ns as f64 * RENEW_AFTER) as u64;
        self.renew_at_ns = now_ns.saturating_add(life_ns.max(NS_PER_S));
        self.learned_ns = now_ns;
        self.is_stale = false;
        // A server without room for a session is asked again at the retry time, not at once.
        let was_denied = opens && welcome.session == 0;
        self.asked = self.asked.filter(|_| was_denied);
        Change { is_restart, is_geometry }
    }

    /// Updates the state from an answer of any kind.
    pub(super) fn note(&mut self, header: &Header, now_ns: u64) {
        self.heard_ns = now_ns;
        if header.kind != Kind::Refusal {
            self.strikes = 0;
            self.news = header.news();
        }
        let differs = self.directory.as_ref().is_some_and(|it| it.geometry != header.geometry);
        // A refusal to a client without a cookie need not carry the geometry.
        if header.flags.contains(Flags::RENEW) || (differs && header.kind != Kind::Refusal) {
            self.is_stale = true;
        }
    }

    /// The header of a Request, a Hello or a Fragment.
    pub(super) fn header(&self, kind: Kind, queue: u16) -> Header {
        Header {
            queue,
            geometry: self.directory.as_ref().map_or(0, |directory| directory.geometry),
            session: self.session.as_ref().map_or(0, Session::id),
            cookie: self.cookie,
            ..Header::of(kind)
        }
    }

    /// The address that takes Hellos.
    pub(super) fn server(&self) -> SocketAddr {
        self.server
    }

    pub(super) fn address(&self, queue: u16) -> SocketAddr {
        let mut address = self.server;
        if let Some(directory) = &self.directory {
            address.set_port(directory.port_of(queue));
        }
        address
    }

    /// True if the server may send from this address.
    pub(super) fn is_server(&self, from: SocketAddr) -> bool {
        if from.ip() != self.server.ip() {
            return false;
        }
        let is_port = |it: &Welcome| {
            let last_queue = it.queues.saturating_mul(2).saturating_sub(1);
            (it.port_of(0)..=it.port_of(last_queue)).contains(&from.port())
        };
        from.port() == self.server.port() || self.directory.as_ref().is_some_and(is_port)
    }

    /// The queue that must execute an operation; `None` if any may (MICA §4.1.2).
    pub(super) fn queue_for(&self, verb: Verb, hash: KeyHash, by: QueueBy) -> Option<u16> {
        let directory = self.directory.as_ref()?;
        if !verb.names_item() {
            return None;
        }
        let is_free = match (by, directory.access) {
            (QueueBy::Random, _) => true,
            // In CRCW any worker may write, but one worker's writes wait for no lock (Minos §3.1).
            (QueueBy::Access | QueueBy::Wrong, Access::Crcw | Access::Crew) => !verb.writes(),
            (QueueBy::Access | QueueBy::Wrong, Access::Erew) | (QueueBy::Key, _) => false,
        };
        (!is_free).then(|| directory.key_queue(hash))
    }
}

/// The fields that determine a key's hash, its queue and the queue's port.
fn layout(directory: &Welcome) -> impl PartialEq + use<> {
    let Welcome { direction_seed, queues, partition_bits, access, base_port, datagram_bytes_max, .. } =
        *directory;
    (direction_seed, queues, partition_bits, access, base_port, datagram_bytes_max)
}
