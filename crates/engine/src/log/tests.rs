//! The log against a queue of entries.

use super::{checked::*, *};
use crate::position::{Narrow, Wide};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Append { words: u64, owns_extent: bool },
    Kill(usize),
    Release,
    // A segment comes back from elsewhere, or goes there.
    Give,
    Withdraw,
    FinishWalk,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..9u64, any::<bool>()).prop_map(|(words, owns_extent)| Step::Append { words, owns_extent }),
        4 => any::<usize>().prop_map(Step::Kill),
        1 => Just(Step::Release),
        1 => Just(Step::Give),
        1 => Just(Step::Withdraw),
        1 => Just(Step::FinishWalk),
    ]
}

fn run<B: PositionBits>(table_len: u64, segments: u64, start: u64, steps: &[Step]) {
    let region = region();
    let mut checked = Checked::<B>::new(&region, 64, table_len, segments, start);
    let mut elsewhere = Vec::new();
    for step in steps {
        match *step {
            Step::Append { words, owns_extent } => {
                let has_memory = checked.log.segments(&region) > 0 || !checked.pool.free.is_empty();
                let is_small = words <= checked.log.entry_words_max();
                assert_eq!(checked.append(words, owns_extent), has_memory && is_small);
            }
            Step::Kill(choice) => checked.kill(choice),
            Step::Release => drop(checked.release()),
            Step::Give => checked.pool.free.extend(elsewhere.pop()),
            Step::Withdraw => elsewhere.extend(checked.pool.take()),
            Step::FinishWalk => {
                let Checked { region, log, queue, gone, .. } = &mut checked;
                log.finish_walk(region, &mut |entry| Checked::reported(region, queue, gone, entry));
            }
        }
        checked.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn entries_go_in_order_and_not_before_their_time(
        table_bits in 0..5u32,
        segments in 0..12u64,
        before_the_wrap in 0..2000u64,
        steps in prop::collection::vec(step(), 1..500),
    ) {
        run::<Narrow>(1 << table_bits, segments, (1 << Narrow::BITS) - before_the_wrap, &steps);
        run::<Wide>(1 << table_bits, segments, (1 << Wide::BITS) - before_the_wrap, &steps);
    }
}

#[test]
fn positions_come_round_many_times() {
    let region = region();
    let mut checked = Checked::<Narrow>::new(&region, 64, 8, 8, 0);
    let (mut wraps, mut last) = (0, 0);
    for (at, words) in sizes().enumerate() {
        assert!(checked.append(words, false));
        let position = checked.queue.back().unwrap().position.words();
        wraps += u64::from(position < last);
        last = position;
        if at % 97 == 0 {
            checked.check();
        }
        if wraps == 5 {
            break;
        }
    }
    checked.check();
}

#[test]
fn one_segment_is_begun_again_and_again() {
    let region = region();
    let mut checked = Checked::<Narrow>::new(&region, 64, 1, 1, 0);
    for words in sizes().take(5000) {
        assert!(checked.append(words, false));
        checked.check();
        assert!(!checked.release(), "the last segment stays");
    }
    assert!(checked.log.segments_evicted(&region) > 100);
}

#[test]
fn a_log_without_memory_says_so_and_recovers() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 4, 0, 0);
    assert!(!checked.append(1, false));
    checked.check();
    checked.pool = Pool::new(&region, 64, 1);
    assert!(checked.append(32, false));
    assert!(!checked.append(33, false), "more than the largest entry");
    checked.check();
}

/// Most of the memory holds entries, and no append walks much more than was appended.
#[test]
fn evictions_are_spread_over_appends() {
    const SEGMENTS: u64 = 16;
    let region = region();
    let log = Log::<Wide>::create(&region, Offset::from_words(0), 1024, 32);
    let mut pool = Pool::new(&region, 1024, SEGMENTS);
    let mut used_words_min = u64::MAX;
    for (at, words) in sizes().take(20_000).enumerate() {
        let (words, mut walked) = (1 + 16 * words, 0);
        log.append(&region, &mut pool, words, &mut |entry| walked += entry.words + 1).unwrap();
        assert!(walked <= 2 * (words + 1) + log.entry_words_max() + 1, "{walked} words at once for {words}");
        if at > 2000 {
            used_words_min = used_words_min.min(log.used_words(&region));
        }
    }
    assert!(used_words_min > (SEGMENTS - 2) * 1024, "{used_words_min} words were used");
}

#[test]
fn memory_comes_back_to_a_log_that_gave_it_away() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 16, 10, 0);
    let append = |checked: &mut Checked<'_, Wide>| {
        checked.append_many(1000);
        checked.check();
        checked.log.segments(&region)
    };
    assert_eq!(append(&mut checked), 10);
    assert!((0..6).all(|_| checked.release()));
    let elsewhere = std::mem::take(&mut checked.pool.free);
    assert_eq!((elsewhere.len(), append(&mut checked)), (6, 4));
    checked.pool.free = elsewhere;
    assert_eq!(append(&mut checked), 10);
}

#[test]
fn the_table_bounds_the_log() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 4, 10, 0);
    checked.append_many(1000);
    assert_eq!((checked.log.segments(&region), checked.pool.free.len()), (4, 6));
    checked.check();
}

/// Simulates a lock-free reader that sleeps between its copy and its second check.
#[test]
fn a_late_reader_notices_the_eviction_and_only_by_looking_again() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 2, 2, 0);
    assert!(checked.append(8, false));
    let known = checked.queue[0];
    let payload = checked.log.locate(&region, known.position).unwrap();
    while holds(&region, payload, known.words, known.number) {
        assert!(checked.append(8, false));
    }
    assert!(!checked.log.is_there(&region, known.position) || is_left_out("version-check"));
}

#[test]
fn age_is_measured_from_both_ends() {
    let region = region();
    let mut checked = Checked::<Narrow>::new(&region, 64, 8, 8, (1 << Narrow::BITS) - 128);
    checked.append_many(150);
    let log = checked.log;
    let live = || checked.queue.iter().filter(|known| log.locate(&region, known.position).is_some());
    let ages: Vec<_> = live().map(|known| log.distance_from_tail(&region, known.position)).collect();
    assert!(ages.is_sorted_by(|older, younger| older > younger), "{ages:?}");
    let is_old: Vec<_> = live().map(|known| log.is_closer_to_head(&region, known.position)).collect();
    assert!(is_old[0] && !is_old[is_old.len() - 1]);
    let old = is_old.iter().filter(|is_old| **is_old).count();
    assert!(is_old.is_sorted_by(|older, younger| older >= younger), "{is_old:?}");
    assert!((3 * old).abs_diff(3 * is_old.len() / 2) < is_old.len(), "{old} of {}", is_old.len());
    let gone = checked.gone.back().unwrap();
    assert!(!log.is_closer_to_head(&region, gone.position));
    assert!(log.distance_from_tail(&region, gone.position) > ages[0]);
}

#[test]
fn the_youngest_entries_are_those_of_the_segment_being_filled() {
    let region = region();
    let mut checked = Checked::<Narrow>::new(&region, 64, 4, 4, (1 << Narrow::BITS) - 128);
    for words in sizes().take(500) {
        assert!(checked.append(words, false));
        let (log, tail) = (checked.log, checked.queue.back().unwrap().position);
        for Known { position, .. } in checked.queue.iter().chain(&checked.gone) {
            // Its own segment may be full now; then nothing is being filled.
            let is_filled = log.in_segment(log.position(&region, TAIL)) == 0;
            let is_same = position.words() >> log.segment_bits == tail.words() >> log.segment_bits;
            let is_young = tail.distance_from(*position) < 64 && is_same && !is_filled;
            let is_moving = log.is_moving(&region);
            let is_old = log.is_before_tail_segment(&region, *position);
            assert_eq!(is_old, is_moving && !is_young, "{position:?} {tail:?}");
        }
    }
}

#[test]
fn a_killed_entry_is_revived_while_it_is_there() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 2, 2, 0);
    assert!(checked.append(8, true));
    let position = checked.queue[0].position;
    assert!(checked.log.kill(&region, position) && checked.log.revive(&region, position));
    checked.check();
    while checked.gone.is_empty() {
        assert!(checked.append(8, false));
    }
    assert!(!checked.log.revive(&region, position));
}

/// An index without keys: each bucket has one slot, which refers to the last entry put there.
fn dangling_slots_that_appear_alive(scans: bool) -> u64 {
    const BUCKETS: u64 = 5000;
    let region = region();
    let mut checked = Checked::<Narrow>::new(&region, 64, 4, 4, 0);
    let mut slots = vec![None; BUCKETS as usize];
    let (mut next, mut fooled) = (0, 0);
    for (at, words) in sizes().take(600_000).enumerate() {
        assert!(checked.append(words, false));
        let known = checked.queue.back().unwrap();
        // Few slots are written often, so that the others would dangle for long.
        if at < BUCKETS as usize || at % 8 == 0 {
            slots[(at * at) % BUCKETS as usize] = Some((known.position, known.payload, known.number));
        }
        let share = checked.log.scan_share(&region, BUCKETS);
        for _ in 0..if scans { share } else { 0 } {
            let slot: &mut Option<(Position<Narrow>, _, _)> = &mut slots[next];
            *slot = slot.filter(|(position, ..)| checked.log.locate(&region, *position).is_some());
            next = (next + 1) % slots.len();
        }
        let looked_at = slots[at * 31 % slots.len()];
        if let Some((position, _, number)) = looked_at
            && checked.log.locate(&region, position).is_some()
        {
            let oldest = checked.queue.iter().find(|known| known.position == position);
            fooled += u64::from(oldest.is_none_or(|known| known.number != number));
        }
    }
    fooled
}

#[test]
fn a_scan_driven_by_the_head_finds_dangling_slots_in_time() {
    assert_eq!(dangling_slots_that_appear_alive(true), 0);
}

/// The control of the test above.
#[test]
fn control_without_a_scan_dangling_slots_appear_alive() {
    assert!(dangling_slots_that_appear_alive(false) > 0);
}

#[test]
fn a_scan_ends_within_a_quarter_of_the_positions() {
    let region = region();
    let mut checked = Checked::<Narrow>::new(&region, 64, 4, 4, 0);
    for buckets in [1, 7, 64, 1_000_003] {
        let mut scanned = 0;
        let start = checked.log.position(&region, HEAD);
        checked.log.scan_share(&region, buckets);
        let mut moved = 0;
        while moved < 1 << (Narrow::BITS - 2) {
            assert!(checked.append(7, false));
            scanned += checked.log.scan_share(&region, buckets);
            moved = checked.log.position(&region, HEAD).distance_from(start);
        }
        assert!(
            (buckets.saturating_sub(1)..=buckets + buckets / 1000 + 1).contains(&scanned),
            "{scanned} {buckets}"
        );
    }
}

#[test]
fn what_nobody_uses_is_given_back_before_anything_is_lost() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 16, 5, 0);
    // Eight entries of eight words with their tags fill a segment; the fifth segment is taken ahead.
    (0..4 * 8).for_each(|_| assert!(checked.append(7, false)));
    assert_eq!((checked.log.segments(&region), checked.live()), (5, 32));
    assert!(checked.release());
    assert_eq!((checked.log.segments(&region), checked.live()), (4, 32));
    assert!(checked.release());
    assert_eq!((checked.log.segments(&region), checked.live()), (3, 24));
    checked.check();
}

#[test]
fn what_was_evicted_is_used_again_before_more_is_taken() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 16, 4, 0);
    // The fourth segment is full, and the first was evicted for the fifth.
    (0..4 * 8).for_each(|_| assert!(checked.append(7, false)));
    assert_eq!((checked.log.segments(&region), checked.live()), (4, 24));
    let elsewhere = Offset::from_words(region.len_words() - 64);
    checked.pool.free.push(elsewhere);
    assert!(checked.append(7, false));
    assert_eq!((checked.log.segments(&region), checked.pool.free.len()), (4, 1));
    (0..7).for_each(|_| assert!(checked.append(7, false)));
    assert_eq!((checked.log.segments(&region), checked.live()), (5, 32));
    checked.check();
}

#[test]
#[should_panic(expected = "too long for its positions")]
fn a_log_is_at_most_a_quarter_of_its_positions() {
    Log::<Narrow>::create(&region(), Offset::from_words(0), 64, 1 << 13);
}
