//! Memory of the real engine, which works between the rounds of the readers.

use super::{History, MICRO_SHARD, NOW, Rig};
use crate::{
    config::StoreConfig,
    item::ItemMeta,
    remote::{Completion, Fabric, Mapped, Range},
    store::Engine,
    store_mode::StoreMode,
};
use minos_base::seeded_stream;
use minos_region::{Backing, Image, OwnerState, Ownership};
use minos_sync::Crcw;
use rand::{Rng, RngExt, rngs::StdRng};

const KEYS: usize = 200;
/// Operations between two polls, at most.
const OPERATIONS_MAX: usize = 12;

pub(super) struct Beside {
    engine: Engine<StoreMode, Crcw>,
    mapped: Mapped,
    random: StdRng,
    history: History,
    now: u64,
    epoch: u32,
}

impl Beside {
    pub(super) fn new(seed: u64) -> Self {
        let config = StoreConfig {
            backing: Backing::Memfd,
            partitions: Some(2),
            micro_shards: 16,
            ..StoreConfig::new(2 << 20)
        };
        let engine = Engine::create(&config).unwrap();
        let mut mapped = Mapped::default();
        mapped.add(Image::from_descriptor(engine.descriptor_to_read().unwrap()).unwrap());
        let (random, history) = (seeded_stream(seed, 0), History::new(KEYS));
        let beside = Self { engine, mapped, random, history, now: 1, epoch: 1 };
        beside.own(OwnerState::Owned);
        beside
    }

    fn own(&self, state: OwnerState) {
        self.engine.set_ownership(MICRO_SHARD, Ownership { epoch: self.epoch, state });
    }

    fn operate(&mut self) {
        self.now += 1;
        let number = self.random.random_range(0..KEYS);
        match self.random.random_range(0..100) {
            0 => self.move_away(),
            // It comes back soon.
            ..20 if !self.history.last().is_owned => self.move_away(),
            1 => {
                self.engine.flush();
                self.history.change(self.now, |truth| truth.values.fill(None));
            }
            2..30 => self.remove(number),
            _ => self.put(number),
        }
    }

    fn put(&mut self, number: usize) {
        let (key, byte) = (self.key(number), self.random.next_u32() as u8);
        // Few lengths, so that items are overwritten, and chunks used again.
        let value = vec![byte; [16, 20, 90, 200][self.random.random_range(0..4)]];
        let mut entry = self.engine.entry(self.engine.hash(&key), &key, NOW);
        entry.insert(&[&value], ItemMeta::default()).unwrap();
        drop(entry);
        self.history.change(self.now, |truth| truth.values[number] = Some(value));
    }

    fn remove(&mut self, number: usize) {
        let key = self.key(number);
        self.engine.entry(self.engine.hash(&key), &key, NOW).remove();
        self.history.change(self.now, |truth| truth.values[number] = None);
    }

    /// Another node owns the micro-shard; what this one still does counts for nothing. Then it takes it back.
    fn move_away(&mut self) {
        if self.history.last().is_owned {
            self.own(OwnerState::None);
        } else {
            self.epoch += 1;
            self.own(OwnerState::Owned);
        }
        self.history.change(self.now, |truth| truth.is_owned = !truth.is_owned);
    }
}

impl Fabric for Beside {
    fn read(&mut self, peer: usize, ranges: &[Range], token: u64) {
        self.mapped.read(peer, ranges, token);
    }

    fn poll(&mut self, done: impl FnMut(Completion<'_>)) {
        for _ in 0..self.random.random_range(0..=OPERATIONS_MAX) {
            self.operate();
        }
        self.mapped.poll(done);
    }
}

impl Rig for Beside {
    fn now(&self) -> u64 {
        self.now
    }

    fn keys(&self) -> usize {
        KEYS
    }

    fn key(&self, number: usize) -> [u8; 8] {
        (number as u64).to_le_bytes()
    }

    fn history(&self) -> &History {
        &self.history
    }
}
