//! A spin lock.

use crate::facade::{AtomicU32, Ordering, UnsafeCell, fence, spin_loop, yield_now};
use std::{
    fmt,
    ops::{Deref, DerefMut},
};

/// Turns of a waiting loop before the waiter lets other threads run.
///
/// The holder may have been preempted, and on a machine with few cores it then needs the waiter's.
const SPINS_MAX: u32 = if cfg!(loom) { 1 } else { 64 };

/// A lock around a value, held for moments only.
///
/// A waiter spins for a bounded number of turns and then yields its time slice each turn. The first waiter to
/// try after an unlock gets the lock. Order of arrival would be fairer, but with more threads than processors
/// a preempted waiter would block all those behind it.
///
/// The holder's relaxed atomic writes for lock-free readers are ordered after the writes that earlier
/// holders published: locking ends with a release fence (see [`SpinLock::lock`]).
pub struct SpinLock<T> {
    is_locked: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, and there is one guard at a time.
unsafe impl<T: Send> Send for SpinLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// An open lock around `value`.
    pub fn new(value: T) -> Self {
        Self { is_locked: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock, when it is open.
    ///
    /// The release fence at the end is for optimistic readers: memory that an earlier holder
    /// unlinked (and announced by a version) may be written by this one. A reader that sees such a
    /// write, and then fences, also sees the version that makes it throw its result away, though
    /// the write is relaxed and the announcement was made by another thread.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        let mut spins = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            // Polled without writing, so that the cache line stays with the holder of the lock.
            while self.is_locked() {
                wait(&mut spins);
            }
        }
    }

    /// Takes the lock if it is open.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        // Acquire: pairs with the release of the holder before.
        self.is_locked.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        fence(Ordering::Release);
        Some(SpinGuard { lock: self })
    }

    /// True if the lock is held, or was a moment ago. A hint.
    pub fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Relaxed) != 0
    }
}

fn wait(spins: &mut u32) {
    if *spins < SPINS_MAX {
        *spins += 1;
        spin_loop();
    } else {
        yield_now();
    }
}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinLock").field("locked", &self.is_locked()).finish_non_exhaustive()
    }
}

/// Exclusive access to the value of a [`SpinLock`], until dropped.
#[derive(Debug)]
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only one, so no other thread writes while it lends the value.
        self.lock.value.with_mut(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the only one and lends the value once.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: the next holder sees this one's writes.
        self.lock.is_locked.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn one_holder_at_a_time() {
        let lock = SpinLock::new(0u64);
        let count = || {
            for _ in 0..5_000 {
                let mut value = lock.lock();
                let seen = *value;
                *value = seen + 1;
            }
        };
        thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(count));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(*lock.lock(), 20_000);
    }

    /// The control of ThreadSanitizer runs: the value changes hands without the lock.
    #[test]
    #[ignore = "an error on purpose, for ThreadSanitizer to report"]
    fn control_a_race_is_reported() {
        let lock = SpinLock::new(0u64);
        let race = || {
            let lock = &lock;
            for _ in 0..5_000 {
                // SAFETY: none, this is the error; only run to see it reported.
                lock.value.with_mut(|value| unsafe { *value = std::hint::black_box(*value + 1) });
            }
        };
        thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(race));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert!(*lock.lock() > 0);
    }

    #[test]
    fn trying_never_waits() {
        let lock = SpinLock::new(());
        let held = lock.try_lock().unwrap();
        assert!(lock.is_locked() && lock.try_lock().is_none());
        drop(held);
        assert!(!lock.is_locked() && lock.try_lock().is_some());
    }
}
