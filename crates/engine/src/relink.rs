//! Changes the slots and buckets of a chain, under its version. Only under the partition's lock.

use crate::{
    chain::{Place, buckets, following},
    index::{BUCKET_WORDS, FREE_SPARE, Index, SLOTS, clear_bucket},
    slot::Slot,
    versions,
};
use minos_region::{Memory, Offset, Region};
use minos_sync::{Access, tags};
use std::sync::atomic::Ordering::Relaxed;

/// Spare buckets taken from the heap at once; fewer if it does not have that many.
const SPARES_AT_ONCE: [u64; 3] = [64, 8, 1];

#[inline]
fn line_of(bucket: Option<Offset>) -> u32 {
    bucket.map_or(0, |bucket| (bucket.words() / BUCKET_WORDS as u64) as u32)
}

/// The first empty slot of a bucket.
#[inline]
pub(crate) fn vacant(region: &Region, head: Offset, bucket: Offset) -> Option<Place> {
    // An empty slot has the tag that no item has.
    tags::matching(region.array(bucket), 0).first().map(|word| Place { head, bucket, word })
}

#[inline]
pub(crate) fn replace<A: Access>(region: &Region, place: Place, slot: Slot) {
    let cell = place.cell(region);
    versions::write::<A>(region.word(place.head), || cell.store(slot.0, Relaxed));
}

/// Exchanges two slots of a chain.
pub(crate) fn exchange<A: Access>(region: &Region, place: Place, other: Place) {
    let (cell, other_cell) = (place.cell(region), other.cell(region));
    versions::write::<A>(region.word(place.head), || {
        let slot = cell.load(Relaxed);
        cell.store(other_cell.load(Relaxed), Relaxed);
        other_cell.store(slot, Relaxed);
    });
}

/// The last of [`places`], found bucket by bucket.
#[inline]
fn last_place(region: &Region, head: Offset) -> Option<Place> {
    let mut last = None;
    for bucket in buckets(region, head) {
        let word = vacant(region, head, bucket).map_or(SLOTS, |place| place.word - 1);
        if word > 0 {
            last = Some(Place { head, bucket, word });
        }
        if word < SLOTS {
            break;
        }
    }
    last
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unappended {
    /// The chain is full, and as long as it may be.
    AtLength,
    /// There is no memory for a spare bucket.
    NoMemory,
}

/// Appends a slot to a chain that may have `buckets_max` buckets.
pub(crate) fn append<A: Access>(
    memory: &Memory,
    index: &Index,
    head: Offset,
    slot: Slot,
    buckets_max: usize,
) -> Result<Place, Unappended> {
    let region = memory.region();
    let (before, last) = buckets(region, head).enumerate().last().unwrap_or((0, head));
    if let Some(place) = vacant(region, head, last) {
        replace::<A>(region, place, slot);
        return Ok(place);
    }
    if before + 1 >= buckets_max {
        return Err(Unappended::AtLength);
    }
    let spare = take_spare(memory, index).ok_or(Unappended::NoMemory)?;
    let place = Place { head, bucket: spare, word: 1 };
    versions::write::<A>(region.word(head), || {
        place.cell(region).store(slot.0, Relaxed);
        set_following(region, last, Some(spare));
    });
    Ok(place)
}

/// Takes a slot out; the last one of the chain takes its place.
pub(crate) fn remove<A: Access>(region: &Region, index: &Index, place: Place) {
    let Some(last) = last_place(region, place.head) else { return };
    let (cell, last_cell) = (place.cell(region), last.cell(region));
    versions::write::<A>(region.word(place.head), || {
        cell.store(last_cell.load(Relaxed), Relaxed);
        last_cell.store(Slot::EMPTY.0, Relaxed);
        if last.word == 1 && last.bucket != place.head {
            let before = buckets(region, place.head)
                .find(|&bucket| following(region.word(bucket).load(Relaxed)) == Some(last.bucket));
            if let Some(before) = before {
                set_following(region, before, None);
                put_spare(region, index, last.bucket);
            }
        }
    });
}

/// Splits a chain: moves some of its slots to a new chain, and puts the new one into use.
///
/// `slots` are those of the chain, each with true if it goes to `new`. The two chains need no
/// more spare buckets than the one had.
pub(crate) fn split<A: Access>(
    region: &Region,
    index: &Index,
    old: Offset,
    new: Offset,
    slots: &[(Slot, bool)],
) {
    let slots_of = |new: bool| slots.iter().filter(move |(_, moves)| *moves == new).map(|(slot, _)| *slot);
    versions::write::<A>(region.word(old), || {
        let mut spare = following(region.word(old).load(Relaxed));
        set_following(region, old, None);
        while let Some(bucket) = spare {
            spare = following(region.word(bucket).load(Relaxed));
            put_spare(region, index, bucket);
        }
        fill(region, index, new, slots_of(true));
        // Before the slots leave the old chain: a reader misses them there only after the count changed.
        index.publish(region);
        fill(region, index, old, slots_of(false));
    });
}

/// Writes the slots of a chain that consists of its first bucket.
fn fill(region: &Region, index: &Index, head: Offset, mut slots: impl Iterator<Item = Slot>) {
    let mut bucket = head;
    let mut slot = slots.next();
    loop {
        for word in &region.words(bucket, BUCKET_WORDS)[1..] {
            word.store(slot.unwrap_or(Slot::EMPTY).0, Relaxed);
            slot = if slot.is_some() { slots.next() } else { None };
        }
        if slot.is_none() {
            return;
        }
        let spare = pop_spare(region, index);
        debug_assert!(spare.is_some(), "a split frees as many spare buckets as it needs");
        let Some(spare) = spare else { return };
        set_following(region, bucket, Some(spare));
        bucket = spare;
    }
}

/// Sets the link of a bucket and keeps its version.
fn set_following(region: &Region, bucket: Offset, next: Option<Offset>) {
    minos_sync::version::set_payload(region.word(bucket), line_of(next));
}

/// An empty spare bucket, from the free ones or from the heap.
fn take_spare(memory: &Memory, index: &Index) -> Option<Offset> {
    let region = memory.region();
    if let Some(spare) = pop_spare(region, index) {
        return Some(spare);
    }
    let words = BUCKET_WORDS as u64;
    let (count, block) =
        SPARES_AT_ONCE.iter().find_map(|&count| Some((count, memory.allocate_forever(count * words)?)))?;
    for number in (0..count).rev() {
        let spare = block.plus(number * words);
        clear_bucket(region, spare);
        put_spare(region, index, spare);
    }
    pop_spare(region, index)
}

fn pop_spare(region: &Region, index: &Index) -> Option<Offset> {
    let free = index.word(region, FREE_SPARE);
    let spare = following(free.load(Relaxed) << 32)?;
    free.store(region.word(spare).load(Relaxed) >> 32, Relaxed);
    clear_bucket(region, spare);
    Some(spare)
}

fn put_spare(region: &Region, index: &Index, spare: Offset) {
    let free = index.word(region, FREE_SPARE);
    region.word(spare).store(free.load(Relaxed) << 32, Relaxed);
    free.store(u64::from(line_of(Some(spare))), Relaxed);
}
