//! Turns to transfer large values, and the datagrams of transfers: FETCH requests, windows of fragments, probes.

use std::{collections::VecDeque, ops::Range};

use minos_proto::native::{
    Composer, DATAGRAM_BYTES_MAX, Detail, FRAGMENT_HEAD_BYTES, Flags, FragmentHead, HEADER_BYTES, Header,
    Kind, OpFlags, Opcode, Operation as Record, TAG_BYTES, TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX, push_ranges,
};

use super::{Core, OpId, assign::limit_bytes, compose::Train, operation::Phase, store::Next};
use crate::Error;

/// A bound on transfers, and the operations that wait for a turn, first come first served.
#[derive(Debug)]
pub(super) struct Turns {
    active: usize,
    pub(super) active_max: usize,
    pub(super) waiting: VecDeque<OpId>,
}

impl Turns {
    pub(super) fn new(active_max: usize) -> Self {
        Self { active: 0, active_max, waiting: VecDeque::new() }
    }

    /// Takes a turn; returns false if none is free.
    pub(super) fn take(&mut self) -> bool {
        let is_free = self.active < self.active_max;
        self.active += usize::from(is_free);
        is_free
    }

    /// True if no turn is taken.
    pub(super) fn is_idle(&self) -> bool {
        self.active == 0
    }

    pub(super) fn give_back(&mut self) {
        self.active = self.active.saturating_sub(1);
    }

    /// Takes the operation that has waited longest, if a turn is free.
    pub(super) fn next(&mut self) -> Option<OpId> {
        if self.active < self.active_max { self.waiting.pop_front() } else { None }
    }
}

impl Core {
    /// Composes the train of the next transfer in turn.
    #[inline(never)]
    pub(super) fn compose_transfers(&mut self, now_ns: u64) -> Option<Train> {
        self.link.usable(self.is_sealed())?;
        while let Some(id) = self.transfers_due.pop_front() {
            let train = match self.operations.get_mut(id).map(|operation| &mut operation.phase) {
                Some(Phase::Fetching(fetch)) => {
                    fetch.is_queued = false;
                    self.compose_fetch(id, now_ns)
                }
                Some(Phase::Storing(store)) => {
                    store.is_queued = false;
                    let next = store.next();
                    self.compose_store(id, next, now_ns)
                }
                _ => None,
            };
            if train.is_some() {
                return train;
            }
        }
        None
    }

    pub(super) fn queue_transfer(&mut self, id: OpId) {
        let is_queued = match self.operations.get_mut(id).map(|operation| &mut operation.phase) {
            Some(Phase::Fetching(fetch)) => &mut fetch.is_queued,
            Some(Phase::Storing(store)) => &mut store.is_queued,
            _ => return,
        };
        if !std::mem::replace(is_queued, true) {
            self.transfers_due.push_back(id);
        }
    }

    fn compose_fetch(&mut self, id: OpId, now_ns: u64) -> Option<Train> {
        let directory = *self.link.directory()?;
        let operation = self.operations.get_mut(id)?;
        let Phase::Fetching(fetch) = &mut operation.phase else { return None };
        let (cas, queue) = (fetch.cas, fetch.queue?);
        fetch.ask(&mut self.ranges);
        if self.ranges.is_empty() {
            return None;
        }
        self.range_bytes.clear();
        push_ranges(&mut self.range_bytes, self.ranges.iter().copied());
        let header = self.header(Kind::Request, queue, now_ns);
        let limit_bytes = limit_bytes(&directory, self.config.datagram_bytes_max);
        let operation = self.operations.get_mut(id)?;
        let record = Record {
            opcode: Opcode::Fetch,
            flags: OpFlags::NONE,
            request: id.0,
            hash: directory.direction(&operation.request.key),
            key: &operation.request.key,
            detail: Detail { operand: cas, ..Detail::default() },
            value: &self.range_bytes,
        };
        let mut composer = Composer::begin(&mut self.out, header, limit_bytes);
        composer.push_operation(&record);
        let bytes = composer.finish_with(self.config.seal());
        operation.note_sent(header.sequence);
        self.wait_for_transfer(id, now_ns);
        Some((self.link.address(queue), bytes))
    }

    /// Composes a window of fragments, or a probe that asks which of them have arrived.
    fn compose_store(&mut self, id: OpId, next: Next, now_ns: u64) -> Option<Train> {
        let Phase::Storing(store) = &self.operations.get(id)?.phase else { return None };
        let (transfer, queue, fragments) = (store.transfer, store.queue, store.fragments);
        let tag_bytes = if self.is_sealed() { TAG_BYTES } else { 0 };
        let fragment_bytes = fragments.range(0).map_or(0, |range| range.len());
        let segment_bytes = HEADER_BYTES + FRAGMENT_HEAD_BYTES + fragment_bytes + tag_bytes;
        // Granted fragments may be longer than the path carries; only the protocol's maximum is an error.
        if segment_bytes > DATAGRAM_BYTES_MAX {
            self.finish(id, Err(Error::Protocol("fragments longer than a datagram")), now_ns);
            return None;
        }
        match next {
            Next::Nothing => return None,
            Next::Probe => {
                let header = self.fragment_header(queue, true, now_ns);
                self.push_fragment(header, FragmentHead { transfer, index: 0 }, id, 0..0);
            }
            Next::Window => self.push_window(id, segment_bytes, now_ns),
        }
        self.wait_for_transfer(id, now_ns);
        // There may be another window.
        self.queue_transfer(id);
        Some((self.link.address(queue), segment_bytes.min(self.out.len())))
    }

    /// Appends a window of fragments, of which the last one asks for an acknowledgement.
    fn push_window(&mut self, id: OpId, segment_bytes: usize, now_ns: u64) {
        let segments_max = TRAIN_SEGMENTS_MAX.min(TRAIN_BYTES_MAX / segment_bytes);
        let Some(Phase::Storing(store)) = self.operations.get(id).map(|it| &it.phase) else { return };
        let mut left = store.window(segments_max);
        while left > 0 {
            let sequence = self.sequence_next;
            let Some(Phase::Storing(store)) = self.operations.get_mut(id).map(|it| &mut it.phase) else {
                return;
            };
            let Some(index) = store.take(sequence) else { return };
            left = if store.has_more() { left - 1 } else { 0 };
            let (transfer, queue) = (store.transfer, store.queue);
            let Some(range) = store.fragments.range(index) else { return };
            let header = self.fragment_header(queue, left == 0, now_ns);
            self.push_fragment(header, FragmentHead { transfer, index }, id, range);
        }
    }

    fn fragment_header(&mut self, queue: u16, asks: bool, now_ns: u64) -> Header {
        let header = self.header(Kind::Fragment, queue, now_ns);
        let mark = if asks { Flags::ACK_WANTED } else { Flags::NONE };
        Header { flags: header.flags | mark, ..header }
    }

    /// Appends the fragment that holds `range` of the operation's value.
    fn push_fragment(&mut self, header: Header, head: FragmentHead, id: OpId, range: Range<usize>) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.note_sent(header.sequence);
        let Phase::Storing(store) = &mut operation.phase else { return };
        if header.flags.contains(Flags::ACK_WANTED) {
            store.asks(header.sequence);
        }
        let header = Header { session: store.session, ..header };
        let mut head_bytes = [0; FRAGMENT_HEAD_BYTES];
        head.write(&mut head_bytes);
        let data = operation.request.value.get(range).unwrap_or_default();
        let limit_bytes = HEADER_BYTES + FRAGMENT_HEAD_BYTES + data.len() + TAG_BYTES;
        let mut composer = Composer::begin(&mut self.out, header, limit_bytes);
        composer.push_bytes(&head_bytes);
        composer.push_bytes(data);
        composer.finish_with(self.config.seal());
    }

    /// Sets the time after which a transfer without progress repeats what is missing.
    pub(super) fn wait_for_transfer(&mut self, id: OpId, now_ns: u64) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let wait_ns = self.round_trip.wait_ns(operation.attempts.max(1), &mut self.dice);
        let again_at_ns = now_ns.saturating_add(wait_ns);
        match &mut operation.phase {
            Phase::Fetching(fetch) => fetch.again_at_ns = again_at_ns,
            Phase::Storing(store) => store.again_at_ns = again_at_ns,
            _ => return,
        }
        self.wake_at(again_at_ns);
    }

    /// Restarts a transfer's deadline after progress.
    pub(super) fn note_progress(&mut self, id: OpId, now_ns: u64) {
        if let Some(operation) = self.operations.get_mut(id) {
            operation.attempts = 1;
            operation.deadline_ns = now_ns.saturating_add(operation.timeout_ns);
            let deadline_ns = operation.deadline_ns;
            self.wake_at(deadline_ns);
        }
        self.wait_for_transfer(id, now_ns);
    }
}
