//! Large values in transfer: the state that outlives the execution of their command.

use minos_base::SizeClass;
use minos_engine::{Mode, Pinned};
use minos_proto::memcache::{MetaFlags, Reply, Resume, text};

use super::stored;
use crate::ops::{Context, PendingStore, Step, receiving::ReceivePermit};

/// A value sent from its item, which stays unchanged meanwhile.
pub(crate) struct LargeReply<M: Mode> {
    item: Pinned<M>,
    tail: &'static [u8],
    resume: Option<Resume>,
}

impl<M: Mode> LargeReply<M> {
    /// Sends the value of `item`, then `tail`, then the replies to any keys left.
    pub(super) fn new(item: Pinned<M>, tail: &'static [u8], resume: Option<Resume>) -> Self {
        Self { item, tail, resume }
    }

    /// The value.
    pub(crate) fn value(&self) -> &[u8] {
        self.item.value()
    }

    /// The bytes to send behind it.
    pub(crate) fn tail(&self) -> &'static [u8] {
        self.tail
    }

    /// The rest of a line of keys, if there is one.
    pub(crate) fn take_resume(&mut self) -> Option<Resume> {
        self.resume.take()
    }

    /// The class of the value, which determines the worker that sends it.
    pub(crate) fn class(&self) -> SizeClass {
        SizeClass::of(self.value().len() as u64)
    }
}

/// A store of a large value over memcached's protocol.
///
/// The store's condition is checked when the value has arrived, as in memcached.
pub(crate) struct LargeStore<M: Mode> {
    pending: PendingStore<M>,
    line_end: [u8; 2],
    reply: OwnedReply,
    class: SizeClass,
    /// Its memory permit, while the value is arriving or being joined.
    permit: Option<ReceivePermit>,
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
    /// A store of an item of `class`; with a `permit` if its value is still arriving.
    pub(super) fn new(
        pending: PendingStore<M>,
        reply: Reply<'_>,
        class: SizeClass,
        permit: Option<ReceivePermit>,
    ) -> Self {
        Self { pending, line_end: [0; 2], reply: OwnedReply::new(reply), class, permit }
    }

    /// The class of the item, which determines the worker that receives it.
    pub(crate) fn class(&self) -> SizeClass {
        self.class
    }

    fn value_bytes(&self) -> usize {
        // The value is in memory, so its length fits.
        self.pending.value_bytes() as usize
    }

    /// Bytes to be received: the value and its line end.
    pub(crate) fn body_bytes(&self) -> usize {
        self.value_bytes() + self.line_end.len()
    }

    /// The memory for the bytes from offset `received_bytes` on, as far as it is contiguous; empty when all
    /// have arrived.
    pub(crate) fn room_at(&mut self, received_bytes: usize) -> &mut [u8] {
        let value_bytes = self.value_bytes();
        if received_bytes < value_bytes {
            &mut self.pending.value_mut()[received_bytes..]
        } else {
            let at = (received_bytes - value_bytes).min(self.line_end.len());
            &mut self.line_end[at..]
        }
    }

    /// Fills in a value that has already arrived.
    pub(super) fn fill(&mut self, value: &[u8]) {
        self.pending.value_mut().copy_from_slice(value);
        self.line_end = *b"\r\n";
    }

    /// Copies at most `limit_bytes` bytes to their final place; returns their number, 0 if none are left.
    pub(crate) fn copy(&mut self, limit_bytes: usize) -> usize {
        self.pending.copy(limit_bytes)
    }

    /// Stores the received value and appends the reply to `tx`. If bytes must be copied first, returns the
    /// store instead.
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
        let permit = &mut self.permit;
        let step = self.pending.next_step(cx, |bytes| {
            // A join holds memory while it lasts, so it needs a permit for its own bytes.
            drop(permit.take());
            *permit = cx.admin.admit(bytes);
            permit.is_some()
        });
        if matches!(step, Step::Copy) {
            return Some(self);
        }
        cx.counters.cmd_set.count();
        let Self { pending, reply, .. } = *self;
        let (stored, operation, key) = pending.end(cx, step);
        stored::respond(&stored, &operation, &key, reply.borrow(), tx);
        None
    }
}
