//! Requests that everything stored so far become durable.

use parking_lot::{Condvar, Mutex};
use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
    time::Duration,
};
use thiserror::Error;

/// Nothing more becomes durable: a flush or the journal of the device failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the device failed; nothing more is written")]
pub struct ReadOnly;

/// Names a request to make everything durable that was stored before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SyncId(u64);

#[derive(Debug, Default)]
struct State {
    requested: u64,
    empties_requested: u64,
    empties_done: u64,
    is_read_only: bool,
}

/// The requests, of which many are served by one group.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    state: Mutex<State>,
    /// The newest request that was served.
    done: AtomicU64,
    changed: Condvar,
}

impl Syncs {
    pub(crate) fn request(&self) -> SyncId {
        let mut state = self.state.lock();
        state.requested += 1;
        SyncId(state.requested)
    }

    pub(crate) fn request_empty(&self) -> SyncId {
        let mut state = self.state.lock();
        state.empties_requested += 1;
        SyncId(state.empties_requested)
    }

    pub(crate) fn is_done(&self, id: SyncId) -> Result<bool, ReadOnly> {
        let is_done = self.has_served(id);
        // Most who ask find it served, and those who wait ask often.
        if is_done { Ok(true) } else { answer(false, &self.state.lock()) }
    }

    fn has_served(&self, id: SyncId) -> bool {
        // Acquire: what was made durable before is seen as such.
        self.done.load(Acquire) >= id.0
    }

    pub(crate) fn is_empty_done(&self, id: SyncId) -> Result<bool, ReadOnly> {
        let state = self.state.lock();
        answer(state.empties_done >= id.0, &state)
    }

    /// Waits until the request is served; false if the time is over first.
    pub(crate) fn wait(&self, id: SyncId, timeout: Duration) -> Result<bool, ReadOnly> {
        let is_open = |state: &mut State| !self.has_served(id) && !state.is_read_only;
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, is_open, timeout);
        answer(self.has_served(id), &state)
    }

    /// The newest request, if it is not served.
    pub(crate) fn newest(&self) -> Option<SyncId> {
        let state = self.state.lock();
        let newest = SyncId(state.requested);
        (!self.has_served(newest)).then_some(newest)
    }

    pub(crate) fn newest_empty(&self) -> Option<SyncId> {
        let state = self.state.lock();
        (state.empties_requested > state.empties_done).then_some(SyncId(state.empties_requested))
    }

    pub(crate) fn serve(&self, id: SyncId) {
        // Under the lock, so that nobody begins to wait between the two.
        let _state = self.state.lock();
        self.done.fetch_max(id.0, Release);
        self.changed.notify_all();
    }

    pub(crate) fn serve_empty(&self, id: SyncId) {
        let mut state = self.state.lock();
        state.empties_done = state.empties_done.max(id.0);
        self.changed.notify_all();
    }

    /// No request will be served from now on.
    pub(crate) fn end(&self) {
        self.state.lock().is_read_only = true;
        self.changed.notify_all();
    }
}

fn answer(is_done: bool, state: &State) -> Result<bool, ReadOnly> {
    if !is_done && state.is_read_only { Err(ReadOnly) } else { Ok(is_done) }
}
