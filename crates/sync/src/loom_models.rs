//! Loom models of the protocols in this crate: every interleaving, and every value that a relaxed
//! load may see, of a small case. Each has a control that must fail.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p minos-sync --release --lib loom
//! ```

mod ring;
mod sleep;
mod split;
mod tenure;
mod threads;

use crate::{PinTable, SpinLock, Unpinned, horizon, version, words};
use loom::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
    thread,
};

/// Explores with at most three preemptions a run, which is where such errors are found.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Runs `work` in a thread of its own, on what it shares with others.
fn beside<S: Send + Sync + 'static, R: 'static>(
    shared: &Arc<S>,
    work: impl FnOnce(&S) -> R + 'static,
) -> thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || work(&shared))
}

struct Pair {
    version: AtomicU64,
    data: [AtomicU64; 2],
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self { version: AtomicU64::new(0), data: [AtomicU64::new(1), AtomicU64::new(1)] })
    }

    fn write(&self, value: u64) {
        version::begin_write(&self.version);
        words::copy_in(&self.data, 0, &[value.to_ne_bytes(), value.to_ne_bytes()].concat());
        version::end_write(&self.version);
    }

    /// As [`Pair::write`], but without the fence between the odd number and the data.
    fn write_without_fence(&self, value: u64) {
        self.version.store(1, Ordering::Relaxed);
        self.data.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        self.version.store(2, Ordering::Release);
    }

    /// Both words, if they belong together.
    fn read(&self) -> Option<[u64; 2]> {
        let seen = version::begin_read(&self.version)?;
        let both = self.load();
        version::still(&self.version, seen).then_some(both)
    }

    /// As [`Pair::read`], but without looking at the version again.
    fn read_without_check(&self) -> Option<[u64; 2]> {
        version::begin_read(&self.version).map(|_| self.load())
    }

    fn load(&self) -> [u64; 2] {
        [0, 1].map(|index| self.data[index].load(Ordering::Relaxed))
    }
}

fn reader_beside_writer(write: fn(&Pair, u64), read: fn(&Pair) -> Option<[u64; 2]>) {
    explore(move || {
        let pair = Pair::new();
        let writer = beside(&pair, move |pair| write(pair, 2));
        if let Some([first, second]) = read(&pair) {
            assert_eq!(first, second, "torn");
        }
        writer.join().unwrap();
        assert_eq!(pair.read(), Some([2, 2]));
    });
}

#[test]
fn loom_version_shows_torn_reads() {
    reader_beside_writer(Pair::write, Pair::read);
}

#[test]
#[should_panic(expected = "torn")]
fn loom_control_version_without_check() {
    reader_beside_writer(Pair::write, Pair::read_without_check);
}

#[test]
#[should_panic(expected = "torn")]
fn loom_control_version_without_fence() {
    reader_beside_writer(Pair::write_without_fence, Pair::read);
}

/// A lock around a flag that is true while the chunk is free.
trait FreeChunk: Send + Sync + 'static {
    fn new() -> Self;
    fn with(&self, f: impl FnOnce(&mut bool));
}

impl FreeChunk for SpinLock<bool> {
    fn new() -> Self {
        Self::new(false)
    }

    fn with(&self, f: impl FnOnce(&mut bool)) {
        f(&mut self.lock());
    }
}

/// A lock that orders its holders, but has no release fence for threads that take no lock.
impl FreeChunk for loom::sync::Mutex<bool> {
    fn new() -> Self {
        Self::new(false)
    }

    fn with(&self, f: impl FnOnce(&mut bool)) {
        f(&mut self.lock().unwrap());
    }
}

/// One thread unlinks a chunk and frees it under a lock; another takes it under the same lock and writes
/// to it; a reader that still had the offset must notice.
fn reuse_by_another_thread<L: FreeChunk>() {
    explore(|| {
        let shared = Arc::new((AtomicU64::new(0), AtomicU64::new(1), L::new()));
        let unlinker = beside(&shared, |(version, _, is_free)| {
            is_free.with(|is_free| {
                version::begin_write(version);
                version::end_write(version);
                *is_free = true;
            });
        });
        let taker = beside(&shared, |(_, chunk, is_free)| {
            is_free.with(|is_free| {
                if std::mem::take(is_free) {
                    chunk.store(2, Ordering::Relaxed);
                }
            });
        });
        let (version, chunk, _) = &*shared;
        if let Some(seen) = version::begin_read(version) {
            let value = chunk.load(Ordering::Relaxed);
            if seen_before_unlinking(version, seen) {
                assert_eq!(value, 1, "stale");
            }
        }
        unlinker.join().unwrap();
        taker.join().unwrap();
    });
}

/// True if the chunk stayed linked: the version is the first one, and did not change.
fn seen_before_unlinking(version: &AtomicU64, seen: version::Seen) -> bool {
    fence(Ordering::Acquire);
    seen == version::begin_read(&AtomicU64::new(0)).unwrap() && version.load(Ordering::Relaxed) == 0
}

#[test]
fn loom_memory_from_another_writer_is_noticed() {
    reuse_by_another_thread::<SpinLock<bool>>();
}

#[test]
#[should_panic(expected = "stale")]
fn loom_control_lock_without_fence() {
    reuse_by_another_thread::<loom::sync::Mutex<bool>>();
}

#[test]
fn loom_lock_excludes() {
    explore(|| {
        let lock = Arc::new(SpinLock::new(0));
        let other = beside(&lock, |lock| *lock.lock() += 1);
        if let Some(mut value) = lock.try_lock() {
            *value += 1;
        } else {
            *lock.lock() += 1;
        }
        other.join().unwrap();
        assert_eq!(*lock.lock(), 2);
    });
}

/// A chunk with readers under pins, and a writer that retires it. `retire`
/// returns true if it may be reused at once.
fn pinned_chunk(retire: fn(&mut PinTable) -> bool) {
    const CHUNK: u64 = 64;
    explore(move || {
        let shared = Arc::new((SpinLock::new((PinTable::default(), true)), AtomicU64::new(1)));
        let reader = beside(&shared, |(lock, chunk)| {
            let pin = {
                let mut guard = lock.lock();
                let (pins, is_linked) = &mut *guard;
                if !*is_linked {
                    return;
                }
                pins.pin(CHUNK)
            };
            assert_eq!(chunk.load(Ordering::Relaxed), 1, "overwritten while pinned");
            if lock.lock().0.unpin(&pin) == Unpinned::Retired {
                chunk.store(2, Ordering::Relaxed);
            }
        });
        let (lock, chunk) = &*shared;
        {
            let mut guard = lock.lock();
            guard.1 = false;
            if retire(&mut guard.0) {
                chunk.store(2, Ordering::Relaxed);
            }
        }
        reader.join().unwrap();
        assert!(lock.lock().0.is_empty());
        assert_eq!(chunk.load(Ordering::Relaxed), 2, "the memory was lost");
    });
}

#[test]
fn loom_pinned_memory_is_not_given_away() {
    pinned_chunk(|pins| !pins.retire(64));
}

#[test]
#[should_panic(expected = "overwritten while pinned")]
fn loom_control_pins_ignored() {
    pinned_chunk(|_| true);
}

/// A log of two segments of one word: entry n lies in segment n modulo 2 and holds n; the horizon is the
/// number of the first entry that is alive.
struct TwoSegments {
    horizon: AtomicU64,
    segments: [AtomicU64; 2],
}

impl TwoSegments {
    fn new() -> Self {
        Self { horizon: AtomicU64::new(0), segments: [AtomicU64::new(0), AtomicU64::new(1)] }
    }

    /// Evicts entry 0 and writes entry 2 where it lay.
    fn append(&self) {
        horizon::raise(&self.horizon, 1);
        self.segments[0].store(2, Ordering::Relaxed);
    }

    /// As [`TwoSegments::append`], but the eviction is published when the memory was already used.
    fn append_before_evicting(&self) {
        self.segments[0].store(2, Ordering::Relaxed);
        horizon::raise(&self.horizon, 1);
    }

    /// As [`TwoSegments::append`], but without the fence behind the horizon.
    fn append_without_fence(&self) {
        self.horizon.store(1, Ordering::Relaxed);
        self.segments[0].store(2, Ordering::Relaxed);
    }

    /// Entry 0, if it was there until its bytes were copied.
    fn read(&self) -> Option<u64> {
        let copied = self.copy()?;
        (horizon::look_again(&self.horizon) == 0).then_some(copied)
    }

    /// As [`TwoSegments::read`], but without the second check.
    fn copy(&self) -> Option<u64> {
        (horizon::look(&self.horizon) == 0).then(|| self.segments[0].load(Ordering::Relaxed))
    }
}

fn reader_beside_appender(append: fn(&TwoSegments), read: fn(&TwoSegments) -> Option<u64>) {
    explore(move || {
        let log = Arc::new(TwoSegments::new());
        let writer = beside(&log, move |log| append(log));
        if let Some(value) = read(&log) {
            assert_eq!(value, 0, "of another entry");
        }
        writer.join().unwrap();
        assert_eq!(log.read(), None);
        assert_eq!(log.segments[1].load(Ordering::Relaxed), 1);
    });
}

#[test]
fn loom_readers_notice_that_an_entry_was_evicted() {
    reader_beside_appender(TwoSegments::append, TwoSegments::read);
}

#[test]
#[should_panic(expected = "of another entry")]
fn loom_control_horizon_after_overwriting() {
    reader_beside_appender(TwoSegments::append_before_evicting, TwoSegments::read);
}

#[test]
#[should_panic(expected = "of another entry")]
fn loom_control_horizon_without_fence() {
    reader_beside_appender(TwoSegments::append_without_fence, TwoSegments::read);
}

#[test]
#[should_panic(expected = "of another entry")]
fn loom_control_horizon_without_second_look() {
    reader_beside_appender(TwoSegments::append, TwoSegments::copy);
}

/// The evicted segment goes through a lock to a thread that uses it for something else.
fn evicted_segment_in_other_hands<L: FreeChunk>() {
    explore(|| {
        let shared = Arc::new((TwoSegments::new(), L::new()));
        let evictor = beside(&shared, |(log, is_free)| {
            horizon::raise(&log.horizon, 1);
            is_free.with(|is_free| *is_free = true);
        });
        let taker = beside(&shared, |(log, is_free)| {
            is_free.with(|is_free| {
                if std::mem::take(is_free) {
                    log.segments[0].store(2, Ordering::Relaxed);
                }
            });
        });
        if let Some(value) = shared.0.read() {
            assert_eq!(value, 0, "of another entry");
        }
        evictor.join().unwrap();
        taker.join().unwrap();
    });
}

#[test]
fn loom_evicted_memory_in_other_hands_is_noticed() {
    evicted_segment_in_other_hands::<SpinLock<bool>>();
}

#[test]
#[should_panic(expected = "of another entry")]
fn loom_control_evicted_memory_through_a_lock_without_fence() {
    evicted_segment_in_other_hands::<loom::sync::Mutex<bool>>();
}
