//! Tiny traces that were solved by hand, and relations that hold on every trace.

use super::*;

/// The keys as letters; a capital is a hit.
fn run(policy: &mut impl EvictionPolicy, keys: &str, bytes: u64) -> String {
    keys.chars()
        .map(|key| if policy.request(key as u64, bytes) { key.to_ascii_uppercase() } else { key })
        .collect()
}

fn fifo(capacity_bytes: u64) -> Log {
    Log::new(capacity_bytes, Reinsert::Never)
}

#[test]
fn fifo_evicts_what_was_stored_first() {
    // The hits on a do not save it from d.
    assert_eq!(run(&mut fifo(30), "abcaadabc", 10), "abcAAdabc");
    assert_eq!(run(&mut fifo(30), "abcdbcd", 10), "abcdBCD");
}

#[test]
fn lru_evicts_what_was_asked_for_least_recently() {
    // d evicts b, b evicts c, c evicts a, which d has made the oldest.
    assert_eq!(run(&mut Lru::new(30), "abcadbdca", 10), "abcAdbDca");
    assert_eq!(run(&mut Lru::new(30), "abcabcd", 10), "abcABCd");
}

#[test]
fn clock_spares_what_was_asked_for_since_the_hand_came_by() {
    // The hand spares a, evicts b for d; then for b it comes to c; the queue is a d b.
    assert_eq!(run(&mut Clock::new(30), "abcadbad", 10), "abcAdbAD");
    // All were asked for: the hand goes round once and evicts a.
    assert_eq!(run(&mut Clock::new(30), "abcabcdbca", 10), "abcABCdBCa");
}

#[test]
fn a_log_that_always_reinserts_holds_the_last_requests() {
    // Four places: a b a b are the last four requests, the copies included; so c pushes out only copies.
    let mut log = Log::new(40, Reinsert::Always);
    assert_eq!(run(&mut log, "ababcd", 10), "abABcd");
    assert_eq!(log.len(), 4);
    // Three more copies of d: of all others only d's predecessor is left.
    assert_eq!(run(&mut log, "dddc", 10), "DDDc");
    assert_eq!(log.len(), 2);
}

#[test]
fn approximate_lru_reinserts_only_what_is_closer_to_the_head() {
    // Positions a 0, b 10, c 20, d 30, tail 40. c and d are no closer to the head and stay. b is 10 from the
    // head and 30 from the tail: it moves, which evicts a.
    let mut log = Log::new(40, Reinsert::CloserToHead);
    assert_eq!(run(&mut log, "abcdcdb", 10), "abcdCDB");
    assert!(!log.contains(u64::from(b'a')) && log.len() == 3);
    // Head 10, tail 50: b's old copy at 10 is dropped, then c at 20, then d.
    assert_eq!(run(&mut log, "e", 10), "e");
    assert!(log.contains(u64::from(b'b')) && log.contains(u64::from(b'c')));
    assert_eq!(run(&mut log, "f", 10), "f");
    assert!(!log.contains(u64::from(b'c')) && log.contains(u64::from(b'd')));
}

#[test]
fn what_is_in_the_tail_segment_stays_there() {
    // Segments of two: b is next to the tail (20) but in the segment before; then c in the same one as its tail.
    let mut log = Log::new(40, Reinsert::OutsideTailSegment { segment_bytes: 20 });
    assert_eq!(run(&mut log, "ab", 10), "ab");
    assert_eq!(run(&mut log, "b", 10), "B");
    // a 0, the old b 10, b 20, tail 30: b stays, a goes to 30.
    assert_eq!(run(&mut log, "ba", 10), "BA");
    // Tail 40: c takes the place of the old a, d that of the old b, e that of b.
    assert_eq!(run(&mut log, "cdeab", 10), "cdeAb");
}

#[test]
fn an_item_at_the_head_survives_its_own_reinsertion() {
    let mut log = Log::new(20, Reinsert::CloserToHead);
    assert_eq!(run(&mut log, "abaaca", 10), "abAAcA");
}

#[test]
fn sizes_count() {
    let mut log = fifo(100);
    assert!(!log.request(1, 60) && !log.request(2, 40) && log.request(1, 60));
    // One byte more than is left evicts one item, and that is enough.
    assert!(!log.request(3, 1) && !log.contains(1) && log.contains(2));
    let mut lru = Lru::new(100);
    assert!(!lru.request(1, 50) && !lru.request(2, 50) && lru.request(1, 50));
    assert!(!lru.request(3, 51) && !lru.contains(1) && !lru.contains(2) && lru.contains(3));
    let mut clock = Clock::new(100);
    assert!(!clock.request(1, 50) && !clock.request(2, 50) && !clock.request(3, 51));
    assert!(!clock.contains(1) && !clock.contains(2) && clock.contains(3));
}

#[test]
fn what_is_larger_than_the_cache_leaves_it_alone() {
    let mut policies: [Box<dyn EvictionPolicy>; 3] =
        [Box::new(fifo(10)), Box::new(Lru::new(10)), Box::new(Clock::new(10))];
    for policy in &mut policies {
        assert!(!policy.request(1, 10) && !policy.request(2, 11) && !policy.request(2, 11));
        assert!(policy.request(1, 10));
    }
}

/// 4000 keys of 40 to 103 bytes in a cache for a tenth of them.
fn ratio(policy: impl FnOnce(u64) -> Box<dyn EvictionPolicy>) -> f64 {
    let bytes_of = |key: u64| 40 + key % 64;
    let mut policy = policy(trace_bytes(4000, bytes_of) / 10);
    let trace = ZipfTrace::new(4000, 0.99, 7, bytes_of).unwrap().take(200_000);
    hit_ratio(&mut policy, trace, 20_000)
}

#[test]
fn policies_rank_as_they_are_known_to() {
    let log = |reinsert| ratio(|bytes| Box::new(Log::new(bytes, reinsert)));
    let (fifo, always, closer) = (log(Reinsert::Never), log(Reinsert::Always), log(Reinsert::CloserToHead));
    let (lru, clock) = (ratio(|bytes| Box::new(Lru::new(bytes))), ratio(|bytes| Box::new(Clock::new(bytes))));
    assert!(fifo + 0.02 < lru && fifo + 0.02 < clock);
    assert!(always < closer && closer < lru);
}

#[test]
fn traces_repeat_and_follow_their_law() {
    let trace = || ZipfTrace::new(100, 1.0, 3, |key| key + 1).unwrap().take(50_000).collect::<Vec<_>>();
    let requests = trace();
    assert_eq!(requests, trace());
    // Of 100 keys with theta 1, the first has 1 / H(100) of the requests, the first three 11/6 as many.
    let share = |keys| requests.iter().filter(|request| request.key < keys).count() as f64 / 50_000.0;
    assert!((share(1) - 0.193).abs() < 0.01 && (share(3) - 0.353).abs() < 0.01, "{} {}", share(1), share(3));
    assert!(requests.iter().all(|request| request.key < 100 && request.bytes == request.key + 1));
    assert!(ZipfTrace::new(0, 1.0, 3, |_| 1).is_err());
}

#[test]
fn a_ratio_counts_from_the_end_of_the_warm_up() {
    let requests = [1, 2, 1, 2].map(|key| Request { key, bytes: 1 });
    assert_eq!(hit_ratio(&mut Lru::new(2), requests, 0), 0.5);
    assert_eq!(hit_ratio(&mut Lru::new(2), requests, 2), 1.0);
    assert_eq!(hit_ratio(&mut Lru::new(2), requests, 4), 0.0);
}
