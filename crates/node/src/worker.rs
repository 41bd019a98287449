//! The worker loop.

#[cfg(test)]
mod lockstep;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use arrayvec::ArrayVec;
use minos_base::{
    Seconds,
    limits::{BURST_MAX, LONG_TURN},
};
use minos_engine::Mode;
use minos_net::{Poller, Progress, Wait, wait_readable};
use minos_proto::memcache::Limits;
use minos_sched::{Role, Seen, Step, WorkerId, next_step};

use crate::{
    connection::Connection,
    datagrams::Datagrams,
    housekeeping::Housekeeping,
    idle::Idle,
    large_set::{Ended, LargeSet},
    native::NativeWorker,
    placement::WorkerPlacement,
    queue::Arrival,
    shared::{RingItem, Shared, WorkerShared},
    transfer::{Slice, Transfer, Work},
};

/// Bytes received in one call. Small enough to stay in the L1 and L2 caches, and to bound the bytes of a
/// large value that have to be copied because they came with its head.
const RECEIVE_BYTES: usize = 16 << 10;

/// A turn of the loop.
struct Turn {
    began: Instant,
    /// It found something to do.
    worked: bool,
}

/// One worker: a thread with an RX queue, two rings and a set of large transfers.
///
/// The poller is a type, so that the path of a request holds no branch on it. What the design asks of the worker is data:
/// the duty in its placement.
pub(crate) struct Worker<'s, M: Mode, P: Poller> {
    pub(crate) shared: &'s Shared<M, P>,
    pub(crate) id: WorkerId,
    pub(crate) placement: WorkerPlacement,
    pub(crate) large: LargeSet<M>,
    /// Its side of the native protocol, if that is served.
    pub(crate) datagrams: Option<Datagrams<'s, M>>,
    pub(crate) idle: Idle,
    /// The clock, read once a turn of the loop.
    pub(crate) now: Instant,
    pub(crate) now_s: Seconds,
    pub(crate) housekeeping: Housekeeping,
    /// Where the next look round other workers' queues and rings begins, so that nobody always comes first.
    pub(crate) round: usize,
    /// What `visit` receives into and composes replies in.
    pub(crate) receive_buffer: Box<[u8]>,
    pub(crate) transmit_buffer: Vec<u8>,
    /// Bytes of replies after which they are sent before another request is executed.
    pub(crate) replies_bytes_max: usize,
    pub(crate) limits: Limits,
}

impl<'s, M: Mode, P: Poller> Worker<'s, M, P> {
    pub(crate) fn new(shared: &'s Shared<M, P>, id: WorkerId, large: LargeSet<M>) -> Self {
        let now = Instant::now();
        let config = &shared.config;
        let histogram = Arc::clone(&shared.workers[id.index()].histogram);
        Self {
            placement: WorkerPlacement::new(&shared.plan, id, histogram, config.control.sample_one_in),
            large,
            datagrams: datagrams(shared, id),
            idle: Idle::new(config.poll, config.spin_max),
            now,
            now_s: shared.clock.seconds_at(now),
            housekeeping: Housekeeping::new(now, id),
            round: id.index(),
            receive_buffer: vec![0; RECEIVE_BYTES].into_boxed_slice(),
            transmit_buffer: Vec::new(),
            replies_bytes_max: config.replies_bytes_max(),
            limits: Limits {
                value_bytes_max: config.value_bytes_max,
                line_bytes_max: config.buffer_bytes_max,
            },
            id,
            shared,
        }
    }

    /// Works until the server stops.
    pub(crate) fn run(mut self) {
        self.note_plan();
        let mut last = None;
        while !self.shared.stop.is_requested() {
            self.read_clock();
            self.count_turn(last.take());
            if self.placement.refresh(&self.shared.plan) {
                self.note_plan();
            }
            let worked = self.turn();
            self.keep_house();
            last = Some(Turn { began: self.now, worked });
            if worked {
                if self.idle.worked(self.now) && !self.has_slices() {
                    // What came home in this turn may be others' to poll.
                    self.pass_on(self.id.index());
                    self.read_clock();
                    self.count_turn(last.take());
                    self.sleep();
                }
            } else if self.idle.may_sleep(self.now) {
                last = None;
                self.sleep();
            } else {
                std::hint::spin_loop();
            }
        }
        self.finish();
    }

    /// One turn of the loop; true if there was work.
    fn turn(&mut self) -> bool {
        self.turn_watched(|_, _| {})
    }

    /// The same; `watch` is told of each step, and whether it found something.
    #[inline]
    fn turn_watched(&mut self, mut watch: impl FnMut(Step, bool)) -> bool {
        let mut seen = Seen { ring_is_empty: self.mine().waiting.is_empty(), ..Seen::default() };
        loop {
            seen.holds_large = self.large.is_runnable();
            let Some(step) = next_step(self.placement.duty(), &seen) else { return seen.worked };
            let found = self.take(step);
            seen.note(step, found);
            watch(step, found);
        }
    }

    /// Takes a step of a turn; true if it found something.
    #[inline]
    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Poll => self.take_arrivals(),
            Step::GiveBack => self.give_back(),
            Step::Collect => self.take_from_ring(),
            Step::Draw => self.serve_waiting(),
            Step::Slice => self.poll_transfers(false) | self.copy_slice() | self.serve_large(),
            Step::Repay | Step::Help => self.help(),
            Step::Relieve => self.relieve(),
        }
    }

    /// Goes by a plan that was just taken over.
    fn note_plan(&mut self) {
        self.mine().metrics.role_changes.add(u64::from(self.placement.has_changed_role()));
        // What was this worker's to poll, or to take, may not be any more.
        (0..self.shared.queues.len()).for_each(|queue| self.pass_on(queue));
        self.pass_rings_on();
        if self.placement.has_changed_design() && !self.placement.enqueues() {
            self.empty_ring();
        }
        // Release: whoever waits for it sees what was done under the plan before.
        self.mine().plan_version.store(self.placement.version(), Ordering::Release);
    }

    pub(crate) fn mine(&self) -> &'s WorkerShared<M> {
        &self.shared.workers[self.id.index()]
    }

    /// Counts the time of a turn that has just ended.
    fn count_turn(&self, turn: Option<Turn>) {
        let Some(Turn { began, worked }) = turn else { return };
        let (time, metrics) = (self.now.saturating_duration_since(began), &self.mine().metrics);
        if worked {
            metrics.busy_ns.add(time.as_nanos() as u64);
        }
        if time > LONG_TURN {
            metrics.long_turns.add(1);
        }
    }

    fn read_clock(&mut self) {
        self.now = Instant::now();
        self.now_s = self.shared.clock.seconds_at(self.now);
    }

    pub(crate) fn role(&self) -> Role {
        self.placement.role()
    }

    /// Takes a burst of what others have handed over from this worker's ring.
    fn take_from_ring(&mut self) -> bool {
        let (mut transfers, mut jobs) = (0, 0);
        while transfers + jobs < BURST_MAX as u64 {
            match self.mine().ring.pop() {
                Some(RingItem::Transfer(transfer)) => {
                    self.large.insert(transfer, self.now);
                    transfers += 1;
                }
                Some(RingItem::Job(job)) => {
                    self.do_job(job);
                    jobs += 1;
                }
                None => break,
            }
        }
        if jobs > 0 {
            self.answer_jobs();
        }
        self.mine().metrics.large_taken.add(transfers);
        transfers + jobs > 0
    }

    /// Serves one slice of a large transfer: as much as may come between two looks at the RX queues.
    fn serve_large(&mut self) -> bool {
        if self.large.len() == 0 {
            return false;
        }
        self.large.poll(self.now);
        if !self.large.is_runnable() {
            return false;
        }
        self.mine().metrics.slices.add(1);
        let begun = Instant::now();
        match self.large.serve_slice(self.slice_bytes(), self.now) {
            Some(Ended::Complete(transfer)) => {
                if let Some(transfer) = self.complete(*transfer) {
                    self.large.insert(transfer, self.now);
                }
            }
            Some(Ended::Broken(transfer)) => self.give_up(*transfer),
            None => {}
        }
        self.count_large(begun);
        true
    }

    /// True if the next slice of a large request could be served at once.
    fn has_slices(&self) -> bool {
        self.large.is_runnable() || self.datagrams.as_ref().is_some_and(Datagrams::is_copying)
    }

    /// Bytes of a large request that this worker serves between two looks at its RX queues.
    pub(crate) fn slice_bytes(&self) -> usize {
        self.placement.duty().slice_bytes(self.shared.config.slice_bytes as u64) as usize
    }

    /// Serves a transfer to its end here and now, as far as its socket allows.
    pub(crate) fn serve_inline(&mut self, transfer: Box<Transfer<M>>) {
        self.mine().metrics.large_inline.add(1);
        // Whatever comes to this worker meanwhile is for those who help.
        self.call_helper(self.id.index());
        let begun = Instant::now();
        self.serve_to_the_end(transfer);
        self.count_large(begun);
    }

    fn serve_to_the_end(&mut self, mut transfer: Box<Transfer<M>>) {
        loop {
            match transfer.advance(usize::MAX) {
                Slice::Moved(_) => {}
                Slice::Complete => match self.complete(*transfer) {
                    Some(unfinished) => transfer = unfinished,
                    None => return,
                },
                Slice::Broken => return self.give_up(*transfer),
                Slice::Blocked => return self.large.insert(transfer, self.now),
            }
        }
    }

    /// Counts the time since a large request was taken up.
    pub(crate) fn count_large(&mut self, begun: Instant) {
        self.mine().metrics.large_ns.add(begun.elapsed().as_nanos() as u64);
    }

    /// Ends a transfer: executes what waited for its bytes, and sends the connection home. What has to be copied first
    /// comes back as a transfer.
    fn complete(&mut self, transfer: Transfer<M>) -> Option<Box<Transfer<M>>> {
        self.count_moved(&transfer);
        let Transfer { mut connection, head, work, .. } = transfer;
        match work {
            Work::Send { mut reply, .. } => connection.resume = reply.take_resume(),
            Work::Receive { store, .. } | Work::Finish { store } => {
                self.transmit_buffer.clear();
                self.transmit_buffer.extend_from_slice(&head);
                if let Some(store) = self.finish_store(store) {
                    let work = Work::Finish { store };
                    return Some(Box::new(Transfer { connection, head, work, moved_bytes: 0 }));
                }
                self.answer(&mut connection);
            }
        }
        self.mine().metrics.large_completed.add(1);
        connection.registration.active(self.now_s);
        self.send_home(connection.home, Arrival::Back(connection));
        None
    }

    /// Sends the transmit buffer on a connection that was lent to this worker: its home may be busy, or may
    /// have stopped already.
    fn answer(&self, connection: &mut Connection) {
        let bytes = self.transmit_buffer.as_slice();
        if bytes.is_empty() {
            return;
        }
        self.mine().counters.bytes_written.add(bytes.len() as u64);
        match connection.socket.send(bytes) {
            Progress::Bytes(sent) => self.keep(connection, &bytes[sent..]),
            Progress::Blocked => self.keep(connection, bytes),
            Progress::Closed => connection.closing = true,
        }
    }

    fn count_moved(&self, transfer: &Transfer<M>) {
        let counters = &self.mine().counters;
        match transfer.work {
            Work::Send { .. } => counters.bytes_written.add(transfer.moved_bytes),
            Work::Receive { .. } | Work::Finish { .. } => counters.bytes_read.add(transfer.moved_bytes),
        }
    }

    pub(crate) fn give_up(&mut self, transfer: Transfer<M>) {
        self.count_moved(&transfer);
        self.mine().metrics.large_broken.add(1);
        let connection = transfer.connection;
        self.send_home(connection.home, Arrival::Ended(connection));
    }

    /// Gives a connection back to its RX queue. In the build that is the control of the tests of role changes, it is
    /// lost here.
    pub(crate) fn send_home(&self, queue: usize, mut arrival: Arrival) {
        if cfg!(minos_no_hand_back) {
            return;
        }
        // The ring has room for every connection of the server, so that this ends at the first try; a
        // second can only be needed while another worker is between two steps of its own push.
        let is_done = matches!(arrival, Arrival::Visited { has_more: false, .. });
        while let Err(refused) = self.shared.queues[queue].arrivals.push(arrival) {
            arrival = refused;
            std::thread::yield_now();
        }
        let assignment = self.placement.assignment();
        match queue == self.id.index() {
            // This worker looks at its own queue before it sleeps, or passes it on.
            true => {}
            // Who polls the queue may have missed something about it; nobody else need come for it.
            false if is_done => {
                self.shared.wake_pollers(assignment, queue);
            }
            false => self.shared.wake_comers(assignment, queue),
        }
    }

    /// Gives what is under way a bounded time to end.
    fn finish(&mut self) {
        // A time that no clock reaches is no limit.
        let deadline = Instant::now().checked_add(self.shared.config.stop_timeout);
        loop {
            self.read_clock();
            self.take_from_ring();
            while self.serve_waiting() {}
            self.poll_transfers(true);
            while self.copy_slice() {}
            self.tick_datagrams();
            if (self.large.len() == 0 && self.mine().ring.is_empty() && !self.has_transfers())
                || deadline.is_some_and(|deadline| self.now >= deadline)
                || self.shared.stop.is_at_once()
            {
                return;
            }
            if !self.serve_large() {
                let transfers = self.port_descriptor(self.transfer_queue());
                let descriptors: ArrayVec<_, 2> =
                    [Some(self.large.descriptor()), transfers].into_iter().flatten().collect();
                let _ = wait_readable(&descriptors, Wait::For(Duration::from_millis(10)));
            }
        }
    }
}

/// The side of worker `id` of the native protocol, if that is served.
fn datagrams<M: Mode, P: Poller>(shared: &Shared<M, P>, id: WorkerId) -> Option<Datagrams<'_, M>> {
    let side = shared.native.as_ref()?;
    let counters = Arc::clone(&shared.worker(id).counters);
    Some(Datagrams::new(NativeWorker::new(Arc::clone(&side.core), id, counters, shared)))
}
