//! One worker's part of the native protocol.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use minos_base::SizeClass;
use minos_engine::Mode;
use minos_proto::native::Header;
use minos_sched::WorkerId;
use siphasher::sip::SipHasher24;

use super::{
    Egress, HandOff, Job, NativeShared,
    burst::{Burst, Chunk},
    job::{HandedDatagram, Work},
    outlet::Outlet,
    transfers::{BudgetBounds, Transfers, TransfersConfig},
    waiting::{Held, Waiting, Waits},
};
use crate::ops::{Admin, Context, Fetch, Fetched, Placement, counters::Counters};
use crate::rack::{Holes, RackView};
use crate::watch::Probe;

/// STATS answered in one burst. A report reads every partition, and its request is shorter than a GET.
const REPORTS_MAX: u32 = 4;

/// The administration of a worker without a server: in tests, fuzzing and the simulation.
pub(super) struct Nobody;

impl Admin for Nobody {}

/// A fixed plan: values above a class belong to one worker.
#[derive(Clone, Copy, Debug)]
pub struct SizeLimit {
    /// The largest class that every worker serves itself.
    pub class_max: SizeClass,
    /// The worker for larger values; with `None` everything is served where it arrives.
    pub large_worker: Option<WorkerId>,
}

impl Placement for SizeLimit {
    fn is_here(&mut self, class: SizeClass) -> bool {
        self.serves(class)
    }

    fn serves(&self, class: SizeClass) -> bool {
        class <= self.class_max
    }

    fn home(&self, class: SizeClass) -> Option<WorkerId> {
        self.large_worker.filter(|_| !self.serves(class))
    }
}

/// The environment that a worker gives its native part for one call.
///
/// The native part sends only through `egress` and hands over only through `hand_off`, which returns a job
/// that it cannot take.
pub struct Turn<'t, P, E, H> {
    /// The time.
    pub now: Instant,
    /// Decides where operations are executed, by the size of their value.
    pub placement: &'t mut P,
    /// Sends the answers.
    pub egress: &'t mut E,
    /// Hands jobs to other workers: a [`HandOff`].
    pub hand_off: &'t mut H,
}

/// One worker's part of the native protocol: its large transfers, and its memory for composing answers.
pub struct NativeWorker<'s, M: Mode> {
    shared: Arc<NativeShared<M>>,
    id: WorkerId,
    counters: Arc<Counters>,
    admin: &'s dyn Admin,
    pub(in crate::datagram) transfers: Transfers<M>,
    waits: Waits<M>,
    /// The rack as this worker sees it, if the server is one of its nodes.
    rack: Option<RackView<M>>,
    /// Chooses the operations that are looked at.
    probe: Probe,
    /// Holds a record that did not fit into a datagram.
    moved: Vec<u8>,
}

impl<'s, M: Mode> NativeWorker<'s, M> {
    /// The part of worker `id` of a server that answers for `admin` and counts commands in `counters`.
    pub(crate) fn new(
        shared: Arc<NativeShared<M>>,
        id: WorkerId,
        counters: Arc<Counters>,
        admin: &'s dyn Admin,
    ) -> Self {
        let config = TransfersConfig {
            queue: (shared.queues + id.index()) as u16,
            window: shared.config.window,
            budget: BudgetBounds {
                burst_bytes: shared.config.send_burst_bytes,
                client_bytes: shared.config.send_client_bytes,
            },
            timeout: shared.config.transfer_timeout,
            seals: shared.seals.clone(),
            names: SipHasher24::new_with_key(&shared.transfer_key),
        };
        let transfers = Transfers::new(
            config,
            Arc::clone(&shared.transfer_bounds),
            Arc::clone(&shared.transfer_counters[id.index()]),
        );
        let moved = Vec::with_capacity(shared.config.datagram_bytes);
        Self {
            shared,
            id,
            counters,
            admin,
            transfers,
            waits: Waits::new(),
            rack: None,
            probe: Probe::off(),
            moved,
        }
    }

    /// The same as a part of a node of a rack.
    pub(crate) fn of_rack(self, rack: Option<RackView<M>>) -> Self {
        Self { rack, ..self }
    }

    /// The same with a probe.
    pub(crate) fn with_probe(self, probe: Probe) -> Self {
        Self { probe, ..self }
    }

    /// The worker's probe.
    pub(crate) fn probe(&self) -> &Probe {
        &self.probe
    }

    /// Begins a turn with the newest routes of the rack; their version.
    pub(crate) fn refresh_rack(&mut self, now: Instant) -> Option<u64> {
        let rack = self.rack.as_mut()?;
        rack.refresh(now);
        Some(rack.version())
    }

    /// Hands the changes of this turn over to those who follow them.
    pub(crate) fn hand_over(&self) {
        self.rack.iter().for_each(RackView::hand_over);
    }

    /// The last hand-over, for which answers wait.
    pub(crate) fn handed(&self) -> u64 {
        self.rack.as_ref().map_or(0, RackView::handed)
    }

    /// Calls `send` with each other node of the rack and the notes for it.
    pub(crate) fn take_notes(&self, send: impl FnMut(usize, &[u8])) {
        if let Some(rack) = &self.rack {
            rack.take_notes(send);
        }
    }

    /// Worker `id` outside a server: it has counters of its own, and its statistics cover the store only.
    pub fn standalone(shared: Arc<NativeShared<M>>, id: WorkerId) -> NativeWorker<'static, M> {
        NativeWorker::new(shared, id, Arc::default(), &Nobody)
    }

    /// Large stores that are still arriving at this worker.
    pub fn transfers_open(&self) -> usize {
        self.transfers.open
    }

    /// Serves messages that arrived at the socket of `queue`; numbers from the number of RX queues on are the
    /// transfer queues. A message is its source, its bytes and the length of its segments, of which only the
    /// last may be shorter.
    pub fn on_messages<'m, P: Placement, E: Egress, H: HandOff>(
        &mut self,
        queue: usize,
        messages: impl IntoIterator<Item = (SocketAddr, &'m [u8], usize)>,
        turn: Turn<'_, P, E, H>,
    ) {
        let mut burst = self.burst(queue, turn);
        let mut chunk = Chunk::new();
        for (peer, bytes, segment_bytes) in messages {
            burst.message(&mut chunk, peer, bytes, segment_bytes);
        }
        burst.finish(&mut chunk);
    }

    /// Does a job that another worker handed over.
    pub fn on_job<P: Placement, E: Egress, H: HandOff>(&mut self, mut job: Job, turn: Turn<'_, P, E, H>) {
        let mut burst = self.burst(self.id.index(), turn);
        let mut chunk = Chunk::new();
        match &mut *job.0 {
            Work::Datagram(HandedDatagram { to, bytes }) => {
                if let Ok(header) = Header::parse(bytes) {
                    burst.serve(&mut chunk, *to, &header, bytes);
                }
            }
            Work::Operation(handed) => burst.execute_handed(&handed.to, &handed.operation()),
            Work::Store(handed, permit) => burst.begin_admitted(handed, permit.take()),
            Work::Flush(handed, ticket, flushed) => {
                burst.flush_in_turn(&handed.to, &handed.operation(), (ticket.take(), *flushed));
            }
        }
        burst.finish(&mut chunk);
    }

    /// True if a large value that has arrived is being copied; call [`NativeWorker::advance`] then.
    pub fn is_copying(&self) -> bool {
        self.transfers.is_copying()
    }

    /// Copies a slice of at most `bytes_max` bytes of a large value that has arrived, and answers after the
    /// last slice.
    pub fn advance<P: Placement, E: Egress, H: HandOff>(
        &mut self,
        bytes_max: usize,
        turn: Turn<'_, P, E, H>,
    ) {
        let mut burst = self.burst(self.id.index(), turn);
        burst.advance(bytes_max);
        burst.admit_waiting();
    }

    /// Begins large stores that have waited, if there is room for them by now. Ask now and then; after messages and jobs that
    /// is done.
    pub fn admit_waiting<P: Placement, E: Egress, H: HandOff>(&mut self, turn: Turn<'_, P, E, H>) {
        self.burst(self.id.index(), turn).admit_waiting();
    }

    /// Takes out work that waits for flash. Ask after each call that may execute operations.
    pub(crate) fn take_waiting(&mut self) -> Option<(Waiting, Box<Fetch<M>>)> {
        while let Some((name, fetch)) = self.transfers.cold.pop() {
            self.waits.add_store(name, fetch);
        }
        self.waits.take()
    }

    /// Takes out the answers that wait until everything so far is durable. Ask as for work that waits.
    pub(crate) fn take_held(&mut self) -> Vec<Held<M>> {
        let mut held = self.waits.take_held();
        held.extend(self.transfers.held.drain(..).map(Held::Store));
        held
    }

    /// Sends answers that waited; unless everything became durable, with that news.
    pub(crate) fn release<P: Placement, E: Egress, H: HandOff>(
        &mut self,
        held: Vec<Held<M>>,
        is_durable: bool,
        turn: Turn<'_, P, E, H>,
    ) {
        self.waits.end_held(&held);
        let mut burst = self.burst(self.id.index(), turn);
        burst.release(held, is_durable);
        burst.outlet.close();
    }

    /// Notes that this worker fetches for this work; forgets copies of operations for which it already does.
    pub(crate) fn begin_waiting(&mut self, waiting: &mut Waiting, fetch: &mut Fetch<M>) {
        let repeated = self.waits.begin(waiting, fetch);
        self.shared.counters[self.id.index()].waits_repeated.add(repeated as u64);
    }

    /// Goes on with work whose items have come, as far as `fetched` does not say otherwise.
    pub(crate) fn go_on<P: Placement, E: Egress, H: HandOff>(
        &mut self,
        waiting: Waiting,
        fetched: &Fetched,
        turn: Turn<'_, P, E, H>,
    ) {
        self.waits.end(&waiting);
        let mut burst = self.burst(self.id.index(), turn);
        burst.go_on(waiting, fetched);
        burst.admit_waiting();
    }

    /// Answers operations for which no worker can fetch.
    pub(crate) fn refuse_waiting<P: Placement, E: Egress, H: HandOff>(
        &mut self,
        waiting: &Waiting,
        turn: Turn<'_, P, E, H>,
    ) {
        let mut burst = self.burst(self.id.index(), turn);
        burst.refuse_waiting(waiting);
        burst.outlet.close();
    }

    /// Gives up transfers that have been silent for too long. Call it now and then.
    pub fn on_tick(&mut self, now: Instant) {
        self.transfers.on_tick(now);
    }

    /// Everything that a burst needs, borrowed side by side.
    fn burst<'b, P, E: Egress, H>(
        &'b mut self,
        queue: usize,
        turn: Turn<'b, P, E, H>,
    ) -> Burst<'b, M, P, E, H> {
        let shared = &*self.shared;
        let rack = self.rack.as_mut().map(|rack| {
            rack.refresh_routes();
            &*rack
        });
        let metrics = &shared.counters[self.id.index()];
        let cx = Context {
            store: &shared.store,
            clock: &shared.clock,
            now: shared.clock.seconds_at(turn.now),
            counters: &self.counters,
            placement: turn.placement,
            admin: self.admin,
            prefixes: None,
            fetched: None,
            rack,
            probe: &self.probe,
            holes: Holes::default(),
        };
        Burst {
            shared,
            id: self.id,
            queue,
            now: turn.now,
            cx,
            metrics,
            transfers: &mut self.transfers,
            outlet: Outlet::new(
                turn.egress,
                &mut self.moved,
                shared.seals.as_deref(),
                (metrics, &self.counters),
            ),
            hand_off: turn.hand_off,
            waits: &mut self.waits,
            ticket: None,
            permit: None,
            last_cookie: None,
            looked_at: None,
            admitted: 0,
            reports_left: REPORTS_MAX,
        }
    }
}
