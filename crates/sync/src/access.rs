//! MICA's modes of data access to a partition, as types (MICA §4.1.2).
//!
//! Code that a mode does not need is not compiled: EREW keeps no versions and takes no locks, CREW keeps
//! versions for its readers and takes no locks, CRCW has a lock for each partition.

use crate::{
    lock::{SpinGuard, SpinLock},
    owned::{OwnedCell, OwnedGuard, OwnerToken},
    threads::{ThreadCell, ThreadGuard},
};
use std::{
    cell::{RefCell, RefMut},
    fmt::Debug,
    ops::DerefMut,
};

/// A mode of data access.
pub trait Access: Debug + Send + Sync + Sized + 'static {
    /// Its name on the command line.
    const NAME: &'static str;

    /// True if other threads may read a writer's partition, so that versions are kept.
    const IS_SHARED: bool;

    /// True if any thread may become a writer: [`Access::try_enter`] may succeed.
    const IS_OPEN: bool;

    /// True if a partition belongs to one thread, the first that opens its cell.
    const IS_BY_THREAD: bool = false;

    /// The cell that holds the state of one partition's writers.
    type Cell<T: Debug + Send>: Debug + Send;

    /// The proof that its holder is the writer of one partition.
    type Token: Debug + Send;

    /// Exclusive access to a [`Access::Cell`].
    type Guard<'a, T: Debug + Send + 'a>: DerefMut<Target = T> + Debug
    where
        Self: 'a;

    /// A lock around state shared by partitions: taken for large items and whole arenas only.
    type Lock<T: Debug + Send>: Lock<T>;

    /// A cell and the token that opens it.
    fn cell<T: Debug + Send>(value: T) -> (Self::Cell<T>, Self::Token);

    /// Opens the cell for its owner.
    ///
    /// # Panics
    /// If the token is another cell's.
    fn enter<'a, T: Debug + Send>(cell: &'a Self::Cell<T>, token: &'a mut Self::Token) -> Self::Guard<'a, T>;

    /// Opens the cell for any thread; `None` if it is open already, or only owners may enter.
    fn try_enter<T: Debug + Send>(cell: &Self::Cell<T>) -> Option<Self::Guard<'_, T>>;

    /// Opens the cell for any thread once it is free; `None` if only owners may enter. Where no other thread has it,
    /// there is nothing to wait for.
    #[inline]
    fn wait_if_open<T: Debug + Send>(cell: &Self::Cell<T>) -> Option<Self::Guard<'_, T>> {
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

/// A mode in which any thread with access to a partition may write to it, or its owner without a token.
pub trait AnyWriter: Access {
    /// Waits until the cell is free, and opens it.
    ///
    /// # Panics
    /// If the cell is another thread's, where each is one thread's.
    fn wait<T: Debug + Send>(cell: &Self::Cell<T>) -> Self::Guard<'_, T>;
}

/// Mutual exclusion of a kind that suits the mode.
pub trait Lock<T>: Debug + Send {
    /// Exclusive access.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    /// An open lock.
    fn new(value: T) -> Self;

    /// Waits for its turn.
    fn lock(&self) -> Self::Guard<'_>;
}

/// Exclusive reads, exclusive writes: one thread does everything, and nothing is synchronised.
///
/// Types built from this are not `Sync`: threads cannot share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erew;

/// Concurrent reads, exclusive writes: each partition has one writing thread, its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crew;

/// Concurrent reads, concurrent writes: any thread writes, in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crcw;

/// [`Crew`] where a partition's owner is the first thread that opens it. There is no token, so that one reference to the
/// table serves all threads.
pub type ThreadCrew = ByThread<true>;

/// [`ThreadCrew`] without readers: the owner does everything, and keeps no versions.
pub type ThreadErew = ByThread<false>;

/// A partition belongs to the first thread that opens it; others read it if `IS_READ` is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByThread<const IS_READ: bool>;

impl Access for Erew {
    const NAME: &'static str = "erew";
    const IS_SHARED: bool = false;
    const IS_OPEN: bool = true;
    type Cell<T: Debug + Send> = RefCell<T>;
    type Token = ();
    type Guard<'a, T: Debug + Send + 'a> = RefMut<'a, T>;
    type Lock<T: Debug + Send> = RefCell<T>;

    fn cell<T: Debug + Send>(value: T) -> (RefCell<T>, ()) {
        (RefCell::new(value), ())
    }

    #[inline]
    fn enter<'a, T: Debug + Send>(cell: &'a RefCell<T>, (): &'a mut ()) -> RefMut<'a, T> {
        cell.borrow_mut()
    }

    #[inline]
    fn try_enter<T: Debug + Send>(cell: &RefCell<T>) -> Option<RefMut<'_, T>> {
        cell.try_borrow_mut().ok()
    }
}

impl AnyWriter for Erew {
    #[inline]
    fn wait<T: Debug + Send>(cell: &RefCell<T>) -> RefMut<'_, T> {
        cell.borrow_mut()
    }
}

impl Access for Crew {
    const NAME: &'static str = "crew";
    const IS_SHARED: bool = true;
    const IS_OPEN: bool = false;
    type Cell<T: Debug + Send> = OwnedCell<T>;
    type Token = OwnerToken;
    type Guard<'a, T: Debug + Send + 'a> = OwnedGuard<'a, T>;
    type Lock<T: Debug + Send> = SpinLock<T>;

    fn cell<T: Debug + Send>(value: T) -> (OwnedCell<T>, OwnerToken) {
        OwnedCell::new(value)
    }

    #[inline]
    fn enter<'a, T: Debug + Send>(cell: &'a OwnedCell<T>, token: &'a mut OwnerToken) -> OwnedGuard<'a, T> {
        cell.enter(token)
    }

    #[inline]
    fn try_enter<T: Debug + Send>(_: &OwnedCell<T>) -> Option<OwnedGuard<'_, T>> {
        None
    }
}

impl Access for Crcw {
    const NAME: &'static str = "crcw";
    const IS_SHARED: bool = true;
    const IS_OPEN: bool = true;
    type Cell<T: Debug + Send> = SpinLock<T>;
    type Token = ();
    type Guard<'a, T: Debug + Send + 'a> = SpinGuard<'a, T>;
    type Lock<T: Debug + Send> = SpinLock<T>;

    fn cell<T: Debug + Send>(value: T) -> (SpinLock<T>, ()) {
        (SpinLock::new(value), ())
    }

    #[inline]
    fn enter<'a, T: Debug + Send>(cell: &'a SpinLock<T>, (): &'a mut ()) -> SpinGuard<'a, T> {
        cell.lock()
    }

    #[inline]
    fn try_enter<T: Debug + Send>(cell: &SpinLock<T>) -> Option<SpinGuard<'_, T>> {
        cell.try_lock()
    }

    #[inline]
    fn wait_if_open<T: Debug + Send>(cell: &SpinLock<T>) -> Option<SpinGuard<'_, T>> {
        Some(cell.lock())
    }
}

impl AnyWriter for Crcw {
    #[inline]
    fn wait<T: Debug + Send>(cell: &SpinLock<T>) -> SpinGuard<'_, T> {
        cell.lock()
    }
}

impl<const IS_READ: bool> Access for ByThread<IS_READ> {
    const NAME: &'static str = if IS_READ { "crew" } else { "erew" };
    const IS_SHARED: bool = IS_READ;
    const IS_OPEN: bool = true;
    const IS_BY_THREAD: bool = true;
    type Cell<T: Debug + Send> = ThreadCell<T>;
    type Token = ();
    type Guard<'a, T: Debug + Send + 'a> = ThreadGuard<'a, T>;
    type Lock<T: Debug + Send> = SpinLock<T>;

    fn cell<T: Debug + Send>(value: T) -> (ThreadCell<T>, ()) {
        (ThreadCell::new(value), ())
    }

    #[inline]
    fn enter<'a, T: Debug + Send>(cell: &'a ThreadCell<T>, (): &'a mut ()) -> ThreadGuard<'a, T> {
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

impl<const IS_READ: bool> AnyWriter for ByThread<IS_READ> {
    #[inline]
    fn wait<T: Debug + Send>(cell: &ThreadCell<T>) -> ThreadGuard<'_, T> {
        cell.enter()
    }
}

impl<T: Debug + Send> Lock<T> for SpinLock<T> {
    type Guard<'a>
        = SpinGuard<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    fn lock(&self) -> SpinGuard<'_, T> {
        self.lock()
    }
}

impl<T: Debug + Send> Lock<T> for RefCell<T> {
    type Guard<'a>
        = RefMut<'a, T>
    where
        T: 'a;

    fn new(value: T) -> Self {
        Self::new(value)
    }

    #[inline]
    fn lock(&self) -> RefMut<'_, T> {
        self.borrow_mut()
    }
}
