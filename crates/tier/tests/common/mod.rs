//! A tier on a device in memory, whose keeper is driven by hand.

#![allow(dead_code, reason = "each test uses a part of it")]

use minos_device::{Device, MemoryOptions};
use minos_engine::{Backing, ItemMeta, StoreConfig, TierConfig, Tiered};
use minos_flash::format::Layout;
use minos_tier::{
    Entry, Format, Keeper, Memory, Now, OpenError, Options, ReadError, Recovered, Tier, TieredStore,
};
use std::sync::Arc;

pub(crate) const SEGMENT_BYTES: u32 = 64 << 10;
pub(crate) const NOW: u32 = 5;

/// More turns than any test needs.
pub(crate) const TURNS_MAX: usize = 200_000;

pub(crate) fn device(bytes: u64) -> Device {
    Device::in_memory(&MemoryOptions { capacity_bytes: bytes, ..MemoryOptions::default() })
}

pub(crate) fn format() -> Format {
    Format { table: 1, seed: 2, hash_seed: 3, clock_zero_unix_s: 0, segment_bytes: SEGMENT_BYTES }
}

pub(crate) fn log_options(options: &Options) -> minos_flash::Options {
    let policy = if options.is_lossless {
        minos_flash::Policy::Store { utilisation_percent_max: 85 }
    } else {
        minos_flash::Policy::Cache { reinsert_percent: 20 }
    };
    let layout = Layout::new(SEGMENT_BYTES, 64).unwrap();
    minos_flash::Options {
        chunk_bytes: 16 << 10,
        compaction_bytes_s: 1 << 40,
        scrub_bytes_s: 0,
        ..minos_flash::Options::of(policy, &layout)
    }
}

pub(crate) fn config(options: &Options, hash_seed: u64) -> StoreConfig {
    let tier = TierConfig { is_lossless: options.is_lossless, ..TierConfig::default() };
    let (partitions, value_bytes_max) = (Some(2), 31 << 10);
    StoreConfig {
        partitions,
        hash_seed,
        value_bytes_max,
        tier,
        backing: Backing::Auto,
        ..StoreConfig::new(1 << 20)
    }
}

/// A keeper and a client.
pub(crate) struct Rig {
    pub(crate) tier: Arc<Tier>,
    pub(crate) keeper: Keeper,
    pub(crate) store: TieredStore,
    pub(crate) recovered: Recovered,
    pub(crate) now: Now,
}

impl Rig {
    pub(crate) fn new(options: Options) -> Self {
        let device = device(8 << 20);
        minos_tier::format(&device, &format()).unwrap();
        Self::open(&device, options).unwrap()
    }

    pub(crate) fn open(device: &Device, options: Options) -> Result<Self, OpenError> {
        Self::open_with(device, options, |config| {
            Tiered::create(config).map(|it| (Arc::new(it), Memory::Empty))
        })
    }

    pub(crate) fn open_with<E: std::error::Error + Send + Sync + 'static>(
        device: &Device,
        options: Options,
        engine: impl FnOnce(&StoreConfig) -> Result<(Arc<Tiered>, Memory), E>,
    ) -> Result<Self, OpenError> {
        let options = Options { log: Some(options.log.unwrap_or(log_options(&options))), ..options };
        let (tier, keeper, recovered) = minos_tier::open(device, &options, NOW, |superblock| {
            engine(&config(&options, superblock.hash_seed))
        })?;
        let store = TieredStore::new(&tier)?;
        Ok(Self { tier, keeper, store, recovered, now: Now { us: 0, seconds: NOW } })
    }

    pub(crate) fn turn(&mut self) -> bool {
        self.now.us += 1000;
        self.keeper.turn(self.now).unwrap().did
    }

    /// Turns until nothing is left to do.
    pub(crate) fn drive(&mut self) {
        let mut quiet = 0;
        for _ in 0..TURNS_MAX {
            quiet = if self.turn() || !self.keeper.is_idle() { 0 } else { quiet + 1 };
            if quiet == 20 {
                return;
            }
        }
        panic!("the keeper never rests: {:?}", self.keeper);
    }

    /// Makes everything durable.
    pub(crate) fn sync(&mut self) {
        assert!(self.try_sync(), "the device failed");
    }

    /// Makes everything durable; false if the device does not let it be.
    pub(crate) fn try_sync(&mut self) -> bool {
        let id = self.tier.sync();
        for _ in 0..TURNS_MAX {
            self.turn();
            match self.tier.is_synced(id) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(_) => return false,
            }
        }
        panic!("a sync never ends: {:?}", self.keeper);
    }

    /// Stores an item; the keeper works while there is no room. False if there is none for long.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.put_with(key, value, ItemMeta::default())
    }

    pub(crate) fn put_with(&mut self, key: &[u8], value: &[u8], meta: ItemMeta) -> bool {
        for _ in 0..200 {
            let mut stored = false;
            self.store.put_many(&[Entry { key, value, meta }], NOW, |_, result| stored = result.is_ok());
            self.turn();
            if stored {
                return true;
            }
        }
        false
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        let mut got = None;
        let now = self.now.seconds;
        self.store
            .get_many(&[key], now, |_, value| got = Some(value.map(|it| it.map(<[u8]>::to_vec))))
            .unwrap();
        got.expect("an answer")
    }

    /// True if the key is not in memory.
    pub(crate) fn is_cold(&self, key: &[u8]) -> bool {
        let engine = self.tier.engine();
        engine.read(engine.hash(key), key, NOW, |_| ()).is_none()
    }
}

pub(crate) fn key(number: u32) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// The bytes of a value follow from its number, so that any mix-up shows.
pub(crate) fn value(number: u32, version: u32) -> Vec<u8> {
    let len = 100 + (number * 37 % 900) as usize;
    let seed = number.wrapping_mul(2_654_435_761) ^ version;
    (0..len).map(|at| (seed.rotate_left(at as u32 % 32) as usize + at) as u8).collect()
}
