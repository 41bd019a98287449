//! A worker's part of the native protocol: receives datagrams, sends answers and hands over jobs.

use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use minos_base::limits::BURST_MAX;
use minos_engine::Mode;
use minos_net::{Io, Port};
use minos_sched::{Role, WorkerId};

use super::{
    Datagrams,
    native::{Egress as _, Held, Job, NativeWorker, Turn, Waiting},
    outbound::PortEgress,
};
use crate::{
    ops::Fetched,
    server::shared::Shared,
    worker::{
        Worker,
        placement::WorkerPlacement,
        rings::{Awaiting, Holder, Message, RingItem, Waiter},
    },
};

/// Time after the last activity of large transfers in which the transfer port is polled each turn. A slower
/// client waits until this worker sleeps or does background work.
const ACTIVE_FOR: Duration = Duration::from_millis(10);
/// Time that a stopping server waits for such activity.
const LINGER: Duration = Duration::from_millis(250);

/// Hands a job to another worker, or returns it if that worker's ring is full.
type HandOff<'a> = &'a mut dyn FnMut(WorkerId, Job) -> Result<(), Job>;

impl<'s, M: Mode, I: Io> Worker<'s, M, I> {
    /// Receives at most `messages_max` messages from the port of `queue`; true if there are any to serve. No
    /// other worker may receive from the port at the same time. Numbers from the number of RX queues on are
    /// the transfer ports.
    pub(crate) fn receive_messages(&mut self, queue: usize, messages_max: usize) -> bool {
        let (Some(side), Some(datagrams)) = (&self.shared.native, &mut self.datagrams) else { return false };
        match side.ports.port(queue).receive_at_most(&mut datagrams.burst, messages_max) {
            Ok(messages) => messages > 0,
            Err(error) => {
                tracing::error!(%error, queue, "cannot receive datagrams");
                self.shared.stop.request();
                false
            }
        }
    }

    /// Serves the messages just received from the port of `queue`.
    pub(crate) fn serve_messages(&mut self, queue: usize) {
        let (shared, id, guard) = (self.shared, self.id, self.guard());
        let (Some(side), Some(datagrams)) = (&shared.native, &mut self.datagrams) else { return };
        let Datagrams { native, burst, outbound, .. } = datagrams;
        let messages = I::Port::messages(burst).map(|message| {
            let bytes: &[u8] = message.bytes;
            (message.peer, bytes, message.segment_bytes)
        });
        let mut egress = outbound.through(side.ports.port(queue), shared.worker(id), guard);
        let mut hand_off = |worker, job| hand_off(shared, id, worker, job);
        let (now, placement) = (self.now, &mut self.placement);
        native.on_messages(
            queue,
            messages,
            Turn { now, placement, egress: &mut egress, hand_off: &mut hand_off },
        );
        egress.flush();
        datagrams.note_activity(now);
        self.pass_waiting();
    }

    /// Puts the messages just received into this worker's ring, which several workers drain.
    pub(crate) fn enqueue_messages(&mut self, queue: usize) {
        // Taken out, so that it can be read while the worker is borrowed.
        let Some(mut datagrams) = self.datagrams.take() else { return };
        for message in I::Port::messages(&mut datagrams.burst) {
            let bytes: &[u8] = message.bytes;
            let (peer, segment_bytes) = (message.peer, message.segment_bytes);
            let message = Message { queue, peer, bytes: bytes.into(), segment_bytes };
            if self.put_waiting(RingItem::Message(message)).is_err() {
                // Dropped, as by a full socket.
                self.mine.metrics.queued_dropped.add(1);
            }
        }
        self.datagrams = Some(datagrams);
    }

    /// Serves a message that waited in a shared ring.
    pub(crate) fn serve_message(&mut self, message: &Message) {
        let messages = [(message.peer, &*message.bytes, message.segment_bytes)];
        self.with_native(message.queue, |native, turn| native.on_messages(message.queue, messages, turn));
        self.send_answers(message.queue);
        self.pass_waiting();
    }

    /// Receives fragments, and requests for more of a large value. Only this worker polls the port, because
    /// it alone holds the state of these transfers.
    pub(crate) fn poll_transfers(&mut self, must: bool) -> bool {
        let now = self.now;
        let Some(datagrams) = &self.datagrams else { return false };
        if !must && !datagrams.is_active(now, ACTIVE_FOR) {
            return false;
        }
        // A burst of fragments takes as long as many small requests.
        let is_free = self.role() == Role::Large && self.large.len() == 0;
        let messages_max = if is_free { BURST_MAX } else { 1 };
        let queue = self.transfer_queue();
        let arrived = self.receive_messages(queue, messages_max);
        if arrived {
            self.serve_messages(queue);
        }
        arrived
    }

    /// Does a job that another worker handed over; its answers wait for [`Worker::answer_jobs`].
    pub(crate) fn do_job(&mut self, job: Job) {
        self.with_native(self.transfer_queue(), |native, turn| native.on_job(job, turn));
        self.pass_waiting();
    }

    /// Passes the work of datagrams that needs items from flash to the worker that fetches them, and keeps the answers
    /// that wait until changes are durable.
    fn pass_waiting(&mut self) {
        if !M::HAS_FLASH && self.rack.is_none() {
            return;
        }
        let held = self.datagrams.as_mut().map_or_else(Vec::new, |datagrams| datagrams.native.take_held());
        if !held.is_empty() {
            self.hold(Holder::Answers(held));
        }
        while let Some((waiting, fetch)) =
            self.datagrams.as_mut().and_then(|datagrams| datagrams.native.take_waiting())
        {
            // A store goes on where its value is. What needs no item from the device waits here, too.
            let stays = matches!(waiting, Waiting::Store(_)) || fetch.keys.is_empty();
            let awaiting = Box::new(Awaiting { waiter: Waiter::Datagrams(waiting), fetch });
            if stays { self.begin_fetch(awaiting) } else { self.pass_or_fetch(awaiting) }
        }
    }

    /// Goes on with work whose items have come; its answers wait for [`Worker::answer_jobs`].
    pub(crate) fn go_on_waiting(&mut self, waiting: Waiting, fetched: &Fetched) {
        self.with_native(self.transfer_queue(), |native, turn| native.go_on(waiting, fetched, turn));
        self.pass_waiting();
    }

    /// Answers operations whose items no worker has room to fetch.
    pub(crate) fn refuse_waiting(&mut self, waiting: &Waiting) {
        let queue = self.transfer_queue();
        self.with_native(queue, |native, turn| native.refuse_waiting(waiting, turn));
        self.send_answers(queue);
    }

    /// Composes answers that waited until changes were durable, or cannot become so; they wait for
    /// [`Worker::answer_jobs`].
    pub(crate) fn release_answers(&mut self, held: Vec<Held<M>>, is_durable: bool) {
        self.with_native(self.transfer_queue(), |native, turn| native.release(held, is_durable, turn));
    }

    /// Sends the answers to a burst of jobs.
    pub(crate) fn answer_jobs(&mut self) {
        self.send_answers(self.transfer_queue());
    }

    /// Copies a slice of a large value that has arrived; true if there was one.
    pub(crate) fn copy_slice(&mut self) -> bool {
        if !self.datagrams.as_ref().is_some_and(Datagrams::is_copying) {
            return false;
        }
        self.mine.metrics.slices.add(1);
        let (begun, slice_bytes) = (Instant::now(), self.slice_bytes());
        self.with_native(self.transfer_queue(), |native, turn| native.advance(slice_bytes, turn));
        self.answer_jobs();
        self.pass_waiting();
        self.count_large(begun);
        true
    }

    /// The queue whose port receives this worker's fragments and sends the answers to its jobs.
    pub(crate) fn transfer_queue(&self) -> usize {
        self.shared.queues.len() + self.id.index()
    }

    /// Calls the native part with all it needs to answer through the port of `queue`; call
    /// [`Worker::send_answers`] afterwards.
    fn with_native(
        &mut self,
        queue: usize,
        act: impl FnOnce(
            &mut NativeWorker<'s, M>,
            Turn<'_, WorkerPlacement, PortEgress<'_, I::Port>, HandOff<'_>>,
        ),
    ) {
        let (shared, id, guard) = (self.shared, self.id, self.guard());
        let (Some(side), Some(datagrams)) = (&shared.native, &mut self.datagrams) else { return };
        let mut egress = datagrams.outbound.through(side.ports.port(queue), shared.worker(id), guard);
        let mut hand_off: HandOff<'_> = &mut |worker, job| hand_off(shared, id, worker, job);
        let (now, placement) = (self.now, &mut self.placement);
        act(&mut datagrams.native, Turn { now, placement, egress: &mut egress, hand_off: &mut hand_off });
    }

    /// Sends the composed answers through the port of `queue`.
    fn send_answers(&mut self, queue: usize) {
        let (shared, now, guard) = (self.shared, self.now, self.guard());
        let (Some(side), Some(datagrams)) = (&shared.native, &mut self.datagrams) else { return };
        datagrams.outbound.through(side.ports.port(queue), shared.worker(self.id), guard).flush();
        datagrams.note_activity(now);
    }

    /// Gives up transfers that have been silent for too long, and begins those that wait for the room of such.
    pub(crate) fn tick_datagrams(&mut self) {
        if self.datagrams.is_none() {
            return;
        }
        let now = self.now;
        self.with_native(self.transfer_queue(), |native, turn| {
            native.on_tick(now);
            native.admit_waiting(turn);
        });
        self.answer_jobs();
        self.pass_waiting();
    }

    /// True if large transfers of datagrams may be in progress; asked by a stopping server.
    pub(crate) fn has_transfers(&self) -> bool {
        self.datagrams.as_ref().is_some_and(|datagrams| datagrams.is_active(self.now, LINGER))
    }

    /// The descriptor that becomes readable when datagrams arrive at the port of `queue`.
    pub(crate) fn port_descriptor(&self, queue: usize) -> Option<BorrowedFd<'s>> {
        self.shared.native.as_ref().map(|side| side.ports.port(queue).descriptor())
    }
}

/// Hands a job to its worker, or returns it if that worker's ring is full.
fn hand_off<M: Mode, I: Io>(
    shared: &Shared<M, I>,
    from: WorkerId,
    to: WorkerId,
    job: Job,
) -> Result<(), Job> {
    let target = &shared.workers[to.index()];
    match target.ring.push(RingItem::Job(job)) {
        Ok(()) => {
            if to != from {
                target.waker.wake();
            }
            Ok(())
        }
        Err(RingItem::Job(job)) => Err(job),
        Err(_) => unreachable!("a full ring gives back what it was given"),
    }
}
