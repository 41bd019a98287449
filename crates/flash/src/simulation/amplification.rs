//! Write amplification of the machines, and the time that recovery takes, on a disk without faults.

use super::{
    disk::{Disk, lent, recover},
    index::Table,
};
use crate::{
    create,
    format::{Layout, Stream, Superblock},
    log::{Counters, Event, Index, Log, Options, Place, Policy, Put, Refusal},
    recovery::{Found, Newest, Recovery, Step},
    work::{Work, WorkId},
};
use minos_base::{KeyHash, Seconds, seeded};
use rand::{RngExt, rngs::StdRng};
use std::{ops::Range, time::Instant};

/// More than a put waits for.
const DRIVES_MAX: usize = 20_000;

/// Before the first sequence: a server that has run for a while has given so many, and records hold them.
pub(super) const SEQUENCES_AT: u64 = 1 << 36;

/// A load on a log.
pub(super) struct Load {
    pub(super) policy: Policy,
    pub(super) segment_bytes: u32,
    pub(super) segments: u32,
    pub(super) keys: u64,
    pub(super) value_bytes: usize,
    /// Of 100 appended records so many are read before they are the oldest.
    pub(super) read_percent: u64,
}

pub(super) struct Bench {
    pub(super) log: Log,
    pub(super) disk: Disk,
    pub(super) superblock: Superblock,
    pub(super) table: Slots,
    pub(super) events: Vec<Event>,
    now_us: u64,
    random: StdRng,
    /// Of what is put.
    pub(super) expiry: Seconds,
}

/// An index that names records as soon as they are appended; nothing fails here.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) table: Table,
    read_percent: u64,
    pub(super) now: Seconds,
}

impl Index for Slots {
    fn now(&self) -> Seconds {
        self.now
    }

    fn standing(&mut self, hash: KeyHash, sequence: u64, page: u32) -> crate::log::Standing {
        let standing = self.table.standing(hash, sequence, page);
        let was_read = sequence % 100 < self.read_percent;
        if was_read && standing == crate::log::Standing::Live { crate::log::Standing::Read } else { standing }
    }

    fn relink(&mut self, hash: KeyHash, sequence: u64, from: u32, to: Place) -> bool {
        self.table.relink(hash, sequence, from, to)
    }

    fn forget(&mut self, hash: KeyHash, sequence: u64, page: u32) {
        self.table.forget(hash, sequence, page);
        self.table.forgotten.clear();
    }

    fn forget_pages(&mut self, pages: Range<u32>) -> u64 {
        self.table.forget_pages(pages)
    }
}

impl Bench {
    pub(super) fn new(load: &Load) -> Self {
        let layout = Layout::new(load.segment_bytes, load.segments).unwrap();
        let superblock = Superblock { table: 1, seed: 2, hash_seed: 3, clock_zero_unix_s: 0, layout };
        let mut disk = Disk::new(layout.device_bytes(), seeded(1));
        for step in create(&superblock) {
            let mut jobs: Vec<(WorkId, Work)> = step.into_iter().map(|work| (WorkId(0), work)).collect();
            disk.submit(&mut jobs);
            while disk.complete_one().is_some() {}
        }
        let usual = Options::of(load.policy, &layout);
        let options = Options { compaction_bytes_s: u64::MAX >> 8, available_min: 4, ..usual };
        let (log, _) = recover(&mut disk, &superblock, options);
        let table = Slots { read_percent: load.read_percent, ..Slots::default() };
        let events = Vec::new();
        Self { log, disk, superblock, table, events, now_us: 0, random: seeded(7), expiry: 0 }
    }

    pub(super) fn drive(&mut self) {
        let mut jobs = Vec::new();
        self.now_us += 1000;
        self.log.poll(self.now_us, u64::MAX, &mut self.table, &mut jobs);
        self.disk.submit(&mut jobs);
        while let Some((id, outcome)) = self.disk.complete_one() {
            self.log.done(id, lent(&outcome), &mut self.table);
        }
        self.events.extend(self.log.events());
    }

    /// Puts the item with the `number`th sequence.
    pub(super) fn put(&mut self, key: u64, number: u64, value: &[u8]) {
        let sequence = SEQUENCES_AT + number;
        let hash = minos_base::hash_key(&key.to_le_bytes(), 3);
        let name = format!("key-{key:016}");
        for _ in 0..DRIVES_MAX {
            let replaces = self.table.table.slots.get(&hash.0).map(|(_, place)| *place);
            let put = Put {
                hash,
                key: name.as_bytes(),
                value,
                sequence,
                expiry: self.expiry,
                flags: 0,
                marks: 0,
                replaces,
                token: sequence,
            };
            match self.log.append(Stream::New, &put) {
                Ok(place) => {
                    self.table.table.slots.insert(hash.0, (sequence, place));
                    return;
                }
                Err(Refusal::Busy) => self.drive(),
                Err(refusal) => panic!("{refusal}"),
            }
        }
        panic!("the log stays busy");
    }
}

/// Loads all keys, then overwrites at random `rounds` times as many. The counters of the overwrites alone, and the journals.
fn overwrite(load: &Load, rounds: u64) -> (Counters, u64) {
    let (mut bench, value) = (Bench::new(load), vec![7; load.value_bytes]);
    let (mut before, mut journals) = (Counters::default(), 0);
    for number in 0..load.keys * (rounds + 2) {
        // After one round of overwrites the segments are as mixed as they will be.
        if number == load.keys * 2 {
            (before, journals) = (bench.log.counters(), bench.log.journal_number());
        }
        let key = if number < load.keys { number } else { bench.random.random_range(0..load.keys) };
        bench.put(key, number + 1, &value);
        if number.is_multiple_of(32) {
            bench.drive();
            bench.events.clear();
        }
    }
    let after = bench.log.counters();
    let counters = Counters {
        appended_bytes: after.appended_bytes - before.appended_bytes,
        appended_record_bytes: after.appended_record_bytes - before.appended_record_bytes,
        moved_bytes: after.moved_bytes - before.moved_bytes,
        written_bytes: after.written_bytes - before.written_bytes,
        compacted_segments: after.compacted_segments - before.compacted_segments,
        ..after
    };
    (counters, bench.log.journal_number() - journals)
}

/// Written bytes a byte of key and value, and a byte of record.
fn amplification(name: &str, load: &Load, rounds: u64) -> f64 {
    let (counters, journals) = overwrite(load, rounds);
    // One a victim: it ends a segment, names its next life, and says that the next victim is leaving.
    let is_store = matches!(load.policy, Policy::Store { .. });
    assert!(!is_store || journals * 20 <= counters.compacted_segments * 21, "{journals}, {counters:?}");
    let written = counters.written_bytes as f64;
    let of_values = written / counters.appended_bytes as f64;
    let of_records = written / counters.appended_record_bytes as f64;
    let value_bytes = load.value_bytes;
    eprintln!(
        "{name}, values of {value_bytes} B: {of_values:.3} of keys and values, {of_records:.3} of records"
    );
    of_values
}

fn cache(reinsert_percent: u32, read_percent: u64, value_bytes: usize) -> Load {
    let (policy, segment_bytes) = (Policy::Cache { reinsert_percent }, 4 << 20);
    let keys = 150_000_000 / value_bytes as u64;
    Load { policy, segment_bytes, segments: 16, keys, value_bytes, read_percent }
}

/// So many percent of what a store of 128 segments can hold are live.
fn store(percent: u64, value_bytes: usize) -> Load {
    let policy = Policy::Store { utilisation_percent_max: 85 };
    let mut load =
        Load { policy, segment_bytes: 1 << 20, segments: 128, keys: 0, value_bytes, read_percent: 0 };
    let mut bench = Bench::new(&load);
    // It learns from full segments how much they hold.
    let count = (20 << 20) / value_bytes as u64;
    for number in 0..count {
        bench.put(number, number, &vec![7; value_bytes]);
        bench.drive();
    }
    let before = bench.log.counters().appended_record_bytes;
    bench.put(0, count, &vec![7; value_bytes]);
    let record_bytes = bench.log.counters().appended_record_bytes - before;
    load.keys = bench.log.capacity_bytes() * percent / 100 / record_bytes;
    load
}

#[test]
fn a_cache_writes_little_more_than_it_is_given() {
    let of_large = amplification("cache, first in first out", &cache(0, 0, 4000), 1);
    let of_small = amplification("cache, first in first out", &cache(0, 0, 1000), 1);
    let reinserting = amplification("cache, reinsertion of what was read", &cache(20, 30, 4000), 1);
    assert!(of_large <= 1.05, "{of_large}");
    assert!(of_small <= 1.07, "{of_small}");
    assert!(reinserting <= 1.25, "{reinserting}");
}

#[test]
fn a_store_four_fifths_full_is_compacted_at_a_bounded_price() {
    for (value_bytes, most) in [(4000, 2.5), (1000, 2.6)] {
        let amplification = amplification("store 80 % full, uniform overwrites", &store(80, value_bytes), 3);
        assert!(amplification <= most, "{amplification}");
    }
}

/// The index rounds their lengths up, beyond the end of their segment if they are the last one in it.
#[test]
fn long_records_at_the_ends_of_segments_are_compacted() {
    let policy = Policy::Store { utilisation_percent_max: 85 };
    // With these the last of a segment's three records ends within what its length is rounded by.
    for value_bytes in [336_000, 338_000, 340_000, 342_000] {
        let load =
            Load { policy, segment_bytes: 1 << 20, segments: 32, keys: 52, value_bytes, read_percent: 0 };
        let (counters, _) = overwrite(&load, 4);
        assert!(counters.moved_bytes > 0 && counters.lost_records == 0, "{counters:?}");
    }
}

/// Bytes of a device that is recovered for its time: more by MINOS_FLASH_RECOVERY_MB.
fn recovery_mb() -> u64 {
    std::env::var("MINOS_FLASH_RECOVERY_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(64)
}

#[test]
fn recovery_reads_footers_only() {
    let value_bytes = 1024;
    let segments = (recovery_mb() + recovery_mb() / 16) as u32 + 16;
    let keys = (recovery_mb() << 20) / (value_bytes as u64 + 90);
    let (policy, segment_bytes) = (Policy::Store { utilisation_percent_max: 100 }, 1 << 20);
    let load = Load { policy, segment_bytes, segments, keys, value_bytes, read_percent: 0 };
    let mut bench = Bench::new(&load);
    let value = vec![7; value_bytes];
    for number in 0..keys {
        bench.put(number, number + 1, &value);
        if number.is_multiple_of(64) {
            bench.drive();
        }
    }
    bench.log.flush();
    (0..20).for_each(|_| bench.drive());
    let (mut recovery, mut jobs) = (Recovery::new(), Vec::new());
    let mut newest = Newest::default();
    let (mut read_bytes, mut time) = (0, std::time::Duration::ZERO);
    loop {
        recovery.poll(&mut jobs);
        bench.disk.submit(&mut jobs);
        let (id, outcome) = bench.disk.complete_one().expect("recovery waits for nothing");
        read_bytes += outcome.as_ref().map_or(0, Vec::len);
        let begin = Instant::now();
        let step = recovery.done(id, lent(&outcome), &mut |found: &Found| newest.add(found));
        time += begin.elapsed();
        if matches!(step, Step::Done(_)) {
            break;
        }
    }
    let begin = Instant::now();
    let winners = newest.decide();
    time += begin.elapsed();
    assert_eq!(winners.live().count() as u64, keys);
    let device_bytes = bench.superblock.layout.device_bytes();
    eprintln!(
        "recovery of {keys} records, {} MB: {read_bytes} B read, {time:?} of processor time, {:.3} s a GB",
        device_bytes >> 20,
        time.as_secs_f64() * (1 << 30) as f64 / (recovery_mb() << 20) as f64
    );
    assert!(read_bytes as u64 * 8 < device_bytes, "{read_bytes} of {device_bytes}");
}
