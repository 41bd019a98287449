//! What an operator changes while the keeper runs.

use minos_flash::Log;
use minos_sync::Bell;
use parking_lot::{Condvar, Mutex};
use std::time::Duration;
use thiserror::Error;

/// Highest rate, in bytes a second.
pub const RATE_MAX: u64 = 1 << 40;
/// Longest wait for the keeper.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is to change; the rest stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Bytes a second that the scrubber reads; 0: none.
    pub scrub_bytes_s: Option<u64>,
    /// Bytes a second that compaction moves unless segments run out; 0: none.
    pub compaction_bytes_s: Option<u64>,
    /// Read and verify everything once, so many bytes a second.
    pub sweep_bytes_s: Option<u64>,
}

/// The reason why nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WishError {
    /// A rate is out of bounds.
    #[error("{0} bytes a second are not allowed; at most {RATE_MAX} are")]
    Rate(u64),
    /// A scrub without a rate never ends.
    #[error("a scrub of everything needs a rate above 0")]
    NoRate,
    /// The log does nothing more.
    #[error("the device failed: nothing is scrubbed any more")]
    ReadOnly,
    /// Nobody keeps the log any more.
    #[error("the server is stopping")]
    Ended,
    /// The keeper has not answered; it may yet do so.
    #[error("the keeper of the log has not answered in time; the change may still come")]
    Slow,
}

#[derive(Debug, Default)]
struct State {
    wish: Option<Wish>,
    made: u64,
    done: u64,
    has_ended: bool,
}

/// Wishes on their way to the keeper.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    state: Mutex<State>,
    changed: Condvar,
}

impl Wish {
    fn check(&self) -> Result<(), WishError> {
        let rates = [self.scrub_bytes_s, self.compaction_bytes_s, self.sweep_bytes_s];
        if let Some(rate) = rates.into_iter().flatten().find(|rate| *rate > RATE_MAX) {
            return Err(WishError::Rate(rate));
        }
        if self.sweep_bytes_s == Some(0) { Err(WishError::NoRate) } else { Ok(()) }
    }

    /// The later wish wins.
    fn over(self, older: Self) -> Self {
        Self {
            scrub_bytes_s: self.scrub_bytes_s.or(older.scrub_bytes_s),
            compaction_bytes_s: self.compaction_bytes_s.or(older.compaction_bytes_s),
            sweep_bytes_s: self.sweep_bytes_s.or(older.sweep_bytes_s),
        }
    }

    fn apply(self, log: &mut Log) {
        self.scrub_bytes_s.into_iter().for_each(|rate| log.set_scrub_rate(rate));
        self.compaction_bytes_s.into_iter().for_each(|rate| log.set_compaction_rate(rate));
        self.sweep_bytes_s.into_iter().for_each(|rate| log.sweep(rate));
    }
}

impl Wishes {
    /// Applies what was wished; the number to tell [`Wishes::done`] when others can see it.
    pub(crate) fn apply(&self, log: &mut Log) -> Option<u64> {
        let mut state = self.state.lock();
        let wish = state.wish.take()?;
        wish.apply(log);
        Some(state.made)
    }

    pub(crate) fn done(&self, number: u64) {
        self.state.lock().done = number;
        self.changed.notify_all();
    }

    /// Nobody grants wishes any more.
    pub(crate) fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Waits until the keeper, whom the bell calls, has granted a wish.
    pub(crate) fn make(&self, wish: Wish, is_read_only: bool, bell: &Bell) -> Result<(), WishError> {
        wish.check()?;
        if wish.sweep_bytes_s.is_some() && is_read_only {
            return Err(WishError::ReadOnly);
        }
        let mut state = self.state.lock();
        state.wish = Some(wish.over(state.wish.unwrap_or_default()));
        state.made += 1;
        let number = state.made;
        bell.ring();
        self.changed.wait_while_for(&mut state, |state| state.done < number && !state.has_ended, PATIENCE);
        match (state.done >= number, state.has_ended) {
            (true, _) => Ok(()),
            (false, true) => Err(WishError::Ended),
            (false, false) => Err(WishError::Slow),
        }
    }
}
