//! This node's own items, in memory and on flash, for the threads that copy and remove micro-shards. A node whose items
//! are in memory alone has none of this.

use std::{
    io,
    sync::{Arc, Weak},
};

use minos_base::{KeyHash, Seconds, is_left_out};
use minos_engine::{Mode, Named, ReadOnly};
use minos_tier::{Found, Place, ReadError, Reader, Tier, WaitError};
use parking_lot::Mutex;

use crate::server::Stop;

/// Why it is not known what is on flash.
#[derive(Debug, thiserror::Error)]
pub(super) enum BelowError {
    #[error("a writer does not finish")]
    Unfinished,
    #[error("the server stops")]
    Stopped,
    #[error(transparent)]
    Lane(#[from] io::Error),
    #[error(transparent)]
    Unreadable(#[from] ReadError),
}

/// The reader of one thread; none until it is needed, and none once the server stops.
type Shelf = Mutex<Option<Reader>>;

/// Makes what threads need to see the items of a node above flash.
pub(super) struct Belows<M: Mode> {
    /// This node's memory.
    table: Arc<ReadOnly<M>>,
    is_lossless: bool,
    /// `None` once the server stops.
    lent: Mutex<Option<Lent>>,
    stop: Arc<Stop>,
}

/// Flash, and the shelves of the threads that read it.
struct Lent {
    tier: Arc<Tier>,
    shelves: Vec<Weak<Shelf>>,
}

/// Takes flash back when the server stops, also from threads that outlive it.
pub(super) struct Release<M: Mode>(pub(super) Option<Arc<Belows<M>>>);

impl<M: Mode> Drop for Release<M> {
    fn drop(&mut self) {
        let lent = self.0.iter().filter_map(|belows| belows.lent.lock().take());
        lent.flat_map(|lent| lent.shelves).filter_map(|shelf| shelf.upgrade()).for_each(|shelf| {
            *shelf.lock() = None;
        });
    }
}

impl<M: Mode> Belows<M> {
    /// For the node with this memory above `tier`.
    pub(super) fn new(table: Arc<ReadOnly<M>>, tier: &Arc<Tier>, stop: Arc<Stop>) -> Self {
        let lent = Lent { tier: Arc::clone(tier), shelves: Vec::new() };
        Self { table, is_lossless: tier.is_lossless(), lent: Mutex::new(Some(lent)), stop }
    }

    /// For one thread.
    pub(super) fn of_thread(self: &Arc<Self>) -> Below<M> {
        let shelf = Arc::<Shelf>::default();
        if let Some(lent) = self.lent.lock().as_mut() {
            lent.shelves.retain(|shelf| shelf.strong_count() > 0);
            lent.shelves.push(Arc::downgrade(&shelf));
        }
        Below { of: Arc::clone(self), shelf }
    }

    fn reader(&self) -> Result<Reader, BelowError> {
        let tier = self.lent.lock().as_ref().map(|lent| Arc::clone(&lent.tier)).ok_or(BelowError::Stopped)?;
        Ok(tier.reader()?)
    }
}

/// The items of this node as one thread sees them.
pub(super) struct Below<M: Mode> {
    of: Arc<Belows<M>>,
    shelf: Arc<Shelf>,
}

impl<M: Mode> Below<M> {
    /// Gives `f` the keys of all items in some chains, as [`ReadOnly::visit`] does, and perhaps of others. Where a record
    /// cannot be read, `skips` says whether the others are enough; in a cache they are.
    pub(super) fn chains(
        &self,
        (partition, cursor, chains): (usize, u64, usize),
        now: Seconds,
        skips: bool,
        f: impl FnMut(&[u8]),
    ) -> Result<Option<u64>, BelowError> {
        self.names(skips, f, |named| self.of.table.visit(partition, cursor, chains, now, named))
    }

    /// Gives `f` the keys of all items with a hash, and perhaps of others.
    pub(super) fn keys_with(
        &self,
        hash: KeyHash,
        now: Seconds,
        mut f: impl FnMut(&[u8]),
    ) -> Result<(), BelowError> {
        let only = |key: &[u8]| {
            if self.of.table.hash(key) == hash {
                f(key);
            }
        };
        self.names(false, only, |named| self.of.table.keys_with(hash, now, named))
    }

    fn names<T>(
        &self,
        skips: bool,
        mut f: impl FnMut(&[u8]),
        look: impl FnOnce(&mut dyn FnMut(Named<'_>)) -> Result<T, minos_engine::Unfinished>,
    ) -> Result<T, BelowError> {
        let mut hot = Vec::<Box<[u8]>>::new();
        let mut unreadable = None;
        let look = |cold: &mut dyn FnMut(_)| {
            look(&mut |named| match named {
                Named::Key(key) => hot.push(key.into()),
                Named::Record(_) if is_left_out("cold") => {}
                Named::Record(slot) => cold(slot),
            })
        };
        let looked = self.with(|reader, is_over| {
            reader.names(is_over, look, |name| match name {
                Ok((_, key)) => f(key),
                Err(error) => unreadable = Some(error),
            })
        })?;
        hot.iter().for_each(|key| f(key));
        match unreadable.filter(|_| self.of.is_lossless && !skips) {
            Some(error) => Err(error.into()),
            None => looked.map_err(|_| BelowError::Unfinished),
        }
    }

    /// Finds the item of a key, and gives it to `f` if it is on flash.
    pub(super) fn find<R>(
        &self,
        hash: KeyHash,
        key: &[u8],
        now: Seconds,
        f: impl FnOnce(&Found<'_>) -> R,
    ) -> Result<Place<R>, BelowError> {
        match self.with(|reader, is_over| reader.find((hash, key), now, is_over, f))? {
            Ok(place) => Ok(place),
            Err(_) if !self.of.is_lossless => Ok(Place::None),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets the item of a key on flash; false if it is in memory, or has moved meanwhile.
    pub(super) fn forget(&self, hash: KeyHash, key: &[u8], now: Seconds) -> Result<bool, BelowError> {
        let place = self.find(hash, key, now, |found| found.delete())?;
        Ok(matches!(place, Place::Flash(true) | Place::None))
    }

    /// Tombstones that wait to be written; none if they cannot be.
    pub(super) fn tombstones(&self) -> u64 {
        let lent = self.of.lent.lock();
        let tier = lent.as_ref().map(|lent| &lent.tier).filter(|tier| !tier.is_read_only());
        tier.map_or(0, |tier| tier.engine().tier_stats().tombstones_waiting)
    }

    /// Uses the thread's reader, which is given up if that fails.
    fn with<T>(
        &self,
        act: impl FnOnce(&mut Reader, &dyn Fn() -> bool) -> Result<T, WaitError>,
    ) -> Result<T, BelowError> {
        let mut shelf = self.shelf.lock();
        let mut reader = match shelf.take() {
            Some(reader) => reader,
            None => self.of.reader()?,
        };
        let used = act(&mut reader, &|| self.of.stop.is_requested());
        match used {
            Ok(used) => {
                // The server may have asked for it meanwhile: then it is the last to wait for this lock.
                *shelf = Some(reader);
                Ok(used)
            }
            Err(WaitError::Lane(error)) => Err(error.into()),
            Err(WaitError::GivenUp) => Err(BelowError::Stopped),
        }
    }
}
