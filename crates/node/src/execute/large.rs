//! Large values on their way: what outlives the execution of their command.

use minos_base::{KeyHash, SizeClass};
use minos_engine::{Mode, Pinned, Reservation};
use minos_proto::memcache::{MetaFlags, Reply, Resume, text};

use super::{Context, store};
use crate::receiving::ReceivePermit;
use store::Operation;

/// A value that is sent from its item, which stays as it is for so long.
pub(crate) struct LargeReply<M: Mode> {
    item: Pinned<M>,
    tail: &'static [u8],
    resume: Option<Resume>,
}

impl<M: Mode> LargeReply<M> {
    /// The value of `item`, then `tail`, then, where there are keys left, the replies to those.
    pub(super) fn new(item: Pinned<M>, tail: &'static [u8], resume: Option<Resume>) -> Self {
        Self { item, tail, resume }
    }

    /// The value.
    pub(crate) fn value(&self) -> &[u8] {
        self.item.value()
    }

    /// What has to be sent behind it.
    pub(crate) fn tail(&self) -> &'static [u8] {
        self.tail
    }

    /// How the connection goes on afterwards, if it is in the middle of a line of keys.
    pub(crate) fn take_resume(&mut self) -> Option<Resume> {
        self.resume.take()
    }

    /// The class of the value, by which it finds the worker that sends it.
    pub(crate) fn class(&self) -> SizeClass {
        SizeClass::of(self.value().len() as u64)
    }
}

/// A value that is received into the memory of the item that it will be.
///
/// The condition under which it is stored is judged when it has arrived, as in memcached.
pub(crate) struct LargeStore<M: Mode> {
    reservation: Reservation<M>,
    line_end: [u8; 2],
    hash: KeyHash,
    key: Box<[u8]>,
    operation: Operation,
    reply: OwnedReply,
    class: SizeClass,
    /// Its part of the memory for values that are still arriving, if it is one.
    _permit: Option<ReceivePermit>,
}

/// A [`Reply`] that borrows from nothing.
enum OwnedReply {
    Classic { quiet: bool },
    Meta { flags: Box<[u8]>, quiet: bool },
}

impl OwnedReply {
    fn new(reply: Reply<'_>) -> Self {
        match reply {
            Reply::Classic { quiet, .. } => Self::Classic { quiet },
            Reply::Meta { flags, quiet } => Self::Meta { flags: flags.as_bytes().into(), quiet },
        }
    }

    fn borrow(&self) -> Reply<'_> {
        match self {
            Self::Classic { quiet } => Reply::Classic { quiet: *quiet, with_cas: false },
            Self::Meta { flags, quiet } => Reply::Meta { flags: MetaFlags::checked(flags), quiet: *quiet },
        }
    }
}

impl<M: Mode> LargeStore<M> {
    /// A store of what will be received into `reservation`, of an item of `class`.
    pub(super) fn new(
        reservation: Reservation<M>,
        hash: KeyHash,
        key: &[u8],
        operation: Operation,
        reply: Reply<'_>,
        class: SizeClass,
    ) -> Self {
        let reply = OwnedReply::new(reply);
        Self { reservation, line_end: [0; 2], hash, key: key.into(), operation, reply, class, _permit: None }
    }

    /// The same, of a value that is still arriving.
    pub(super) fn with_permit(self, permit: Option<ReceivePermit>) -> Self {
        Self { _permit: permit, ..self }
    }

    /// The class of the item, by which it finds the worker that receives it.
    pub(crate) fn class(&self) -> SizeClass {
        self.class
    }

    fn value_bytes(&self) -> usize {
        // A reservation lies in memory, so that its length fits.
        self.reservation.value_bytes() as usize
    }

    /// Bytes to be received: the value and its line end.
    pub(crate) fn body_bytes(&self) -> usize {
        self.value_bytes() + self.line_end.len()
    }

    /// Where the bytes from the `received_bytes`th on belong, as far as they lie together; empty when all
    /// are there.
    pub(crate) fn room_at(&mut self, received_bytes: usize) -> &mut [u8] {
        let value_bytes = self.value_bytes();
        if received_bytes < value_bytes {
            &mut self.reservation.value_mut()[received_bytes..]
        } else {
            let at = (received_bytes - value_bytes).min(self.line_end.len());
            &mut self.line_end[at..]
        }
    }

    /// Takes over a value that has arrived already.
    pub(super) fn fill(&mut self, value: &[u8]) {
        self.reservation.value_mut().copy_from_slice(value);
        self.line_end = *b"\r\n";
    }

    /// Stores what was received and appends the reply to `tx`.
    pub(crate) fn finish<P>(self, cx: &Context<'_, M, P>, tx: &mut Vec<u8>) {
        let reply = self.reply.borrow();
        cx.counters.cmd_set.count();
        if self.line_end != *b"\r\n" {
            if !reply.is_silent() {
                tx.extend_from_slice(text::BAD_CHUNK);
            }
            return;
        }
        let stored = store::commit(cx, &self.operation, self.hash, &self.key, self.reservation);
        store::respond(&stored, &self.operation, &self.key, reply, tx);
    }
}
