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
use crate::{
    server::shared::{Shared, SweepOrders},
    tcp::patience::Late,
};

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
    /// True if the next slice is the first one there.
    is_first_slice: bool,
    /// The pass under way, if one has begun.
    pass: Option<Pass>,
    ended: Option<Pass>,
    connections_checked: Seconds,
    /// Delayed flushes that this worker has executed for its partitions.
    flushes: u64,
}

/// A pass over the partitions that a worker sweeps.
#[derive(Clone, Copy)]
struct Pass {
    /// [`Shared::sweep_orders`] and [`Shared::busy_ns`] when it began, and this worker's share of that.
    orders: SweepOrders,
    busy_ns: u64,
    own_busy_ns: u64,
    slices: u32,
    /// Its end; later if it rests behind it.
    rest_until: Instant,
    /// Slots that it has freed.
    slots: u64,
    /// First expiry of an item that it left; [`Seconds::MAX`] if none has one.
    first_expiry: Seconds,
    /// True if more is to be given back below a lower limit of the memory.
    gives_back: bool,
    /// True if it has seen all buckets: a flush, or a server before, may have gone on from the first ones.
    is_whole: bool,
}

impl Pass {
    /// One that begins at `now`.
    fn begin<M: Mode, I: Io>(
        shared: &Shared<M, I>,
        own_busy_ns: u64,
        (now, now_s): (Instant, Seconds),
    ) -> Self {
        Self {
            orders: shared.sweep_orders(now_s),
            busy_ns: shared.busy_ns(),
            own_busy_ns,
            slices: 0,
            rest_until: now,
            slots: 0,
            first_expiry: Seconds::MAX,
            gives_back: false,
            is_whole: true,
        }
    }

    /// True if nothing that it left can be dead at `now`, or is to be given back.
    fn holds<M: Mode, I: Io>(&self, shared: &Shared<M, I>, now: Seconds) -> bool {
        self.is_whole
            && !self.gives_back
            && now < self.first_expiry
            && self.orders == shared.sweep_orders(now)
    }
}

impl Housekeeping {
    /// The schedule of worker `id`, first due at `now`.
    pub(crate) fn new(now: Instant, id: WorkerId) -> Self {
        Self {
            next: now,
            partition: id.index(),
            is_first_slice: true,
            pass: None,
            ended: None,
            connections_checked: 0,
            flushes: 0,
        }
    }

    /// True if no item of the worker's partitions can be dead at `now`: none changed since the last pass began. Nor is there
    /// anything to give back.
    fn is_done<M: Mode, I: Io>(&self, shared: &Shared<M, I>, own_busy_ns: u64, now: Seconds) -> bool {
        // A busy worker does not look at the others.
        let is_same = |pass: &Pass| pass.own_busy_ns == own_busy_ns && pass.busy_ns == shared.busy_ns();
        self.ended.is_some_and(|pass| is_same(&pass) && pass.holds(shared, now))
    }

    /// True between two passes if the last one has found nothing dead, and nothing has expired since: to look all the time
    /// costs a worker a hundredth of its processor, and more where nodes share one.
    fn is_resting<M: Mode, I: Io>(&self, shared: &Shared<M, I>, (now, now_s): (Instant, Seconds)) -> bool {
        self.pass.is_none()
            && self.ended.is_some_and(|pass| now < pass.rest_until && pass.holds(shared, now_s))
    }

    /// Ends a pass.
    fn end(&mut self, mut pass: Pass, now: Instant, id: WorkerId) {
        if pass.slots == 0 {
            let took = HOUSEKEEPING_EVERY.saturating_mul(pass.slices);
            pass.rest_until = now + took.saturating_mul(SWEEP_RESTS).min(SWEEP_REST_MAX);
        }
        (self.ended, self.partition) = (Some(pass), id.index());
    }
}

impl<M: Mode, I: Io> Worker<'_, M, I> {
    /// Does a bounded slice of background work.
    pub(crate) fn keep_house(&mut self) {
        let late = self.now.saturating_duration_since(self.housekeeping.next);
        let slices = late.div_duration_f32(HOUSEKEEPING_EVERY) as u32 + 1;
        self.housekeeping.next = self.now + HOUSEKEEPING_EVERY;
        self.flush_if_asked();
        for _ in 0..slices.min(SLICES_MAX) {
            if self.housekeeping.is_resting(self.shared, (self.now, self.now_s)) || self.is_swept() {
                break;
            }
            self.sweep();
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
        let Self { shared, now, now_s, id, .. } = *self;
        let (metrics, house) = (&self.mine.metrics, &mut self.housekeeping);
        metrics.sweeps.add(1);
        let begin = || Pass::begin(shared, metrics.busy_ns.value(), (now, now_s));
        let mut pass = house.pass.take().unwrap_or_else(begin);
        pass.slices += 1;
        let mut left = SWEEP_BUCKETS;
        while left > 0 {
            if house.partition >= shared.store.partitions() {
                return house.end(pass, now, id);
            }
            let swept = shared.store.sweep(house.partition, left, now_s);
            pass.is_whole &= swept.from_start || !house.is_first_slice;
            pass.first_expiry = pass.first_expiry.min(swept.first_expiry);
            pass.gives_back |= swept.gives_back;
            pass.slots += swept.slots;
            metrics.reclaimed.add(swept.expired + swept.flushed);
            house.is_first_slice = swept.pass_ended;
            if swept.pass_ended {
                house.partition += shared.workers.len();
            }
            left = left.saturating_sub(swept.buckets);
        }
        house.pass = Some(pass);
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
