//! Logs that are found again, whole or broken.

use super::{
    checked::{Checked, POISON, Pool, region, sizes},
    *,
};
use crate::position::{Narrow, Wide};

#[test]
fn a_log_is_found_again_and_what_is_none_is_refused() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 8, 5, 0);
    checked.append_many(300);
    let open = |segment_words, table_len| {
        Log::<Wide>::open(&region, Offset::from_words(0), segment_words, table_len)
    };
    assert!(open(64, 8).is_some());
    assert!(open(128, 8).is_none() && open(64, 4).is_none());
    assert!(Log::<Narrow>::open(&region, Offset::from_words(0), 64, 8).is_none());
    let table = region.word(checked.log.table_place(checked.log.position(&region, HEAD)));
    for word in
        [HEAD, FIRST, END, TAIL, WALKED].map(|at| checked.log.word(&region, at)).into_iter().chain([table])
    {
        let kept = word.swap(kept_wrong(word.load(Relaxed)), Relaxed);
        assert!(open(64, 8).is_none(), "{kept}");
        word.store(kept, Relaxed);
    }
    assert!(open(64, 8).is_some());
}

#[test]
fn positions_out_of_order_are_refused() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 4, 4, 1000 * 64);
    checked.append_many(300);
    let log = checked.log;
    let [first, head, tail, end] = [FIRST, HEAD, TAIL, END].map(|at| log.position(&region, at));
    let wrong = [
        (HEAD, first.minus(64)),
        (HEAD, end.plus(64)),
        (HEAD, head.plus(1)),
        (WALKED, head.plus(1)),
        (TAIL, end.plus(1)),
        (TAIL, head.minus(1)),
        (END, tail.minus(log.in_segment(tail))),
        (END, end.plus(64)),
        (FIRST, end.minus(5 * 64)),
    ];
    for (at, position) in wrong {
        let kept = log.position(&region, at);
        log.set(&region, at, position);
        assert!(Log::<Wide>::open(&region, log.start, 64, 4).is_none(), "{at} {position:?}");
        log.set(&region, at, kept);
        assert!(Log::<Wide>::open(&region, log.start, 64, 4).is_some());
    }
}

#[test]
fn a_tail_within_an_entry_is_noticed() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 2, 2, 0);
    (0..5).for_each(|_| assert!(checked.append(7, false)));
    let tail = checked.log.position(&region, TAIL);
    // Bytes behind the tail may look like entries.
    fill_with(&region, checked.queue[4].payload.plus(7), Tag::entry(7).0);
    for wrong in [tail.minus(1), tail.minus(7), tail.plus(1)] {
        checked.log.set(&region, TAIL, wrong);
        let mut listed = 0;
        assert!(!checked.log.live_entries(&region, |_| listed += 1));
        assert!(listed <= 6, "went on behind the tail");
    }
    checked.log.set(&region, TAIL, tail);
    assert!(checked.log.live_entries(&region, |_| ()));
}

fn fill_with(region: &Region, start: Offset, word: u64) {
    region.words(start, 64).iter().for_each(|at| at.store(word, Relaxed));
}

#[test]
fn a_log_that_was_not_used_yet_is_found_again() {
    let region = region();
    let log = Log::<Wide>::create(&region, Offset::from_words(0), 64, 8);
    let mut pool = Pool::new(&region, 64, 8);
    for segments in 0..=8 {
        assert!(Log::<Wide>::open(&region, log.start, 64, 8).is_some(), "{segments} segments");
        assert_eq!(log.extend(&region, &mut pool), segments < 8);
    }
    for _ in 0..100 {
        assert!(log.append(&region, &mut pool, 8, &mut |_| panic!("evicted too early")).is_some());
        assert_eq!(log.segments(&region), 8);
        if log.used_words(&region) > 7 * 64 {
            break;
        }
    }
}

/// Another number, too large for a position and for an offset.
fn kept_wrong(word: u64) -> u64 {
    word | 1 << 60
}

#[test]
fn broken_tags_are_noticed_and_harm_nobody() {
    let region = region();
    let mut checked = Checked::<Wide>::new(&region, 64, 8, 5, 0);
    checked.append_many(300);
    let live: Vec<_> =
        checked.queue.iter().filter(|k| checked.log.locate(&region, k.position).is_some()).collect();
    let tag = region.word(live[live.len() / 2].payload.minus(1));
    for garbage in [0, u64::MAX, Tag::entry(1 << 20).0, Tag::filler(64).0, POISON] {
        tag.store(garbage, Relaxed);
        assert!(!checked.log.live_entries(&region, |_| ()), "{garbage:x}");
    }
    let mut pool = Pool { region: &region, words: 64, free: Vec::new() };
    for words in sizes().take(2000) {
        assert!(checked.log.append(&region, &mut pool, words, &mut |_| ()).is_some());
    }
    assert!(checked.log.live_entries(&region, |_| ()));
}
