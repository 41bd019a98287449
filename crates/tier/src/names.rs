//! Reads of a thread that waits for them: the keys of the records that slots name, and single items.

use crate::{
    fetch::{Busy, Fetch, ReadError},
    heads::HEAD_PAGES,
    reader::{Found, Reader, Sought},
    tier::Tier,
};
use minos_base::{FlashSlot, KeyHash, Seconds};
use minos_engine::Candidates;
use std::{io, time::Duration};
use thiserror::Error;

/// Records that are read as one vector.
const WIDTH: usize = 64;
/// Time between two looks whether the wait has become pointless.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Why a wait for reads ended without them. The reader must not be used again.
#[derive(Debug, Error)]
pub enum WaitError {
    /// The lane is unusable.
    #[error("the lane to flash is unusable: {0}")]
    Lane(#[from] io::Error),
    /// Nobody waits any longer.
    #[error("the wait for flash was given up")]
    GivenUp,
}

/// The place at which a key was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<R> {
    /// In memory: read it from the engine.
    Memory,
    /// On flash.
    Flash(R),
    /// Nowhere.
    None,
}

impl Reader {
    /// Gives `f` the keys of the records of slots, and perhaps of others, or why those of a slot cannot be read. `look` finds
    /// the slots in the index; what they name stays until this returns.
    ///
    /// # Errors
    /// See [`WaitError`]. The result of `look` is lost then.
    pub fn names<T>(
        &mut self,
        is_over: &dyn Fn() -> bool,
        look: impl FnOnce(&mut dyn FnMut(FlashSlot)) -> T,
        mut f: impl FnMut(Result<(KeyHash, &[u8]), ReadError>),
    ) -> Result<T, WaitError> {
        let epoch = self.fetcher.enter();
        let mut slots = Vec::new();
        let looked = look(&mut |slot| slots.push(slot));
        let read = slots.chunks(WIDTH).try_for_each(|slots| self.read_names(slots, is_over, &mut f));
        self.fetcher.leave(epoch);
        read.map(|()| looked)
    }

    fn read_names(
        &mut self,
        slots: &[FlashSlot],
        is_over: &dyn Fn() -> bool,
        f: &mut impl FnMut(Result<(KeyHash, &[u8]), ReadError>),
    ) -> Result<(), WaitError> {
        let mut name = |fetch: &Fetch, tier: &Tier| match fetch.heads(tier) {
            Ok(heads) => heads.iter().filter_map(|head| head.name(tier)).for_each(&mut *f),
            Err(error) => f(Err(error)),
        };
        for slot in slots {
            loop {
                let epoch = self.fetcher.enter();
                let seen = Candidates::from_iter([*slot]);
                match self.fetcher.start((0, epoch), (KeyHash(0), &[]), &seen, HEAD_PAGES) {
                    Ok(()) => break,
                    Err(Busy) => self.drain(is_over, &mut name)?,
                }
            }
        }
        self.drain(is_over, name)
    }

    /// Finds the item of a key, and gives it to `f` if it is on flash.
    ///
    /// # Errors
    /// See [`WaitError`]. The inner error says that the item cannot be read.
    pub fn find<R>(
        &mut self,
        (hash, key): (KeyHash, &[u8]),
        now: Seconds,
        is_over: &dyn Fn() -> bool,
        f: impl FnOnce(&Found<'_>) -> R,
    ) -> Result<Result<Place<R>, ReadError>, WaitError> {
        match self.seek(0, hash, key, now) {
            Sought::Hot => return Ok(Ok(Place::Memory)),
            Sought::Missing => return Ok(Ok(Place::None)),
            // Nothing else is under way.
            Sought::Busy => return Ok(Err(ReadError::TooLarge)),
            Sought::Cold => {}
        }
        let (mut f, mut place) = (Some(f), Ok(Place::None));
        while self.under_way() > 0 {
            self.submit_and_wait(is_over)?;
            self.answer(usize::MAX, now, |answer| {
                place = answer.result.map(|found| match found.zip(f.take()) {
                    Some((found, f)) => Place::Flash(f(&found)),
                    None => Place::None,
                });
            });
        }
        Ok(place)
    }

    /// Waits for all reads under way.
    fn drain(
        &mut self,
        is_over: &dyn Fn() -> bool,
        mut f: impl FnMut(&Fetch, &Tier),
    ) -> Result<(), WaitError> {
        while self.under_way() > 0 {
            self.submit_and_wait(is_over)?;
            let tier = &self.tier;
            self.fetcher.poll(usize::MAX, |fetch, _| f(fetch, tier));
            tier.reads.add(&std::mem::take(&mut self.fetcher.counts));
        }
        Ok(())
    }

    fn submit_and_wait(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), WaitError> {
        self.submit()?;
        if self.has_ended() {
            return Ok(());
        }
        self.fetcher.wait(1, LOOK_EVERY)?;
        if is_over() { Err(WaitError::GivenUp) } else { Ok(()) }
    }
}
