//! The whole in one process: vectors of gets, puts and deletes.

use crate::{
    fetch::ReadError,
    reader::{Found, Reader, Sought},
    syncs::SyncId,
    tier::Tier,
};
use arrayvec::ArrayVec;
use minos_base::{KeyHash, Seconds};
use minos_engine::{ItemMeta, Lookup, OutOfMemory, Promotion};
use std::{io, sync::Arc, time::Duration};
use thiserror::Error;

/// Keys that are read together.
const WIDTH_MAX: usize = 256;
/// Reads of the first submit: the device begins while the next keys are looked up. Each later one has twice as many.
const SUBMITTED_FIRST: usize = 4;
/// Lines of a key's chain that are prefetched, of about as many.
const PREFETCHED_LINES: usize = 3;
/// Longest single wait for the device.
const WAIT: Duration = Duration::from_millis(100);

/// An item to store.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Flags and expiry.
    pub meta: ItemMeta,
}

/// The reason why a change was refused.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Memory or device are full.
    #[error(transparent)]
    Full(#[from] OutOfMemory),
    /// The old item cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The lane cannot be used.
    #[error("the device cannot be used: {0}")]
    Lane(#[from] io::Error),
}

/// A tier for one thread of a program that embeds it. Another thread must run the [`crate::Keeper`].
#[derive(Debug)]
pub struct TieredStore {
    reader: Reader,
    /// Items that are read from flash come to memory.
    promotes: bool,
    copy: Vec<u8>,
}

impl TieredStore {
    /// A store on this tier.
    ///
    /// # Errors
    /// No descriptor, no thread or no memory is left.
    pub fn new(tier: &Arc<Tier>) -> io::Result<Self> {
        Ok(Self { reader: tier.reader()?, promotes: true, copy: Vec::new() })
    }

    /// Items that are read from flash come to memory, or stay there alone.
    #[must_use]
    pub fn promoting(self, promotes: bool) -> Self {
        Self { promotes, ..self }
    }

    /// The tier.
    pub fn tier(&self) -> &Arc<Tier> {
        self.reader.tier()
    }

    /// Reads a vector of keys: what is on flash is read in as few vectors as buffers allow. `f` is called once for each
    /// key, in any order, with its number and its value. An error means that the value is not known; a cache makes a
    /// miss of it.
    ///
    /// # Errors
    /// Only errors that make the lane unusable.
    pub fn get_many(
        &mut self,
        keys: &[&[u8]],
        now: Seconds,
        mut f: impl FnMut(usize, Result<Option<&[u8]>, ReadError>),
    ) -> io::Result<()> {
        for (chunk, keys) in keys.chunks(WIDTH_MAX).enumerate() {
            self.get_chunk(keys, now, &mut |at, value| f(chunk * WIDTH_MAX + at, value))?;
        }
        Ok(())
    }

    fn get_chunk(
        &mut self,
        keys: &[&[u8]],
        now: Seconds,
        f: &mut impl FnMut(usize, Result<Option<&[u8]>, ReadError>),
    ) -> io::Result<()> {
        let engine = Arc::clone(self.tier().engine());
        let hashes: ArrayVec<KeyHash, WIDTH_MAX> = keys.iter().map(|key| engine.hash(key)).collect();
        for line in 0..PREFETCHED_LINES {
            hashes.iter().for_each(|hash| engine.prefetch_line(*hash, line));
        }
        let mut at_once = SUBMITTED_FIRST;
        for (at, (key, hash)) in keys.iter().zip(hashes).enumerate() {
            while !self.begin(at, (hash, key), now, f) {
                self.reader.submit()?;
                self.finish_some(now, f)?;
            }
            if self.reader.prepared() >= at_once {
                self.reader.submit()?;
                at_once *= 2;
            }
        }
        self.reader.submit()?;
        while self.reader.under_way() > 0 {
            self.finish_some(now, f)?;
            // What the device refused before.
            self.reader.submit()?;
        }
        Ok(())
    }

    /// Answers from memory, or begins to read; false if no buffer is free.
    fn begin(
        &mut self,
        at: usize,
        (hash, key): (KeyHash, &[u8]),
        now: Seconds,
        f: &mut impl FnMut(usize, Result<Option<&[u8]>, ReadError>),
    ) -> bool {
        loop {
            let copy = &mut self.copy;
            let is_hot = self.reader.tier().engine.read(hash, key, now, |item| {
                copy.clear();
                item.copy_value_to(copy);
            });
            if is_hot.is_some() {
                f(at, Ok(Some(copy)));
                return true;
            }
            match self.reader.seek(at as u64, hash, key, now) {
                // It came to memory meanwhile.
                Sought::Hot => continue,
                Sought::Cold => return true,
                Sought::Busy => return false,
                Sought::Missing => {
                    f(at, Ok(None));
                    return true;
                }
            }
        }
    }

    /// Waits for some reads, and answers.
    fn finish_some(
        &mut self,
        now: Seconds,
        f: &mut impl FnMut(usize, Result<Option<&[u8]>, ReadError>),
    ) -> io::Result<()> {
        let (copy, promotes) = (&mut self.copy, self.promotes);
        self.reader.wait(WAIT)?;
        let is_lossless = self.reader.tier().options.is_lossless;
        self.reader.poll(now, |answer| {
            let at = answer.tag as usize;
            match answer.result {
                Ok(Some(found)) => {
                    f(at, Ok(Some(found.value.whole(copy))));
                    if promotes {
                        // Without room in memory it stays where it is.
                        let _ = found.promote(now);
                    }
                }
                Ok(None) => f(at, Ok(None)),
                Err(error) if is_lossless => f(at, Err(error)),
                Err(_) => f(at, Ok(None)),
            }
        })?;
        Ok(())
    }

    /// Stores items, in order. `f` is called once for each with its number.
    pub fn put_many(
        &mut self,
        entries: &[Entry<'_>],
        now: Seconds,
        mut f: impl FnMut(usize, Result<(), OutOfMemory>),
    ) {
        let tier = self.reader.tier();
        for (at, Entry { key, value, meta }) in entries.iter().enumerate() {
            let mut entry = tier.engine.entry(tier.engine.hash(key), key, now);
            f(at, entry.insert(&[value], *meta).map(|_| ()));
        }
    }

    /// Deletes an item; true if there was one. It needs no room, neither in memory nor, at once, on the device.
    ///
    /// # Errors
    /// The old item cannot be read: it is not known if it is this key's. A cache deletes nothing then either.
    pub fn delete(&mut self, key: &[u8], now: Seconds) -> Result<bool, StoreError> {
        let engine = Arc::clone(self.tier().engine());
        let hash = engine.hash(key);
        loop {
            let mut entry = engine.entry(hash, key, now);
            if entry.candidates().is_empty() {
                return Ok(entry.remove());
            }
            drop(entry);
            match self.read_one(key, now, |found| found.delete())? {
                Some(true) => return Ok(true),
                // It is on flash no longer: look again.
                Some(false) => {}
                None if engine.find_cold(hash, key, now) == Lookup::Hot => {}
                None => return Ok(false),
            }
        }
    }

    /// Brings an item from flash to memory; false if there is none anywhere.
    ///
    /// # Errors
    /// There is no room in memory, or the record cannot be read.
    pub fn fetch(&mut self, key: &[u8], now: Seconds) -> Result<bool, StoreError> {
        let engine = Arc::clone(self.tier().engine());
        let hash = engine.hash(key);
        loop {
            match self.read_one(key, now, |found| found.promote(now))? {
                Some(Ok(Promotion::Promoted | Promotion::Present)) => return Ok(true),
                Some(Ok(Promotion::Dead)) => return Ok(false),
                Some(Ok(Promotion::Changed)) => {}
                Some(Err(full)) => return Err(full.into()),
                None => return Ok(engine.find_cold(hash, key, now) == Lookup::Hot),
            }
        }
    }

    /// Reads a key's record; `None` if there is none on flash.
    fn read_one<R>(
        &mut self,
        key: &[u8],
        now: Seconds,
        mut f: impl FnMut(&Found<'_>) -> R,
    ) -> Result<Option<R>, StoreError> {
        let hash = self.tier().engine().hash(key);
        match self.reader.seek(0, hash, key, now) {
            Sought::Hot | Sought::Missing => return Ok(None),
            Sought::Cold | Sought::Busy => {}
        }
        let mut result = Ok(None);
        while self.reader.under_way() > 0 {
            self.reader.submit()?;
            self.reader.wait(WAIT)?;
            self.reader.poll(now, |answer| {
                result = answer.result.map(|found| found.map(|found| f(&found)));
            })?;
        }
        Ok(result?)
    }

    /// Asks that everything stored before become durable.
    pub fn sync(&self) -> SyncId {
        self.tier().sync()
    }
}
