//! What follows a request: work with large values on their way between a connection and the store, items to be
//! fetched. State that outlives the execution of a command.

use std::sync::{Arc, atomic::AtomicUsize};

use minos_base::{FLASH_PAGE_BYTES, KeyHash, SizeClass};
use minos_engine::{Lookup, Mode, Pinned};
use minos_proto::resp::Id;
use minos_sched::WorkerId;
use minos_tier::SyncId;

use super::{
    context::Context,
    fetched::{Fetched, Need, class_of},
    pending::{PendingStore, Step},
    receiving::ReceivePermit,
    store::{StoreOperation, Stored},
};
use crate::access::Task;
use crate::rack::{Forward, Forwards};

/// The line end behind the value that [`Finished::Send`] leaves.
pub(crate) const LINE_END: &[u8] = b"\r\n";

/// Most keys that are fetched at once for one connection.
const FETCH_KEYS_MAX: usize = 128;
/// The part of the memory that their items may take. They are to be there together.
const FETCH_PART: u64 = 32;

/// How the service of a connection goes on.
pub(crate) enum Next<M: Mode> {
    /// At once, with the input that is left or arrives.
    Continue,
    /// When the rest of the input has this many bytes: it ends within a request.
    NeedMore {
        /// Bytes from the end of the consumed input.
        wanted_bytes: usize,
    },
    /// After the queue's other connections.
    Yield,
    /// When the poller reports room to send: the socket takes no more replies.
    Blocked,
    /// When CLIENT PAUSE has ended. The command that waits is in the input.
    Unpaused,
    /// Not at all: the connection is closed once its replies are sent.
    Close,
    /// With a large request, at the worker for its size.
    Away(Work<M>),
    /// When items that may be on flash are in memory, or known not to exist.
    Fetch(Box<Fetch<M>>),
    /// When a password is checked: the command is executed again with the verdict.
    Check(Box<Task>),
    /// When other nodes of the rack have executed its commands.
    Forward(Box<Forwards<M>>),
    /// At once, at the worker that owns the partition of the next key, or for the value that it has.
    Owner(WorkerId),
    /// As this says, when the changes so far are durable and the replies to them are sent.
    Durable(Box<Next<M>>),
}

/// The work that a large request leaves.
pub(crate) enum Work<M: Mode> {
    /// Send the value of a pinned item, which stays unchanged meanwhile, and the protocol's bytes behind it.
    Send { item: Pinned<M>, tail: &'static [u8], sent_bytes: usize },
    /// Receive a value and its line end into reserved memory.
    Receive { store: Box<LargeStore<M>>, received_bytes: usize },
    /// Copy bytes that have all arrived to their final place, as in an append to a large value.
    Finish { store: Box<LargeStore<M>> },
    /// Receive the value and line end of a command for another node, from this byte of it on, and forward it.
    Collect { forward: Box<Forward>, at: usize },
}

impl<M: Mode> Work<M> {
    /// Sends the value of `item`, then `tail`.
    pub(crate) fn send(item: Pinned<M>, tail: &'static [u8]) -> Self {
        Self::Send { item, tail, sent_bytes: 0 }
    }

    /// Length of the value, in bytes.
    pub(crate) fn value_bytes(&self) -> u64 {
        match self {
            Self::Send { item, .. } => item.value().len() as u64,
            Self::Receive { store, .. } | Self::Finish { store } => store.value_bytes() as u64,
            Self::Collect { forward, .. } => forward.bytes.len() as u64,
        }
    }

    /// The class of the value, which determines the worker for it.
    pub(crate) fn class(&self) -> SizeClass {
        match self {
            Self::Send { item, .. } => SizeClass::of(item.value().len() as u64),
            Self::Receive { store, .. } | Self::Finish { store } => store.class,
            Self::Collect { forward, .. } => SizeClass::of(forward.bytes.len() as u64),
        }
    }
}

/// How the end of a large store turned out.
pub(crate) enum Finished<M: Mode> {
    /// The reply is composed.
    Answered,
    /// The reply is composed, and the connection cannot go on.
    Refused,
    /// The reply is composed but for this value and a line end.
    Send(Pinned<M>),
    /// Bytes must be copied first.
    Copy(Box<LargeStore<M>>),
    /// The item that it depends on is to be fetched first.
    Fetch(Box<Fetch<M>>),
}

/// Composes the protocol's reply to a store: its result, and its operation and key again.
pub(crate) type AnswerStore = Box<dyn FnOnce(LargeStored, &StoreOperation, &[u8], &mut Vec<u8>) + Send>;

pub(crate) enum LargeStored {
    /// That of the store, and the length of the item before if the operation asked for that.
    Ended(Stored, Option<u64>),
    /// No line end followed the value, so nothing was stored.
    NoLineEnd,
}

/// A store of a large value.
///
/// The store's condition is checked when the value has arrived, as in memcached.
pub(crate) struct LargeStore<M: Mode> {
    pending: PendingStore<M>,
    line_end: [u8; 2],
    /// Bytes of it to be received.
    end_bytes: usize,
    /// The command of Redis' protocol, of which it is a part: that skips whatever is in the place of the line end, without
    /// which others store nothing.
    command: Option<Id>,
    class: SizeClass,
    /// Its memory permit, while the value is arriving or being joined.
    permit: Option<ReceivePermit>,
    answer: AnswerStore,
    /// The rest of the request, which is received behind the line end.
    trailer: Option<Trailer>,
}

/// The part of a request behind its large value. Its length is known only as it comes.
pub(crate) struct Trailer {
    /// Bytes that have come, or are known to come.
    bytes: Vec<u8>,
    read: Box<dyn ReadTrailer>,
}

/// The outcome of a trailer.
pub(crate) enum TrailerEnd {
    /// The store goes on.
    Store,
    /// The reply is composed; nothing is stored.
    Answered,
    /// The same, and the rest of the input cannot be understood.
    Broken,
}

/// Knows where the rest of a request ends, and its meaning.
pub(crate) trait ReadTrailer: Send {
    /// Bytes of the trailer that begins with these, at least.
    fn wanted_bytes(&self, bytes: &[u8]) -> usize;

    /// Completes the operation. Appends the reply to `tx` if that is not possible.
    fn read(&self, bytes: &[u8], operation: &mut StoreOperation, tx: &mut Vec<u8>) -> TrailerEnd;
}

impl<M: Mode> LargeStore<M> {
    /// A store of an item of `class`; with a `permit` if its value is still arriving. A protocol without a line end
    /// behind values has received it as it were.
    pub(crate) fn new(
        pending: PendingStore<M>,
        class: SizeClass,
        permit: Option<ReceivePermit>,
        has_line_end: bool,
        answer: AnswerStore,
    ) -> Self {
        let (line_end, end_bytes) = if has_line_end { ([0; 2], 2) } else { (*b"\r\n", 0) };
        Self { pending, line_end, end_bytes, command: None, class, permit, answer, trailer: None }
    }

    /// The same store, as a part of a command of Redis' protocol, which is counted if it fails. Any two bytes may be in the
    /// place of the line end.
    pub(crate) fn of_command(self, id: Id) -> Self {
        Self { command: Some(id), ..self }
    }

    /// The same store, of a request that goes on behind the value.
    pub(crate) fn with_trailer(self, read: Box<dyn ReadTrailer>) -> Self {
        let bytes = vec![0; read.wanted_bytes(&[])];
        Self { trailer: Some(Trailer { bytes, read }), ..self }
    }

    fn value_bytes(&self) -> usize {
        // The value is in memory, so its length fits.
        self.pending.value_bytes() as usize
    }

    /// Bytes to be received, as far as that is known: the value, its line end and a trailer.
    pub(crate) fn body_bytes(&self) -> usize {
        self.value_bytes() + self.end_bytes + self.trailer.as_ref().map_or(0, |trailer| trailer.bytes.len())
    }

    /// True if more bytes follow than [`LargeStore::body_bytes`], all of which have been received, has said so far.
    pub(crate) fn wants_more(&mut self) -> bool {
        let Some(trailer) = &mut self.trailer else { return false };
        let (had, wanted) = (trailer.bytes.len(), trailer.read.wanted_bytes(&trailer.bytes));
        trailer.bytes.resize(wanted.max(had), 0);
        wanted > had
    }

    /// The memory for the bytes from offset `received_bytes` on, as far as it is contiguous; empty when all
    /// have arrived.
    pub(crate) fn room_at(&mut self, received_bytes: usize) -> &mut [u8] {
        let value_bytes = self.value_bytes();
        if received_bytes < value_bytes {
            &mut self.pending.value_mut()[received_bytes..]
        } else {
            let at = received_bytes - value_bytes;
            match &mut self.trailer {
                Some(trailer) if at >= self.end_bytes => &mut trailer.bytes[at - self.end_bytes..],
                _ => &mut self.line_end[at.min(2)..],
            }
        }
    }

    /// Fills in a value that has already arrived.
    pub(crate) fn fill(&mut self, value: &[u8]) {
        self.pending.value_mut().copy_from_slice(value);
        self.line_end = *b"\r\n";
    }

    /// Copies at most `limit_bytes` bytes to their final place; returns their number, 0 if none are left.
    pub(crate) fn copy(&mut self, limit_bytes: usize) -> usize {
        self.pending.copy(limit_bytes)
    }

    /// Stores the received value and appends the reply to `tx`, unless something is to be done first.
    pub(crate) fn finish<P>(mut self: Box<Self>, cx: &Context<'_, M, P>, tx: &mut Vec<u8>) -> Finished<M> {
        if self.command.is_none() && self.line_end != *b"\r\n" {
            cx.counters.cmd_set.count();
            let Self { pending, answer, .. } = *self;
            answer(LargeStored::NoLineEnd, pending.operation(), pending.key(), tx);
            return Finished::Answered;
        }
        if let Some(trailer) = self.trailer.take() {
            match trailer.read.read(&trailer.bytes, self.pending.operation_mut(), tx) {
                TrailerEnd::Store => {}
                TrailerEnd::Answered => {
                    self.command.iter().for_each(|id| cx.counters.fail_later(*id));
                    return Finished::Answered;
                }
                TrailerEnd::Broken => return Finished::Refused,
            }
        }
        let permit = &mut self.permit;
        let step = self.pending.next_step(cx, |bytes| {
            // A join holds memory while it lasts, so it needs a permit for its own bytes.
            drop(permit.take());
            *permit = cx.admin.admit(bytes);
            permit.is_some()
        });
        let stored = match step {
            Step::Copy => return Finished::Copy(self),
            Step::Fetch(class) => {
                let fetch = Fetch::of(self.pending.hash(), self.pending.key(), class, Need::Item);
                return Finished::Fetch(Box::new(Fetch { then: Some(self), ..fetch }));
            }
            Step::Room => {
                let fetch = Fetch::of_room(cx);
                return Finished::Fetch(Box::new(Fetch { then: Some(self), ..fetch }));
            }
            Step::Over(stored) => stored,
        };
        cx.counters.cmd_set.count();
        if matches!(stored, Stored::NoMemory | Stored::NotHere | Stored::Cold(_)) {
            self.command.iter().for_each(|id| cx.counters.fail_later(*id));
        }
        let Self { pending, answer, .. } = *self;
        let (operation, key, old) = pending.end();
        let old_bytes = old.as_ref().map(|old| old.value().len() as u64);
        let start = tx.len();
        answer(LargeStored::Ended(stored, old_bytes), &operation, &key, tx);
        // It says that the old value follows, or answers otherwise.
        match old.filter(|_| tx.get(start) == Some(&b'$')) {
            Some(old) => Finished::Send(old),
            None => Finished::Answered,
        }
    }
}

/// A part of the table whose keys are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WalkWish {
    /// Where it begins: the number of a bucket of a partition, times the number of partitions, and that of the partition.
    pub(crate) cursor: u64,
    /// Keys after which it ends with their bucket.
    pub(crate) keys: usize,
}

/// Keys whose items are read from flash before their request goes on.
pub(crate) struct Fetch<M: Mode> {
    pub(crate) keys: Vec<(KeyHash, Box<[u8]>)>,
    /// Class of the first key's record, as far as the index knows it.
    pub(crate) class: SizeClass,
    /// The form in which the request needs the items.
    pub(crate) need: Need,
    /// The large store that ends then, if it is not a request still to be executed.
    pub(crate) then: Option<Box<LargeStore<M>>>,
    /// Times that the request waited for room.
    pub(crate) waits: u32,
    /// The emptying of flash that the request waits for.
    pub(crate) emptying: Option<SyncId>,
    /// The part of the table whose keys it lists.
    pub(crate) walk: Option<WalkWish>,
    /// Bytes of the keys' records, at most.
    pub(super) bytes: u64,
}

impl<M: Mode> Fetch<M> {
    pub(crate) fn of(hash: KeyHash, key: &[u8], class: SizeClass, need: Need) -> Self {
        Self { keys: vec![(hash, key.into())], class, need, bytes: class.bytes_max(), ..Self::of_nothing() }
    }

    /// The least class that the first key's item may be of: the index knows the pages that its record reaches into, less
    /// exactly where they are many.
    pub(crate) fn class_min(&self) -> SizeClass {
        let most = self.class.bytes_max();
        SizeClass::of((most - most / 6).saturating_sub(2 * FLASH_PAGE_BYTES as u64))
    }

    /// Fetches nothing, but waits for room.
    pub(crate) fn of_room<P>(cx: &Context<'_, M, P>) -> Self {
        let waits = cx.fetched.map_or(0, |fetched| fetched.waits) + 1;
        Self { waits, ..Self::of_nothing() }
    }

    /// Fetches nothing, but waits until flash is empty.
    pub(crate) fn of_emptying(emptying: SyncId) -> Self {
        Self { emptying: Some(emptying), ..Self::of_nothing() }
    }

    /// Lists keys, those on flash too.
    pub(crate) fn of_walk(walk: WalkWish) -> Self {
        Self { walk: Some(walk), ..Self::of_nothing() }
    }

    fn of_nothing() -> Self {
        Self {
            keys: Vec::new(),
            class: SizeClass::of(0),
            need: Need::Item,
            then: None,
            waits: 0,
            emptying: None,
            walk: None,
            bytes: 0,
        }
    }

    /// What is known about its keys: nothing yet. With empty memory for copies, and their count.
    pub(crate) fn fetched(&self, copies: (Vec<u8>, Arc<AtomicUsize>)) -> Fetched {
        Fetched::new(self.waits, self.emptying, copies)
    }

    /// Bytes of memory for the items that are fetched together.
    pub(crate) fn room_bytes<P>(cx: &Context<'_, M, P>) -> u64 {
        cx.store.memory_limit() / FETCH_PART
    }

    /// Fetches the keys of another fetch along.
    ///
    /// # Errors
    /// That fetch, if it waits for something else, or there is no room for the items of both.
    pub(crate) fn join(&mut self, other: Self, room_bytes: u64) -> Result<(), Self> {
        let has_room = self.bytes + other.bytes <= room_bytes && self.keys.len() < FETCH_KEYS_MAX;
        if self.keys.is_empty() || other.keys.is_empty() || !has_room {
            return Err(other);
        }
        self.bytes += other.bytes;
        self.keys.extend(other.keys);
        if other.need != self.need {
            self.need = Need::Item;
        }
        Ok(())
    }

    /// Fetches other keys along, as far as there is room for their items. A key that has left memory again since it
    /// was fetched is fetched alone: then it stays until its request is executed.
    pub(crate) fn with<'k, P>(
        self,
        cx: &Context<'_, M, P>,
        others: impl Iterator<Item = (KeyHash, &'k [u8])>,
    ) -> Self {
        match self.need {
            // Nobody asked to delete the others.
            Need::Deletion(_) => self,
            Need::Item | Need::Copy => self.with_own(cx, others),
        }
    }

    /// As [`Fetch::with`], for keys of the same command: what it needs of one, it needs of all.
    pub(crate) fn with_own<'k, P>(
        mut self,
        cx: &Context<'_, M, P>,
        others: impl Iterator<Item = (KeyHash, &'k [u8])>,
    ) -> Self {
        let is_asked = |fetched: &Fetched| self.keys.iter().all(|key| fetched.asked.contains(key));
        if self.keys.is_empty() || cx.fetched.is_some_and(is_asked) {
            return self;
        }
        let mut room_bytes = Self::room_bytes(cx);
        for (hash, key) in others {
            let Lookup::Cold(candidates) = M::look_again(cx.store, hash, key, cx.now) else { continue };
            let bytes = class_of(&candidates).bytes_max();
            if self.keys.len() == FETCH_KEYS_MAX || bytes > room_bytes {
                break;
            }
            room_bytes -= bytes;
            self.keys.push((hash, key.into()));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use minos_base::RoughLength;
    use minos_engine::TieredMode;

    use super::*;

    #[test]
    fn an_item_is_of_no_lesser_class_than_its_record_tells() {
        const HEAD_BYTES: u64 = 60;
        let page_bytes = FLASH_PAGE_BYTES as u64;
        for value_bytes in
            (0..200).map(|step: u64| step * step * step).chain((0..100).map(|step| step * 1000))
        {
            for offset in [0, 2000, 4000] {
                let record_bytes = value_bytes + HEAD_BYTES;
                let pages = (offset + record_bytes).div_ceil(page_bytes);
                let class = SizeClass::of(RoughLength::of(record_bytes, pages).bytes_max());
                let fetch = Fetch::<TieredMode>::of(KeyHash(1), b"key", class, Need::Item);
                let (least, exact) = (fetch.class_min(), SizeClass::of(value_bytes));
                assert!(least <= exact, "{value_bytes} bytes in {pages} pages: {least:?}, {exact:?}");
                assert!(
                    value_bytes < 100_000 || 2 * least.bytes_max() > value_bytes,
                    "{value_bytes}: {least:?}"
                );
            }
        }
    }
}
