//! The thread that drives a node's part in its rack: its [`Member`] decides, the thread does it.

mod below;
mod copy;
mod far;
mod showing;
mod transport;
mod wire;

use std::{
    cell::Cell,
    collections::{BTreeSet, VecDeque},
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant, SystemTime},
};

use minos_engine::{Mode, OwnerState, ReadOnly};
use minos_net::Io;
use minos_rack::{MicroShard, ServerId};
use minos_unit::{
    Directory, Epoch, Holding, Member, MoveId, Orders, Ownership, Packet, Route, Terms, Timing, View,
    node::{Effect, Input},
};

use super::{Passed, Rack, config::Managed, handing::Queue, routes::NOWHERE, uniques::uniques};
use crate::server::{keeping::wake_holders, shared::Shared};
use below::{Belows, Release};
pub(crate) use copy::Copier;
use copy::Job;
use far::Afar;
use showing::Showing;
pub(crate) use transport::Visitors;
use transport::{Calls, Serve, Transport, items_hello};
pub(super) use transport::{HELLO_BYTES_MAX, HELLO_MAX, node_hello};

/// Times that an item is read again which is being written, and the pause between two.
const READS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);
/// A node reports so many times within a lease, so that one lost report costs nothing.
const REPORTS_A_LEASE: u32 = 4;
/// Time until a question to another node is repeated.
const ASK: Duration = Duration::from_millis(20);
/// Copies that are read are looked after so many times in the time that they may be old.
const FRESHENED: u32 = 6;
/// Time in which half of the counts of hot micro-shards are forgotten.
const FADES_EVERY: Duration = Duration::from_secs(1);
/// By how much clocks may differ in a second, in microseconds.
const DRIFT_PPM: u64 = 500;
/// The part of a lease in which a node answers no more.
const MARGIN_PART: u64 = 10;

/// What the thread is told.
pub(crate) enum Event {
    /// A packet from the coordinator, or from another node.
    Packet(Packet),
    Copied(MoveId, bool),
    Emptied(MicroShard),
    Applied(ServerId, bool),
    /// Workers have handed changes over.
    Handed,
}

/// The terms of leases of this length.
///
/// # Errors
/// It is too short or too long.
pub(crate) fn terms(lease: Duration) -> Result<Terms, minos_unit::BadTerms> {
    let length_us = u64::try_from(lease.as_micros()).unwrap_or(u64::MAX);
    Terms::new(length_us, DRIFT_PPM, length_us / MARGIN_PART)
}

/// The driver of a node.
pub(crate) struct Driver<M: Mode, I: Io> {
    shared: Arc<Shared<M, I>>,
    rack: Arc<Rack<M>>,
    member: Member,
    words: Vec<Ownership>,
    view: Option<View>,
    events: Receiver<Event>,
    jobs: Sender<Job>,
    transport: Transport,
    /// How long the thread sleeps without events.
    patience: Duration,
    /// True if workers may go by older routes.
    is_dirty: bool,
    /// Micro-shards that another node has owned until now.
    left: BTreeSet<u32>,
    _release: Release<M>,
}

impl<M: Mode, I: Io> Driver<M, I> {
    /// The driver of a node that is managed, the copier that works for it until it ends, and who takes in other nodes.
    ///
    /// # Errors
    /// A socket cannot be made.
    pub(crate) fn new(
        shared: &Arc<Shared<M, I>>,
        rack: &Arc<Rack<M>>,
        managed: &Managed,
    ) -> io::Result<(Self, Copier<M>, Visitors)> {
        let (sender, events) = channel();
        let (jobs, jobs_left) = channel();
        let handed = sender.clone();
        let calls = Arc::new(Calls::new(&rack.config));
        let items_hello = items_hello(&rack.config, shared.store.hash(b"minos"));
        let belows = belows(shared, rack)?;
        let copier = Copier {
            rack: Arc::clone(rack),
            store: Arc::clone(&shared.store),
            clock: shared.clock,
            jobs: jobs_left,
            events: sender.clone(),
            pending: Vec::new(),
            afar: Afar::new(Arc::clone(&calls), items_hello.clone(), shared.clock),
            below: belows.as_ref().map(Belows::of_thread),
            stop: Arc::clone(&shared.stop),
            warned: Cell::new(None),
        };
        let serving = (items_hello, show_items(shared, rack, belows.as_ref())?);
        let words: Vec<Ownership> = (0..rack.config.micro_shards).map(|it| word(shared, it)).collect();
        let patience = managed.lease / REPORTS_A_LEASE;
        let timing = Timing {
            report_us: patience.as_micros() as u64,
            ask_us: ASK.as_micros() as u64,
            copies_us: managed.read_copies.map(|old| old.as_micros() as u64),
        };
        let terms = terms(managed.lease).map_err(io::Error::other)?;
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let id = ServerId(rack.config.node as u32);
        // A clock may have been set back since an earlier process, above which others must place this one.
        let incarnation = shared.store.number_process(began.as_micros() as u64);
        let member = Member::new(id, incarnation, &words, terms, timing);
        let (transport, visitors) =
            Transport::new(managed, Arc::clone(&shared.stop), sender, (calls, serving))?;
        shared.store.raise_cas(uniques(rack.config.node, began).start);
        // It listens only as long as the driver does.
        rack.handing.listen(move || drop(handed.send(Event::Handed)));
        let driver = Self {
            shared: Arc::clone(shared),
            rack: Arc::clone(rack),
            member,
            words,
            view: None,
            events,
            jobs,
            transport,
            patience: managed.read_copies.map_or(patience, |old| patience.min(old / FRESHENED)),
            is_dirty: false,
            left: BTreeSet::new(),
            _release: Release(belows),
        };
        Ok((driver, copier, visitors))
    }

    /// Runs until the server is to stop.
    pub(crate) fn run(mut self) {
        let (mut ticked, mut faded) = (Instant::now(), Instant::now());
        // The coordinator hears at once of a process that has begun: its unit reads nothing here before.
        self.tell();
        while !self.shared.stop.is_requested() {
            // Questions are repeated while a micro-shard moves to this node.
            let tick = if self.member.is_pulling() { ASK } else { self.patience };
            let event = self.events.recv_timeout(tick);
            self.member.note_load(self.shared.load());
            if faded.elapsed() >= FADES_EVERY {
                faded = Instant::now();
                let (heat, sampled) = self.rack.heats.fade();
                self.member.note_heat(heat, sampled);
            }
            match event {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if ticked.elapsed() >= tick {
                ticked = Instant::now();
                self.handle(Input::Tick);
            }
            self.tell();
        }
    }

    /// Takes an event, and those that are there by now. Of many orders the last is obeyed, with the newest lease: any
    /// may be lost, and what they say is said again.
    fn take(&mut self, event: Event) {
        let mut orders: Option<Orders> = None;
        let events: Vec<Event> = std::iter::once(event).chain(self.events.try_iter()).collect();
        for event in events {
            match event {
                Event::Packet(Packet::Orders(newer)) => orders = Some(merged(orders, newer)),
                Event::Packet(Packet::Message(from, message)) => self.handle(Input::Message(from, message)),
                // Nodes report to the coordinator alone, and it has made directories of patches.
                Event::Packet(Packet::Report(_) | Packet::Patch(_)) => {}
                Event::Copied(id, is_whole) => self.handle(Input::Copied(id, is_whole)),
                Event::Emptied(micro_shard) => self.handle(Input::Emptied(micro_shard)),
                Event::Applied(from, is_whole) => self.handle(Input::Applied(from, is_whole)),
                Event::Handed => {
                    let handed = self.handed();
                    self.handle(handed);
                }
            }
        }
        if let Some(orders) = orders {
            self.handle(Input::Orders(orders));
        }
    }

    /// Says what all these events have come to.
    fn tell(&mut self) {
        let mut effects = Vec::new();
        self.member.report_if_due(self.rack.routes.now_us(Instant::now()), &mut effects);
        for effect in effects {
            self.perform(effect);
        }
        self.rack.handing.show(self.member.followers().collect());
    }

    /// The changes that workers have handed over.
    fn handed(&self) -> Input {
        let Queue { number, changes, is_overrun } = self.rack.handing.take();
        if is_overrun {
            tracing::warn!("more was changed than waits for followers, which copy anew");
            return Input::Overrun(number);
        }
        let changes = changes.into_iter().map(|(micro_shard, hash)| (MicroShard(micro_shard), hash));
        Input::Handed(number, changes.collect())
    }

    /// Gives an input to the state machine, and does what it says.
    fn handle(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        let mut effects = Vec::new();
        while let Some(input) = inputs.pop_front() {
            let now_us = self.rack.routes.now_us(Instant::now());
            self.member.handle(now_us, input, &mut effects);
            for effect in effects.drain(..) {
                inputs.extend(self.perform(effect));
            }
        }
        // Commands that wait go on by the newest routes.
        if self.rack.routes.raise_if_changed() {
            self.shared.wake_all();
        }
        self.tell_of_moves();
    }

    /// Lets clients that track forget the keys of micro-shards whose owner is another one now: its items may be older.
    fn tell_of_moves(&mut self) {
        let left = std::mem::take(&mut self.left);
        let shared = Arc::clone(&self.shared);
        // Nobody reads them at the old owner any more.
        if !left.is_empty() && shared.tracking.has_clients() && self.pass() {
            shared.tracking.move_keys(|key| left.contains(&self.rack.micro_shard(key)));
        }
    }

    /// Does what an effect says. What others could conclude from it comes after all workers go by the newest routes.
    fn perform(&mut self, effect: Effect) -> Vec<Input> {
        let routes = &self.rack.routes;
        match effect {
            Effect::SetWord(micro_shard, word) => self.set_word(micro_shard, word),
            Effect::Note(micro_shard) => routes.note(micro_shard.0),
            Effect::StopNoting(micro_shard) => routes.stop_noting(micro_shard.0),
            Effect::Show(view) => self.show(view),
            // What a worker has changed by then is handed over.
            Effect::PassLocks(id) => {
                if self.pass() {
                    return vec![self.handed(), Input::Passed(id)];
                }
            }
            Effect::TakeChanges(id) => {
                return vec![Input::Changes(id, routes.take_notes(id.micro_shard.0))];
            }
            Effect::Empty(micro_shard) => self.settled(|it| drop(it.jobs.send(Job::Empty(micro_shard)))),
            Effect::Copy(job) => self.settled(|it| drop(it.jobs.send(Job::Copy(job)))),
            Effect::Send(to, message) => self.settled(|it| it.transport.send(to, message)),
            Effect::Feed(micro_shard) => routes.feed(micro_shard.0, true),
            Effect::StopFeeding(micro_shard) => routes.feed(micro_shard.0, false),
            Effect::ReadCopy(micro_shard, is_copied) => {
                // A worker may read it in this turn, and would miss what is emptied.
                self.is_dirty |= routes.copy(micro_shard.0, is_copied) && !is_copied;
            }
            Effect::Fresh(until_us) => routes.freshen(until_us),
            Effect::Confirm(number) => {
                self.rack.handing.confirm(number);
                wake_holders(&self.shared);
            }
            Effect::Apply(from, jobs) => self.settled(|it| drop(it.jobs.send(Job::Apply(from, jobs)))),
            Effect::Outdated(directory, memory) => tell_of_older(directory, memory),
            Effect::Weigh(weights) => self.rack.weigh(weights),
            Effect::Report(report) => self.settled(|it| it.transport.report(report)),
        }
        Vec::new()
    }

    fn settled(&mut self, act: impl FnOnce(&mut Self)) {
        if !self.is_dirty || self.pass() {
            act(self);
        }
    }

    /// Waits until every worker goes by the newest routes, and its changes up to now are noted; false if the server
    /// stops.
    fn pass(&mut self) -> bool {
        self.is_dirty = false;
        let shared = &self.shared;
        self.rack.routes.pass(|| shared.wake_all(), || shared.stop.is_requested())
    }

    fn set_word(&mut self, micro_shard: MicroShard, word: Ownership) {
        let state = match word.holding {
            Holding::None => OwnerState::None,
            Holding::Owned => OwnerState::Owned,
            Holding::Frozen => OwnerState::Frozen,
        };
        let ownership = minos_engine::Ownership { epoch: word.epoch, state };
        self.shared.store.set_ownership(micro_shard.0, ownership);
        self.words[micro_shard.0 as usize] = word;
        self.route(micro_shard);
    }

    fn show(&mut self, view: View) {
        let known = self.view.as_ref().and_then(View::directory).cloned();
        let new = view.directory().cloned();
        let (number, until_us) = view.lease().number_and_end();
        self.view = Some(view);
        if let Some(new) = new.filter(|new| known.as_ref().is_none_or(|known| !Arc::ptr_eq(known, new))) {
            self.show_directory(known.as_deref(), &new);
        }
        self.rack.routes.hold(number, until_us);
    }

    fn show_directory(&mut self, known: Option<&Directory>, new: &Directory) {
        let changed: Vec<_> = match known {
            Some(known) => new.places_since(known).collect(),
            None => new.places().collect(),
        };
        // No route leads to a lost memory once its node begins anew.
        if self.rack.leave_lost(&changed) {
            self.pass();
        }
        self.rack.show(new);
        changed.into_iter().for_each(|(micro_shard, _)| self.route(micro_shard));
    }

    /// Sets the route to a micro-shard: by the directory, and by the word where it is this node's. If workers can do less
    /// here than before, they must notice.
    fn route(&mut self, micro_shard: MicroShard) {
        let route = self.view.as_ref().map_or(Route::Nowhere, |view| view.route(micro_shard));
        let me = self.rack.config.node as u16;
        let (node, is_frozen) = match (route, self.words[micro_shard.0 as usize].holding) {
            (Route::Here, Holding::Owned) => (me, false),
            (Route::Here, Holding::Frozen) => (me, true),
            (Route::Here, Holding::None) | (Route::Nowhere, _) => (NOWHERE, false),
            (Route::Unit(owner) | Route::Elsewhere(owner), _) => (owner.0 as u16, false),
        };
        let routes = &self.rack.routes;
        let (reader, writer) = (routes.reader(micro_shard.0), routes.writer(micro_shard.0));
        // What a dead node owned is given away once nobody reads its memory any more.
        self.is_dirty |= reader != node && reader != NOWHERE || writer == Some(me) && is_frozen;
        if reader != node && reader != NOWHERE {
            self.left.insert(micro_shard.0);
        }
        routes.set(micro_shard.0, node, is_frozen);
    }
}

/// Tells the log why this node serves nothing.
fn tell_of_older(directory: Epoch, memory: Epoch) {
    tracing::error!(
        directory,
        memory,
        "the coordinator's directory has an older epoch than this node's memory: the coordinator has lost its directory, or is of \
         another rack, and this node goes by none of it"
    );
}

/// The newer orders, with the newest lease for their process. A lease is of the clock of its process.
fn merged(older: Option<Orders>, mut newer: Orders) -> Orders {
    let older = older.filter(|older| older.incarnation == newer.incarnation);
    newer.lease = newer.lease.max(older.and_then(|older| older.lease));
    newer
}

/// This node's items above flash, if it has any.
fn belows<M: Mode, I: Io>(shared: &Shared<M, I>, rack: &Rack<M>) -> io::Result<Option<Arc<Belows<M>>>> {
    let Some(tier) = &shared.tier else { return Ok(None) };
    Ok(Some(Arc::new(Belows::new(own_table(shared, rack)?, tier, Arc::clone(&shared.stop)))))
}

/// This node's memory as other nodes read it.
fn own_table<M: Mode, I: Io>(shared: &Shared<M, I>, rack: &Rack<M>) -> io::Result<Arc<ReadOnly<M>>> {
    Passed::of(&*shared.store, &rack.config.fabric)?.table().map(Arc::new)
}

/// What shows this node's items to nodes that cannot read all of them in its memory, if there are such nodes.
fn show_items<M: Mode, I: Io>(
    shared: &Shared<M, I>,
    rack: &Arc<Rack<M>>,
    belows: Option<&Arc<Belows<M>>>,
) -> io::Result<Option<Serve>> {
    if rack.config.nodes[rack.config.node].path().is_some() && belows.is_none() {
        return Ok(None);
    }
    let (table, clock) = (own_table(shared, rack)?, shared.clock);
    let (rack, belows) = (Arc::clone(rack), belows.cloned());
    Ok(Some(Box::new(move |stream| {
        let (table, below) = (Arc::clone(&table), belows.as_ref().map(Belows::of_thread));
        let shard_of = |key: &[u8]| rack.micro_shard(key);
        Showing::<M, _> { table, clock, shard_of, below }.serve(stream)
    })))
}

/// What this node's memory says of a micro-shard, after a restart or at first.
fn word<M: Mode, I: Io>(shared: &Shared<M, I>, micro_shard: u32) -> Ownership {
    let minos_engine::Ownership { epoch, state } = shared.store.ownership(micro_shard);
    let holding = match state {
        OwnerState::None => Holding::None,
        OwnerState::Owned => Holding::Owned,
        OwnerState::Frozen => Holding::Frozen,
    };
    Ownership { epoch, holding }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_kept_for_its_process_alone() {
        let orders = |incarnation, lease| Orders {
            incarnation,
            lease,
            epoch: 1,
            directory: None,
            pulls: Vec::new(),
            cancelled: Vec::new(),
            weights: None,
        };
        let lease = |older, newer| merged(Some(older), newer).lease;
        assert_eq!(lease(orders(7, Some(5)), orders(7, None)), Some(5));
        assert_eq!(lease(orders(7, Some(5)), orders(7, Some(4))), Some(5));
        assert_eq!(lease(orders(6, Some(5)), orders(7, Some(4))), Some(4));
        assert_eq!(lease(orders(6, Some(5)), orders(7, None)), None);
    }
}
