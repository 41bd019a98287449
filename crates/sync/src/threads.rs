//! A cell that belongs to the thread that opened it first, without a lock.

use crate::facade::{AtomicU64, Ordering, UnsafeCell, fence};
use std::{
    cell::Cell,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::atomic,
};

/// The number of no thread, and not that of one without a number either.
const NOBODY: u64 = u64::MAX;

/// A value that one thread may change: the first that enters the cell, until it gives the cell up.
///
/// Opening it costs a comparison. Access is exclusive because the cell knows its thread, and that thread opens it once
/// at a time.
pub struct ThreadCell<T> {
    value: UnsafeCell<T>,
    /// True while there is a guard. Only the owner looks at it.
    is_open: Cell<bool>,
    /// The number of the owner, or [`NOBODY`].
    owner: AtomicU64,
}

// SAFETY: the owner alone reaches value and flag, and the owner changes only through `give_up` and the exchange in
// `claim`, which order all that one owner did before all that the next one does.
unsafe impl<T: Send> Sync for ThreadCell<T> {}

impl<T> ThreadCell<T> {
    /// A cell without an owner.
    pub fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value), is_open: Cell::new(false), owner: AtomicU64::new(NOBODY) }
    }

    /// True if the cell is this thread's.
    #[inline]
    pub fn is_own(&self) -> bool {
        // Relaxed: a thread that finds its own number has stored it itself. One without a number owns nothing.
        self.owner.load(Ordering::Relaxed) == THREAD.with(Cell::get)
    }

    /// Opens the cell; `None` if it is not this thread's, or open.
    ///
    /// It ends with a release fence for optimistic readers, as [`crate::SpinLock::lock`] does: the owner may write to
    /// memory that the owner before, or another partition's, has unlinked.
    #[inline]
    pub fn try_enter(&self) -> Option<ThreadGuard<'_, T>> {
        if !self.is_own() || self.is_open.replace(true) {
            return None;
        }
        fence(Ordering::Release);
        Some(ThreadGuard { cell: self, stays: PhantomData })
    }

    /// As [`try_enter`](Self::try_enter), for a thread that must be the owner. A cell without one becomes this thread's.
    ///
    /// # Panics
    /// If the cell is another thread's, or open.
    #[inline]
    pub fn enter(&self) -> ThreadGuard<'_, T> {
        self.try_enter().unwrap_or_else(|| self.claim())
    }

    /// Leaves the cell to the next thread that opens it. Does nothing if it is another thread's, or open.
    pub fn give_up(&self) {
        if self.is_own() && !self.is_open.get() {
            // Release: the next owner sees what this one has done.
            self.owner.store(NOBODY, Ordering::Release);
        }
    }

    #[cold]
    fn claim(&self) -> ThreadGuard<'_, T> {
        // Acquire: see `give_up`.
        let claimed =
            self.owner.compare_exchange(NOBODY, this_thread(), Ordering::Acquire, Ordering::Relaxed);
        assert!(claimed.is_ok(), "the cell is another thread's, or open");
        self.try_enter().expect("nobody else can open it")
    }
}

/// The last number given to a thread. Not loom's: only uniqueness matters.
static LAST_THREAD: atomic::AtomicU64 = atomic::AtomicU64::new(0);

#[cfg(not(loom))]
thread_local! {
    /// The number of this thread, which no other ever has; 0 before the first look.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}
#[cfg(loom)]
loom::thread_local! {
    static THREAD: Cell<u64> = Cell::new(0);
}

#[inline]
fn this_thread() -> u64 {
    match THREAD.with(Cell::get) {
        0 => number_thread(),
        number => number,
    }
}

#[cold]
fn number_thread() -> u64 {
    let number = LAST_THREAD.fetch_add(1, atomic::Ordering::Relaxed) + 1;
    THREAD.with(|thread| thread.set(number));
    number
}

impl<T> std::fmt::Debug for ThreadCell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadCell").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// Exclusive access to the value of a [`ThreadCell`], until dropped. It stays on its thread.
pub struct ThreadGuard<'a, T> {
    cell: &'a ThreadCell<T>,
    stays: PhantomData<*const ()>,
}

impl<T> Drop for ThreadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.cell.is_open.set(false);
    }
}

impl<T> Deref for ThreadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this thread owns the cell, and the flag lets it have no other guard.
        self.cell.value.with_mut(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for ThreadGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and this guard is borrowed mutably.
        self.cell.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for ThreadGuard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ThreadGuard").field(&**self).finish()
    }
}

#[cfg(all(test, loom))]
impl<T> ThreadCell<T> {
    /// True if the cell has no owner.
    pub(crate) fn is_free(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == NOBODY
    }

    /// As [`ThreadCell::enter`] of a cell without an owner, without the fence that readers rely on.
    pub(crate) fn enter_without_fence(&self) -> ThreadGuard<'_, T> {
        let claimed =
            self.owner.compare_exchange(NOBODY, this_thread(), Ordering::Acquire, Ordering::Relaxed);
        assert!(claimed.is_ok() && !self.is_open.replace(true));
        ThreadGuard { cell: self, stays: PhantomData }
    }

    /// As [`ThreadCell::give_up`], without the order that the next owner relies on.
    pub(crate) fn give_up_without_order(&self) {
        self.owner.store(NOBODY, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_cell_belongs_to_the_thread_that_opened_it_until_it_is_given_up() {
        let cell = ThreadCell::new(0u64);
        *cell.enter() += 1;
        thread::scope(|scope| {
            let other = || (cell.is_own(), cell.try_enter().is_some());
            assert_eq!(scope.spawn(other).join().unwrap(), (false, false));
            let give_up = || cell.give_up();
            scope.spawn(give_up).join().unwrap();
            // It was not that thread's to give.
            assert!(cell.is_own());
            cell.give_up();
            assert_eq!(scope.spawn(|| *cell.enter()).join().unwrap(), 1);
        });
        assert!(cell.try_enter().is_none(), "the thread that has ended owns it still");
    }

    #[test]
    fn a_cell_is_open_once() {
        let cell = ThreadCell::new(0);
        let guard = cell.enter();
        assert!(cell.try_enter().is_none());
        cell.give_up();
        drop(guard);
        assert!(cell.is_own() && cell.try_enter().is_some());
    }

    #[test]
    fn another_thread_must_not_open_a_cell() {
        let cell = ThreadCell::new(0);
        drop(cell.enter());
        let other = thread::scope(|scope| scope.spawn(|| *cell.enter()).join());
        assert!(other.is_err());
    }
}
