//! The engine, in both of its modes.

use std::{path::Path, sync::Arc};

use minos_engine::{Backing, Concat, Crcw, Engine, ItemMeta, Mode, Opening, Side, StoreConfig};

use crate::subject::{Restart, Subject};

/// The clock stands still: nothing expires.
const NOW: u32 = 1;

/// A table that any thread writes to.
pub(crate) struct Kept<M: Kind>(Arc<Engine<M, Crcw>>);

/// A mode, with the memory of its tables.
pub(crate) trait Kind: Mode {
    const NAME: &'static str;
    const EVICTS: bool;
    /// A store has room for all values; the log of a cache wraps around many times.
    const MEMORY_BYTES: u64;
}

impl Kind for minos_engine::StoreMode {
    const NAME: &'static str = "store";
    const EVICTS: bool = false;
    const MEMORY_BYTES: u64 = 64 << 20;
}

impl Kind for minos_engine::CacheMode {
    const NAME: &'static str = "cache";
    const EVICTS: bool = true;
    const MEMORY_BYTES: u64 = 2 << 20;
}

fn config<M: Kind>(path: &Path) -> StoreConfig {
    let backing = Backing::File(path.to_owned());
    StoreConfig {
        backing,
        partitions: Some(2),
        value_bytes_max: 1 << 20,
        ..StoreConfig::new(M::MEMORY_BYTES)
    }
}

impl<M: Kind> Kept<M> {
    /// A cache may have lost the item since it was read, or have no room while the other thread holds some. The old
    /// value must then go, because the script takes it for replaced.
    fn forget_unless(&self, is_done: bool, key: &[u8]) {
        if !is_done {
            assert!(M::EVICTS, "a store has room for all values");
            self.delete(key);
        }
    }
}

impl<M: Kind> Subject for Kept<M> {
    const NAME: &'static str = <M as Kind>::NAME;
    const EVICTS: bool = M::EVICTS;

    fn open(path: &Path) -> Result<(Self, Restart), String> {
        let (engine, opening) = Engine::open(&config::<M>(path)).map_err(|error| error.to_string())?;
        let restart = match opening {
            Opening::Created => Restart::New,
            Opening::Warm { .. } => Restart::Clean,
            Opening::Repaired { .. } => Restart::Repaired,
            Opening::StartedEmpty { reason } => Restart::Emptied { reason },
        };
        Ok((Self(Arc::new(engine)), restart))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        self.0.read(self.0.hash(key), key, NOW, |item| {
            value.clear();
            item.copy_value_to(&mut value);
        })?;
        Some(value)
    }

    fn set(&self, key: &[u8], value: &[u8]) {
        let stored = self.0.entry(self.0.hash(key), key, NOW).insert(&[value], ItemMeta::default());
        self.forget_unless(stored.is_ok(), key);
    }

    fn set_reserved(&self, key: &[u8], value: &[u8]) {
        let hash = self.0.hash(key);
        let stored = self.0.reserve(hash, key, value.len() as u64).and_then(|mut reservation| {
            reservation.value_mut().copy_from_slice(value);
            self.0.entry(hash, key, NOW).commit(reservation, ItemMeta::default())
        });
        self.forget_unless(stored.is_ok(), key);
    }

    fn overwrite(&self, key: &[u8], value: &[u8]) {
        let written = self.0.entry(self.0.hash(key), key, NOW).overwrite_value(0, value);
        self.forget_unless(written.is_ok(), key);
    }

    fn append(&self, key: &[u8], extra: &[u8]) {
        let concat = Concat { side: Side::Back, extra, compare: None, cas: None };
        let appended = self.0.concat(self.0.hash(key), key, NOW, &concat);
        self.forget_unless(appended.is_ok(), key);
    }

    fn delete(&self, key: &[u8]) {
        self.0.entry(self.0.hash(key), key, NOW).remove();
    }

    fn check(&self) -> Result<(), String> {
        self.0.check()
    }

    fn close(self) {
        self.0.close_shared().unwrap();
    }
}
