//! Readers without a lock run beside a writer that evicts all the time and
//! a thread that reuses freed segments.
//!
//! The control is the same test with readers that do not check the head again; it must fail then:
//!
//! ```text
//! MINOS_LEFT_OUT=version-check cargo test -p minos-engine --lib readers_see
//! ```

use super::{checked::*, *};
use crate::position::Wide;
use minos_sync::SpinLock;
use std::{
    sync::{
        LazyLock,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread,
};

const SEGMENT_WORDS: u64 = 64;
const APPENDS_MIN: u64 = 400_000;

/// The writer continues until this many readers were late, or [`APPENDS_MAX`] is reached.
const LATE_MIN: u64 = 200;
const APPENDS_MAX: u64 = 200 * APPENDS_MIN;
const SLOTS: u64 = 8;

/// Least words of an entry; its words encode its position.
const WORDS_MIN: u64 = 4;

/// Segments behind a lock, as the region's heap has them.
struct SharedPool<'a, 'b>(&'b SpinLock<Pool<'a>>);

impl Segments for SharedPool<'_, '_> {
    fn take(&mut self) -> Option<Offset> {
        self.0.lock().take()
    }

    fn give_back(&mut self, segment: Offset) {
        self.0.lock().give_back(segment);
    }

    fn words(&self) -> u64 {
        SEGMENT_WORDS
    }

    fn is_scarce(&self) -> bool {
        true
    }
}

/// State shared by the threads of the test.
struct Stress<'a> {
    region: &'a Region,
    log: Log<Wide>,
    pool: SpinLock<Pool<'a>>,
    slots: [AtomicU64; SLOTS as usize],
    done: AtomicBool,
    found: AtomicU64,
    late: AtomicU64,
    wrong: AtomicU64,
}

impl Stress<'_> {
    /// Appends, links each position in a slot, and sometimes gives a segment away.
    fn write(&self) {
        let Self { region, log, .. } = self;
        let mut pool = SharedPool(&self.pool);
        for at in 0..APPENDS_MAX {
            if at > APPENDS_MIN && self.late.load(Relaxed) + self.wrong.load(Relaxed) > LATE_MIN {
                break;
            }
            let words = WORDS_MIN + at % 5;
            // None while the other thread has all segments.
            if let Some((position, payload)) = log.append(region, &mut pool, words, &mut |_| ()) {
                fill(region, payload, words, position.words());
                self.slots[(at % SLOTS) as usize].store(position.words(), Release);
            }
            if at % 50 == 0 {
                log.release_head(region, &mut pool, &mut |_| ());
            }
        }
        self.done.store(true, Release);
    }

    /// Follows slots until the writer is done, and now and then sleeps before it copies.
    fn read(&self) {
        for round in 0u64.. {
            let slot = &self.slots[(round % SLOTS) as usize];
            let position = Position::from_words(slot.load(Acquire));
            if position.words() != 0 {
                self.read_one(position, round % 61 == 0);
            }
            if self.done.load(Acquire) {
                break;
            }
        }
    }

    fn read_one(&self, position: Position<Wide>, sleeps: bool) {
        let Some(payload) = self.log.locate(self.region, position) else { return };
        if sleeps {
            thread::yield_now();
        }
        let words = self.region.array::<{ WORDS_MIN as usize }>(payload);
        let copied = [0, 1, 2, 3].map(|at| words[at].load(Relaxed));
        let is_right = copied == [0, 1, 2, 3].map(|at| pattern(position.words(), at));
        let count = match (self.log.is_there(self.region, position), is_right) {
            (true, true) => &self.found,
            (true, false) => &self.wrong,
            (false, _) => &self.late,
        };
        count.fetch_add(1, Relaxed);
    }

    /// Writes to free segments under the lock, as another owner would.
    fn use_otherwise(&self) {
        while !self.done.load(Acquire) {
            let mut pool = self.pool.lock();
            if let Some(segment) = pool.take() {
                pool.give_back(segment);
            }
            drop(pool);
            thread::yield_now();
        }
    }
}

static REGION: LazyLock<Region> = LazyLock::new(region);

/// Static, because ThreadSanitizer takes the end of a scope of threads for a race.
static STRESS: LazyLock<Stress<'_>> = LazyLock::new(|| Stress {
    region: &REGION,
    log: Log::create(&REGION, Offset::from_words(0), SEGMENT_WORDS, 4),
    pool: SpinLock::new(Pool::new(&REGION, SEGMENT_WORDS, 4)),
    slots: [(); SLOTS as usize].map(|()| AtomicU64::new(0)),
    done: AtomicBool::new(false),
    found: AtomicU64::new(0),
    late: AtomicU64::new(0),
    wrong: AtomicU64::new(0),
});

#[test]
fn readers_see_what_was_appended_or_nothing() {
    let stress = &*STRESS;
    let readers = [(); 2].map(|()| thread::spawn(|| stress.read()));
    let other = thread::spawn(|| stress.use_otherwise());
    stress.write();
    readers.into_iter().chain([other]).for_each(|thread| thread.join().unwrap());
    let [found, late, wrong] = [&stress.found, &stress.late, &stress.wrong].map(|count| count.load(Relaxed));
    assert_eq!(wrong, 0, "of {found} entries read");
    assert!(found > 0 && late > LATE_MIN, "inconclusive: {found} read, {late} too late");
}
