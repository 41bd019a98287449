//! Background work of a worker: expired items and idle connections.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use minos_base::{Seconds, seconds_up};
use minos_engine::{Access, Mode};
use minos_net::Io;
use minos_sched::WorkerId;

use super::Worker;
use crate::{server::shared::Shared, tcp::patience::Late};

/// Time between two slices of housekeeping.
const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(5);
/// Buckets looked at in one slice of housekeeping, some tens of microseconds.
const SWEEP_BUCKETS: usize = 256;
/// Rest after a pass that has found nothing dead, in times of its own length, and at most.
const SWEEP_RESTS: u32 = 15;
const SWEEP_REST_MAX: Duration = Duration::from_secs(10);
/// Most slices after a sleep, so that a request that comes then waits for a fraction of a millisecond.
const SLICES_MAX: u32 = 8;

/// Schedule of the background work.
pub(crate) struct Housekeeping {
    pub(super) next: Instant,
    /// The partition swept now; beyond the last one, the pass over this worker's partitions has ended.
    partition: usize,
    /// The pass under way, if one has begun.
    pass: Option<Pass>,
    ended: Option<Pass>,
    /// The end of the rest between two passes.
    rest_until: Instant,
    connections_checked: Seconds,
    /// Delayed flushes that this worker has executed for its partitions.
    flushes: u64,
}

/// A pass over the partitions that a worker sweeps.
#[derive(Clone, Copy)]
struct Pass {
    /// [`Shared::changes`] when it began, and this worker's share of it.
    changes: u64,
    busy_ns: u64,
    /// [`Shared::sweep_orders`] when it began.
    orders: u64,
    slices: u32,
    /// Slots that it has freed.
    slots: u64,
    /// First expiry of an item that it left; [`Seconds::MAX`] if none has one.
    first_expiry: Seconds,
    /// True if more is to be given back below a lower limit of the memory.
    gives_back: bool,
}

impl Housekeeping {
    /// The schedule of worker `id`, first due at `now`.
    pub(crate) fn new(now: Instant, id: WorkerId) -> Self {
        Self {
            next: now,
            partition: id.index(),
            pass: None,
            ended: None,
            rest_until: now,
            connections_checked: 0,
            flushes: 0,
        }
    }

    /// True if no item of the worker's partitions can be dead at `now`: none changed since the last pass began. Nor is there
    /// anything to give back.
    fn is_done<M: Mode, I: Io>(&self, shared: &Shared<M, I>, busy_ns: u64, now: Seconds) -> bool {
        // A busy worker does not look at the others.
        let is_same = |pass: Pass| pass.busy_ns == busy_ns && pass.changes == shared.changes(now);
        self.ended.is_some_and(|pass| now < pass.first_expiry && !pass.gives_back && is_same(pass))
    }

    /// True between two passes if the last one has found nothing dead, and nothing has expired since: to look all the time
    /// costs a worker a hundredth of its processor, and more where nodes share one.
    fn is_resting<M: Mode, I: Io>(&self, shared: &Shared<M, I>, (now, now_s): (Instant, Seconds)) -> bool {
        self.pass.is_none()
            && now < self.rest_until
            && self
                .ended
                .is_some_and(|pass| now_s < pass.first_expiry && pass.orders == shared.sweep_orders(now_s))
    }

    /// Ends the pass under way.
    fn end_pass(&mut self, now: Instant, id: WorkerId) {
        self.ended = self.pass.take();
        self.partition = id.index();
        if let Some(pass) = self.ended.filter(|pass| pass.slots == 0 && !pass.gives_back) {
            let pass = HOUSEKEEPING_EVERY.saturating_mul(pass.slices);
            self.rest_until = now + pass.saturating_mul(SWEEP_RESTS).min(SWEEP_REST_MAX);
        }
    }
}

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// Does a bounded slice of background work.
    pub(crate) fn keep_house(&mut self) {
        let late = self.now.saturating_duration_since(self.housekeeping.next);
        let slices = late.div_duration_f32(HOUSEKEEPING_EVERY) as u32 + 1;
        self.housekeeping.next = self.now + HOUSEKEEPING_EVERY;
        self.flush_if_asked();
        if !self.housekeeping.is_resting(self.shared, (self.now, self.now_s)) && !self.is_swept() {
            (0..slices.min(SLICES_MAX)).for_each(|_| self.sweep());
        }
        self.give_up_late();
        self.keep_forwards();
        self.poll_transfers(true);
        self.tick_datagrams();
        if self.housekeeping.connections_checked != self.now_s {
            self.housekeeping.connections_checked = self.now_s;
            self.shared.tracking.tell_lost(self.now_s);
            self.close_silent();
        }
    }

    /// Drops the items of this worker's partitions if a delayed flush was due since the last call.
    fn flush_if_asked(&mut self) {
        if M::Access::IS_BY_THREAD {
            let flushes = self.shared.flushes.load(Ordering::Relaxed);
            if std::mem::replace(&mut self.housekeeping.flushes, flushes) != flushes {
                self.shared.store.flush_of(self.id.index());
            }
        }
    }

    /// True if this worker has no dead item to find.
    pub(super) fn is_swept(&self) -> bool {
        self.housekeeping.is_done(self.shared, self.mine.metrics.busy_ns.value(), self.now_s)
    }

    /// Reclaims expired items in the partitions that this worker sweeps, in turn.
    fn sweep(&mut self) {
        let (workers, partitions) = (self.shared.workers.len(), self.shared.store.partitions());
        self.mine.metrics.sweeps.add(1);
        let mut left = SWEEP_BUCKETS;
        while left > 0 {
            let partition = self.housekeeping.partition;
            let begin = || Pass {
                changes: self.shared.changes(self.now_s),
                busy_ns: self.mine.metrics.busy_ns.value(),
                orders: self.shared.sweep_orders(self.now_s),
                slices: 0,
                slots: 0,
                first_expiry: Seconds::MAX,
                gives_back: false,
            };
            let pass = self.housekeeping.pass.get_or_insert_with(begin);
            pass.slices += u32::from(left == SWEEP_BUCKETS);
            if partition >= partitions {
                return self.housekeeping.end_pass(self.now, self.id);
            }
            let swept = self.shared.store.sweep(partition, left, self.now_s);
            pass.first_expiry = pass.first_expiry.min(swept.first_expiry);
            pass.gives_back |= swept.gives_back;
            pass.slots += swept.slots;
            self.mine.metrics.reclaimed.add(swept.expired + swept.flushed);
            if swept.pass_ended {
                self.housekeeping.partition = partition + workers;
            }
            left = left.saturating_sub(swept.buckets);
        }
    }

    fn give_up_late(&mut self) {
        while let Some((transfer, late)) = self.large.take_late(self.now) {
            let metrics = &self.mine.metrics;
            match late {
                Late::Stalled => metrics.large_stalled.add(1),
                Late::Slow => metrics.large_slow.add(1),
                Late::Killed => {}
            }
            self.give_up(*transfer);
        }
    }

    /// Closes connections of this worker's queue whose clients were silent for longer than the idle timeout.
    fn close_silent(&mut self) {
        let timeout = self.placement.tuning().idle_timeout;
        if timeout.is_zero() {
            return;
        }
        // Rounded up: connections know the second in which they were last active.
        let timeout_s = Seconds::try_from(seconds_up(timeout)).unwrap_or(Seconds::MAX);
        let Some(oldest) = self.now_s.checked_sub(timeout_s) else { return };
        let Some(mut state) = self.shared.queues[self.id.index()].state.try_lock() else { return };
        let silent: Vec<_> = state
            .connections
            .all_here()
            .filter(|c| c.registration.last_active() < oldest && !c.session.is_paused())
            .map(|c| c.token)
            .collect();
        for token in silent {
            state.close(token);
            self.mine.metrics.idle_closed.add(1);
        }
    }
}
