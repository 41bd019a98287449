//! MICA's modes of data access to a partition, as types (MICA §4.1.2).
//!
//! Code that a mode does not need is not compiled: EREW keeps no versions, EREW and CREW compare the number of the thread
//! instead of taking a lock, CRCW has a lock for each partition.

use crate::{
    lock::{SpinGuard, SpinLock},
    threads::{ThreadCell, ThreadGuard},
};
use std::{fmt::Debug, ops::DerefMut};

/// A mode of data access.
pub trait Access: Debug + Send + Sync + Sized + 'static {
    /// Its name on the command line.
    const NAME: &'static str;

    /// True if other threads may read a writer's partition, so that versions are kept.
    const IS_SHARED: bool;

    /// True if a partition belongs to one thread, the first that opens its cell.
    const IS_BY_THREAD: bool;

    /// The cell that holds the state of one partition's writers.
    type Cell<T: Debug + Send>: Debug + Send + Sync;

    /// Exclusive access to a [`Access::Cell`].
    type Guard<'a, T: Debug + Send + 'a>: DerefMut<Target = T> + Debug
    where
        Self: 'a;

    /// A cell that no thread has opened yet.
    fn cell<T: Debug + Send>(value: T) -> Self::Cell<T>;

    /// Opens the cell once it is free. One without an owner becomes this thread's, where each is one thread's.
    ///
    /// # Panics
    /// If it is another thread's.
    fn enter<T: Debug + Send>(cell: &Self::Cell<T>) -> Self::Guard<'_, T>;

    /// Opens the cell; `None` if it is open already, or belongs to no thread or another one.
    fn try_enter<T: Debug + Send>(cell: &Self::Cell<T>) -> Option<Self::Guard<'_, T>>;

    /// Opens the cell once it is free; `None` if it belongs to no thread or another one. Where no other thread opens it,
    /// there is nothing to wait for.
    #[inline]
    fn enter_if_own<T: Debug + Send>(cell: &Self::Cell<T>) -> Option<Self::Guard<'_, T>> {
        Self::try_enter(cell)
    }

    /// True if the calling thread may read the partition of this cell.
    #[inline(always)]
    fn may_read<T: Debug + Send>(_: &Self::Cell<T>) -> bool {
        true
    }

    /// Leaves the cell to the next thread that opens it, if it belongs to the calling one.
    fn give_up<T: Debug + Send>(_: &Self::Cell<T>) {}
}

/// Exclusive reads, exclusive writes: a partition's owner does everything, and keeps no versions.
pub type Erew = ByThread<false>;

/// Concurrent reads, exclusive writes: each partition has one writing thread, its owner.
pub type Crew = ByThread<true>;

/// A partition belongs to the first thread that opens it; others read it if `IS_READ` is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByThread<const IS_READ: bool>;

/// Concurrent reads, concurrent writes: any thread writes, in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crcw;

impl<const IS_READ: bool> Access for ByThread<IS_READ> {
    const NAME: &'static str = if IS_READ { "crew" } else { "erew" };
    const IS_SHARED: bool = IS_READ;
    const IS_BY_THREAD: bool = true;
    type Cell<T: Debug + Send> = ThreadCell<T>;
    type Guard<'a, T: Debug + Send + 'a> = ThreadGuard<'a, T>;

    fn cell<T: Debug + Send>(value: T) -> ThreadCell<T> {
        ThreadCell::new(value)
    }

    #[inline]
    fn enter<T: Debug + Send>(cell: &ThreadCell<T>) -> ThreadGuard<'_, T> {
        cell.enter()
    }

    #[inline]
    fn try_enter<T: Debug + Send>(cell: &ThreadCell<T>) -> Option<ThreadGuard<'_, T>> {
        cell.try_enter()
    }

    #[inline(always)]
    fn may_read<T: Debug + Send>(cell: &ThreadCell<T>) -> bool {
        IS_READ || cell.is_own()
    }

    fn give_up<T: Debug + Send>(cell: &ThreadCell<T>) {
        cell.give_up();
    }
}

impl Access for Crcw {
    const NAME: &'static str = "crcw";
    const IS_SHARED: bool = true;
    const IS_BY_THREAD: bool = false;
    type Cell<T: Debug + Send> = SpinLock<T>;
    type Guard<'a, T: Debug + Send + 'a> = SpinGuard<'a, T>;

    fn cell<T: Debug + Send>(value: T) -> SpinLock<T> {
        SpinLock::new(value)
    }

    #[inline]
    fn enter<T: Debug + Send>(cell: &SpinLock<T>) -> SpinGuard<'_, T> {
        cell.lock()
    }

    #[inline]
    fn try_enter<T: Debug + Send>(cell: &SpinLock<T>) -> Option<SpinGuard<'_, T>> {
        cell.try_lock()
    }

    #[inline]
    fn enter_if_own<T: Debug + Send>(cell: &SpinLock<T>) -> Option<SpinGuard<'_, T>> {
        Some(cell.lock())
    }
}
