//! Makes empty tables, and tables of partitions that are there.

use crate::{
    buffers::Buffers,
    cache_mode::CacheMode,
    config::{CreateError, StoreConfig},
    counts::Counts,
    mode::Mode,
    partition::{Partition, Writer},
    plan::{Part, Plan},
    store::{Engine, Hashing},
    store_mode::StoreMode,
};
use minos_base::{Seconds, VALUE_BYTES_MAX, limits::BURST_MAX};
use minos_region::Memory;
use minos_sync::{Access, Crcw, PinTable, SpinLock};
use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64},
};

/// A table that refuses new items when its memory is full, and never evicts.
pub type Store<A = Crcw> = Engine<StoreMode, A>;

/// A table that evicts items when its memory is full, as [`crate::Eviction`] selects.
pub type Cache<A = Crcw> = Engine<CacheMode, A>;

impl<M: Mode, A: Access> Engine<M, A> {
    /// Makes an empty table.
    ///
    /// # Errors
    /// The configuration is not possible, or the memory cannot be had.
    pub fn create(config: &StoreConfig) -> Result<Self, CreateError> {
        let plan = Plan::new::<M>(config)?;
        let memory = plan.map(config)?;
        Self::found(config, &plan, memory)
    }

    /// An empty table in new memory.
    pub(crate) fn found(config: &StoreConfig, plan: &Plan, memory: Memory) -> Result<Self, CreateError> {
        let parts = plan.found(config, &memory)?;
        let mut engine = Self::assemble(config, memory, parts);
        engine.saved().put_shape(&engine, config);
        engine.memory.publish()?;
        Ok(engine)
    }

    /// A table of these partitions.
    pub(crate) fn assemble(config: &StoreConfig, memory: Memory, parts: Vec<Part<M>>) -> Self {
        let count = parts.len();
        let parts = parts.into_iter().enumerate().map(|(number, part)| partition(part, number, count));
        let partitions: Box<[_]> = parts.collect();
        Self {
            inline_class_max: M::inline_class_max(config, &memory),
            owners: config.owners.max(1),
            direction_seed: config.direction_seed,
            common: M::common(config),
            hashing: Hashing {
                // A table that was there already has its own.
                seed: memory.geometry().hash_seed,
                mask: config.hash_mask,
                partition_shift: partitions.len().ilog2(),
            },
            partitions,
            memory,
            value_bytes_max: AtomicU64::new(config.value_bytes_max.min(VALUE_BYTES_MAX)),
            value_bytes_room: value_bytes_room::<M>(config),
            flushes: AtomicU64::new(0),
            soonest: AtomicU32::new(Seconds::MAX),
            expiries: AtomicU64::new(0),
            chain_buckets_max: config.chain_buckets_max.max(1),
            buffers: Arc::new(Buffers::new(config.buffer_bytes())),
            prefetch_depth: config.prefetch_depth.clamp(1, BURST_MAX),
        }
    }
}

/// The largest value that may ever be stored: buffers are made at the start, and a log on flash bounds its records.
fn value_bytes_room<M: Mode>(config: &StoreConfig) -> u64 {
    let room = if M::HAS_FLASH { config.value_bytes_max } else { config.buffer_bytes() };
    room.min(VALUE_BYTES_MAX)
}

fn partition<M: Mode, A: Access>(part: Part<M>, number: usize, partitions: usize) -> Partition<M, A> {
    let Part { index, space, room, saved } = part;
    Partition {
        number,
        index,
        space,
        saved,
        retries: AtomicU64::new(0),
        fallbacks: AtomicU64::new(0),
        abandoned: AtomicU64::new(0),
        pins: SpinLock::new(PinTable::default()),
        counts: Counts::default(),
        writer: A::cell(Writer::new(room, number, partitions)),
    }
}
