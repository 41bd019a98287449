//! One run: a store, its clients, the disk, and crashes.

use super::{
    disk::{Disk, Faults, lent, recover},
    index::{Lookup, Pending, Table},
    model::{Copy, Model},
};
use crate::{
    create,
    format::{Layout, Superblock},
    log::{Event, Log, Options, Policy, Refusal},
    work::{Work, WorkId},
};
use minos_base::{KeyHash, Tombstone, seeded};
use rand::{RngExt, rngs::StdRng};
use std::collections::HashMap;

/// The kind of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) policy: Policy,
    /// In 1000.
    pub(super) failed_writes: u32,
    /// Steps in 1000 from which on every write into a segment fails for a while.
    pub(super) bursts: u32,
    /// Reads in 1000 from which on a page is bad; such a run has no crashes.
    pub(super) failed_reads: u32,
    /// In 1000.
    pub(super) failed_flushes: u32,
    /// Reads that are wrong, in 1000; such a run has no crashes.
    pub(super) lies: u32,
    pub(super) slow_reads: bool,
    /// Images are copied while the store works.
    pub(super) images: bool,
}

impl Plan {
    pub(super) fn of(policy: Policy) -> Self {
        let (failed_writes, failed_reads, failed_flushes) = (0, 0, 0);
        Self {
            policy,
            failed_writes,
            bursts: 0,
            failed_reads,
            failed_flushes,
            lies: 0,
            slow_reads: false,
            images: false,
        }
    }

    /// In bursts moves fail, too, and may leave copies on the device. A tombstone without a sequence names one place, and
    /// does not keep the other copy dead if power is lost before that one's segment has ended.
    fn forgets_twins(&self) -> bool {
        self.is_cache() && self.lies == 0 && self.bursts == 0
    }

    pub(super) fn is_cache(&self) -> bool {
        matches!(self.policy, Policy::Cache { .. })
    }
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) crashes: u64,
    pub(super) reads: u64,
    pub(super) refused_reads: u64,
    pub(super) compacted: u64,
    pub(super) dropped: u64,
    pub(super) moved_bytes: u64,
    pub(super) tombstones: u64,
    pub(super) failed_writes: u64,
    pub(super) bad_segments: u64,
    pub(super) emptied: u64,
    pub(super) lost: u64,
    pub(super) read_only: u64,
    pub(super) twins: u64,
    pub(super) images: u64,
    pub(super) held_back: u64,
    pub(super) bursts: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        self.crashes += other.crashes;
        self.reads += other.reads;
        self.refused_reads += other.refused_reads;
        self.compacted += other.compacted;
        self.dropped += other.dropped;
        self.moved_bytes += other.moved_bytes;
        self.tombstones += other.tombstones;
        self.failed_writes += other.failed_writes;
        self.bad_segments += other.bad_segments;
        self.emptied += other.emptied;
        self.lost += other.lost;
        self.read_only += other.read_only;
        self.twins += other.twins;
        self.images += other.images;
        self.held_back += other.held_back;
        self.bursts += other.bursts;
    }
}

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) random: StdRng,
    pub(super) disk: Disk,
    pub(super) superblock: Superblock,
    pub(super) log: Log,
    pub(super) table: Table,
    pub(super) model: Model,
    pub(super) keys: u64,
    pub(super) sequence: u64,
    pub(super) appends: HashMap<u64, (u64, Pending)>,
    /// Keys that were deleted by a flush of all that is not durable.
    pub(super) emptying: Vec<(u64, u64)>,
    pub(super) retries: Vec<u64>,
    /// Tombstones of twins on their way, by token: key, its sequence in the model.
    pub(super) twins: HashMap<u64, (u64, u64, Tombstone)>,
    /// Those to be appended, again if they failed.
    pub(super) unburied: Vec<(bool, (u64, u64, Tombstone))>,
    pub(super) lookups: Vec<Lookup>,
    pub(super) copy: Option<Copy>,
    pub(super) tally: Tally,
    pub(super) now_us: u64,
    /// Steps until writes succeed again.
    pub(super) burst_left: u64,
}

const STEPS: u64 = 900;
/// Most steps of a burst of failed writes.
const BURST_STEPS_MAX: u64 = 300;

impl World {
    pub(super) fn new(seed: u64, plan: Plan) -> Self {
        let mut random = seeded(seed);
        let layout = Layout::new(64 << 10, random.random_range(12..24)).unwrap();
        let superblock =
            Superblock { table: seed, seed: seed ^ 0xabcd, hash_seed: 1, clock_zero_unix_s: 0, layout };
        let mut disk = Disk::new(layout.device_bytes(), seeded(seed ^ 1 << 40));
        let mut number = 0;
        for step in create(&superblock) {
            let mut jobs: Vec<(WorkId, Work)> = step.into_iter().map(|work| (WorkId(0), work)).collect();
            number += jobs.len();
            disk.submit(&mut jobs);
            while disk.complete_one().is_some() {}
        }
        assert_eq!(number, 11);
        let (log, newest) = recover(&mut disk, &superblock, options(plan, &superblock.layout));
        assert_eq!(newest.live().count(), 0);
        let Plan { failed_writes, failed_reads, failed_flushes, lies, .. } = plan;
        disk.faults = Faults { failed_writes, wrong_reads: lies, failed_reads, failed_flushes };
        let keys = random.random_range(4..80);
        Self {
            plan,
            random,
            disk,
            superblock,
            log,
            table: Table::default(),
            model: Model::default(),
            keys,
            sequence: 0,
            appends: HashMap::new(),
            emptying: Vec::new(),
            retries: Vec::new(),
            twins: HashMap::new(),
            unburied: Vec::new(),
            lookups: Vec::new(),
            copy: None,
            tally: Tally::default(),
            now_us: 0,
            burst_left: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<Tally, String> {
        for _ in 0..STEPS {
            self.step()?;
        }
        if self.plan.bursts > 0 {
            self.burst(0);
            self.end_reads()?;
            self.quiesce()?;
            self.write_all_again()?;
        }
        self.quiesce()?;
        for key in self.model.keys() {
            self.begin_read(key);
        }
        self.end_reads()?;
        self.take_counters();
        Ok(self.tally)
    }

    fn step(&mut self) -> Result<(), String> {
        self.now_us += 1000;
        if self.plan.bursts > 0 {
            self.go_on_with_bursts();
        }
        let key = self.random.random_range(0..self.keys);
        match self.random.random_range(0..1000) {
            0..500 => drop(self.put(key)),
            500..600 => self.delete(key),
            600..750 => self.begin_read(key),
            750..830 => self.log.flush(),
            830..850 => self.log.commit(),
            850..858 if self.plan.lies + self.plan.failed_reads == 0 => self.crash()?,
            860..862 => self.empty_all(),
            862..870 if self.plan.images => self.begin_copy(),
            870..910 if self.plan.forgets_twins() => self.forget_twin(key),
            _ => {}
        }
        if !self.lookups.is_empty() && self.random.random_bool(if self.plan.slow_reads { 0.02 } else { 0.3 })
        {
            let number = self.random.random_range(0..self.lookups.len());
            self.end_read(number)?;
        }
        for _ in 0..self.random.random_range(0..4) {
            self.drive();
        }
        self.copy_some()?;
        // Nothing but a restart helps then.
        if self.log.is_read_only() { self.crash() } else { Ok(()) }
    }

    fn go_on_with_bursts(&mut self) {
        if self.burst_left > 0 {
            self.burst(self.burst_left - 1);
        } else if self.random.random_range(0..1000) < self.plan.bursts {
            let steps = self.random.random_range(1..=BURST_STEPS_MAX);
            self.burst(steps);
            self.tally.bursts += 1;
        }
    }

    fn burst(&mut self, steps: u64) {
        self.burst_left = steps;
        self.disk.full_from = (steps > 0).then(|| self.superblock.layout.segment_at(0) as usize);
    }

    /// After bursts, the log takes writes as it did before.
    fn write_all_again(&mut self) -> Result<(), String> {
        for key in 0..self.keys {
            let mut polls = 0..10_000;
            while self.put(key) == Err(Refusal::Busy) {
                self.now_us += 1000;
                self.drive();
                if polls.next().is_none() {
                    return Err(format!("no write after a burst: {:?}, {:?}", self.log.usage(), self.log));
                }
            }
        }
        Ok(())
    }

    fn end_reads(&mut self) -> Result<(), String> {
        while !self.lookups.is_empty() {
            self.end_read(0)?;
        }
        Ok(())
    }

    /// Some work, and the news of it.
    fn drive(&mut self) {
        self.bury_twins();
        let lanes_at = self.lookups.iter().map(|lookup| lookup.epoch).min().unwrap_or(u64::MAX);
        let mut jobs = Vec::new();
        self.log.poll(self.now_us, lanes_at, &mut self.table, &mut jobs);
        self.disk.submit(&mut jobs);
        if let Some((id, outcome)) = self.disk.complete_one() {
            self.log.done(id, lent(&outcome), &mut self.table);
        }
        let events: Vec<Event> = self.log.events().collect();
        events.into_iter().for_each(|event| self.take(event));
        for (hash, sequence) in std::mem::take(&mut self.table.forgotten) {
            let key = self.model.keys().into_iter().find(|&key| super::world::hash(key).0 == hash);
            if let Some(key) = key.filter(|&key| self.model.sequence(key) == sequence) {
                self.model.add(key, sequence, None);
                // Gone for now; after a crash it may be back.
                self.model.mark(key, sequence, |_| ());
            }
        }
        for key in std::mem::take(&mut self.retries) {
            self.retry(key);
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Written { token, .. } if self.twins.contains_key(&token) => {
                let (twin, sequence, _) = self.twins[&token];
                self.model.mark(twin, sequence, |op| op.is_written = true);
            }
            Event::Written { token, place } => {
                let Some(&(key, append)) = self.appends.get(&token) else { return };
                self.model.mark(key, append.sequence, |op| op.is_written = true);
                let slot = hash(key).0;
                if self.table.pending.get(&slot).is_some_and(|pending| pending.token == token) {
                    self.table.pending.remove(&slot);
                    match append.value_bytes {
                        Some(_) => self.table.slots.insert(slot, (append.sequence, place)),
                        None => self.table.slots.remove(&slot),
                    };
                }
            }
            Event::Durable { token } => {
                if let Some(twin) = self.twins.remove(&token) {
                    return self.twin_is_durable(twin);
                }
                if let Some((key, append)) = self.appends.remove(&token) {
                    self.model.mark(key, append.sequence, |op| op.is_durable = true);
                }
            }
            Event::Failed { token } => self.append_failed(token),
            Event::Emptied => {
                for (key, sequence) in std::mem::take(&mut self.emptying) {
                    self.model.mark(key, sequence, |op| (op.is_written, op.is_durable) = (true, true));
                }
            }
            Event::Lost { hash, sequence } => {
                self.tally.lost += 1;
                assert!(self.plan.lies + self.plan.failed_reads > 0, "{hash:?} {sequence} is lost");
            }
            Event::LostNameless { records } => {
                self.tally.lost += records;
                assert!(self.plan.lies + self.plan.failed_reads > 0, "{records} are lost");
            }
            Event::ReadOnly => self.tally.read_only += 1,
        }
    }

    /// Lets all work end. A machine that stays busy without work is stuck.
    fn quiesce(&mut self) -> Result<(), String> {
        self.log.flush();
        for _ in 0..100_000 {
            self.now_us += 100_000;
            self.drive();
            self.log.flush();
            let is_empty =
                self.table.pending.is_empty() && self.emptying.is_empty() && self.unburied.is_empty();
            if is_empty && self.disk.is_idle() {
                return Ok(());
            }
            if self.log.is_read_only() {
                return Ok(());
            }
        }
        Err(format!("stuck with {:?}, {:?}", self.table.pending, self.log))
    }

    pub(super) fn take_counters(&mut self) {
        let counters = self.log.counters();
        self.tally.compacted += counters.compacted_segments;
        self.tally.dropped += counters.dropped_records;
        self.tally.moved_bytes += counters.moved_bytes;
        self.tally.tombstones += counters.carried_tombstones;
        self.tally.failed_writes += counters.failed_writes;
        self.tally.bad_segments += self.log.bad_segments() as u64;
    }
}

pub(super) fn options(plan: Plan, layout: &Layout) -> Options {
    let chunk_bytes = 12 << 10;
    Options { chunk_bytes, reserve_ahead: 3, available_min: 6, ..Options::of(plan.policy, layout) }
}

/// The slots of a key and its twin look alike.
pub(super) fn hash(key: u64) -> KeyHash {
    let hash = minos_base::hash_key(&(key / 2).to_le_bytes(), 1);
    KeyHash(hash.0 ^ (key % 2) << 44)
}

/// The key whose slot looks like that of this one.
pub(super) fn twin_of(key: u64) -> u64 {
    key ^ 1
}

pub(super) fn key_name(key: u64) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

/// The bytes of a value follow from key, sequence and size.
pub(super) fn value_of(key: u64, sequence: u64, bytes: usize) -> Vec<u8> {
    let seed = (key << 32 ^ sequence).to_le_bytes();
    (0..bytes).map(|at| seed[at % 8] ^ (at / 8) as u8).collect()
}
