//! Large values on their way: what outlives the execution of their command.

use minos_base::{KeyHash, SizeClass};
use minos_engine::{Joining, Mode, Pinned, Reservation};
use minos_proto::memcache::{MetaFlags, Reply, Resume, text};

use super::{Context, append, store};
use crate::receiving::ReceivePermit;
use store::{Operation, Stored};

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
    /// Its part of the memory for values that are arriving or being joined, if it is one.
    _permit: Option<ReceivePermit>,
    /// The value that the received one becomes a part of, once that has begun.
    joining: Option<Joining<M>>,
    /// Times that it has begun.
    attempts: u32,
}

/// Times that a value is joined in slices, in the hope that nobody replaces it meanwhile; then it is in one piece.
const JOIN_ATTEMPTS_MAX: u32 = 4;

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
        Self {
            reservation,
            line_end: [0; 2],
            hash,
            key: key.into(),
            operation,
            reply,
            class,
            _permit: None,
            joining: None,
            attempts: 0,
        }
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

    /// Copies at most `limit_bytes` of what has arrived to where it belongs; returns how many, 0 if nothing is left.
    pub(crate) fn copy(&mut self, limit_bytes: usize) -> usize {
        match &mut self.joining {
            Some(joining) => joining.copy(self.reservation.value_mut(), limit_bytes),
            None if self.operation.joins() => 0,
            None => self.reservation.settle_slice(limit_bytes),
        }
    }

    /// Stores what was received and appends the reply to `tx`, unless there is something to be copied first: then
    /// the store comes back.
    pub(crate) fn finish<P>(
        mut self: Box<Self>,
        cx: &Context<'_, M, P>,
        tx: &mut Vec<u8>,
    ) -> Option<Box<Self>> {
        if self.line_end != *b"\r\n" {
            cx.counters.cmd_set.count();
            if !self.reply.borrow().is_silent() {
                tx.extend_from_slice(text::BAD_CHUNK);
            }
            return None;
        }
        let joined = if self.operation.joins() {
            let joined = self.join(cx);
            if self.joining.is_some() {
                return Some(self);
            }
            joined
        } else if self.reservation.is_settled() {
            None
        } else {
            return Some(self);
        };
        cx.counters.cmd_set.count();
        let Self { operation, hash, key, reservation, reply, .. } = *self;
        let stored = joined.unwrap_or_else(|| store::commit(cx, &operation, hash, &key, reservation));
        store::respond(&stored, &operation, &key, reply.borrow(), tx);
        None
    }

    /// Links the value that was joined, or begins to join it. Nothing, with nothing begun, if it is short, others were
    /// always faster, or too many are being joined.
    fn join<P>(&mut self, cx: &Context<'_, M, P>) -> Option<Stored> {
        let part_bytes = self.reservation.value_bytes();
        let concat = append::concat(&self.operation, self.reservation.value_mut());
        if let Some(joining) = self.joining.take()
            && let Some(joined) = joining.finish(cx.store, &self.key, cx.now, &concat)
        {
            return Some(append::settle(cx, joined));
        }
        if self.attempts == JOIN_ATTEMPTS_MAX || !cx.store.joins_large(self.hash, part_bytes) {
            return None;
        }
        self.attempts += 1;
        // Others that join as well hold memory for as long: beyond a bound it is done in one piece.
        self._permit = None;
        let class = store::item_class(cx, &self.operation, self.hash, part_bytes);
        self._permit = Some(cx.admin.admit(part_bytes + class.bytes_max())?);
        match cx.store.begin_concat(self.hash, &self.key, cx.now, &concat) {
            Ok(joining) => self.joining = Some(joining),
            Err(error) => return Some(append::settle(cx, Err(error))),
        }
        None
    }
}
