//! The smallest store on a region: one slot for each key, which refers to a chunk with its value.

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::Ordering::{Acquire, Release},
    },
};

use minos_region::{Backing, ChunkKind, Geometry, Heap, Memory, Offset, OpenError, Opened, UsedChunk};
use minos_sync::words::{append_to, copy_in, words_for};

use crate::{
    script::{KEYS_PER_THREAD, THREADS},
    subject::{Restart, Subject},
};

const GEOMETRY: Geometry = Geometry {
    memory_bytes: 32 << 20,
    partitions: THREADS,
    partition_words: KEYS_PER_THREAD,
    settled_bytes: 8 << 20,
    layout: 1,
    hash_seed: 0,
    micro_shards: 0,
};
/// Larger values lie in chunks of the other kind.
const SHARED_BYTES_MAX: usize = 4096;

/// A slot holds the offset of a chunk, or 0; the chunk begins with the bytes of its value. The keys of each
/// thread are a partition.
///
/// If `REPAIRS` is false, it continues with unchecked heaps, as if regions had no mark of a clean close: the
/// control.
pub(crate) struct Table<const REPAIRS: bool> {
    memory: Memory,
    heaps: Vec<Mutex<Heap>>,
}

impl<const REPAIRS: bool> Table<REPAIRS> {
    fn new(memory: Memory) -> Self {
        let heaps = (0..THREADS as usize).map(|partition| Mutex::new(memory.partition_heap(partition)));
        Self { heaps: heaps.collect(), memory }
    }

    /// Rebuilds the heaps around the chunks that the slots refer to.
    fn repaired(mut memory: Memory) -> Result<Self, String> {
        if REPAIRS {
            let mut used = used_chunks(&memory)?;
            used.sort_by_key(|chunk| chunk.payload);
            memory.rebuild(&used)?;
        }
        memory.mark_repaired().map_err(|error| error.to_string())?;
        Ok(Self::new(memory))
    }

    /// A new chunk with this value.
    fn store(&self, partition: usize, value: &[u8]) -> Offset {
        let words = 1 + words_for(value.len());
        let chunk = if value.len() <= SHARED_BYTES_MAX {
            let mut heap = self.heaps[partition].lock().unwrap_or_else(PoisonError::into_inner);
            self.memory.allocate_shared(&mut heap, words as u64)
        } else {
            self.memory.allocate_settled(words as u64).map(|settled| settled.into_chunk())
        };
        let chunk = chunk.expect("more memory than all values take");
        let region = self.memory.region();
        region.word(chunk).store(value.len() as u64, Release);
        copy_in(region.words(chunk.plus(1), words - 1), 0, value);
        chunk
    }

    /// Makes the slot refer to `chunk`, and frees its old chunk.
    fn link(&self, partition: usize, slot: Offset, chunk: u64) {
        let slot = self.memory.region().word(slot);
        let old = slot.load(Acquire);
        // A child killed after this store has written the value; one killed
        // before it has not touched the old value.
        slot.store(chunk, Release);
        if old != 0 {
            let mut heap = self.heaps[partition].lock().unwrap_or_else(PoisonError::into_inner);
            self.memory.free(&mut heap, Offset::from_words(old));
        }
    }
}

/// The chunks that the slots refer to.
fn used_chunks(memory: &Memory) -> Result<Vec<UsedChunk>, String> {
    let region = memory.region();
    let mut used = Vec::new();
    for partition in 0..THREADS as usize {
        for slot in region.words(memory.partition_start(partition), KEYS_PER_THREAD as usize) {
            let payload = Offset::from_words(slot.load(Acquire));
            if payload.words() == 0 {
                continue;
            }
            let bytes = region.try_words(payload, 1).ok_or("a slot refers to nowhere")?[0].load(Acquire);
            let is_shared = bytes <= SHARED_BYTES_MAX as u64;
            let kind = if is_shared { ChunkKind::Shared { partition } } else { ChunkKind::Settled };
            used.push(UsedChunk { payload, words: 1 + bytes.div_ceil(8), kind });
        }
    }
    Ok(used)
}

/// The partition of a key, and its slot.
fn place(memory: &Memory, key: &[u8]) -> (usize, Offset) {
    let number: u64 = std::str::from_utf8(key).ok().and_then(|key| key.parse().ok()).expect("a number");
    let partition = (number % THREADS) as usize;
    (partition, memory.partition_start(partition).plus(number / THREADS))
}

impl<const REPAIRS: bool> Subject for Table<REPAIRS> {
    const NAME: &'static str = if REPAIRS { "table" } else { "unrepaired-table" };
    const EVICTS: bool = false;

    fn open(path: &Path) -> Result<(Self, Restart), String> {
        let backing = Backing::File(path.to_owned());
        match Memory::open(&backing, &GEOMETRY) {
            Ok(Opened::Clean(memory)) => Ok((Self::new(memory), Restart::Clean)),
            Ok(Opened::Unclean { memory, same_boot: true }) => {
                Ok((Self::repaired(memory)?, Restart::Repaired))
            }
            Ok(Opened::Unclean { .. }) => Err("the machine has not run since".to_owned()),
            Err(OpenError::Absent { .. }) => {
                let mut memory = Memory::create(GEOMETRY, &backing).map_err(|error| error.to_string())?;
                memory.publish().map_err(|error| error.to_string())?;
                Ok((Self::new(memory), Restart::New))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let region = self.memory.region();
        let chunk = Offset::from_words(region.word(place(&self.memory, key).1).load(Acquire));
        if chunk.words() == 0 {
            return None;
        }
        let bytes = region.word(chunk).load(Acquire) as usize;
        let mut value = Vec::new();
        append_to(region.try_words(chunk.plus(1), words_for(bytes))?, 0, bytes, &mut value);
        Some(value)
    }

    fn set(&self, key: &[u8], value: &[u8]) {
        let (partition, slot) = place(&self.memory, key);
        let chunk = self.store(partition, value);
        self.link(partition, slot, chunk.words());
    }

    fn delete(&self, key: &[u8]) {
        let (partition, slot) = place(&self.memory, key);
        self.link(partition, slot, 0);
    }

    fn check(&self) -> Result<(), String> {
        self.memory.verify()
    }

    fn close(self) {
        self.memory.close().unwrap();
    }
}
