//! What the commands share: the session of their connection, the result.

use minos_base::{KeyHash, Seconds};
use minos_engine::{Access, Mode};
use minos_proto::memcache::{Limits, Request, Resume, binary, compose::MetaFacts};

use super::answer::Answer;
use crate::access::Guard;
use crate::ops::{Cold, Context, Facts, Fetch, Next, Work};
use crate::rack::Flushing;
use crate::resp;
use crate::tracking::{Origin, Seat, Telling};

/// The memcached protocol's state of one connection.
pub(crate) struct MemcacheSession {
    pub(crate) limits: Limits,
    /// Bytes of replies after which they are sent before another request is executed.
    pub(crate) replies_bytes_max: usize,
    /// Bytes still to be received and discarded: the value of a refused storage command, or keys of a line that has failed.
    pub(super) swallow_bytes: u64,
    /// The rest of a multi-key GET that has paused.
    pub(crate) resume: Option<Resume>,
    /// Where a partly sent `stats conns` continues: the number of a connection.
    pub(super) listed: Option<u64>,
    /// Where a partly sent list of items continues: a partition, and a place in it.
    pub(super) dumped: Option<(usize, u64)>,
    /// Owners of partitions that have executed a flush, which goes on with the next one.
    pub(super) flushed: usize,
    /// The flush of all nodes that is under way.
    pub(super) flushing: Option<Flushing>,
    /// A command since the last reply may have changed something, in a store above flash or a node of a rack.
    pub(crate) has_changed: bool,
    /// The other end is another node of the rack, which has still to say so.
    pub(crate) awaits_hello: bool,
    /// The other end is another node, which forwards only what belongs here.
    pub(crate) is_peer: bool,
    /// Whose changes its commands make.
    pub(crate) origin: Origin,
    /// Where it is at home, if it is another node.
    pub(crate) seat: Option<Seat>,
    /// It is told of every change here.
    pub(crate) telling: Option<Telling>,
    /// The command of a Redis client that it has forwarded, and that waits for flash.
    pub(super) midway: Option<Box<resp::Midway>>,
    /// Who it is, if the server has users.
    pub(crate) guard: Option<Box<Guard>>,
    /// The last command parsed is a line of keys that goes on.
    pub(super) goes_on: bool,
    /// The form of its requests and replies, once the client has sent anything.
    pub(super) wire: Option<Wire>,
}

/// The forms of the memcached protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Text,
    Binary,
}

impl MemcacheSession {
    /// The state of a connection that has not sent anything yet.
    pub(crate) fn new(limits: Limits, replies_bytes_max: usize) -> Self {
        Self {
            limits,
            replies_bytes_max,
            swallow_bytes: 0,
            resume: None,
            listed: None,
            dumped: None,
            flushed: 0,
            flushing: None,
            has_changed: false,
            awaits_hello: false,
            is_peer: false,
            origin: Origin::default(),
            seat: None,
            telling: None,
            midway: None,
            guard: None,
            goes_on: false,
            wire: None,
        }
    }

    /// Takes the form of the protocol from `input`, the first bytes of a connection; true if it is the binary one.
    #[inline]
    pub(crate) fn begins_binary(&mut self, input: &[u8]) -> bool {
        self.wire.is_none() && self.choose(input)
    }

    #[cold]
    fn choose(&mut self, input: &[u8]) -> bool {
        let is_binary = !self.is_peer && input.first() == Some(&binary::MAGIC);
        self.wire = Some(if is_binary { Wire::Binary } else { Wire::Text });
        is_binary
    }

    /// The last words on a connection: `text`, a line of the text protocol, in the form that the client reads.
    pub(crate) fn farewell(&self, text: &[u8]) -> Vec<u8> {
        if self.wire != Some(Wire::Binary) {
            return text.to_vec();
        }
        let mut packet = Vec::new();
        super::binary::fail(binary::Reply::NOOP, text, &mut packet);
        packet
    }

    /// Lets nothing more of a line of keys that has paused be answered.
    pub(crate) fn pass_over_line(&mut self) {
        let unread = self.resume.take().map_or(0, |line| line.unread_bytes());
        self.swallow_bytes += unread as u64;
    }

    /// Discards the bytes of a refused value at the front of `input`; returns their number.
    pub(super) fn swallow(&mut self, input: &[u8]) -> usize {
        let swallowed = self.swallow_bytes.min(input.len() as u64);
        self.swallow_bytes -= swallowed;
        swallowed as usize
    }
}

/// The result of a command.
pub(crate) struct Executed<M: Mode> {
    /// How the service of the connection goes on.
    pub(super) next: Next<M>,
    /// The part of the command that stays in the input.
    pub(super) unread: Unread,
}

/// The part of a command that stays in the input.
pub(super) enum Unread {
    /// Nothing.
    Nothing,
    /// These bytes at its end: a value to be received, or the keys that the command resumes with.
    End(usize),
    /// All of it: the command is parsed and executed again.
    All,
}

impl Unread {
    /// Bytes that do not stay, of a command of so many.
    #[inline(always)]
    pub(super) fn read_of(&self, command_bytes: usize) -> usize {
        match self {
            Self::Nothing => command_bytes,
            Self::End(bytes) => command_bytes - bytes,
            Self::All => 0,
        }
    }
}

impl<M: Mode> Executed<M> {
    /// The command is executed, and its reply, if there is one, is in the transmit buffer.
    pub(super) const DONE: Self = Self { next: Next::Continue, unread: Unread::Nothing };

    /// The command has used all of its input; but one whose item is fetched, or is another worker's, is executed again.
    #[inline]
    pub(super) fn then(next: Next<M>) -> Self {
        let is_again = M::HAS_FLASH && matches!(next, Next::Fetch(_))
            || M::Access::IS_BY_THREAD && matches!(next, Next::Owner(_));
        Self { next, unread: if is_again { Unread::All } else { Unread::Nothing } }
    }

    /// True if a command that may change something may have done so: replies may have to wait for that. A command that goes
    /// on later changes something then.
    pub(super) fn has_changed(&self, request: &Request<'_>) -> bool {
        match self.next {
            Next::Fetch(_) => matches!(request, Request::GetMany(_)),
            Next::Away(Work::Receive { .. } | Work::Finish { .. }) => false,
            _ => true,
        }
    }

    /// The command must wait until those of its burst that other nodes execute have their replies.
    pub(super) const BEHIND_HOLES: Self = Self { next: Next::Yield, unread: Unread::All };

    /// The command waits for room in memory, and is executed again.
    pub(super) fn wait<P>(cx: &Context<'_, M, P>) -> Self {
        Self::then(Next::Fetch(Box::new(Fetch::of_room(cx))))
    }

    /// The command needs an item that may be on flash.
    pub(super) fn cold(
        cold: Cold,
        (hash, key): (KeyHash, &[u8]),
        reply: impl Answer,
        tx: &mut Vec<u8>,
    ) -> Self {
        Self::then(next_of(cold, (hash, key), reply, tx))
    }
}

/// How a connection goes on whose command needs an item that may be on flash. A fetch that failed is answered.
pub(super) fn next_of<M: Mode>(
    cold: Cold,
    (hash, key): (KeyHash, &[u8]),
    reply: impl Answer,
    tx: &mut Vec<u8>,
) -> Next<M> {
    match cold {
        Cold::Unknown(class, need) => Next::Fetch(Box::new(Fetch::of(hash, key, class, need))),
        Cold::Failed(failed) => {
            reply.failed(failed, tx);
            Next::Continue
        }
    }
}

/// The properties of the item with `key` in a meta reply, at `now` on the store's clock.
pub(super) fn meta_facts<'k>(facts: &Facts, key: &'k [u8], now: Seconds) -> MetaFacts<'k> {
    MetaFacts {
        key,
        key_is_base64: facts.key_is_base64,
        value_bytes: facts.value_bytes,
        flags: facts.flags,
        cas: facts.cas,
        ttl_s: (facts.expiry != 0).then(|| facts.expiry.saturating_sub(now)),
        idle_s: now.saturating_sub(facts.last_access),
        fetched: facts.fetched,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_in_the_form_that_the_client_reads() {
        let line = b"SERVER_ERROR flash failed\r\n";
        for (first, is_peer, is_binary) in
            [(&b"\x80"[..], false, true), (b"get k\r\n", false, false), (b"\x80", true, false)]
        {
            let limits = Limits { value_bytes_max: 1000, line_bytes_max: 1000 };
            let mut session = MemcacheSession { is_peer, ..MemcacheSession::new(limits, 1000) };
            assert_eq!(session.begins_binary(first), is_binary);
            // Later bytes change nothing.
            assert!(!session.begins_binary(b"\x80") && !session.begins_binary(b"get k\r\n"));
            let said = session.farewell(line);
            if is_binary {
                assert_eq!(said, b"\x81\x0a\0\0\0\0\0\x84\0\0\0\x0c\0\0\0\0\0\0\0\0\0\0\0\0flash failed");
            } else {
                assert_eq!(said, line);
            }
        }
    }

    #[test]
    fn a_refused_value_is_discarded_and_nothing_behind_it() {
        let limits = Limits { value_bytes_max: 1000, line_bytes_max: 1000 };
        let mut session = MemcacheSession { swallow_bytes: 7, ..MemcacheSession::new(limits, 1000) };
        assert_eq!(session.swallow(b"valu"), 4);
        assert_eq!(session.swallow(b"e\r\nget a\r\n"), 3);
        assert_eq!(session.swallow(b"get a\r\n"), 0);
    }
}
