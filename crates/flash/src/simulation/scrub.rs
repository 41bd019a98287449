//! The scrubber finds rot before a reader does.

use super::amplification::{Bench, Load, SEQUENCES_AT};
use crate::{
    format::PAGE_BYTES,
    log::{Event, Place, Policy},
};
use minos_base::Seconds;

fn bench(keys: u64) -> Bench {
    bench_until(keys, 0)
}

/// A full log of records with this expiry.
fn bench_until(keys: u64, expiry: Seconds) -> Bench {
    let policy = Policy::Store { utilisation_percent_max: 85 };
    let load =
        Load { policy, segment_bytes: 256 << 10, segments: 32, keys, value_bytes: 1000, read_percent: 0 };
    let mut bench = Bench::new(&load);
    bench.expiry = expiry;
    for key in 0..keys {
        bench.put(key, key + 1, &[7; 1000]);
        bench.drive();
    }
    bench.log.flush();
    bench
}

#[test]
fn a_segment_with_rot_is_given_up_and_its_other_records_are_kept() {
    const KEYS: u64 = 2000;
    let mut bench = bench(KEYS);
    let rotten = minos_base::hash_key(&77u64.to_le_bytes(), 3);
    let (sequence, place) = bench.table.table.slots[&rotten.0];
    // In the middle of its page: in this record, or in one beside it.
    bench.disk.rot(u64::from(place.page) * PAGE_BYTES as u64 + 600);
    (0..20_000).for_each(|_| bench.drive());
    let counters = bench.log.counters();
    assert!(counters.scrub_faults >= 1 && counters.scrubbed_segments > 10, "{counters:?}");
    assert_eq!(counters.lost_records, 1, "{counters:?}");
    let lost: Vec<Event> =
        bench.events.iter().filter(|event| matches!(event, Event::Lost { .. })).copied().collect();
    let [Event::Lost { hash, .. }] = lost[..] else { panic!("{lost:?}") };
    assert_eq!(bench.table.table.slots.len() as u64, KEYS - 1);
    assert!(!bench.table.table.slots.contains_key(&hash.0));
    assert!(sequence == SEQUENCES_AT + 78 && counters.compacted_segments == 1, "{counters:?}");
}

/// Without its footers, nobody can say whose records were in a page that does not verify. Before the fix, the index went on
/// to name the place, which others' records took.
#[test]
fn of_a_segment_without_footers_what_does_not_verify_is_forgotten_and_counted() {
    const KEYS: u64 = 2000;
    let mut bench = bench(KEYS);
    let rotten = minos_base::hash_key(&77u64.to_le_bytes(), 3);
    let (_, place) = bench.table.table.slots[&rotten.0];
    let layout = bench.superblock.layout;
    let (segment, _) = layout.segment_of(u64::from(place.page) * PAGE_BYTES as u64).unwrap();
    let page_at = |segment| (layout.segment_at(segment) / PAGE_BYTES as u64) as u32;
    let pages = page_at(segment)..page_at(segment + 1);
    let in_page = bench.table.table.slots.values().filter(|(_, at)| at.page == place.page).count() as u64;
    bench.disk.rot(u64::from(pages.end) * PAGE_BYTES as u64 - 1);
    bench.disk.rot(u64::from(place.page) * PAGE_BYTES as u64 + 600);
    (0..20_000).for_each(|_| bench.drive());
    let counters = bench.log.counters();
    assert_eq!((counters.lost_records, counters.compacted_segments), (in_page, 1), "{counters:?}");
    let nameless = |event: &&Event| matches!(event, Event::LostNameless { records } if *records == in_page);
    assert_eq!(bench.events.iter().filter(nameless).count(), 1, "{:?}", bench.events);
    assert_eq!(bench.table.table.slots.len() as u64, KEYS - in_page);
    assert_eq!(bench.table.table.slots.values().filter(|(_, at)| pages.contains(&at.page)).count(), 0);
    assert!(counters.scrub_faults >= 1, "{counters:?}");
}

/// Of records that cross from or into the page a part is unreadable; those beside them are not.
#[test]
fn of_a_segment_with_an_unreadable_page_the_other_pages_are_kept() {
    const KEYS: u64 = 2000;
    let mut bench = bench(KEYS);
    let broken = minos_base::hash_key(&77u64.to_le_bytes(), 3);
    let (_, place) = bench.table.table.slots[&broken.0];
    let is_touched = |at: Place| (at.page..at.page + at.length.pages() as u32).contains(&place.page);
    let touched = bench.table.table.slots.values().filter(|(_, at)| is_touched(*at)).count() as u64;
    bench.disk.break_page(place.page as usize);
    (0..20_000).for_each(|_| bench.drive());
    let counters = bench.log.counters();
    assert_eq!((counters.lost_records, counters.compacted_segments), (touched, 1), "{counters:?}");
    assert_eq!(bench.table.table.slots.len() as u64, KEYS - touched);
    // Nothing is named where it was.
    let segment_bytes = 256 << 10;
    let segment_of = |page: u32| u64::from(page) * PAGE_BYTES as u64 / segment_bytes;
    let stays = |at: Place| segment_of(at.page) == segment_of(place.page);
    assert_eq!(bench.table.table.slots.values().filter(|(_, at)| stays(*at)).count(), 0);
}

#[test]
fn a_sound_log_is_read_round_and_round_within_its_rate() {
    let mut bench = bench(500);
    let before = bench.log.counters();
    // Twenty seconds at a mebibyte a second.
    (0..20_000).for_each(|_| bench.drive());
    let after = bench.log.counters();
    assert_eq!((after.scrub_faults, after.lost_records), (0, 0), "{after:?}");
    let read_bytes = after.scrub_read_bytes - before.scrub_read_bytes;
    assert!((8 << 20..=24 << 20).contains(&read_bytes), "{read_bytes}");
    assert_eq!(after.compaction_read_bytes, before.compaction_read_bytes, "compaction reads nothing here");
}

#[test]
fn what_expired_leaves_index_and_log_when_the_scrubber_comes_by() {
    const KEYS: u64 = 4000;
    let mut bench = bench_until(KEYS, 10);
    bench.table.now = 9;
    (0..10_000).for_each(|_| bench.drive());
    assert_eq!((bench.table.table.slots.len() as u64, bench.log.counters().expired_records), (KEYS, 0));
    bench.table.now = 10;
    (0..20_000).for_each(|_| bench.drive());
    // Those in the segments that are open are left.
    let (left, counters) = (bench.table.table.slots.len() as u64, bench.log.counters());
    assert!(left < KEYS / 16 && counters.expired_records == KEYS - left, "{left}, {counters:?}");
    assert_eq!((counters.lost_records, counters.moved_bytes), (0, 0), "{counters:?}");
    // There is room again for as many.
    for key in KEYS..2 * KEYS {
        bench.put(key, key + 1, &[7; 1000]);
        bench.drive();
    }
}

#[test]
fn compaction_does_not_move_what_expired() {
    let mut bench = bench_until(4000, 10);
    bench.table.now = 10;
    bench.expiry = 0;
    // Overwrites of every other key make segments worth compacting before the scrubber comes by.
    for number in 0..6000 {
        bench.put(number % 2000 * 2 + 1, 10_000 + number, &[7; 1000]);
        if number % 32 == 0 {
            bench.drive();
        }
    }
    let counters = bench.log.counters();
    assert!(counters.compaction_read_bytes > 0, "{counters:?}");
    assert!(counters.compacted_segments > 3 && counters.expired_records > 100, "{counters:?}");
    assert_eq!(counters.moved_bytes, 0, "{counters:?}");
}

#[test]
fn a_sweep_reads_everything_once_at_its_rate_and_finds_rot() {
    let mut bench = bench(2000);
    bench.log.set_scrub_rate(0);
    // A scrubber at rest reads nothing.
    let before = bench.log.counters();
    (0..5000).for_each(|_| bench.drive());
    assert_eq!(bench.log.counters().scrub_read_bytes, before.scrub_read_bytes);
    let rotten = minos_base::hash_key(&77u64.to_le_bytes(), 3);
    let (_, place) = bench.table.table.slots[&rotten.0];
    bench.disk.rot(u64::from(place.page) * PAGE_BYTES as u64 + 600);
    let sealed = bench.log.usage().sealed as u64;
    bench.log.sweep(1 << 20);
    // Half a second is not enough at a mebibyte a second for two mebibytes, four are.
    (0..500).for_each(|_| bench.drive());
    let left = bench.log.scrub_state().left.expect("a sweep is under way");
    assert!(left > 0 && left < sealed as usize, "{left} of {sealed}");
    (0..4000).for_each(|_| bench.drive());
    let after = bench.log.counters();
    let scrubbed = after.scrubbed_segments - before.scrubbed_segments;
    assert_eq!((after.sweeps, scrubbed), (1, sealed), "{after:?}");
    assert!(after.scrub_faults >= 1, "{after:?}");
    let state = bench.log.scrub_state();
    assert_eq!((state.left, state.bytes_s), (None, 0), "the rate is what it was");
}
