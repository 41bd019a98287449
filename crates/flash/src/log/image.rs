//! An image of the table at one moment, copied while the log goes on.
//!
//! It is what a power loss at that moment would leave if no write under way had reached the device: the newest durable
//! journal, and of each segment that it names the bytes whose flush was complete. So recovery finds in the copy what
//! it would have found on the device. Bytes of an image are not written again before their segment is released.

use super::{Log, append::KEPT_FOR_COMPACTION, segments::State};
use crate::{
    format::{
        Fault, Footers, Journal, Layout, Life, PAGE_BYTES, Pages, Seal, Superblock, Trailer,
        footer_block_bytes,
    },
    work::Work,
};
use std::ops::Range;

/// The copy's journals continue so far behind those of the table: memory that belongs to one of the two is old above
/// the other.
const JOURNALS_APART: u64 = 1 << 32;

/// The table at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    journal: Journal,
    /// What to copy. The rest of the copy is zeros.
    pub extents: Vec<Extent>,
}

/// What a segment holds of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The segment's number.
    pub segment: u32,
    /// Its bytes on the device, whole pages in order.
    pub parts: Vec<Range<u64>>,
    life: Life,
    check: Check,
}

/// How what was copied is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// Each record that the footers name is there.
    Footers,
    /// Each page was written, with all that begins in it.
    Pages,
    /// The device failed here before, or recovery found no footers: what does not verify is dead.
    None,
}

impl Image {
    /// Writes of superblock and journal.
    pub fn head(&self, superblock: &Superblock) -> Vec<Work> {
        let (layout, seal) = (superblock.layout, Seal::new(superblock.seed));
        let number = self.journal.number + JOURNALS_APART;
        let journal = Journal { number, items: None, ..self.journal.clone() };
        let mut works = Vec::new();
        for copy in 0..2 {
            works.push(Work::Write { at: layout.superblock_at(copy), bytes: superblock.encode() });
            let at = layout.journal_at(journal.number, copy);
            let bytes = journal.encode(seal, at, layout.journal_bytes() as usize);
            works.push(Work::Write { at, bytes });
        }
        works
    }

    /// Bytes to copy.
    pub fn bytes(&self) -> u64 {
        self.extents.iter().map(Extent::bytes).sum()
    }
}

impl Extent {
    /// Bytes to copy.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.end - part.start).sum()
    }

    /// Verifies a copy: `bytes` are those of the segment, zeros where it has no part.
    ///
    /// # Errors
    /// Something is not as it was written.
    pub fn verify(&self, bytes: &[u8], layout: &Layout, seal: Seal) -> Result<(), Fault> {
        let begin = layout.segment_at(self.segment);
        let pages = Pages::new(bytes, begin, self.life, seal);
        match self.check {
            Check::None => Ok(()),
            Check::Footers => self.verify_footers(bytes, (begin, seal), &pages),
            Check::Pages => {
                let page = PAGE_BYTES as u64;
                let mut numbers =
                    self.parts.iter().flat_map(|part| (part.start - begin) / page..(part.end - begin) / page);
                numbers.try_for_each(|number| verify_page(&pages, number as usize))
            }
        }
    }

    fn verify_footers(
        &self,
        bytes: &[u8],
        (begin, seal): (u64, Seal),
        pages: &Pages<'_>,
    ) -> Result<(), Fault> {
        let block = footer_block_bytes(Trailer::decode(bytes)?.entry_bytes) as usize;
        let tail = bytes.len().checked_sub(block).ok_or(Fault::Length(block as u64))?;
        let footers = Footers::decode(&bytes[tail..], seal, begin + bytes.len() as u64)?;
        if footers.trailer.life != self.life {
            return Err(Fault::Life(footers.trailer.life.0));
        }
        for footer in footers.iter() {
            let offset = footer.offset as usize;
            pages.stamp(offset / PAGE_BYTES)?;
            match pages.record(offset)? {
                Some((record, _)) if record.header.sequence == footer.sequence => {}
                _ => return Err(Fault::Length(u64::from(footer.offset))),
            }
        }
        Ok(())
    }
}

/// Verifies a page's stamp and the records that begin in it.
fn verify_page(pages: &Pages<'_>, number: usize) -> Result<(), Fault> {
    let stamp = pages.stamp(number)?;
    let mut offset = number * PAGE_BYTES + usize::from(stamp.first);
    while stamp.first != 0 && offset / PAGE_BYTES == number {
        match pages.record(offset)? {
            Some((_, end)) => offset = end,
            None => break,
        }
    }
    Ok(())
}

impl Log {
    /// Takes an image. Until [`Log::release`] for each of its segments, none is used again.
    pub fn hold(&mut self) -> Image {
        let journal = self.flow.durable.clone();
        let mut extents = Vec::new();
        for (number, life) in journal.lives() {
            if life < journal.least_life || self.segments.get(number).life != life {
                continue;
            }
            let extent = self.extent(number, life);
            if !extent.parts.is_empty() {
                self.segments.get_mut(number).is_held = true;
                extents.push(extent);
            }
        }
        Image { journal, extents }
    }

    /// The segment is copied, or will not be.
    pub fn release(&mut self, segment: u32) {
        self.segments.get_mut(segment).is_held = false;
    }

    /// Whatever was held is free to go.
    pub fn release_all(&mut self) {
        (0..self.layout.segments()).for_each(|segment| self.release(segment));
    }

    /// True if appends wait for segments.
    pub fn lacks_segments(&self) -> bool {
        self.segments.available() <= KEPT_FOR_COMPACTION
    }

    /// Number of segments that would be used again if they were not held.
    pub fn held_back(&self) -> usize {
        self.segments.held_back
    }

    /// Those segments.
    pub fn wanted_back(&self) -> Vec<u32> {
        if self.held_back() == 0 {
            return Vec::new();
        }
        let ended = self.segments.in_state(State::Cooling);
        ended.filter(|&number| self.segments.get(number).is_held).collect()
    }

    /// True if appends wait for segments that are held.
    pub fn lacks_what_is_held(&self) -> bool {
        self.lacks_segments() && self.held_back() > 0
    }

    /// What of a segment is durable.
    fn extent(&self, number: u32, life: Life) -> Extent {
        let segment = self.segments.get(number);
        let begin = self.layout.segment_at(number);
        let bytes = u64::from(self.layout.segment_bytes());
        let written = begin..begin + segment.end.min(bytes);
        let mut parts: Vec<Range<u64>> = std::iter::once(written).filter(|part| !part.is_empty()).collect();
        // Footers that are not durable are no part.
        let has_footers = matches!(segment.state, State::Sealed | State::Emptied) && segment.unsettled == 0;
        let footers = segment.footers.filter(|_| has_footers);
        if segment.end < bytes
            && let Some(entry_bytes) = footers
        {
            parts.push(begin + bytes - footer_block_bytes(entry_bytes)..begin + bytes);
        }
        let under_way = self.flow.batches.values().filter(|batch| batch.segment == number);
        for batch in under_way {
            parts = parts.into_iter().flat_map(|part| without(part, &batch.span)).collect();
        }
        let check = match footers {
            _ if segment.is_failing => Check::None,
            Some(_) => Check::Footers,
            None if segment.end < bytes => Check::Pages,
            None => Check::None,
        };
        Extent { segment: number, parts, life, check }
    }
}

/// What is left of a range.
fn without(range: Range<u64>, hole: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let before = range.start..hole.start.clamp(range.start, range.end);
    let behind = hole.end.clamp(range.start, range.end)..range.end;
    [before, behind].into_iter().filter(|part| part.start < part.end)
}
