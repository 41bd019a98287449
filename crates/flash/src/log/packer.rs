//! Packs records into the pages of an open segment.

use crate::{
    format::{
        Footer, FooterWriter, Kind, Layout, Life, PAGE_BYTES, RecordHeader, RoughLength, Seal, Stamp,
        Trailer, end_of, pages_of, position_of, write_footers,
    },
    work::Work,
};
use minos_base::{KeyHash, may_look_alike};

/// Most bytes of one write.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// An open segment: pages not yet handed out as writes, and the footers of all its records.
#[derive(Debug)]
pub(super) struct Packer {
    segment: u32,
    life: Life,
    seal: Seal,
    layout: Layout,
    /// Whole pages from `pages_at` on, an offset in the segment.
    pages: Vec<u8>,
    pages_at: u64,
    /// The first record of each of these pages.
    firsts: Vec<u16>,
    /// The next free offset in the segment.
    next: u64,
    /// Hashes of the items that begin in this page of the segment, the last one.
    neighbours: Vec<KeyHash>,
    last_page: u64,
    footers: FooterWriter,
    /// Bytes of its records, and of the ends of pages that were written early: compaction wins those back.
    taken_bytes: u64,
}

/// The place of a record within its segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    pub(super) offset: u32,
    pub(super) length: RoughLength,
}

impl Packer {
    pub(super) fn open((segment, life): (u32, Life), seal: Seal, layout: Layout) -> Self {
        Self {
            segment,
            life,
            seal,
            layout,
            pages: Vec::new(),
            pages_at: 0,
            firsts: Vec::new(),
            next: 0,
            neighbours: Vec::new(),
            last_page: 0,
            footers: FooterWriter::default(),
            taken_bytes: 0,
        }
    }

    pub(super) fn segment(&self) -> u32 {
        self.segment
    }

    /// Bytes that the next take would lose at the end of a page.
    pub(super) fn page_rest(&self) -> u64 {
        self.next.next_multiple_of(PAGE_BYTES as u64) - self.next
    }

    /// Bytes of the records that it took, or would have taken if its pages had been filled.
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Bytes of the segment that were handed out as writes.
    pub(super) fn handed_out(&self) -> u64 {
        self.pages_at
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.pages.len()
    }

    /// Adds a record; `None` if the segment is full.
    pub(super) fn push(&mut self, header: &RecordHeader, key: &[u8], value: &[u8]) -> Option<Packed> {
        let bytes = header.bytes();
        let at = self.position_of(header);
        let end = end_of(at, bytes);
        let length = RoughLength::of(bytes, pages_of(at, bytes));
        let footer = Footer {
            hash: header.hash,
            sequence: header.sequence,
            expiry: header.expiry,
            replaces: header.replaces,
            offset: at as u32,
            length: (header.kind == Kind::Item).then_some(length),
        };
        let room = u64::from(self.layout.segment_bytes()).checked_sub(end)?;
        if !self.footers.push(&footer, room) {
            return None;
        }
        self.pages.resize((end.next_multiple_of(PAGE_BYTES as u64) - self.pages_at) as usize, 0);
        self.firsts.resize(self.pages.len() / PAGE_BYTES, 0);
        let offset = (at - self.pages_at) as usize;
        let first = &mut self.firsts[offset / PAGE_BYTES];
        if *first == 0 {
            *first = (offset % PAGE_BYTES) as u16;
        }
        let base = self.layout.segment_at(self.segment()) + self.pages_at;
        header.write([key, value], &mut self.pages, base, offset, (self.life, self.seal));
        if header.kind == Kind::Item {
            if page_of(at) != self.last_page {
                self.neighbours.clear();
                self.last_page = page_of(at);
            }
            self.neighbours.push(header.hash);
        }
        self.taken_bytes += bytes;
        self.next = end;
        Some(Packed { offset: at as u32, length })
    }

    /// The offset at which a record begins. Not in the page of another key's whose slot may look like its own: a
    /// slot and a tombstone name one of them only.
    fn position_of(&self, header: &RecordHeader) -> u64 {
        let at = position_of(self.next, header.bytes());
        let is_alike = |other: &KeyHash| *other != header.hash && may_look_alike(*other, header.hash);
        let may_collide = header.kind == Kind::Item && page_of(at) == self.last_page;
        if may_collide && self.neighbours.iter().any(is_alike) {
            return position_of((page_of(at) + 1) * PAGE_BYTES as u64, header.bytes());
        }
        at
    }

    /// The waiting pages as writes. What follows begins in a new page: a page is written once.
    pub(super) fn take(&mut self, is_early: bool) -> Vec<Work> {
        let begin = self.layout.segment_at(self.segment()) + self.pages_at;
        for (page, &first) in self.firsts.iter().enumerate() {
            let at = page * PAGE_BYTES;
            let bytes = &mut self.pages[at..at + PAGE_BYTES];
            Stamp { first }.encode((self.life, self.seal), begin + at as u64, bytes);
        }
        self.pages_at += self.pages.len() as u64;
        if is_early {
            self.taken_bytes += self.pages_at.saturating_sub(self.next);
        }
        self.next = self.pages_at;
        self.firsts.clear();
        let pages = std::mem::take(&mut self.pages);
        writes(begin, pages)
    }

    /// The footers of the segment, to be written when all its records are durable.
    pub(super) fn into_footers(self) -> Vec<u8> {
        self.footers.into_bytes()
    }
}

fn page_of(offset: u64) -> u64 {
    offset / PAGE_BYTES as u64
}

/// The write of a segment's footers.
pub(super) fn footer_write(entries: Vec<u8>, trailer: Trailer, seal: Seal, layout: Layout) -> Work {
    let end = layout.segment_at(trailer.segment) + u64::from(layout.segment_bytes());
    let bytes = write_footers(entries, trailer, seal, end);
    Work::Write { at: end - bytes.len() as u64, bytes }
}

/// Writes of bounded size.
fn writes(at: u64, bytes: Vec<u8>) -> Vec<Work> {
    if bytes.len() <= WRITE_BYTES_MAX {
        return vec![Work::Write { at, bytes }];
    }
    let parts = bytes.chunks(WRITE_BYTES_MAX).enumerate();
    parts
        .map(|(number, part)| Work::Write {
            at: at + (number * WRITE_BYTES_MAX) as u64,
            bytes: part.to_vec(),
        })
        .collect()
}
