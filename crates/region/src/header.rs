//! The first words of a region: its identity, layout and state.
//!
//! ```text
//! word 0   magic            4   partition words     8   state: in use, clean, damaged
//!      1   layout version   5   settled bytes       9   checksum of all words before the chunks
//!      2   memory bytes     6   engine's layout    10   boot in which it was last whole (2 words)
//!      3   partitions       7   hash seed          12   times it was opened
//!                                                 13   micro-shards
//!                                                 14   1 if a keeper has it, too
//!                                                 15   with micro-shards, which keys they have
//! ```

use crate::{
    file::{HEADER_WORDS, MAGIC, Words},
    layout::Geometry,
    offset::Offset,
    region::Region,
    view::View,
};
use minos_sync::words::WORD_BYTES;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
    compiler_fence,
};
use xxhash_rust::xxh3::Xxh3Default;

/// Version of everything that lies in a region. Raised when any layout changes.
pub const LAYOUT_VERSION: u64 = 4;

/// Which keys a micro-shard has. Raised when that changes: items would be where nobody looks for them.
pub(crate) const KEYS_OF_MICRO_SHARDS: u64 = 1;

/// A process has the region open, or stopped without closing it: "in use".
pub(crate) const IN_USE: u64 = 0x6573_7520_6e69;
/// Everything was written and the checksum holds: "clean".
pub(crate) const CLEAN: u64 = 0x6e_6165_6c63;
/// It was found to contradict itself: "damaged".
pub(crate) const DAMAGED: u64 = 0x64_6567_616d_6164;

const VERSION: usize = 1;
const GEOMETRY: usize = 2;
const STATE: usize = 8;
const CHECKSUM: usize = 9;
const BOOT: usize = 10;
const STARTS: usize = 12;
const MICRO_SHARDS: usize = 13;
const KEPT: usize = 14;
const KEYS: usize = 15;

/// Words that are summed up at a time.
const BLOCK_WORDS: usize = 512;

/// The id of a boot of the machine; zero if the system reports none.
pub(crate) type BootId = [u64; 2];

#[derive(Clone, Copy)]
pub(crate) struct Header<'a> {
    words: &'a [AtomicU64; HEADER_WORDS as usize],
}

impl<'a> Header<'a> {
    pub(crate) fn of(region: &'a Region) -> Self {
        Self { words: region.array(Offset::from_words(0)) }
    }

    /// Writes the header of a new region. Not before [`Header::set_state`] has reached the disk.
    pub(crate) fn write(self, geometry: &Geometry) {
        for (at, value) in fields(geometry).into_iter().enumerate() {
            self.put(GEOMETRY + at, value);
        }
        self.put(MICRO_SHARDS, geometry.micro_shards);
        self.put(KEYS, if geometry.micro_shards > 0 { KEYS_OF_MICRO_SHARDS } else { 0 });
        self.put(0, MAGIC);
        self.set_boot(boot_id());
        self.put(STARTS, 1);
        compiler_fence(Release);
        // Last: a region without this word is not complete.
        self.put(VERSION, LAYOUT_VERSION);
    }

    pub(crate) fn set_state(self, state: u64) {
        self.put(STATE, state);
    }

    pub(crate) fn set_checksum(self, checksum: u64) {
        self.put(CHECKSUM, checksum);
    }

    pub(crate) fn checksum(self) -> u64 {
        self.at(CHECKSUM)
    }

    /// Records the boot in which the region was last intact.
    pub(crate) fn set_boot(self, boot: BootId) {
        self.put(BOOT, boot[0]);
        self.put(BOOT + 1, boot[1]);
    }

    /// True if the region was last in use during the given boot of the
    /// machine, so that no write to it is lost.
    pub(crate) fn is_of_boot(self, boot: BootId) -> bool {
        boot != BootId::default() && boot == [self.at(BOOT), self.at(BOOT + 1)]
    }

    /// Says whether the memory outlives its process although it has no path.
    pub(crate) fn set_kept(self, is_kept: bool) {
        self.put(KEPT, is_kept.into());
    }

    pub(crate) fn is_kept(self) -> bool {
        self.at(KEPT) == 1
    }

    pub(crate) fn starts(self) -> u64 {
        self.at(STARTS)
    }

    pub(crate) fn count_start(self) {
        self.put(STARTS, self.starts().wrapping_add(1));
    }

    fn at(self, at: usize) -> u64 {
        self.words[at].load(Relaxed)
    }

    // Relaxed: one process at a time opens a region, under the lock of its file.
    fn put(self, at: usize, value: u64) {
        self.words[at].store(value, Relaxed);
    }
}

/// As [`Header::is_kept`], of a region that another process writes.
pub(crate) fn is_kept_seen(view: &View) -> bool {
    view.word(Offset::from_words(KEPT as u64)).load(Relaxed) == 1
}

pub(crate) fn state_of(words: &Words) -> u64 {
    words[STATE]
}

pub(crate) fn version_of(words: &Words) -> u64 {
    words[VERSION]
}

/// Which keys the micro-shards have, if there are any.
pub(crate) fn keys_of(words: &Words) -> Option<u64> {
    (words[MICRO_SHARDS] > 0).then_some(words[KEYS])
}

pub(crate) fn geometry_of(words: &Words) -> Geometry {
    let [memory_bytes, partitions, partition_words, settled_bytes, layout, hash_seed] =
        std::array::from_fn(|at| words[GEOMETRY + at]);
    let micro_shards = words[MICRO_SHARDS];
    Geometry { memory_bytes, partitions, partition_words, settled_bytes, layout, hash_seed, micro_shards }
}

/// A sum over all words before `chunks_start`, but for the state and the sum itself.
pub(crate) fn checksum(region: &Region, chunks_start: Offset) -> u64 {
    let mut sum = Xxh3Default::new();
    let all = region.words(Offset::from_words(0), chunks_start.words() as usize);
    for (number, block) in all.chunks(BLOCK_WORDS).enumerate() {
        let mut bytes = [0; BLOCK_WORDS * WORD_BYTES];
        for (at, (word, bytes)) in block.iter().zip(bytes.as_chunks_mut::<WORD_BYTES>().0).enumerate() {
            let is_summed = number > 0 || (at != STATE && at != CHECKSUM);
            *bytes = if is_summed { word.load(Relaxed).to_le_bytes() } else { [0; WORD_BYTES] };
        }
        sum.update(&bytes[..block.len() * WORD_BYTES]);
    }
    sum.digest()
}

pub(crate) fn boot_id() -> BootId {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let half = |range| digits.get(range).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    half(0..16).zip(half(16..32)).map_or(BootId::default(), |(high, low)| [high, low])
}

/// The geometry's words that lie in a row.
fn fields(geometry: &Geometry) -> [u64; 6] {
    let Geometry { memory_bytes, partitions, partition_words, settled_bytes, layout, hash_seed, .. } =
        *geometry;
    [memory_bytes, partitions, partition_words, settled_bytes, layout, hash_seed]
}
