//! RocksDB: a tree of sorted runs, with MultiGet, which reads one block after another unless built with io_uring.

use super::{Key, Plan, Store};
use anyhow::{Context, Result};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, Options, WriteBatch,
    WriteOptions,
};
use std::{thread, time::Duration};

/// Values from this size on lie apart, if any do.
const BLOB_BYTES_MIN: u64 = 512;
/// The only family of columns.
const FAMILY: &str = "default";
/// Properties that are zero if nothing is done in the background.
const BUSY: [&str; 4] = [
    "rocksdb.mem-table-flush-pending",
    "rocksdb.num-running-flushes",
    "rocksdb.compaction-pending",
    "rocksdb.num-running-compactions",
];
/// Checks in a row without work in the background, and the time between them.
const QUIET: (u32, Duration) = (50, Duration::from_millis(10));

pub(super) struct Rocks {
    database: DB,
    writing: WriteOptions,
}

impl Rocks {
    pub(super) fn open(plan: &Plan, has_blobs: bool) -> Result<Self> {
        let options = options(plan, has_blobs)?;
        let family = ColumnFamilyDescriptor::new(FAMILY, options.clone());
        let database = DB::open_cf_descriptors(&options, &plan.folder, [family])?;
        let mut writing = WriteOptions::default();
        // As in the others, a power loss takes what memory holds.
        writing.disable_wal(true);
        Ok(Self { database, writing })
    }
}

/// RocksDB's tuning guide: filters, index and filters within the cache, direct I/O, dynamic levels.
fn options(plan: &Plan, has_blobs: bool) -> Result<Options> {
    let table_bytes = (plan.memory_bytes / 8).clamp(1 << 20, 64 << 20);
    let cache = Cache::new_lru_cache(plan.memory_bytes.saturating_sub(2 * table_bytes) as usize)?;
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&cache);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_format_version(5);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.increase_parallelism(thread::available_parallelism().map_or(1, usize::from) as i32);
    options.set_block_based_table_factory(&blocks);
    options.set_compression_type(DBCompressionType::None);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_optimize_filters_for_hits(true);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    options.set_write_buffer_size(table_bytes as usize);
    options.set_enable_blob_files(has_blobs);
    options.set_min_blob_size(BLOB_BYTES_MIN);
    options.set_enable_blob_gc(has_blobs);
    Ok(options)
}

impl Store for Rocks {
    fn get_many(&mut self, keys: &[Key], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        if let [key] = keys {
            self.database.get_pinned(key)?.iter().for_each(|value| found(0, value));
            return Ok(());
        }
        let family = self.database.cf_handle(FAMILY).context("no family")?;
        let values = self.database.batched_multi_get_cf(family, keys, false);
        for (at, value) in values.into_iter().enumerate() {
            value?.iter().for_each(|value| found(at, value));
        }
        Ok(())
    }

    fn put_many(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        items.iter().for_each(|(key, value)| batch.put(key, value));
        Ok(self.database.write_opt(batch, &self.writing)?)
    }

    fn settle(&mut self) -> Result<()> {
        self.database.flush()?;
        let mut quiet = 0;
        while quiet < QUIET.0 {
            let mut is_busy = false;
            for property in BUSY {
                is_busy |= self.database.property_int_value(property)?.is_some_and(|count| count > 0);
            }
            quiet = if is_busy { 0 } else { quiet + 1 };
            thread::sleep(QUIET.1);
        }
        Ok(())
    }
}
