//! Where the parts of a region lie that this process does not map.

use crate::{
    file::{HEADER_WORDS, Words},
    header,
    layout::{Geometry, Layout},
    offset::Offset,
    open::{OpenError, damaged, identify},
};
use std::path::Path;

/// The place of a region in errors, where only its words are known.
const WORDS: &str = "a region elsewhere";

/// The division of a region, from the words of its header alone.
#[derive(Debug)]
pub struct Map {
    geometry: Geometry,
    layout: Layout,
}

impl Map {
    /// Words of a header, with which a region begins.
    pub const HEADER_WORDS: usize = HEADER_WORDS as usize;

    /// The region with this header.
    ///
    /// # Errors
    /// It is none that this program can read.
    pub fn of(header: &[u64; Self::HEADER_WORDS]) -> Result<Self, OpenError> {
        let words: &Words = header;
        identify(words, Path::new(WORDS))?;
        if header::state_of(words) == header::DAMAGED {
            return Err(damaged("it contradicts itself"));
        }
        let geometry = header::geometry_of(words);
        let layout = Layout::new(&geometry).map_err(|_| damaged("its sizes fit nowhere"))?;
        Ok(Self { geometry, layout })
    }

    /// The division of the region.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// As [`crate::Image::partition_start`].
    pub fn partition_start(&self, partition: usize) -> Offset {
        self.layout.partition_start(partition)
    }

    /// As [`crate::Memory::arena_words`].
    pub fn arena_words(&self) -> u64 {
        self.layout.arena_words
    }

    /// Where the word of [`crate::Image::owner_word`] lies.
    pub fn owner_place(&self, micro_shard: u32) -> Option<Offset> {
        self.layout.owners.place(micro_shard)
    }
}
