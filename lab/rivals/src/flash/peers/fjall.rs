//! fjall: a tree of sorted runs. It has neither vectors of gets nor direct I/O.

use super::{Key, Plan, Store};
use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, KvSeparationOptions};
use std::{thread, time::Duration};

/// Values from this size on lie apart, if any do.
const BLOB_BYTES_MIN: u32 = 512;
/// Checks in a row without work in the background, and the time between them.
const QUIET: (u32, Duration) = (50, Duration::from_millis(10));

pub(super) struct Fjall {
    database: Database,
    items: Keyspace,
}

impl Fjall {
    pub(super) fn open(plan: &Plan, has_blobs: bool) -> Result<Self> {
        // Of at most 64 MiB, as recommended; one is written while the next is filled.
        let table_bytes = (plan.memory_bytes / 8).clamp(1 << 20, 64 << 20);
        let database = Database::builder(&plan.folder)
            .cache_size(plan.memory_bytes.saturating_sub(2 * table_bytes))
            .manual_journal_persist(true)
            .open()?;
        let blobs = KvSeparationOptions::default().separation_threshold(BLOB_BYTES_MIN);
        let items = database.keyspace("items", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(table_bytes)
                .manual_journal_persist(true)
                .expect_point_read_hits(true)
                .with_kv_separation(has_blobs.then_some(blobs))
        })?;
        Ok(Self { database, items })
    }
}

impl Store for Fjall {
    fn get_many(&mut self, keys: &[Key], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            if let Some(value) = self.items.get(key)? {
                found(at, &value);
            }
        }
        Ok(())
    }

    fn put_many(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()> {
        let mut batch = self.database.batch();
        for (key, value) in items {
            batch.insert(&self.items, *key, value.as_slice());
        }
        Ok(batch.commit()?)
    }

    fn settle(&mut self) -> Result<()> {
        self.items.rotate_memtable_and_wait()?;
        let mut quiet = 0;
        while quiet < QUIET.0 {
            let is_busy = self.database.outstanding_flushes() > 0 || self.database.active_compactions() > 0;
            quiet = if is_busy { 0 } else { quiet + 1 };
            thread::sleep(QUIET.1);
        }
        Ok(())
    }
}
