//! A cell that one owner opens, without a lock.

use crate::facade::{Ordering, UnsafeCell, fence};
use std::{
    ops::{Deref, DerefMut},
    sync::atomic::AtomicU64,
};

/// A value that the holder of the cell's only token may change, whichever thread that is.
///
/// Opening it costs one comparison. Access is exclusive because there is one token, which cannot be
/// cloned, and the guard borrows it mutably.
pub struct OwnedCell<T> {
    value: UnsafeCell<T>,
    id: u64,
}

/// Opens one [`OwnedCell`].
#[derive(Debug)]
pub struct OwnerToken {
    id: u64,
}

// SAFETY: the value is only reached through the cell's only token, which moves between threads as
// any value does.
unsafe impl<T: Send> Send for OwnedCell<T> {}
// SAFETY: as above; a shared cell lends nothing without its token.
unsafe impl<T: Send> Sync for OwnedCell<T> {}

impl<T> OwnedCell<T> {
    /// A cell and its only token.
    pub fn new(value: T) -> (Self, OwnerToken) {
        let id = next_id();
        (Self { value: UnsafeCell::new(value), id }, OwnerToken { id })
    }

    /// Opens the cell.
    ///
    /// It ends with a release fence for optimistic readers, as [`crate::SpinLock::lock`] does: the owner may
    /// write to memory that another owner has unlinked, and which came here through a lock.
    ///
    /// # Panics
    /// If the token is another cell's.
    #[inline]
    pub fn enter<'a>(&'a self, token: &'a mut OwnerToken) -> OwnedGuard<'a, T> {
        assert!(self.id == token.id, "the token of another cell");
        fence(Ordering::Release);
        OwnedGuard { cell: self, _token: token }
    }
}

/// Not loom's: a number is all that is wanted, and loom's atomics cannot be static.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

fn next_id() -> u64 {
    // Relaxed: only uniqueness matters; 2^64 cells are never made.
    NEXT_ID.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

impl<T> std::fmt::Debug for OwnedCell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnedCell").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Exclusive access to the value of an [`OwnedCell`], until dropped.
pub struct OwnedGuard<'a, T> {
    cell: &'a OwnedCell<T>,
    _token: &'a mut OwnerToken,
}

impl<T> Deref for OwnedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard borrows the cell's only token mutably, so there is no other guard.
        self.cell.value.with_mut(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for OwnedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and this guard is borrowed mutably.
        self.cell.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for OwnedGuard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OwnedGuard").field(&**self).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn the_owner_may_move_between_threads() {
        let (cell, token) = OwnedCell::new(0u64);
        let add = |mut token| {
            *cell.enter(&mut token) += 1;
            token
        };
        let mut token =
            thread::scope(|scope| (0..4).fold(token, |token, _| scope.spawn(|| add(token)).join().unwrap()));
        assert_eq!(*cell.enter(&mut token), 4);
    }

    #[test]
    #[should_panic(expected = "another cell")]
    fn a_token_opens_its_own_cell_only() {
        let (cell, _token) = OwnedCell::new(0);
        let (_other, mut token) = OwnedCell::new(0);
        cell.enter(&mut token);
    }
}
