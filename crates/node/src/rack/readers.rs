//! Which nodes read: what this node has executed, and the weights that native clients are told (RackOut §5).

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use minos_engine::Mode;
use minos_net::Io;
use minos_rack::ServerId;
use minos_unit::{Load, Weights};
use parking_lot::Mutex;

use super::Rack;
use crate::{ops::counters::Totals, server::shared::Shared};

/// What answers to native clients say is to be had: the epoch of the directory, and the version of the weights. Any
/// thread may read it; the thread that takes over directories and weights writes.
#[derive(Debug, Default)]
pub(crate) struct News {
    epoch: AtomicU32,
    version: AtomicU32,
}

impl News {
    /// Tells the epoch of a directory that is shown.
    pub(crate) fn tell_epoch(&self, epoch: u32) {
        // Relaxed: a client that hears of it too early asks again.
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    fn tell_version(&self, version: u32) {
        self.version.store(version, Ordering::Relaxed);
    }

    /// As the header of an answer has it: the epoch in the low half, the version in the high half.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        let [epoch, version] = [&self.epoch, &self.version].map(|it| u64::from(it.load(Ordering::Relaxed)));
        version << 32 | epoch
    }
}

/// The weights that this node shows.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    pub(crate) news: Arc<News>,
    shown: Mutex<Option<Shown>>,
}

/// Weights, and their bytes for clients.
#[derive(Clone, Debug)]
struct Shown {
    weights: Arc<Weights>,
    bytes: Arc<[u8]>,
}

impl Readers {
    /// Shows weights from now on, unless newer ones are shown; true if it does. Workers look again then, and after that
    /// the news is told.
    pub(super) fn show(&self, weights: Arc<Weights>) -> bool {
        let mut shown = self.shown.lock();
        let is_newer = shown.as_ref().is_none_or(|shown| weights.version() > shown.weights.version());
        if is_newer {
            let bytes = weights.encode().into();
            *shown = Some(Shown { weights, bytes });
        }
        is_newer
    }

    /// The bytes for clients; none without weights.
    pub(super) fn bytes(&self) -> Arc<[u8]> {
        self.shown.lock().as_ref().map(|shown| Arc::clone(&shown.bytes)).unwrap_or_default()
    }

    /// Emits the weights of so many nodes, for `stats rack`.
    pub(super) fn emit(&self, nodes: usize, emit: &mut dyn FnMut(&str, &dyn Display)) {
        let Some(Shown { weights, .. }) = self.shown.lock().clone() else { return };
        emit("weights", &weights.version());
        for node in 0..nodes {
            emit(&format!("node:{node}:weight"), &weights.of(ServerId(node as u32)));
        }
    }
}

impl<M: Mode> Rack<M> {
    /// Shows weights to native clients from now on, unless newer ones are shown.
    pub(crate) fn weigh(&self, weights: Arc<Weights>) {
        let version = weights.version();
        if self.readers.show(weights) {
            self.raise();
            self.readers.news.tell_version(version);
        }
    }
}

impl<M: Mode, I: Io> Shared<M, I> {
    /// What all workers have executed since the start. They count it anyway: requests by kind, and a turn's time once a
    /// turn, by the clock that they read in each.
    pub(crate) fn load(&self) -> Load {
        let (mut totals, mut busy_ns) = (Totals::default(), 0u64);
        for worker in &self.workers {
            totals.add(&worker.counters);
            busy_ns = busy_ns.wrapping_add(worker.metrics.busy_ns.value());
        }
        let Totals { cmd_get, cmd_set, cmd_touch, delete_hits, delete_misses, .. } = totals;
        let Totals { incr_hits, incr_misses, decr_hits, decr_misses, .. } = totals;
        let writes =
            [cmd_set, cmd_touch, delete_hits, delete_misses, incr_hits, incr_misses, decr_hits, decr_misses];
        Load { reads: cmd_get, writes: writes.iter().sum(), busy_us: busy_ns / 1000 }
    }
}
