//! The order of what the log asks for.

use super::*;
use crate::{
    create,
    format::{FOOTER_BYTES_MAX, PAGE_BYTES},
    recovery::{Found, Newest, Recovery, Step, Winners},
    work::DeviceFailed,
};
use minos_base::Tombstone;
use std::{collections::HashMap, ops::Range};

/// All is live.
struct All;

impl Index for All {
    fn standing(&mut self, _: KeyHash, _: u64, _: u32) -> Standing {
        Standing::Live
    }

    fn relink(&mut self, _: KeyHash, _: u64, _: u32, _: Place) -> bool {
        true
    }

    fn forget(&mut self, _: KeyHash, _: u64, _: u32) {}

    fn forget_pages(&mut self, _: Range<u32>) -> u64 {
        0
    }
}

/// A log on pages that a test looks at.
struct Site {
    log: Log,
    pages: HashMap<u64, Vec<u8>>,
    superblock: Superblock,
    now_us: u64,
}

const STORE: Policy = Policy::Store { utilisation_percent_max: 85 };
const CACHE: Policy = Policy::Cache { reinsert_percent: 20 };

impl Site {
    fn new(segment_bytes: u32, segments: u32) -> Self {
        Self::of(STORE, segment_bytes, segments)
    }

    fn of(policy: Policy, segment_bytes: u32, segments: u32) -> Self {
        let layout = Layout::new(segment_bytes, segments).unwrap();
        let superblock = Superblock { table: 1, seed: 2, hash_seed: 3, clock_zero_unix_s: 0, layout };
        let mut pages = HashMap::new();
        create(&superblock).into_iter().flatten().for_each(|work| drop(execute(&mut pages, work)));
        let log = resume(&mut pages, &superblock, policy).0;
        let mut site = Self { log, pages, superblock, now_us: 0 };
        site.settle();
        site
    }

    /// The next work, not done.
    fn ask(&mut self) -> Vec<(WorkId, Work)> {
        let mut jobs = Vec::new();
        self.now_us += 1000;
        self.log.poll(self.now_us, u64::MAX, &mut All, &mut jobs);
        jobs
    }

    fn execute(&mut self, jobs: Vec<(WorkId, Work)>) {
        for (id, work) in jobs {
            let bytes = execute(&mut self.pages, work);
            self.log.done(id, Ok(&bytes), &mut All);
        }
    }

    /// Does all work.
    fn settle(&mut self) {
        for _ in 0..50 {
            let jobs = self.ask();
            self.execute(jobs);
        }
    }

    /// Until the log writes again after a failed write.
    fn rest(&mut self) {
        self.ask();
        self.now_us += 100_000;
        self.settle();
    }

    fn put(&mut self, stream: Stream, sequence: u64, bytes: usize) -> Result<Place, Refusal> {
        self.put_hash(stream, KeyHash(sequence), sequence, bytes)
    }

    fn put_hash(
        &mut self,
        stream: Stream,
        hash: KeyHash,
        sequence: u64,
        bytes: usize,
    ) -> Result<Place, Refusal> {
        let (key, value) = (sequence.to_le_bytes(), vec![1; bytes]);
        let put = Put {
            hash,
            key: &key,
            value: &value,
            sequence,
            expiry: 0,
            flags: 0,
            marks: 0,
            replaces: None,
            token: sequence,
        };
        self.log.append(stream, &put)
    }

    /// Place and length of the writes to segments.
    fn writes(&self, jobs: &[(WorkId, Work)]) -> Vec<(u64, usize)> {
        let write = |(_, work): &(WorkId, Work)| match work {
            Work::Write { at, bytes } => Some((*at, bytes.len())),
            _ => None,
        };
        let first = self.superblock.layout.segment_at(0);
        jobs.iter().filter_map(write).filter(|(at, _)| *at >= first).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        self.log.events().collect()
    }
}

fn execute(pages: &mut HashMap<u64, Vec<u8>>, work: Work) -> Vec<u8> {
    let page = PAGE_BYTES as u64;
    match work {
        Work::Write { at, bytes } => {
            let parts = bytes.chunks(PAGE_BYTES).enumerate();
            pages.extend(parts.map(|(number, bytes)| (at / page + number as u64, bytes.to_vec())));
            Vec::new()
        }
        Work::Read { at, len } => {
            let numbers = at / page..(at + len as u64) / page;
            let empty = vec![0; PAGE_BYTES];
            numbers.flat_map(|number| pages.get(&number).unwrap_or(&empty).clone()).collect()
        }
        Work::Flush => Vec::new(),
    }
}

fn resume(pages: &mut HashMap<u64, Vec<u8>>, superblock: &Superblock, policy: Policy) -> (Log, Winners) {
    let (mut recovery, mut newest, mut jobs) = (Recovery::new(), Newest::default(), Vec::new());
    loop {
        recovery.poll(&mut jobs);
        let (id, work) = jobs.remove(0);
        match recovery.done(id, Ok(&execute(pages, work)), &mut |found: &Found| newest.add(found)) {
            Step::Done(done) => {
                let options = Options { scrub_bytes_s: 0, ..Options::of(policy, &superblock.layout) };
                return (Log::resume(superblock, options, done.1), newest.decide());
            }
            Step::Working => {}
            Step::Failed(reason) => panic!("{reason}"),
        }
    }
}

#[test]
fn the_chunks_of_all_streams_are_written_as_one_vector() {
    let mut site = Site::new(1 << 20, 32);
    for (sequence, stream) in Stream::ALL.into_iter().enumerate() {
        site.put(stream, sequence as u64 + 1, 9000).unwrap();
    }
    let jobs = site.ask();
    assert!(site.writes(&jobs).is_empty());
    site.execute(jobs);
    site.settle();
    site.log.commit();
    let jobs = site.ask();
    let lengths: Vec<usize> = site.writes(&jobs).into_iter().map(|(_, len)| len).collect();
    assert_eq!((jobs.len(), lengths), (3, vec![12 << 10; 3]));
}

#[test]
fn a_record_is_written_after_its_write_and_durable_after_the_flush_that_followed() {
    let mut site = Site::new(1 << 20, 32);
    let place = site.put(Stream::New, 1, 100).unwrap();
    site.log.flush();
    let jobs = site.ask();
    assert_eq!(site.writes(&jobs).len(), 1);
    assert_eq!(site.events(), []);
    site.execute(jobs);
    assert_eq!(site.events(), [Event::Written { token: 1, place }]);
    // Written after the flush was asked for.
    let flush = site.ask();
    assert!(matches!(flush[..], [(_, Work::Flush)]), "{flush:?}");
    site.put(Stream::New, 2, 100).unwrap();
    site.log.commit();
    let later = site.ask();
    site.execute(later);
    site.events();
    site.execute(flush);
    assert_eq!(site.events(), [Event::Durable { token: 1 }]);
}

#[test]
fn footers_are_written_when_all_records_are_durable() {
    let mut site = Site::new(64 << 10, 32);
    let mut count = 0;
    while site.put(Stream::New, count + 1, 1000).is_ok() && count < 60 {
        count += 1;
    }
    // A segment is full and the next one open.
    let jobs = site.ask();
    let first = site.superblock.layout.segment_at(0);
    let end = |at: u64| (at - first) % (64 << 10);
    let is_footers = |(at, len): &(u64, usize)| end(*at + *len as u64) == 0;
    assert!(!site.writes(&jobs).iter().any(is_footers), "{:?}", site.writes(&jobs));
    site.execute(jobs);
    let flush = site.ask();
    assert!(matches!(flush[..], [(_, Work::Flush)]), "{flush:?}");
    site.execute(flush);
    let footers = site.ask();
    let footers = site.writes(&footers);
    assert!(footers.iter().any(is_footers), "{footers:?}");
    let bytes: usize = footers.iter().filter(|it| is_footers(it)).map(|it| it.1).sum();
    assert!(bytes < 60 * FOOTER_BYTES_MAX + 2 * PAGE_BYTES, "{bytes}");
}

#[test]
fn records_beyond_the_limits_are_refused_by_name() {
    let mut site = Site::new(64 << 10, 32);
    let max = site.superblock.layout.record_bytes_max();
    assert!(site.put(Stream::New, 1, max as usize - 8).is_ok());
    let refusal = site.put(Stream::New, 2, max as usize - 7).unwrap_err();
    assert_eq!(refusal, Refusal::TooLarge { bytes: max + 1, max });
    assert_eq!(refusal.to_string(), "a record of 32769 bytes is larger than 32768");
    let mut sequence = 3;
    let refusal = loop {
        match site.put(Stream::New, sequence, 20_000) {
            Ok(_) => sequence += 1,
            Err(Refusal::Busy) => site.settle(),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, Refusal::Full);
    // It keeps what it has.
    site.log.flush();
    site.settle();
    let (_, newest) = resume(&mut site.pages, &site.superblock, STORE);
    assert_eq!(newest.live().count() as u64, sequence - 2);
}

#[test]
fn a_log_at_rest_asks_for_nothing() {
    let mut site = Site::new(1 << 20, 32);
    site.put(Stream::New, 1, 100).unwrap();
    site.log.flush();
    site.settle();
    for _ in 0..10 {
        assert_eq!(site.ask(), []);
    }
}

#[test]
fn a_device_that_is_no_table_is_not_ours() {
    let mut recovery = Recovery::new();
    let (mut jobs, mut pages) = (Vec::new(), HashMap::new());
    recovery.poll(&mut jobs);
    let mut last = None;
    for (id, work) in jobs {
        last = Some(recovery.done(id, Ok(&execute(&mut pages, work)), &mut |_: &Found| ()));
    }
    let Some(Step::Failed(reason)) = last else { panic!("{last:?}") };
    assert_eq!(reason.to_string(), "no table: the mark 0x0000000000000000 is not that of this structure");
}

/// Two keys whose slots look alike, and one whose slot does not.
const ALIKE: [KeyHash; 3] = [KeyHash(0x77), KeyHash(1 << 40 | 0x77), KeyHash(1 << 20 | 0x77)];

/// The hashes that live after a crash, where a tombstone of the first was written for the place of the second.
fn live_after(policy: Policy, sequence: u64, is_forgotten: bool) -> Vec<KeyHash> {
    let mut site = Site::of(policy, 1 << 20, 32);
    let mut places = Vec::new();
    for (number, hash) in (1..).zip(ALIKE) {
        places.push(site.put_hash(Stream::New, hash, number, 100).unwrap());
    }
    let before = site.log.live_bytes();
    let tombstone = Tombstone { hash: ALIKE[0], sequence, place: places[1], is_forgotten };
    assert_eq!(site.log.bury(&tombstone, 9), Ok(true));
    assert_eq!(site.log.live_bytes() < before, is_forgotten);
    site.log.flush();
    site.settle();
    let (_, newest) = resume(&mut site.pages, &site.superblock, policy);
    let mut live: Vec<KeyHash> = newest.live().map(|(hash, ..)| hash).collect();
    live.sort();
    live
}

#[test]
fn records_whose_slots_may_look_alike_begin_in_different_pages() {
    let mut site = Site::new(1 << 20, 32);
    let hashes = [ALIKE[0], ALIKE[2], ALIKE[0], ALIKE[1], ALIKE[1], ALIKE[2]];
    let mut page = |(number, hash)| site.put_hash(Stream::New, hash, number, 100).unwrap().page;
    let pages: Vec<u32> = (1..).zip(hashes).map(&mut page).collect();
    let first = pages[0];
    assert_eq!(pages, [first, first, first, first + 1, first + 1, first + 1]);
    // A page that was written is behind it.
    site.log.flush();
    site.settle();
    assert_eq!(site.put_hash(Stream::New, ALIKE[0], 9, 100).unwrap().page, first + 2);
    let found: Vec<KeyHash> =
        resume(&mut site.pages, &site.superblock, STORE).1.live().map(|it| it.0).collect();
    assert_eq!(found.len(), 3);
}

#[test]
fn a_tombstone_of_a_cache_kills_at_its_place_whatever_the_hash() {
    assert_eq!(live_after(CACHE, 10, true), [ALIKE[2]]);
}

#[test]
fn a_tombstone_without_a_sequence_kills_at_its_place_only() {
    assert_eq!(live_after(CACHE, 0, true), [ALIKE[0], ALIKE[2]]);
    assert_eq!(live_after(STORE, 0, true), [ALIKE[0], ALIKE[2]]);
}

#[test]
fn a_tombstone_kills_nothing_else_at_its_place() {
    // The index names the other one still.
    assert_eq!(live_after(CACHE, 10, false), [ALIKE[2], ALIKE[1]]);
    // A store has read whose record it forgets.
    assert_eq!(live_after(STORE, 10, true), [ALIKE[2], ALIKE[1]]);
}

/// Before, the log did not write it again.
#[test]
fn a_tombstone_whose_write_failed_is_written_elsewhere() {
    let mut site = Site::new(64 << 10, 32);
    let place = site.put(Stream::New, 1, 100).unwrap();
    site.log.flush();
    site.settle();
    site.log.disown(KeyHash(1), 1, place);
    site.settle();
    site.log.flush();
    let jobs = site.ask();
    assert_eq!(site.writes(&jobs).len(), 1);
    jobs.into_iter().for_each(|(id, _)| site.log.done(id, Err(DeviceFailed::Broken), &mut All));
    let lives = |site: &mut Site| resume(&mut site.pages, &site.superblock, STORE).1.live().count();
    assert_eq!(lives(&mut site), 1, "the control: it was written all the same");
    site.rest();
    site.log.flush_all();
    site.settle();
    assert_eq!(lives(&mut site), 0);
}

#[test]
fn segments_that_are_given_up_end() {
    let mut site = Site::of(CACHE, 64 << 10, 32);
    let place = site.put(Stream::New, 1, 1000).unwrap();
    for sequence in 2..200 {
        while site.put(Stream::New, sequence, 1000).is_err() {
            site.settle();
        }
    }
    site.log.flush();
    site.settle();
    assert_eq!(site.log.counters().compacted_segments, 0);
    site.log.give_up(place.page..place.page + 1);
    site.settle();
    assert_eq!(site.log.counters().compacted_segments, 1);
    assert_eq!(site.log.life_of(place.page), Life::NONE);
}

#[test]
fn pages_that_are_written_early_are_no_loss_of_capacity() {
    let mut site = Site::new(64 << 10, 40);
    let before = site.log.capacity_bytes();
    for sequence in 1..200 {
        site.put(Stream::New, sequence, 100).unwrap();
        site.log.flush();
        site.settle();
    }
    assert!(site.log.available_segments() < 30, "a page each");
    let after = site.log.capacity_bytes();
    assert!(after > before / 10 * 9, "{after} of {before}");
}

#[test]
fn a_segment_ends_only_after_a_group_that_began_later() {
    let mut site = Site::of(CACHE, 64 << 10, 20);
    site.log.groups(7, 6);
    let mut sequence = 0;
    while !site.log.waits_for_group() {
        sequence += 1;
        assert!(site.put(Stream::New, sequence, 1000).is_ok(), "{sequence}");
        site.settle();
    }
    site.settle();
    assert_eq!(site.log.counters().compacted_segments, 0);
    // One that was under way when its records were found dead may have copied nothing of what killed them.
    site.log.groups(7, 7);
    site.settle();
    assert_eq!(site.log.counters().compacted_segments, 0);
    site.log.groups(8, 8);
    site.settle();
    assert!(site.log.counters().compacted_segments > 0);
}
