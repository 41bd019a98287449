//! Memory of the real engine, which works between the rounds of the readers.

use super::{History, MICRO_SHARD, NOW, Rig};
use crate::{
    config::StoreConfig,
    item::ItemMeta,
    mode::Mode,
    remote::{Completion, Fabric, Range},
    store::Engine,
};
use minos_base::seeded_stream;
use minos_region::{Backing, OwnerState, Ownership};
use minos_sync::Crcw;
use rand::{Rng, RngExt, rngs::StdRng};

const KEYS: usize = 200;
const FILLER: [u8; 2000] = [0xff; 2000];
/// Operations between two polls, at most.
const OPERATIONS_MAX: usize = 12;
/// Polls without an answer after which it rests.
const UNANSWERED_MAX: u32 = 1000;

/// An engine that works whenever its readers poll.
#[derive(Debug)]
pub struct Beside<M: Mode, F> {
    engine: Engine<M, Crcw>,
    fabric: F,
    random: StdRng,
    history: History,
    now: u64,
    epoch: u32,
    /// Polls since the last answer.
    unanswered: u32,
}

impl<M: Mode, F: Fabric> Beside<M, F> {
    /// An engine in this memory, and what a seed makes of it; peer 0 of the fabric is to be the engine.
    ///
    /// # Panics
    /// The memory cannot be had.
    pub fn new(seed: u64, backing: Backing, connect: impl FnOnce(&Engine<M, Crcw>) -> F) -> Self {
        let config =
            StoreConfig { backing, partitions: Some(2), micro_shards: 16, ..StoreConfig::new(2 << 20) };
        let engine = Engine::create(&config).unwrap();
        let fabric = connect(&engine);
        let (random, history) = (seeded_stream(seed, 0), History::new(KEYS));
        let beside = Self { engine, fabric, random, history, now: 1, epoch: 1, unanswered: 0 };
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
            30..60 => self.crowd(),
            _ => self.put(number),
        }
    }

    /// Other items let the index grow, and in a cache they take the room of some of those watched.
    fn crowd(&mut self) {
        let filler = if M::LOSES_SILENTLY { &FILLER[..] } else { &FILLER[..8] };
        for _ in 0..8 {
            let key = (KEYS as u64 + self.random.random_range(0..10_000)).to_le_bytes();
            let mut entry = self.engine.entry(self.engine.hash(&key), &key, NOW);
            entry.insert(&[filler], ItemMeta::default()).unwrap();
        }
        self.note_losses();
    }

    /// An item leaves a cache without a word.
    fn note_losses(&mut self) {
        if !M::LOSES_SILENTLY {
            return;
        }
        let is_there = |number| {
            let key = u64::to_le_bytes(number);
            self.engine.read(self.engine.hash(&key), &key, NOW, |_| ()).is_some()
        };
        let left: Vec<bool> = (0..KEYS as u64).map(is_there).collect();
        self.history.change(self.now, |truth| {
            truth
                .values
                .iter_mut()
                .zip(left)
                .filter(|(_, is_left)| !is_left)
                .for_each(|(value, _)| *value = None);
        });
    }

    fn put(&mut self, number: usize) {
        let (key, byte) = (self.key(number), self.random.next_u32() as u8);
        // Few lengths, so that items are overwritten, and chunks used again.
        let value = vec![byte; [16, 20, 90, 200][self.random.random_range(0..4)]];
        let mut entry = self.engine.entry(self.engine.hash(&key), &key, NOW);
        entry.insert(&[&value], ItemMeta::default()).unwrap();
        drop(entry);
        self.history.change(self.now, |truth| truth.values[number] = Some(value));
        self.note_losses();
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

impl<M: Mode, F: Fabric> Fabric for Beside<M, F> {
    fn read(&mut self, peer: usize, ranges: &[Range], token: u64) {
        self.fabric.read(peer, ranges, token);
    }

    fn poll(&mut self, mut done: impl FnMut(Completion<'_>)) {
        // The history keeps all values for each operation: one who answers late is waited for.
        if self.unanswered < UNANSWERED_MAX {
            for _ in 0..self.random.random_range(0..=OPERATIONS_MAX) {
                self.operate();
            }
        }
        self.unanswered += 1;
        let Self { fabric, unanswered, .. } = self;
        fabric.poll(|completion| {
            *unanswered = 0;
            done(completion);
        });
    }
}

impl<M: Mode, F: Fabric> Rig for Beside<M, F> {
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
