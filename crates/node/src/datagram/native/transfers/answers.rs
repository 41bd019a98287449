//! The answers of transfers.

use std::time::Instant;

use arrayvec::ArrayVec;
use minos_engine::{Mode, Pinned};
use minos_proto::native::{
    ACK_HEAD_BYTES, AckHead, AckState, Composer, DATA_HEAD_BYTES, FragmentRange, Fragments, GRANT_BYTES,
    Grant, HEADER_BYTES, Kind, RANGE_BYTES, RANGES_MAX, ReplyRecord, TAG_BYTES,
};

use super::{
    data,
    data::Source,
    slot::{Ended, State},
    state::Transfers,
};
use crate::{
    datagram::native::{AnswerTo, Egress},
    ops::Facts,
};

impl<M: Mode> Transfers<M> {
    /// Sends which fragments have arrived and, once it has ended, the outcome of the store.
    pub(super) fn acknowledge(&mut self, at: usize, to: &AnswerTo, egress: &mut impl Egress) {
        let Some(slot) = &self.slots[at] else { return };
        let (transfer, asked) = (slot.grant.transfer, slot.asked);
        let mut missing: ArrayVec<FragmentRange, RANGES_MAX> = ArrayVec::new();
        let (received, ended) = match &slot.state {
            State::Open(arriving) => {
                missing.extend(arriving.received.missing().take(RANGES_MAX));
                (arriving.received.count(), None)
            }
            State::Held(fragments) => (*fragments, None),
            State::Ended(ended) => (ended.fragments, Some(*ended)),
        };
        let state = if ended.is_some() { AckState::Done } else { AckState::Open };
        self.ack(to, &AckHead { transfer, received, ranges: missing.len() as u32, state }, &missing, egress);
        if let Some(Ended { outcome, .. }) = ended {
            self.reply(to, &asked.reply(&outcome), egress);
        }
    }

    fn ack(&mut self, to: &AnswerTo, head: &AckHead, missing: &[FragmentRange], egress: &mut impl Egress) {
        let mut head_bytes = [0; ACK_HEAD_BYTES];
        head.write(&mut head_bytes);
        let mut ranges: ArrayVec<u8, { RANGES_MAX * RANGE_BYTES }> = ArrayVec::new();
        for range in missing {
            ranges.extend(range.first.to_le_bytes());
            ranges.extend(range.count.to_le_bytes());
        }
        self.send(to, Kind::Ack, egress, |composer| {
            composer.push_bytes(&head_bytes);
            composer.push_bytes(&ranges);
        });
    }

    pub(super) fn reply(&mut self, to: &AnswerTo, record: &ReplyRecord<'_>, egress: &mut impl Egress) {
        self.send(to, Kind::Reply, egress, |composer| {
            composer.push_reply(record);
        });
    }

    /// Sends a datagram of this kind.
    fn send(
        &mut self,
        to: &AnswerTo,
        kind: Kind,
        egress: &mut impl Egress,
        compose: impl FnOnce(&mut Composer<'_>),
    ) {
        self.datagram.clear();
        let mut composer = Composer::begin(&mut self.datagram, to.header_of(kind), to.datagram_bytes_max);
        compose(&mut composer);
        let seals = self.config.seals.as_deref();
        let bytes = composer.finish_with(seals.and_then(|seals| seals.answer_key(&to.header)));
        egress.send(to.peer, &self.datagram, bytes);
    }

    /// Sends the fragments in `ranges`, at most a window.
    pub(super) fn send_window(
        &mut self,
        to: &AnswerTo,
        source: &Source<'_>,
        ranges: impl Iterator<Item = FragmentRange>,
        egress: &mut impl Egress,
    ) {
        let window = usize::from(self.window(source.fragment_bytes));
        let end = source.fragments.count();
        let indexes =
            ranges.flat_map(|range| range.first.min(end)..range.indexes().end.min(end)).take(window);
        let counters = &self.counters;
        let counted = indexes.inspect(|_| counters.data_out.count());
        let seal = self.config.seals.as_deref().and_then(|seals| seals.answer_key(&to.header));
        self.data.send(to, seal, source, counted, egress);
    }

    /// Charges the burst's budget for so many fragments, at most a window; false if the budget is exhausted.
    pub(super) fn may_send(&mut self, to: &AnswerTo, source: &Source<'_>, asked: u32, now: Instant) -> bool {
        let fragments =
            asked.min(source.fragments.count()).min(u32::from(self.window(source.fragment_bytes)));
        let bytes = u64::from(fragments) * u64::from(source.fragment_bytes);
        self.budget.spend(to.peer, bytes, now)
    }

    /// Most fragments in flight at once: no more than one train has.
    fn window(&self, fragment_bytes: u32) -> u16 {
        let segments_max = data::segments_max(data::HEAD_BYTES + TAG_BYTES + fragment_bytes as usize);
        self.config.window.min(segments_max as u16)
    }

    /// The fragment size of a value, and the queue that its fragments or requests for them must go to.
    pub(super) fn grant(&self, transfer: u64, value_bytes: u64, fragment_bytes: u32) -> Grant {
        let (queue, window) = (self.config.queue, self.window(fragment_bytes));
        Grant { transfer, value_bytes, fragment_bytes, queue, window, first_follows: false }
    }
}

/// A grant encoded for a reply.
pub(super) fn bytes_of(grant: &Grant) -> [u8; GRANT_BYTES] {
    let mut bytes = [0; GRANT_BYTES];
    grant.write(&mut bytes);
    bytes
}

pub(super) fn source<'a, M: Mode>(to: &AnswerTo, request: u32, item: &'a Pinned<M>) -> Option<Source<'a>> {
    let Facts { value_bytes, cas, flags: item_flags, .. } = Facts::from(&**item);
    let fragment_bytes = fragment_bytes(to, DATA_HEAD_BYTES);
    let fragments = Fragments::of(value_bytes, fragment_bytes).ok()?;
    Some(Source { request, value: item.value(), cas, item_flags, fragment_bytes, fragments })
}

/// Bytes of a fragment behind a head of `head_bytes`, a multiple of 8.
pub(super) fn fragment_bytes(to: &AnswerTo, head_bytes: usize) -> u32 {
    ((to.datagram_bytes_max - HEADER_BYTES - head_bytes - to.header.tag_bytes()) / 8 * 8) as u32
}
