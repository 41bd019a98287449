//! Background work of a worker: expired items and idle connections.

use std::time::Duration;

use minos_base::Seconds;
use minos_engine::Mode;
use minos_net::Io;

use super::Worker;
use crate::tcp::patience::Late;

/// Time between two slices of housekeeping.
const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(5);
/// Buckets looked at in one slice of housekeeping, some tens of microseconds.
const SWEEP_BUCKETS: usize = 256;

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// Does a bounded slice of background work.
    pub(crate) fn keep_house(&mut self) {
        self.housekeeping.next = self.now + HOUSEKEEPING_EVERY;
        self.sweep();
        self.give_up_late();
        self.keep_forwards();
        self.poll_transfers(true);
        self.tick_datagrams();
        if self.housekeeping.connections_checked != self.now_s {
            self.housekeeping.connections_checked = self.now_s;
            self.close_silent();
        }
    }

    /// Reclaims expired items in one of the partitions that this worker sweeps.
    fn sweep(&mut self) {
        let workers = self.shared.workers.len();
        let partition = self.housekeeping.partition;
        if partition >= self.shared.store.partitions() {
            self.housekeeping.partition = self.id.index();
            return;
        }
        let swept = self.shared.store.sweep(partition, SWEEP_BUCKETS, self.now_s);
        self.mine.metrics.reclaimed.add(swept.expired + swept.flushed);
        if swept.pass_ended {
            self.housekeeping.partition = partition + workers;
        }
    }

    fn give_up_late(&mut self) {
        while let Some((transfer, late)) = self.large.take_late(self.now) {
            let metrics = &self.mine.metrics;
            match late {
                Late::Stalled => metrics.large_stalled.add(1),
                Late::Slow => metrics.large_slow.add(1),
            }
            self.give_up(*transfer);
        }
    }

    /// Closes connections of this worker's queue whose clients were silent for longer than the idle timeout.
    fn close_silent(&mut self) {
        let Some(timeout) = self.shared.config.idle_timeout else { return };
        let timeout_s = Seconds::try_from(timeout.as_secs()).unwrap_or(Seconds::MAX);
        let Some(oldest) = self.now_s.checked_sub(timeout_s) else { return };
        let Some(mut state) = self.shared.queues[self.id.index()].state.try_lock() else { return };
        let silent: Vec<_> = state
            .connections
            .all_here()
            .filter(|c| c.registration.last_active() < oldest)
            .map(|c| c.token)
            .collect();
        for token in silent {
            state.close(token);
            self.mine.metrics.idle_closed.add(1);
        }
    }
}
