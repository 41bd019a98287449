//! The division of a table's memory, and the contents of each part of a partition.

use crate::{
    config::{CreateError, MEMORY_BYTES_MAX, StoreConfig},
    index::{BUCKET_WORDS, Index, Segments},
    mode::Mode,
    places::Places,
    reader::Contents,
    saved::{SAVED_WORDS, Saved},
};
use minos_region::{Geometry, Image, MapError, Memory, Offset};

/// The memory layout for a configuration.
///
/// ```text
/// words of a partition:   index | space of the items | what is saved
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) geometry: Geometry,
    segments: Segments,
    space_words: u64,
}

#[derive(Debug)]
pub(crate) struct Part<M: Mode> {
    pub(crate) index: Index,
    pub(crate) space: M::Space,
    pub(crate) room: M::Room,
    pub(crate) saved: Saved,
}

impl Plan {
    /// For a table in the mode `M`.
    ///
    /// # Errors
    /// The configuration is not possible.
    pub(crate) fn new<M: Mode>(config: &StoreConfig) -> Result<Self, CreateError> {
        let partitions = u64::from(config.partition_count()?);
        let bytes = config.memory_bytes;
        if bytes > MEMORY_BYTES_MAX {
            return Err(CreateError::TooLarge { bytes });
        }
        let segments = Segments::new(bytes, partitions);
        // Whole cache lines, so that words of readers share none with words that writers save.
        let space_words = M::space_words(config, partitions).next_multiple_of(BUCKET_WORDS as u64);
        let geometry = Geometry {
            settled_bytes: M::settled_bytes(config),
            memory_bytes: bytes,
            partitions,
            partition_words: segments.index_words() + space_words + SAVED_WORDS,
            layout: M::LAYOUT,
            hash_seed: config.hash_seed,
            micro_shards: config.micro_shards.into(),
        };
        Ok(Self { geometry, segments, space_words })
    }

    /// For an existing region; `None` if it has no room for what a table needs.
    pub(crate) fn of(geometry: Geometry) -> Option<Self> {
        let partitions = Some(geometry.partitions).filter(|partitions| partitions.is_power_of_two())?;
        let segments = Segments::new(geometry.memory_bytes, partitions);
        let space_words = geometry.partition_words.checked_sub(segments.index_words() + SAVED_WORDS)?;
        Some(Self { geometry, segments, space_words })
    }

    /// New memory for it.
    ///
    /// # Errors
    /// It cannot be had.
    pub(crate) fn map(&self, config: &StoreConfig) -> Result<Memory, CreateError> {
        let interleaving = config.nodes().begin();
        let memory = match Memory::create(self.geometry, &config.backing) {
            Err(MapError::Size { .. }) => Err(self.too_small()),
            memory => Ok(memory?),
        }?;
        interleaving.end(memory.region());
        Ok(memory)
    }

    /// The partitions of a new table.
    ///
    /// # Errors
    /// There is not enough memory for them.
    pub(crate) fn found<M: Mode>(
        &self,
        config: &StoreConfig,
        memory: &Memory,
    ) -> Result<Vec<Part<M>>, CreateError> {
        let part = |number| {
            let start = memory.partition_start(number);
            let index = Index::create(memory, start, self.segments)?;
            let (space, room) = M::create_space(memory, config, self.space_start(start), number)?;
            Some(Part { index, space, room, saved: self.saved_at(start) })
        };
        (0..self.partitions()).map(part).collect::<Option<_>>().ok_or_else(|| self.too_small())
    }

    /// The partitions of an existing table; `None` if the memory does not hold one.
    pub(crate) fn find<M: Mode>(&self, config: &StoreConfig, memory: &Memory) -> Option<Vec<Part<M>>> {
        let part = |number| {
            let start = memory.partition_start(number);
            let index = Index::find(memory.region(), start, self.segments)?;
            let (space, room) = M::find_space(memory, config, self.space_start(start), number)?;
            Some(Part { index, space, room, saved: self.saved_at(start) })
        };
        (0..self.partitions()).map(part).collect()
    }

    /// Where each partition of a region in use keeps its index and its items; `None` if there is no table.
    pub(crate) fn look<M: Places>(&self, image: &Image) -> Option<Box<[Contents<M>]>> {
        let part = |number| {
            let start = image.partition_start(number);
            let index = Index::find(image.view(), start, self.segments)?;
            let words = (self.space_start(start), self.space_words);
            let space = M::space_at(image.view(), words, &self.geometry, image.arena_words())?;
            Some(Contents { index, space })
        };
        (0..self.partitions()).map(part).collect()
    }

    /// How its indexes are cut.
    pub(crate) fn segments(&self) -> Segments {
        self.segments
    }

    fn partitions(&self) -> usize {
        self.geometry.partitions as usize
    }

    /// Where the space of a partition begins that begins at `start`.
    pub(crate) fn space_start(&self, start: Offset) -> Offset {
        start.plus(self.segments.index_words())
    }

    /// The saved words of the partition that begins at `start`. Those of the whole table lie with the first one.
    pub(crate) fn saved_at(&self, start: Offset) -> Saved {
        Saved::at(self.space_start(start).plus(self.space_words))
    }

    fn too_small(&self) -> CreateError {
        let Geometry { memory_bytes: bytes, partitions, .. } = self.geometry;
        CreateError::TooSmall { bytes, partitions: partitions as u32 }
    }
}
