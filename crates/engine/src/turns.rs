//! The number of a reader's attempts, and its result if writers interfere with all of them.

use crate::{candidate::Attempt, partition::Partition, places::State, reader::ATTEMPTS_MAX};
use minos_sync::Access;
use std::{sync::atomic::Ordering::Relaxed, thread, time::Duration};

/// Read attempts after the first [`ATTEMPTS_MAX`], where there is no lock.
const TURNS_MAX: u32 = 1 << 10;

/// The first of these, between which the reader only yields: the owner may still be running.
const TURNS_YIELDING: u32 = 64;

/// Sleep between the later attempts, so that all take about a second: an owner preempted for
/// longer than that is considered dead.
const PAUSE: Duration = Duration::from_millis(1);

impl<M: State, A: Access> Partition<M, A> {
    /// Repeats a lock-free read that writers may disturb, then waits for the writer's lock. `None` also if a
    /// writer does not finish, which is counted.
    #[inline]
    pub(crate) fn undisturbed<R>(&self, mut attempt: impl FnMut() -> Attempt<R>) -> Option<R> {
        for _ in 0..ATTEMPTS_MAX {
            match attempt() {
                Attempt::Found(result) => return Some(result),
                Attempt::Missing => return None,
                Attempt::Disturbed => self.was_disturbed(),
            }
        }
        self.in_turn(attempt)
    }

    /// Reads after the writer, where it can be waited for; else again, a bounded number of times.
    #[cold]
    fn in_turn<R>(&self, mut attempt: impl FnMut() -> Attempt<R>) -> Option<R> {
        self.fallbacks.fetch_add(1, Relaxed);
        let writer = A::enter_if_own(&self.writer);
        // With the lock, no writer interferes: an odd version then has no writer,
        // and stays odd until the next write.
        let turns = if writer.is_some() { 1 } else { TURNS_MAX };
        for turn in 0..turns {
            match attempt() {
                Attempt::Found(result) => return Some(result),
                Attempt::Missing => return None,
                Attempt::Disturbed => self.was_disturbed(),
            }
            if writer.is_none() {
                // An owner that does not run while it writes may need this processor.
                if turn < TURNS_YIELDING { thread::yield_now() } else { thread::sleep(PAUSE) }
            }
        }
        self.abandoned.fetch_add(1, Relaxed);
        None
    }

    #[cold]
    fn was_disturbed(&self) {
        self.retries.fetch_add(1, Relaxed);
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cache, Crcw, Crew, Engine, ItemMeta, Mode, Store, StoreConfig, StoreStats};
    use minos_base::KeyHash;
    use minos_sync::{Access, version};
    use std::{process::Command, sync::Arc, thread};

    const KEY: &[u8] = b"key";

    fn config() -> StoreConfig {
        // One chain that never splits, so that all keys are in the one whose version is odd.
        StoreConfig { partitions: Some(1), hash_mask: 0xffff, ..StoreConfig::new(8 << 20) }
    }

    /// Leaves the version of the only chain as a writer would that has died.
    fn leave_odd<M: Mode, A: Access>(engine: &Engine<M, A>) -> KeyHash {
        let (hash, region) = (engine.hash(KEY), engine.memory().region());
        let index = &engine.partition(hash).index;
        version::begin_write(region.word(index.bucket_of(region, index.buckets(region), hash)));
        hash
    }

    /// Every way to read ends, and finds nothing.
    fn every_read_ends<M: Mode, A: Access>(engine: &Arc<Engine<M, A>>) -> StoreStats {
        let hash = leave_odd(engine);
        assert!(engine.read(hash, KEY, 5, |_| ()).is_none());
        assert!(engine.pin(hash, KEY, 5).is_none());
        assert_eq!(engine.size_class(hash), None);
        engine.visit(0, 0, 1, 5, |_, _| panic!("half a write is shown"));
        engine.stats()
    }

    fn a_writer_that_has_died<M: Mode, A: Access>(engine: Engine<M, A>) {
        let engine = Arc::new(engine);
        let insert = |value: &[u8]| {
            engine.entry(engine.hash(KEY), KEY, 5).insert(&[value], ItemMeta::default()).unwrap();
        };
        insert(b"old");
        let stats = every_read_ends(&engine);
        assert_eq!((stats.read_abandoned, stats.read_fallbacks), (3, 3));
        // The next write completes the version of the unfinished one.
        insert(b"new");
        let hash = engine.hash(KEY);
        assert_eq!(engine.pin(hash, KEY, 5).unwrap().value(), b"new");
        assert_eq!(engine.stats().read_abandoned, 3);
        engine.check().unwrap();
    }

    #[test]
    fn readers_end_if_a_writer_has_died() {
        a_writer_that_has_died(Store::<Crcw>::create(&config()).unwrap());
        a_writer_that_has_died(Cache::<Crcw>::create(&config()).unwrap());
    }

    #[test]
    fn readers_end_if_an_owner_has_died() {
        let engine = Arc::new(Store::<Crew>::create(&config()).unwrap());
        let store = || {
            engine.entry(engine.hash(KEY), KEY, 5).insert(&[b"old"], ItemMeta::default()).unwrap();
        };
        thread::scope(|scope| scope.spawn(store).join().unwrap());
        assert_eq!(every_read_ends(&engine).read_abandoned, 3);
    }

    /// The variable under which the test below runs itself as a child, so that the panic ends the child.
    const CHILD: &str = "MINOS_WRITER_THAT_PANICS";

    #[test]
    fn a_panic_inside_a_write_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            let word = std::sync::atomic::AtomicU64::new(0);
            crate::versions::write::<Crcw>(&word, || panic!("inside a write"));
        }
        let name = "turns::tests::a_panic_inside_a_write_ends_the_process";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
        assert_eq!(signal, Some(6), "{child:?}");
    }
}
