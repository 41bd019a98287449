//! A worker's side of the native protocol: datagrams from its sockets, answers and jobs from it.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use minos_base::limits::BURST_MAX;
use minos_engine::Mode;
use minos_net::Poller;
use minos_sched::{Role, WorkerId};

use super::{
    datagrams::Datagrams,
    native::{Job, NativeWorker, Turn},
    outbound::PortEgress,
};
use crate::{
    server::shared::Shared,
    worker::{
        Worker,
        placement::WorkerPlacement,
        rings::{Message, RingItem, Waiting},
    },
};

/// For how long the next sign of a large transfer is looked for at each turn after the last one. A client that takes
/// longer waits for the next time that this worker sleeps or keeps house.
const ACTIVE_FOR: Duration = Duration::from_millis(10);
/// For how long a stopping server waits for it.
const LINGER: Duration = Duration::from_millis(250);

/// Hands a job to another worker, or gives it back if the ring of that one is full.
type HandOff<'a> = &'a mut dyn FnMut(WorkerId, Job) -> Result<(), Job>;

impl<'s, M: Mode, P: Poller> Worker<'s, M, P> {
    /// Serves at most `messages_max` messages that have arrived at the port of `queue`, which is no other worker's to
    /// receive from at the moment; says whether any had. From the number of RX queues on, these are the transfer
    /// ports.
    pub(crate) fn poll_port(&mut self, queue: usize, messages_max: usize) -> bool {
        let (shared, id) = (self.shared, self.id);
        let (Some(side), Some(datagrams)) = (&shared.native, &mut self.datagrams) else { return false };
        let Datagrams { native, burst, outbound, .. } = datagrams;
        let port = side.ports.port(queue);
        if let Err(error) = port.receive_at_most(burst, messages_max) {
            tracing::error!(%error, queue, "cannot receive datagrams");
            shared.stop.request();
            return false;
        }
        let messages = burst.messages();
        if messages.len() == 0 {
            return false;
        }
        let messages = messages.map(|message| {
            let bytes: &[u8] = message.bytes;
            (message.peer, bytes, message.segment_bytes)
        });
        let mut egress = outbound.through(port, shared.worker(id));
        let mut hand_off = |worker, job| hand_off(shared, id, worker, job);
        let (now, placement) = (self.now, &mut self.placement);
        native.on_messages(
            queue,
            messages,
            Turn { now, placement, egress: &mut egress, hand_off: &mut hand_off },
        );
        egress.flush();
        datagrams.note_activity(now);
        true
    }

    /// Puts at most `messages_max` messages that have arrived at the port of `queue` into this worker's ring; true if any
    /// had. As many as there is room for are received; the others wait in the socket.
    pub(crate) fn enqueue_messages(&mut self, queue: usize, messages_max: usize) -> bool {
        let (shared, waiting) = (self.shared, &self.mine().waiting);
        let Some(side) = &shared.native else { return false };
        let messages_max = messages_max.min(waiting.capacity() - waiting.len());
        // Lent out, so that it can be looked at while the worker changes.
        let Some(mut datagrams) = self.datagrams.take() else { return false };
        if let Err(error) = side.ports.port(queue).receive_at_most(&mut datagrams.burst, messages_max) {
            tracing::error!(%error, queue, "cannot receive datagrams");
            shared.stop.request();
        }
        let mut arrived = false;
        for message in datagrams.burst.messages() {
            arrived = true;
            let bytes: &[u8] = message.bytes;
            let (peer, segment_bytes) = (message.peer, message.segment_bytes);
            let message = Message { queue, peer, bytes: bytes.into(), segment_bytes };
            if self.put_waiting(Waiting::Message(message)).is_err() {
                // As in a socket that is full.
                self.mine().metrics.queued_dropped.add(1);
            }
        }
        self.datagrams = Some(datagrams);
        arrived
    }

    /// Serves a message that waited in a ring.
    pub(crate) fn serve_message(&mut self, message: &Message) {
        let messages = [(message.peer, &*message.bytes, message.segment_bytes)];
        self.with_native(message.queue, |native, turn| native.on_messages(message.queue, messages, turn));
        self.send_answers(message.queue);
    }

    /// Looks for fragments, and for clients that ask for more of a large value. Nobody else polls this port, because
    /// only this worker has what belongs to them.
    pub(crate) fn poll_transfers(&mut self, must: bool) -> bool {
        let now = self.now;
        let Some(datagrams) = &self.datagrams else { return false };
        if !must && !datagrams.is_active(now, ACTIVE_FOR) {
            return false;
        }
        // A burst of fragments takes as long as many small requests.
        let is_free = self.role() == Role::Large && self.large.len() == 0;
        let messages_max = if is_free { BURST_MAX } else { 1 };
        self.poll_port(self.transfer_queue(), messages_max)
    }

    /// Does what another worker has handed over; the answers wait for [`Worker::answer_jobs`].
    pub(crate) fn do_job(&mut self, job: Job) {
        self.with_native(self.transfer_queue(), |native, turn| native.on_job(job, turn));
    }

    /// Sends the answers to a burst of jobs.
    pub(crate) fn answer_jobs(&mut self) {
        self.send_answers(self.transfer_queue());
    }

    /// Copies a slice of a large value that has arrived; says whether there was one.
    pub(crate) fn copy_slice(&mut self) -> bool {
        if !self.datagrams.as_ref().is_some_and(Datagrams::is_copying) {
            return false;
        }
        self.mine().metrics.slices.add(1);
        let (begun, slice_bytes) = (Instant::now(), self.slice_bytes());
        self.with_native(self.transfer_queue(), |native, turn| native.advance(slice_bytes, turn));
        self.answer_jobs();
        self.count_large(begun);
        true
    }

    /// The queue whose port takes this worker's fragments, and sends its answers to what it was handed.
    pub(crate) fn transfer_queue(&self) -> usize {
        self.shared.queues.len() + self.id.index()
    }

    /// Lends the native part what it needs to answer through the port of `queue`; [`Worker::send_answers`] is to
    /// follow.
    fn with_native(
        &mut self,
        queue: usize,
        act: impl FnOnce(&mut NativeWorker<'s, M>, Turn<'_, WorkerPlacement, PortEgress<'_>, HandOff<'_>>),
    ) {
        let (shared, id) = (self.shared, self.id);
        let (Some(side), Some(datagrams)) = (&shared.native, &mut self.datagrams) else { return };
        let mut egress = datagrams.outbound.through(side.ports.port(queue), shared.worker(id));
        let mut hand_off: HandOff<'_> = &mut |worker, job| hand_off(shared, id, worker, job);
        let (now, placement) = (self.now, &mut self.placement);
        act(&mut datagrams.native, Turn { now, placement, egress: &mut egress, hand_off: &mut hand_off });
    }

    /// Sends what was answered through the port of `queue`.
    fn send_answers(&mut self, queue: usize) {
        let (shared, now) = (self.shared, self.now);
        let (Some(side), Some(datagrams)) = (&shared.native, &mut self.datagrams) else { return };
        datagrams.outbound.through(side.ports.port(queue), shared.worker(self.id)).flush();
        datagrams.note_activity(now);
    }

    /// Gives up transfers of which nothing was heard for too long.
    pub(crate) fn tick_datagrams(&mut self) {
        let now = self.now;
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.native.on_tick(now);
        }
    }

    /// Whether large transfers of datagrams are under way, for a server that is stopping.
    pub(crate) fn has_transfers(&self) -> bool {
        self.datagrams.as_ref().is_some_and(|datagrams| datagrams.is_active(self.now, LINGER))
    }

    /// What becomes readable when datagrams arrive at the port of `queue`.
    pub(crate) fn port_descriptor(&self, queue: usize) -> Option<BorrowedFd<'s>> {
        self.shared.native.as_ref().map(|side| side.ports.port(queue).as_fd())
    }
}

/// Hands a job to the worker that it belongs to, unless its ring is full.
fn hand_off<M: Mode, P: Poller>(
    shared: &Shared<M, P>,
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
        Err(RingItem::Transfer(_)) => unreachable!("a ring gives back what it was given"),
    }
}
