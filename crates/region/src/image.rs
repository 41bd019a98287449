//! A region in use by its owner, mapped to be read only.

use crate::{
    backing::Mapping,
    file::{HEADER_WORDS, RegionFile, Words, failed},
    header,
    layout::{Geometry, Layout},
    lent::Lent,
    offset::Offset,
    open::{OpenError, damaged, file_error, identify},
    region::Region,
    view::{Mapped, View},
};
use minos_sync::{ReadWord, words::WORD_BYTES};
use std::{os::fd::OwnedFd, path::Path, sync::atomic::Ordering::Relaxed};

/// The place of a region in errors, where only a descriptor of it is known.
const DESCRIPTOR: &str = "a descriptor";
/// The same where somebody else has mapped it.
const LENT: &str = "lent memory";

/// A read-only mapping of a region's file, in this process or another, while its owner writes.
///
/// It takes no lock and writes nothing. Any word may change between two loads, also those that the owner's
/// process writes as plain bytes: this mapping has addresses of its own. The owner may stop, close the region or replace its file meanwhile:
/// the mapping stays valid, with the words that were written last.
#[derive(Debug)]
pub struct Image {
    mapped: Mapped,
    geometry: Geometry,
    layout: Layout,
    /// Last, because it is unmapped when it is dropped.
    _mapping: Mapping,
}

impl Image {
    /// Maps the region in the file at `path`.
    ///
    /// # Errors
    /// If there is no region that this program can read, or the operating system refuses.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let file = RegionFile::open_to_read(path).map_err(file_error(path))?;
        Self::of(file, path)
    }

    /// Maps the region in the file or memfd behind a descriptor, which its owner has made with
    /// [`crate::Region::descriptor_to_read`]. A memfd must be sealed against shrinking; who shortens another file
    /// ends the processes that read it.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn from_descriptor(fd: OwnedFd) -> Result<Self, OpenError> {
        let path = Path::new(DESCRIPTOR);
        let file = RegionFile::of_descriptor(fd).map_err(file_error(path))?;
        Self::of(file, path)
    }

    /// The region in memory that somebody has mapped, whose writer is another process.
    ///
    /// # Errors
    /// As [`Image::open`], or it was lent before.
    pub fn lent(lent: &Lent) -> Result<Self, OpenError> {
        let path = Path::new(LENT);
        let mapping = Mapping::lent_to_read(lent).map_err(failed("borrow")).map_err(file_error(path))?;
        let found = mapping.bytes as u64;
        if found < Region::BYTES_MIN {
            return Err(OpenError::Length { found, expected: Region::BYTES_MIN });
        }
        // SAFETY: the mapping has at least these words, is aligned to a page, and lives longer.
        let header = unsafe { Mapped::new(mapping.base.cast(), HEADER_WORDS as usize) };
        let mut words: Words = [0; HEADER_WORDS as usize];
        words.iter_mut().zip(header.view().all()).for_each(|(word, seen)| *word = seen.load(Relaxed));
        let (geometry, layout) = parts_of(&words, path)?;
        if found < geometry.memory_bytes {
            return Err(OpenError::Length { found, expected: geometry.memory_bytes });
        }
        Ok(Self::assemble(mapping, geometry, layout))
    }

    fn of(file: RegionFile, path: &Path) -> Result<Self, OpenError> {
        let failed = file_error(path);
        let (geometry, layout) = parts_of(&file.header().map_err(&failed)?, path)?;
        let (found, expected) = (file.len().map_err(&failed)?, file.bytes_for(geometry.memory_bytes));
        if found != expected {
            return Err(OpenError::Length { found, expected });
        }
        let mapping = Mapping::to_read(expected as usize, file).map_err(failed)?;
        Ok(Self::assemble(mapping, geometry, layout))
    }

    /// The mapping has at least the bytes that the geometry names.
    fn assemble(mapping: Mapping, geometry: Geometry, layout: Layout) -> Self {
        // SAFETY: the mapping has at least these words, is aligned to a page, and lives as long.
        let mapped = unsafe { Mapped::new(mapping.base.cast(), geometry.memory_bytes as usize / WORD_BYTES) };
        Self { mapped, geometry, layout, _mapping: mapping }
    }

    /// The words of the region.
    #[inline]
    pub fn view(&self) -> &View {
        self.mapped.view()
    }

    /// The division of the region.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The word that says who owns a micro-shard, see [`crate::Ownership::from_word`]; `None` if there is no such
    /// micro-shard.
    #[inline]
    pub fn owner_word(&self, micro_shard: u32) -> Option<&ReadWord> {
        self.layout.owners.seen(self.view(), micro_shard)
    }

    /// True if a keeper has the region, too, so that it outlives its owner's process.
    pub fn is_kept(&self) -> bool {
        header::is_kept_seen(self.view())
    }

    /// As [`crate::Memory::partition_start`].
    pub fn partition_start(&self, partition: usize) -> Offset {
        self.layout.partition_start(partition)
    }

    /// As [`crate::Memory::arena_words`].
    pub fn arena_words(&self) -> u64 {
        self.layout.arena_words
    }
}

/// What a header says, if it is one that this program can read.
fn parts_of(words: &Words, path: &Path) -> Result<(Geometry, Layout), OpenError> {
    identify(words, path)?;
    if header::state_of(words) == header::DAMAGED {
        return Err(damaged("it contradicts itself"));
    }
    let geometry = header::geometry_of(words);
    let layout = Layout::new(&geometry).map_err(|_| damaged("its sizes fit nowhere"))?;
    Ok((geometry, layout))
}
