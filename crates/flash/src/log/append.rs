//! Appends to streams.

use super::{Log, Place, Policy, compact::PageEnd, flow::Entry, packer::Packer, segments::State};
use crate::{
    format::{Kind, Life, PAGE_BYTES, RecordHeader, Stream},
    switches::{Safeguard, is_on},
};
use minos_base::{KeyHash, Seconds, Tombstone, limits::ITEM_KEY_BYTES_MAX};
use std::ops::Range;
use thiserror::Error;

/// Bytes at the end of a page that may be lost where any end will do.
const PAGE_REST_MAX: u64 = PAGE_BYTES as u64 / 8;

/// Segments that only compaction may open, so that it always ends.
pub(super) const KEPT_FOR_COMPACTION: usize = 2;

/// An item to append.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// The key's hash under the table's seed.
    pub hash: KeyHash,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The CAS unique, higher than that of any earlier record of the key.
    pub sequence: u64,
    /// When it expires; 0 is never.
    pub expiry: Seconds,
    /// Client flags.
    pub flags: u32,
    /// Marks of the item, 6 bits.
    pub marks: u8,
    /// The place of the record that this one replaces, also one that is not yet written.
    pub replaces: Option<Place>,
    /// Names the append in events; not 0.
    pub token: u64,
}

/// The reason why nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The record is too large.
    #[error("a record of {bytes} bytes is larger than {max}")]
    TooLarge {
        /// Bytes of the record.
        bytes: u64,
        /// Most bytes of a record.
        max: u64,
    },
    /// No segment is ready yet: try again after some work is done.
    #[error("no segment is ready yet")]
    Busy,
    /// The store has too little room for the record.
    #[error("the device is full")]
    Full,
    /// A flush or the journal failed.
    #[error("the device failed; nothing more is written")]
    ReadOnly,
}

/// A tombstone that is yet to be packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    pub(super) hash: KeyHash,
    pub(super) sequence: u64,
    pub(super) replaces: Life,
    /// The page in that life whose records are dead if they look alike; 0: none.
    pub(super) page: u32,
}

impl Carried {
    /// What a tombstone's header says.
    pub(super) fn of(header: &RecordHeader) -> Self {
        let RecordHeader { hash, sequence, replaces, expiry, .. } = *header;
        Self { hash, sequence, replaces, page: expiry }
    }
}

/// A record, before it is packed.
pub(super) struct Parcel<'a> {
    pub(super) header: RecordHeader,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    pub(super) token: u64,
    /// The page that compaction moves it out of.
    pub(super) from: Option<u32>,
}

impl Log {
    /// Appends an item. It counts as written at [`super::Event::Written`], as durable at
    /// [`super::Event::Durable`]; its place is known at once.
    pub fn append(&mut self, stream: Stream, put: &Put<'_>) -> Result<Place, Refusal> {
        let bytes = (put.key.len() + put.value.len()) as u64;
        let max = self.layout.record_bytes_max();
        if bytes > max || put.key.len() > ITEM_KEY_BYTES_MAX {
            return Err(Refusal::TooLarge { bytes, max });
        }
        // What failed was admitted before.
        if let Policy::Store { utilisation_percent_max } = self.options.policy
            && self.unanswered == 0
        {
            let most = self.capacity_bytes() / 100 * u64::from(utilisation_percent_max);
            let old = put.replaces.map_or(0, |place| place.length.bytes_typical());
            if self.segments.live_bytes() + bytes > most + old {
                return Err(Refusal::Full);
            }
        }
        let header = RecordHeader {
            checksum: 0,
            hash: put.hash,
            sequence: put.sequence,
            expiry: put.expiry,
            flags: put.flags,
            value_bytes: put.value.len() as u32,
            replaces: self.life_replaced(put.replaces),
            key_bytes: put.key.len() as u32,
            kind: Kind::Item,
            marks: put.marks,
        };
        let parcel = Parcel { header, key: put.key, value: put.value, token: put.token, from: None };
        let place = self.pack(stream, &parcel)?;
        put.replaces.into_iter().for_each(|place| self.retire(place));
        self.counters.appended_bytes += bytes;
        self.counters.appended_record_bytes += header.bytes();
        if let Policy::Cache { reinsert_percent } = self.options.policy {
            let saved_max = u64::from(self.layout.segment_bytes());
            let earned = header.bytes() * u64::from(reinsert_percent) / 100;
            self.reinsertion = (self.reinsertion + earned).min(saved_max);
        }
        Ok(place)
    }

    /// Appends a tombstone. Returns false if none is needed: the record at its place cannot come back.
    ///
    /// To be called before the next [`Log::poll`] after the index forgot the record: later another life may have
    /// its page.
    pub fn bury(&mut self, tombstone: &Tombstone, token: u64) -> Result<bool, Refusal> {
        let Tombstone { hash, sequence, place, is_forgotten } = *tombstone;
        let replaces = self.life_replaced(Some(place));
        // What a failed append was to replace is not dead yet.
        let owes = self.unanswered > 0 || !self.disowned.is_empty();
        let is_needed = (replaces != Life::NONE || owes) && is_on(Safeguard::Tombstones);
        if is_needed {
            // A store has read what it forgets, so that hash and sequence say it all.
            let may_be_another = sequence == 0 || matches!(self.options.policy, Policy::Cache { .. });
            let page = if is_forgotten && may_be_another { place.page } else { 0 };
            let carried = Carried { hash, sequence, replaces, page };
            let parcel = Parcel::tombstone(&carried, token);
            match self.pack(Stream::New, &parcel) {
                // Compaction may wait for what waits for this.
                Err(Refusal::Busy) => self.pack(Stream::Compacted, &parcel)?,
                packed => packed?,
            };
        }
        if is_forgotten {
            self.retire(place);
        }
        Ok(is_needed)
    }

    /// Records in these pages are dead, and there was no room for their tombstones: their segments end as soon
    /// as they are full. What the index still names there moves out.
    pub fn give_up(&mut self, pages: Range<u32>) {
        self.flush();
        let states = [State::Open, State::Full, State::Sealed].into_iter();
        let used: Vec<u32> = states.flat_map(|state| self.segments.in_state(state)).collect();
        let segment_pages = self.layout.segment_bytes() / PAGE_BYTES as u32;
        for number in used {
            let begin = self.page_of(number, 0);
            if begin < pages.end && pages.start < begin + segment_pages {
                self.segments.give_up(number);
            }
        }
    }

    fn life_replaced(&self, place: Option<Place>) -> Life {
        place.and_then(|place| self.segments.life_of_page(place.page)).unwrap_or(Life::NONE)
    }

    /// Packs a record into the open segment of `stream`.
    pub(super) fn pack(&mut self, stream: Stream, parcel: &Parcel<'_>) -> Result<Place, Refusal> {
        if self.is_read_only {
            return Err(Refusal::ReadOnly);
        }
        if self.rest.is_on() {
            return Err(Refusal::Busy);
        }
        // A segment that is full is closed, and the next one has room.
        for _ in 0..2 {
            match self.open_if_none(stream) {
                // Compaction waits for what failed to be appended again, and must not keep its room from that.
                Err(Refusal::Busy) if self.unanswered > 0 && stream != Stream::Compacted => {
                    return self.pack(Stream::Compacted, parcel);
                }
                opened => opened?,
            }
            let Some(packer) = &mut self.packers[stream as usize] else { break };
            let number = packer.segment();
            let Some(packed) = packer.push(&parcel.header, parcel.key, parcel.value) else {
                let taken_bytes = packer.taken_bytes();
                self.segments.learn_full(taken_bytes);
                self.close(stream);
                continue;
            };
            let is_at_end = packer.page_rest() <= PAGE_REST_MAX && self.page_end == PageEnd::Asked;
            let is_chunk = packer.waiting() >= self.options.chunk_bytes || is_at_end && stream == Stream::New;
            let at = self.layout.segment_at(number) + u64::from(packed.offset);
            let place = Place { page: (at / PAGE_BYTES as u64) as u32, length: packed.length };
            self.flow.waiting[stream as usize].push(Entry::of(parcel, place));
            self.is_compacted_shared |= stream == Stream::Compacted && parcel.token != 0;
            if parcel.header.kind == Kind::Item {
                self.segments.learn(parcel.header.bytes(), packed.length);
                self.segments.credit(number, packed.length);
            }
            if is_chunk {
                self.submit(stream, false);
            }
            return Ok(place);
        }
        Err(Refusal::Busy)
    }

    fn open_if_none(&mut self, stream: Stream) -> Result<(), Refusal> {
        if self.packers[stream as usize].is_some() {
            return Ok(());
        }
        let is_kept = stream != Stream::Compacted && self.segments.available() <= KEPT_FOR_COMPACTION;
        if is_kept || !self.rest.may_open() {
            return Err(Refusal::Busy);
        }
        let number = self.segments.open(stream).ok_or(Refusal::Busy)?;
        self.rest.opened();
        let life = self.segments.get(number).life;
        self.packers[stream as usize] = Some(Packer::open((number, life), self.seal, self.layout));
        debug_assert_eq!(self.segments.get(number).state, State::Open);
        Ok(())
    }
}

impl<'a> Parcel<'a> {
    /// Keeps dead what a tombstone kills.
    pub(super) fn tombstone(carried: &Carried, token: u64) -> Self {
        let Carried { hash, sequence, replaces, page } = *carried;
        let header = RecordHeader {
            checksum: 0,
            hash,
            sequence,
            expiry: page,
            flags: 0,
            value_bytes: 0,
            replaces,
            key_bytes: 0,
            kind: Kind::Tombstone,
            marks: 0,
        };
        Self { header, key: &[], value: &[], token, from: None }
    }
}
