//! memcached's text protocol over UDP: a frame of eight bytes before each command (memcached's
//! `doc/protocol.txt`, "UDP protocol").

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
};

use minos_net::udp::{ReceiveBurst, UdpOptions, UdpPort};
use minos_proto::client::{
    NoSink, Protocol, Reply, ReplyReader, compose_get, compose_set_head, compose_set_tail,
};

use super::{
    Link, Moment, any_port,
    ledger::{Ledger, Outcome, Place, Terms},
    outbox::Outbox,
};
use crate::{
    Op, OpKind,
    driver::{
        checker::Checker,
        clock::RunClock,
        recorder::{ErrorKind, Recorder},
    },
    model::Dataset,
};

/// Request number, index of the datagram, number of datagrams, zero: two bytes each, big-endian.
const FRAME_BYTES: usize = 8;

/// Maximum bytes of a UDP datagram in an Ethernet frame. A request is one datagram.
const DATAGRAM_BYTES_MAX: usize = 1472;

/// An incomplete reply of several datagrams.
enum Partial {
    /// Datagrams with their indexes.
    Numbered(Vec<Option<Vec<u8>>>),
    /// Datagrams in order, each of which claims to be the only one. memcached 1.6 sends the values of a GET
    /// of many keys so.
    Unnumbered { reader: Box<ReplyReader>, text: Vec<u8> },
}

impl Partial {
    fn unnumbered() -> Self {
        Self::Unnumbered { reader: Box::new(ReplyReader::new(Protocol::Memcache)), text: Vec::new() }
    }

    /// Adds a datagram's text. Returns true if the reply is complete, or invalid.
    fn take(&mut self, index: usize, text: &[u8]) -> bool {
        match self {
            Self::Numbered(parts) => {
                if let Some(part) = parts.get_mut(index) {
                    *part = Some(text.to_vec());
                }
                parts.iter().all(Option::is_some)
            }
            Self::Unnumbered { reader, text: whole } => {
                whole.extend_from_slice(text);
                // An invalid reply is not completed by more text.
                reader.advance(text, &mut NoSink).map_or(true, |advance| advance.reply.is_some())
            }
        }
    }

    fn whole(self) -> Vec<u8> {
        match self {
            Self::Numbered(parts) => parts.into_iter().flatten().flatten().collect(),
            Self::Unnumbered { text, .. } => text,
        }
    }
}

/// A socket that speaks memcached's text protocol.
pub(in crate::driver) struct MemcachedLink<'a> {
    port: UdpPort,
    server: SocketAddr,
    ledger: Ledger<'a>,
    checker: Checker<'a>,
    outbox: Outbox,
    slots: Box<[u32]>,
    /// Incomplete replies, by request number.
    partial: HashMap<u16, Partial>,
    keys: Vec<u8>,
    key_ends: Vec<usize>,
}

impl<'a> MemcachedLink<'a> {
    /// Binds a socket for `server`.
    ///
    /// # Errors
    /// The socket cannot be opened or bound.
    pub(in crate::driver) fn connect(
        server: SocketAddr,
        dataset: &'a Dataset,
        terms: Terms,
    ) -> io::Result<Self> {
        Ok(Self {
            port: UdpPort::bind(any_port(server), &UdpOptions::default())?,
            server,
            ledger: Ledger::new(dataset, terms),
            checker: Checker::new(dataset, terms.contents),
            outbox: Outbox::new(false),
            slots: vec![0; 1 << 16].into_boxed_slice(),
            partial: HashMap::new(),
            keys: Vec::new(),
            key_ends: Vec::new(),
        })
    }

    fn compose(&mut self, slot: u32, now_ns: u64, recorder: &mut Recorder) {
        let number = self.ledger.serial(slot) as u16;
        self.slots[usize::from(number)] = slot;
        if !self.partial.is_empty() {
            self.partial.remove(&number);
        }
        let room = self.outbox.room();
        let begin = room.len();
        room.extend_from_slice(&number.to_be_bytes());
        room.extend_from_slice(&[0, 0, 0, 1, 0, 0]);
        let composed = match self.ledger.asked(Place { slot, index: 0 }).kind {
            OpKind::Get | OpKind::ReadModifyWrite => self.compose_get(slot),
            OpKind::Set | OpKind::Insert => self.compose_set(slot),
        };
        let room = self.outbox.room();
        match composed {
            Ok(()) if room.len() - begin <= DATAGRAM_BYTES_MAX => self.outbox.end_datagram(self.server),
            result => {
                room.truncate(begin);
                let kind = if result.is_ok() { ErrorKind::TooLarge } else { ErrorKind::File };
                self.settle_all(slot, Outcome::Failed(kind), 0, now_ns, recorder);
            }
        }
    }

    fn compose_get(&mut self, slot: u32) -> io::Result<()> {
        let Self { keys, key_ends, ledger, outbox, .. } = self;
        keys.clear();
        key_ends.clear();
        let count = ledger.operation_count(slot);
        for index in 0..count {
            ledger.dataset.write_key(ledger.asked(Place { slot, index }).item, keys);
            key_ends.push(keys.len());
        }
        let start = |index: usize| if index == 0 { 0 } else { key_ends[index - 1] };
        let each = (0..count as usize).map(|index| &keys[start(index)..key_ends[index]]);
        compose_get(Protocol::Memcache, outbox.room(), each);
        Ok(())
    }

    fn compose_set(&mut self, slot: u32) -> io::Result<()> {
        let asked = self.ledger.asked(Place { slot, index: 0 });
        self.keys.clear();
        self.ledger.dataset.write_key(asked.item, &mut self.keys);
        let value_bytes = self.ledger.body_bytes(&asked);
        let room = self.outbox.room();
        compose_set_head(Protocol::Memcache, room, &self.keys, value_bytes);
        if value_bytes <= DATAGRAM_BYTES_MAX as u64 {
            self.ledger.dataset.body_of(&asked)?.append_to(room);
        } else {
            // Enough bytes for the check of the datagram's size to fail.
            room.resize(room.len() + DATAGRAM_BYTES_MAX, 0);
        }
        compose_set_tail(room);
        Ok(())
    }

    /// Handles a datagram of a reply.
    fn take_in(&mut self, datagram: &[u8], now_ns: u64, recorder: &mut Recorder) {
        let Some((frame, text)) = datagram.split_first_chunk::<FRAME_BYTES>() else { return };
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (number, index, count) = (word(0), usize::from(word(2)), usize::from(word(4)));
        let slot = self.slots[usize::from(number)];
        let is_awaited = self.ledger.len() > 0 && {
            let serial = self.ledger.serial(slot);
            serial != 0 && serial as u16 == number
        };
        if !is_awaited || index >= count {
            return;
        }
        if count == 1 && is_end(text) && !self.partial.contains_key(&number) {
            return self.answered(slot, text, now_ns, recorder);
        }
        self.ledger.hear(slot, now_ns);
        let begun = || if count == 1 { Partial::unnumbered() } else { Partial::Numbered(vec![None; count]) };
        if self.partial.entry(number).or_insert_with(begun).take(index, text) {
            let whole = self.partial.remove(&number).map(Partial::whole).unwrap_or_default();
            self.answered(slot, &whole, now_ns, recorder);
        }
    }

    /// Settles the request in `slot` with its complete reply.
    fn answered(&mut self, slot: u32, text: &[u8], now_ns: u64, recorder: &mut Recorder) {
        let first = Place { slot, index: 0 };
        let asked = self.ledger.asked(first);
        let is_read = matches!(asked.kind, OpKind::Get | OpKind::ReadModifyWrite);
        let count = self.ledger.operation_count(slot);
        if is_read {
            (0..count).for_each(|index| self.checker.expect(self.ledger.asked(Place { slot, index }).item));
            self.checker.begin_reply(count as usize);
        }
        let reply = ReplyReader::new(Protocol::Memcache).advance(text, &mut self.checker);
        let is_right = self.checker.end_reply();
        let reply = reply.ok().and_then(|advance| advance.reply);
        let (outcome, missed) = match reply {
            Some(Reply::Stored) if !is_read => (Outcome::Done, 0),
            Some(Reply::Values { .. }) if is_read && !is_right => (Outcome::Failed(ErrorKind::Mismatch), 0),
            Some(Reply::Values { .. }) if asked.kind == OpKind::ReadModifyWrite => {
                self.ledger.turn_to_set(first);
                return self.compose(slot, now_ns, recorder);
            }
            Some(Reply::Values { found }) if is_read => (Outcome::Done, count.saturating_sub(found)),
            Some(Reply::Refused(refusal)) => (Outcome::Failed(refusal.into()), 0),
            _ => (Outcome::Failed(ErrorKind::Protocol), 0),
        };
        self.settle_all(slot, outcome, missed, now_ns, recorder);
    }

    /// Settles a request: its first `missed` operations as missed, the others with `outcome`.
    fn settle_all(&mut self, slot: u32, outcome: Outcome, missed: u32, now_ns: u64, recorder: &mut Recorder) {
        for index in 0..self.ledger.operation_count(slot) {
            let outcome = if index < missed { Outcome::Missed } else { outcome };
            self.ledger.settle(Place { slot, index }, outcome, now_ns, recorder);
        }
    }
}

impl<'a> Link<'a> for MemcachedLink<'a> {
    /// A command is a GET of many keys or a SET of one key.
    const IS_MIXED: bool = false;
    /// Half of the request numbers.
    const IN_FLIGHT_MAX: usize = 1 << 15;

    type Burst = ReceiveBurst;

    fn burst(&self) -> ReceiveBurst {
        ReceiveBurst::new()
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }

    fn ledger(&self) -> &Ledger<'a> {
        &self.ledger
    }

    fn ask(&mut self, operations: &[Op], at: Moment, recorder: &mut Recorder) {
        let slot = self.ledger.open(operations, at);
        self.ledger.await_answer(slot, at.now_ns);
        self.compose(slot, at.now_ns, recorder);
    }

    fn flush(&mut self) {
        self.outbox.send(&self.port);
    }

    fn receive(&mut self, burst: &mut ReceiveBurst, clock: &RunClock, recorder: &mut Recorder) -> bool {
        let mut has_heard = false;
        // After a receive error, outstanding requests time out and count as lost.
        while self.port.receive(burst).is_ok() {
            let now_ns = clock.now_ns();
            for message in burst.messages() {
                has_heard = true;
                message.segments().for_each(|datagram| self.take_in(datagram, now_ns, recorder));
            }
            if !burst.is_full() {
                break;
            }
        }
        self.flush();
        has_heard
    }

    fn tend(&mut self, now_ns: u64, recorder: &mut Recorder) {
        while let Some(slot) = self.ledger.next_overdue(now_ns, recorder) {
            self.compose(slot, now_ns, recorder);
        }
        self.flush();
    }

    fn inserts_answered(&mut self) -> std::vec::Drain<'_, u64> {
        self.ledger.inserts_answered.drain(..)
    }
}

/// True if a reply ends here. A reply with values ends with a line `END`.
fn is_end(text: &[u8]) -> bool {
    !text.starts_with(b"VALUE ") || text.ends_with(b"\r\nEND\r\n")
}
