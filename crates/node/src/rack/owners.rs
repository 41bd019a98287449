//! The owner of each key, and the memory of other nodes.

use std::{
    cell::{Cell, RefCell},
    fmt::Display,
    sync::Arc,
    time::Instant,
};

use minos_base::{Clock, KeyHash, Seconds, hash_key, is_left_out};
use minos_engine::{Answer, Engine, Get, ItemView, Mode, OwnerState, Ownership, ReadOnly, StagedOwned};
use minos_rack::{MicroShard, MicroShards, ServerId, UnitId};
use minos_unit::{Directory, Node, Place, Standing};
use parking_lot::{Mutex, MutexGuard};

#[cfg(feature = "ucx")]
use super::fabric::Advertisement;
#[cfg(any(test, feature = "ucx"))]
use super::routes::Right;
use super::{
    RackCounters,
    config::{RackConfig, RackFabric, RackNode},
    greeting::hello,
    handing::Handing,
    heat::Heats,
    links::LINE_EVERY,
    notes::Notes,
    readers::Readers,
    routes::{NOWHERE, Routes, Term},
};
use crate::{StartError, server::control::Seldom};

/// Changes that a worker notes in one turn, at most.
const CHANGES_MAX: usize = 1 << 18;
/// Bytes of a wrong first line that the log shows, at most.
const LINE_BYTES_SAID: usize = 100;
/// Bursts, of one of which the first request is counted for its micro-shard.
const SAMPLED_ONCE_IN: u32 = 16;

/// A micro-shard, and the other node at which a key of it is read or changed: [`NOWHERE`] while that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) node: u16,
    pub(crate) micro_shard: u32,
}

/// What is to be done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It goes on while changes wait.
    Read,
    /// A read that a copy may answer which is a little old.
    ReadCopy,
    /// Or a read that leaves a mark.
    Change,
}

/// The rack as one of its nodes knows it.
pub(crate) struct Rack<M: Mode> {
    pub(crate) config: RackConfig,
    micro_shards: MicroShards,
    direction_seed: u64,
    pub(crate) routes: Routes,
    directory: Mutex<ShownDirectory>,
    /// The weights for native clients.
    pub(crate) readers: Readers,
    /// Changes for followers.
    pub(crate) handing: Handing,
    pub(crate) heats: Heats,
    neighbours: Box<[Mutex<Neighbour<M>>]>,
    refused_log: Mutex<Seldom>,
}

/// The directory for native clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShownDirectory {
    pub(crate) places: Arc<[u8]>,
    /// The copies that are not where the ring puts them.
    pub(crate) copies: Arc<[u8]>,
    pub(crate) epoch: u64,
    /// The numbers of its nodes.
    nodes: Arc<[u16]>,
}

impl ShownDirectory {
    fn of(directory: &Directory) -> Self {
        let (places, copies) = (directory.encode_places().into(), directory.encode_copies().into());
        let nodes = directory.nodes().iter().map(|node| node.id.0 as u16).collect();
        Self { places, copies, epoch: u64::from(directory.epoch()), nodes }
    }
}

/// Another node of the unit.
struct Neighbour<M: Mode> {
    table: Option<Arc<ReadOnly<M>>>,
    /// What it says of memory that is not mapped here.
    #[cfg(feature = "ucx")]
    afar: Option<Arc<Advertisement>>,
    state: &'static str,
}

impl<M: Mode> Neighbour<M> {
    fn of(table: Option<Arc<ReadOnly<M>>>, state: &'static str) -> Self {
        Self {
            table,
            #[cfg(feature = "ucx")]
            afar: None,
            state,
        }
    }
}

impl<M: Mode> Rack<M> {
    /// The rack of `config`, whose values are within their bounds, for so many workers.
    pub(crate) fn new(config: RackConfig, workers: usize) -> Self {
        let directory = first_directory(&config);
        let mine = config.nodes[config.node].unit;
        let neighbour = |(number, node): (usize, &RackNode)| {
            let state = match node.unit == mine {
                true if config.is_near(number) => "not attached",
                true => "on another machine",
                false => "of another unit",
            };
            Mutex::new(Neighbour::of(None, state))
        };
        let readers = Readers::default();
        readers.news.tell_epoch(directory.epoch());
        Self {
            readers,
            handing: Handing::default(),
            heats: Heats::new(config.micro_shards),
            micro_shards: directory.micro_shards(),
            direction_seed: config.direction_seed(),
            routes: Routes::new(config.micro_shards, workers),
            directory: Mutex::new(ShownDirectory { epoch: 0, ..ShownDirectory::of(&directory) }),
            neighbours: config.nodes.iter().enumerate().map(neighbour).collect(),
            refused_log: Mutex::new(Seldom::new(LINE_EVERY)),
            config,
        }
    }

    /// The micro-shard of a key.
    #[inline]
    pub(crate) fn micro_shard(&self, key: &[u8]) -> u32 {
        self.micro_shards.of(hash_key(key, self.direction_seed)).0
    }

    /// The node at which a key is read.
    pub(crate) fn reader(&self, key: &[u8]) -> u16 {
        self.routes.reader(self.micro_shard(key))
    }

    /// Puts every micro-shard where the ring puts it, for ever, and declares those of this node in its memory.
    ///
    /// # Errors
    /// The memory is of a node that went by a coordinator: others may have its micro-shards by now, with newer items. It
    /// stays as it is.
    pub(crate) fn settle(&self, store: &Engine<M>) -> Result<(), StartError> {
        let directory = first_directory(&self.config);
        // Each start without a coordinator raises all words by one, in this order, and may be killed on the way. A
        // coordinator's epochs lie anywhere: they are of the micro-shards that the node has, or has copies of.
        let epochs = directory.places().map(|(micro_shard, _)| store.ownership(micro_shard.0).epoch);
        if !epochs.is_sorted_by(|one, next| one >= next) {
            return Err(StartError::Coordinated);
        }
        for (micro_shard, place) in directory.places() {
            let epoch = store.ownership(micro_shard.0).epoch + 1;
            let is_mine = place.node.0 as usize == self.config.node;
            let state = if is_mine { OwnerState::Owned } else { OwnerState::None };
            store.set_ownership(micro_shard.0, Ownership { epoch, state });
            self.routes.set(micro_shard.0, place.node.0 as u16, false);
        }
        // Workers look for the right to answer when they look at the directory.
        self.routes.hold_for_ever();
        self.show(&directory);
        Ok(())
    }

    /// Says seldom that a link to this node was refused for what it began with.
    pub(crate) fn tell_of_wrong(&self, came: &[u8], why: &str) {
        let Some(times) = self.refused_log.lock().happened(Instant::now()) else { return };
        // Of a sealed call there is nothing to be seen.
        let seen = came.iter().take(LINE_BYTES_SAID).take_while(|byte| (b' '..=b'~').contains(byte));
        let line: String = seen.map(|byte| char::from(*byte)).collect();
        let expected = hello(&self.config, self.config.node);
        tracing::warn!(%line, expected = %expected.trim_ascii_end().escape_ascii(), times, "{why}");
    }

    /// Gives native clients another directory.
    pub(crate) fn show(&self, directory: &Directory) {
        let shown = ShownDirectory::of(directory);
        *self.directory.lock() = shown;
        self.routes.raise();
        self.readers.news.tell_epoch(directory.epoch());
    }

    /// The other nodes of this node's unit whose memory it reads.
    pub(crate) fn unit(&self) -> impl Iterator<Item = usize> + '_ {
        let nodes = &self.config.nodes;
        let mine = nodes[self.config.node].unit;
        let others = (0..nodes.len()).filter(|&node| node != self.config.node && self.config.is_near(node));
        others.filter(move |&node| nodes[node].unit == mine)
    }

    /// The memory of a node, if it is attached.
    pub(super) fn table(&self, node: usize) -> Option<Arc<ReadOnly<M>>> {
        self.neighbours.get(node).and_then(|_| self.neighbour(node).table.clone())
    }

    /// Replaces the attached memory of a node.
    pub(crate) fn attach(&self, node: usize, table: Option<Arc<ReadOnly<M>>>, state: &'static str) {
        *self.neighbour(node) = Neighbour::of(table, state);
        self.raise();
    }

    /// Lets workers read memory of a node that is not mapped here.
    #[cfg(feature = "ucx")]
    pub(super) fn attach_afar(&self, node: usize, said: Arc<Advertisement>) {
        *self.neighbour(node) = Neighbour { afar: Some(said), ..Neighbour::of(None, "read over UCX") };
        self.raise();
    }

    /// What a node says of memory that is not mapped here.
    #[cfg(feature = "ucx")]
    pub(super) fn afar(&self, node: usize) -> Option<Arc<Advertisement>> {
        self.neighbour(node).afar.clone()
    }

    /// Detaches memory in which a node owns one of these places with an older word than it can have there: that is of a
    /// process that has died, and what it held is lost. True if there was such memory.
    pub(super) fn leave_lost(&self, places: &[(MicroShard, Place)]) -> bool {
        let mut has_left = false;
        for node in self.unit() {
            let mut neighbour = self.neighbour(node);
            // Memory that is not mapped ends with its process.
            let Some(table) = &neighbour.table else { continue };
            let is_lost = |(micro_shard, place): &(MicroShard, Place)| {
                let said = table.ownership_after_reads(micro_shard.0);
                place.node.0 as usize == node && said.is_readable() && said.epoch < place.since
            };
            if places.iter().any(is_lost) {
                *neighbour = Neighbour::of(None, "lost");
                has_left = true;
            }
        }
        has_left
    }

    /// Lets workers look at what has changed.
    pub(super) fn raise(&self) {
        self.routes.raise();
    }

    /// Notes that a node cannot be reached, although its memory can be read.
    pub(super) fn lose(&self, node: usize, state: &'static str) {
        self.neighbour(node).state = state;
    }

    fn neighbour(&self, node: usize) -> MutexGuard<'_, Neighbour<M>> {
        self.neighbours[node].lock()
    }

    /// Emits what `stats rack` shows besides the workers' counters.
    pub(crate) fn emit(&self, emit: &mut dyn FnMut(&str, &dyn Display)) {
        let RackConfig { name, node, nodes, micro_shards, .. } = &self.config;
        emit("rack", name);
        emit("node", node);
        emit("nodes", &nodes.len());
        emit("micro_shards", micro_shards);
        for (number, other) in nodes.iter().enumerate() {
            let owned = self.routes.count(number as u16);
            let state = if number == *node { "self" } else { self.neighbour(number).state };
            emit(&format!("node:{number}:unit"), &other.unit);
            emit(&format!("node:{number}:micro_shards"), &owned);
            emit(&format!("node:{number}:memory"), &state);
        }
        self.readers.emit(nodes.len(), emit);
        self.handing.emit(self.routes.now_us(Instant::now()), emit);
    }
}

/// Who owns what at first: each micro-shard is where the ring puts it. The configuration is checked.
pub(super) fn first_directory(config: &RackConfig) -> Directory {
    const IN_BOUNDS: &str = "the configuration is checked";
    let node = |(number, node): (u32, &RackNode)| Node {
        id: ServerId(number),
        unit: UnitId(node.unit),
        standing: Standing::Member,
        address: node.native.map(|address| address.to_string()).unwrap_or_default(),
    };
    let micro_shards = MicroShards::new(config.micro_shards).expect(IN_BOUNDS);
    Directory::new(micro_shards, 1, (0..).zip(&config.nodes).map(node).collect()).expect(IN_BOUNDS)
}

/// The rack as one worker sees it: its own references to the memory of other nodes.
pub(crate) struct RackView<M: Mode> {
    rack: Arc<Rack<M>>,
    is_managed: bool,
    may_overtake: bool,
    pub(crate) counters: Arc<RackCounters>,
    clock_zero_s: u64,
    version: u64,
    /// The version that others know this worker to go by.
    noticed: u64,
    /// The number of this node; that of no node while it has no lease.
    me: u16,
    /// The right of this turn to answer, if this node has it.
    term: Option<Term>,
    /// The same if micro-shards may move: what the answers of this turn have to pass.
    passed: Option<Term>,
    /// When to look for it again.
    term_until: Instant,
    directory: ShownDirectory,
    tables: Box<[Option<Table<M>>]>,
    /// True for nodes whose memory is read without being mapped.
    #[cfg(feature = "ucx")]
    afar: Box<[bool]>,
    /// Changes of this turn to micro-shards that are being copied.
    changes: RefCell<Vec<(u32, KeyHash)>>,
    has_lost_changes: Cell<bool>,
    /// Changes to micro-shards that are followed, since the last hand-over, and the number of that.
    handed: RefCell<(Vec<(u32, KeyHash)>, u64)>,
    /// True if there are some.
    has_handed: Cell<bool>,
    /// True if some nodes are to be told of reads.
    has_notes: Cell<bool>,
    /// Bursts so far, less one: of the first, the first request is counted.
    bursts: Cell<u32>,
    weights: Arc<[u8]>,
}

/// The attached memory of another node.
struct Table<M: Mode> {
    table: Arc<ReadOnly<M>>,
    /// Seconds that its clock shows more than this node's.
    ahead_s: i64,
    /// Reads there that it has not been told of.
    notes: Notes,
}

impl<M: Mode> RackView<M> {
    /// A view of `rack` by a node with this clock.
    pub(crate) fn new(rack: Arc<Rack<M>>, clock: &Clock, counters: Arc<RackCounters>) -> Self {
        let tables = rack.config.nodes.iter().map(|_| None).collect();
        let now = Instant::now();
        let mut view = Self {
            counters,
            clock_zero_s: clock.zero_unix_s(),
            version: 0,
            noticed: 0,
            me: NOWHERE - 1,
            term: None,
            passed: None,
            term_until: now,
            directory: ShownDirectory::default(),
            #[cfg(feature = "ucx")]
            afar: vec![false; rack.config.nodes.len()].into(),
            tables,
            weights: Arc::default(),
            changes: RefCell::default(),
            has_lost_changes: Cell::new(false),
            handed: RefCell::default(),
            has_notes: Cell::new(false),
            has_handed: Cell::new(false),
            bursts: Cell::new(u32::MAX),
            is_managed: rack.config.is_managed(),
            may_overtake: rack.config.is_managed() || !matches!(rack.config.fabric, RackFabric::Mapped),
            rack,
        };
        view.refresh(now);
        view
    }

    /// Begins a turn: takes over what has changed since the last one, whose changes become known.
    #[inline]
    pub(crate) fn refresh(&mut self, now: Instant) {
        self.refresh_routes();
        if now >= self.term_until {
            self.renew_term(now);
        }
    }

    #[cold]
    fn renew_term(&mut self, now: Instant) {
        self.term = self.rack.routes.term(now);
        self.passed = self.term.filter(|_| self.is_managed);
        self.term_until = self.term.map_or(now, |term| term.until);
        self.me = if self.term.is_some() { self.rack.config.node as u16 } else { NOWHERE - 1 };
    }

    /// Takes over what has changed, within a turn: the right to answer stays that of its beginning.
    #[inline]
    pub(crate) fn refresh_routes(&mut self) {
        let version = self.rack.routes.version();
        if version != self.version {
            self.version = version;
            self.take_over();
        }
    }

    /// The version of the routes that this turn goes by.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// True if there are no newer routes than this turn goes by.
    pub(crate) fn is_current(&self) -> bool {
        self.rack.routes.version() == self.version
    }

    /// Says that a worker goes by no older version than this view, and another one of it if there is one.
    #[inline]
    pub(crate) fn notice(&mut self, worker: usize, other_version: Option<u64>) {
        let version = other_version.map_or(self.version, |other| other.min(self.version));
        if self.noticed != version {
            self.say_noticed(worker, version);
        }
    }

    #[cold]
    fn say_noticed(&mut self, worker: usize, version: u64) {
        self.noticed = version;
        self.rack.routes.notice(worker, version);
    }

    /// What the answers of this turn have to pass, if micro-shards may move.
    #[inline]
    pub(crate) fn term(&self) -> Option<Term> {
        self.term
    }

    /// True if what was found in the memory of an owner is right, since a moment at which this node had the right: it has it
    /// still, and reads there still.
    #[cfg(any(test, feature = "ucx"))]
    pub(super) fn was_right(&self, owner: Owner, right: Right) -> bool {
        // An owner is replaced once all workers have noticed, or once the right is over: not in this turn, or after that.
        self.is_at(owner) && (!self.is_managed || self.rack.routes.has_still(right))
    }

    /// True if the keys of a micro-shard are read at its owner.
    #[cfg(any(test, feature = "ucx"))]
    pub(super) fn is_at(&self, owner: Owner) -> bool {
        self.rack.routes.reader(owner.micro_shard) == owner.node
    }

    /// What a node says of memory that is not mapped here.
    #[cfg(feature = "ucx")]
    pub(super) fn afar(&self, node: usize) -> Option<Arc<Advertisement>> {
        self.rack.afar(node)
    }

    /// True if the memory of a node is read without being mapped.
    pub(crate) fn is_afar(&self, _node: u16) -> bool {
        #[cfg(feature = "ucx")]
        return self.afar.get(usize::from(_node)) == Some(&true);
        #[cfg(not(feature = "ucx"))]
        false
    }

    /// True if a command for a key might overtake one before it that is under way.
    pub(crate) fn may_overtake(&self) -> bool {
        self.may_overtake
    }

    /// True if what this turn has found may leave. A turn without the right has touched no item.
    #[inline]
    pub(crate) fn may_answer(&self) -> bool {
        self.passed.as_ref().is_none_or(|term| self.rack.routes.may_answer(term))
    }

    #[cold]
    fn take_over(&mut self) {
        let routes = &self.rack.routes;
        // The next turn looks whether it has another right.
        self.term_until = routes.zero;
        if self.has_lost_changes.take() {
            routes.lose_notes();
        }
        let changes = self.changes.get_mut();
        if !changes.is_empty() {
            routes.add_notes(changes.drain(..));
        }
        self.directory = self.rack.directory.lock().clone();
        self.weights = self.rack.readers.bytes();
        #[cfg(feature = "ucx")]
        for (node, is_afar) in self.afar.iter_mut().enumerate() {
            *is_afar = self.rack.afar(node).is_some();
        }
        for (node, entry) in self.tables.iter_mut().enumerate() {
            let table = self.rack.neighbour(node).table.clone();
            let is_same =
                |entry: &Table<M>| table.as_ref().is_some_and(|table| Arc::ptr_eq(table, &entry.table));
            if entry.as_ref().is_some_and(is_same) {
                continue;
            }
            let clock_zero_s = self.clock_zero_s;
            *entry = table.map(|table| {
                let ahead_s = clock_zero_s.cast_signed() - table.clock_base().cast_signed();
                Table { table, ahead_s, notes: Notes::default() }
            });
        }
    }

    /// The owner of a key, unless this node may do with it what is intended.
    #[inline]
    pub(crate) fn elsewhere(&self, key: &[u8], intent: impl FnOnce() -> Intent) -> Option<Owner> {
        let (micro_shard, routes) = (self.rack.micro_shard(key), &self.rack.routes);
        if routes.is_settled_at(micro_shard, self.me) {
            return None;
        }
        let node = match intent() {
            Intent::ReadCopy if self.reads_copy(micro_shard) => return None,
            Intent::Read | Intent::ReadCopy => routes.reader(micro_shard),
            Intent::Change => routes.writer(micro_shard).unwrap_or(NOWHERE),
        };
        if node == self.me {
            return None;
        }
        // A turn without a lease reads nothing anywhere, and forwards nothing.
        Some(Owner { node: if self.term.is_some() { node } else { NOWHERE }, micro_shard })
    }

    /// True if a read of a micro-shard is answered from the copy here, which is fresh now: the request has arrived.
    pub(crate) fn reads_copy(&self, micro_shard: u32) -> bool {
        let routes = &self.rack.routes;
        // A copy is given up before others are said to be fresh, so that it must not have been given up before that.
        let may_read = self.term.is_some() && routes.is_copied(micro_shard);
        let reads = may_read && routes.is_fresh(Instant::now()) && routes.is_copied(micro_shard);
        if reads {
            self.counters.copy_reads.count();
        }
        reads
    }

    /// True for some bursts, whose first request is to be counted.
    #[inline]
    pub(crate) fn is_sampled(&self) -> bool {
        let bursts = self.bursts.get().wrapping_add(1);
        self.bursts.set(bursts);
        bursts.is_multiple_of(SAMPLED_ONCE_IN)
    }

    /// Counts a request for its micro-shard.
    #[cold]
    pub(crate) fn count(&self, key: &[u8], intent: Intent) {
        self.rack.heats.count(self.rack.micro_shard(key), intent != Intent::Change);
    }

    /// True if micro-shards may move.
    #[inline]
    pub(crate) fn is_managed(&self) -> bool {
        self.is_managed
    }

    /// True if replies to changes may have to wait for followers.
    #[inline]
    pub(crate) fn is_feeding(&self) -> bool {
        self.rack.routes.is_feeding()
    }

    /// The node to forward a command for a micro-shard to, if there is one now.
    pub(crate) fn destination(&self, micro_shard: u32) -> Option<u16> {
        self.term?;
        self.rack.routes.writer(micro_shard).filter(|node| *node != NOWHERE)
    }

    /// As [`Self::destination`], for a key; [`NOWHERE`] if there is none now.
    pub(crate) fn destination_of(&self, key: &[u8]) -> u16 {
        self.destination(self.rack.micro_shard(key)).unwrap_or(NOWHERE)
    }

    /// Notes that a key is about to be changed in this turn, if its micro-shard is being copied or followed.
    #[inline]
    pub(crate) fn note_change(&self, hash: KeyHash, key: &[u8]) {
        if self.is_managed {
            self.note_change_if_copied(hash, key);
        }
    }

    fn note_change_if_copied(&self, hash: KeyHash, key: &[u8]) {
        let micro_shard = self.rack.micro_shard(key);
        let (is_copied, is_followed) = self.rack.routes.notes(micro_shard);
        if is_followed && !is_left_out("followers") {
            self.handed.borrow_mut().0.push((micro_shard, hash));
            self.has_handed.set(true);
        }
        if !is_copied || is_left_out("notes") {
            return;
        }
        let mut changes = self.changes.borrow_mut();
        if changes.len() < CHANGES_MAX {
            changes.push((micro_shard, hash));
        } else {
            self.has_lost_changes.set(true);
        }
    }

    /// Hands over what was changed since the last time, for those who follow it.
    #[inline]
    pub(crate) fn hand_over(&self) {
        if self.has_handed.get() {
            self.hand_over_changes();
        }
    }

    fn hand_over_changes(&self) {
        let mut handed = self.handed.borrow_mut();
        let (changes, number) = &mut *handed;
        *number = self.rack.handing.hand(changes.drain(..));
        self.has_handed.set(false);
    }

    /// True if there are changes that were not handed over.
    #[inline]
    pub(crate) fn has_handed(&self) -> bool {
        self.has_handed.get()
    }

    /// The last hand-over of this worker, of all changes so far.
    pub(crate) fn handed(&self) -> u64 {
        // Who reads a copy after the next answer asks when it is on its way.
        self.hand_over();
        let (_, number) = *self.handed.borrow();
        number
    }

    /// True if followers have a hand-over.
    pub(crate) fn is_confirmed(&self, number: u64) -> bool {
        self.rack.handing.is_confirmed(number)
    }

    /// True if a change is acknowledged once its copies have it.
    pub(crate) fn acknowledges_copies(&self) -> bool {
        self.rack.config.acknowledges_copies()
    }

    /// The directory for native clients.
    pub(crate) fn directory(&self) -> &ShownDirectory {
        &self.directory
    }

    /// The bytes of the weights; none without weights.
    pub(crate) fn weights(&self) -> &[u8] {
        &self.weights
    }

    /// True for the number of this node.
    pub(crate) fn is_node(&self, node: u16) -> bool {
        usize::from(node) == self.rack.config.node
    }

    /// The number of this node.
    pub(crate) fn number(&self) -> u16 {
        self.rack.config.node as u16
    }

    /// Numbers of nodes are below this one.
    pub(crate) fn nodes(&self) -> usize {
        self.rack.config.nodes.len()
    }

    /// The numbers of all other nodes that may have items now: one that has left has none, and need not be there. `None` if
    /// this node has no lease. With one it knows them: the coordinator gives nothing to a node before that. The directory of
    /// the turn may be older than the lease.
    pub(crate) fn others_now(&self) -> Option<Vec<u16>> {
        let nodes = Arc::clone(&self.rack.directory.lock().nodes);
        let is_there = |node: &u16| !self.is_node(*node) && usize::from(*node) < self.nodes();
        let may_answer = !self.is_managed || self.rack.routes.right(Instant::now()).is_some();
        may_answer.then(|| nodes.iter().copied().filter(is_there).collect())
    }

    /// Asks for the cache line in which a key is looked up in the memory of its owner.
    #[inline]
    pub(crate) fn prefetch(&self, owner: Owner, hash: KeyHash) {
        if let Some(Table { table, .. }) = self.table(owner) {
            table.prefetch_bucket(hash);
        }
    }

    /// Looks a key up in the memory of its owner, and asks for the item; `None` if that memory is not attached.
    #[inline]
    pub(crate) fn stage(&self, owner: Owner, hash: KeyHash) -> Option<StagedOwned<'_>> {
        let Table { table, .. } = self.table(owner)?;
        Some(table.stage_owned(owner.micro_shard, hash))
    }

    /// Reads an item in the memory of its owner, with what [`stage`](Self::stage) found. `f` also gets the seconds that
    /// the owner's clock is ahead.
    #[inline]
    pub(crate) fn read<R>(
        &self,
        (owner, staged): (Owner, &StagedOwned<'_>),
        get: &Get<'_>,
        now: Seconds,
        mut f: impl FnMut(&ItemView<'_>, i64) -> R,
    ) -> Answer<R> {
        let Some(Table { table, ahead_s, notes }) = self.table(owner) else { return Answer::AskOwner };
        let mut noted = None;
        let answer = table.read_staged_owned(staged, get, shifted(now, *ahead_s), |item| {
            noted = table.is_noteworthy(get.hash, item).then(|| item.slot_word());
            f(item, *ahead_s)
        });
        if let (Answer::Found(_), Some(slot)) = (&answer, noted) {
            notes.add(get.hash, slot);
            self.has_notes.set(true);
            self.counters.remote_noted.count();
        }
        answer
    }

    #[inline]
    fn table(&self, owner: Owner) -> Option<&Table<M>> {
        self.tables.get(usize::from(owner.node))?.as_ref()
    }

    /// True if [`take_notes`](Self::take_notes) has something to send.
    #[inline]
    pub(crate) fn has_notes(&self) -> bool {
        self.has_notes.get()
    }

    /// Calls `send` with each node and the frame of notes for it.
    pub(crate) fn take_notes(&self, mut send: impl FnMut(usize, &[u8])) {
        if !self.has_notes.take() {
            return;
        }
        for (node, table) in self.tables.iter().enumerate() {
            table.iter().for_each(|table| table.notes.take(|frame| send(node, frame)));
        }
    }
}

/// A time on a clock that is `ahead_s` seconds ahead of the one that shows `time`; never zero, which is no time.
pub(super) fn shifted(time: Seconds, ahead_s: i64) -> Seconds {
    (i64::from(time) + ahead_s).clamp(1, i64::from(Seconds::MAX)) as Seconds
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use minos_engine::{Backing, StoreConfig, StoreMode};

    use super::*;
    use crate::rack::config::{Acknowledge, Managed};

    const LEASE: Duration = Duration::from_secs(3600);

    #[test]
    fn a_read_was_right_if_nothing_has_changed_since_it_began() {
        let managed = Managed {
            coordinators: Vec::new(),
            lease: LEASE,
            acknowledge: Acknowledge::Owner,
            read_copies: None,
        };
        let config = RackConfig { managed: Some(managed), ..RackConfig::of_units(0, &[0, 0, 0], 4) };
        let rack = Arc::new(Rack::<StoreMode>::new(config, 1));
        let view = RackView::new(Arc::clone(&rack), &Clock::new(), Arc::default());
        let (routes, owner) = (&rack.routes, Owner { node: 1, micro_shard: 2 });
        let until_us = |from: Duration| routes.now_us(Instant::now() + from);
        routes.set(owner.micro_shard, 1, false);
        routes.hold(1, until_us(LEASE));
        let right = routes.right(Instant::now()).unwrap();
        assert!(view.was_right(owner, right));
        // Changes wait, but its owner is the same.
        routes.set(owner.micro_shard, 1, true);
        assert!(view.was_right(owner, right));
        routes.hold(1, until_us(LEASE * 2));
        assert!(view.was_right(owner, right));
        for other in [2, NOWHERE] {
            routes.set(owner.micro_shard, other, false);
            assert!(!view.was_right(owner, right));
        }
        routes.set(owner.micro_shard, 1, false);
        // A lease that has ended, and the next one.
        routes.hold(1, 0);
        assert!(!view.was_right(owner, right));
        routes.hold(2, until_us(LEASE));
        assert!(!view.was_right(owner, right));
        assert!(view.was_right(owner, routes.right(Instant::now()).unwrap()));
    }

    /// Before, a node that was started without --coordinator took its part of the ring back, with items that were old.
    #[test]
    fn without_a_coordinator_memory_of_a_node_with_one_is_left_as_it_is() {
        let config = StoreConfig { micro_shards: 8, ..StoreConfig::new(8 << 20) };
        let rack = |nodes: &[u32]| Rack::<StoreMode>::new(RackConfig::of_units(0, nodes, 8), 1);
        let settled = |epochs: [u32; 8], nodes: &[u32]| {
            let store = Engine::<StoreMode>::create(&config).unwrap();
            let words = || (0..8).map(|it| store.ownership(it));
            for (micro_shard, epoch) in (0..).zip(epochs) {
                store.set_ownership(micro_shard, Ownership { epoch, state: OwnerState::None });
            }
            let before = words().collect::<Vec<_>>();
            let is_settled = rack(nodes).settle(&store).is_ok();
            assert!(is_settled != words().eq(before), "{epochs:?}");
            is_settled && words().map(|it| it.epoch).eq(epochs.map(|epoch| epoch + 1))
        };
        // New memory, that of a node whose peers were others, and of one that was killed when it began.
        assert!(settled([0; 8], &[0, 0]) && settled([7; 8], &[0, 0, 0]) && settled([7; 8], &[0]));
        assert!(settled([8, 8, 8, 7, 7, 7, 7, 7], &[0, 0]) && settled([3, 2, 2, 2, 2, 2, 1, 1], &[0, 0]));
        // Its own, with one that was moved here, and with copies.
        for epochs in [[1, 0, 0, 1, 1, 0, 0, 0], [1, 1, 5, 1, 0, 0, 0, 0], [1, 2, 1, 1, 2, 2, 3, 2]] {
            assert!(!settled(epochs, &[0, 0]), "{epochs:?}");
        }
    }

    #[test]
    fn a_memory_is_left_that_its_node_has_lost() {
        const SHARD: MicroShard = MicroShard(1);
        let config = StoreConfig { backing: Backing::Memfd, micro_shards: 4, ..StoreConfig::new(8 << 20) };
        let store = Engine::<StoreMode>::create(&config).unwrap();
        let rack = Rack::<StoreMode>::new(RackConfig::of_units(0, &[0, 0], 4), 1);
        let table = ReadOnly::from_descriptor(store.descriptor_to_read().unwrap()).unwrap();
        rack.attach(1, Some(Arc::new(table)), "attached");
        let place =
            |node, epoch, since| [(SHARD, Place { node: ServerId(node), epoch, since, is_serving: true })];
        // It has begun there without items under epoch 7.
        let begun = place(1, 7, 7);
        for (epoch, state) in [(0, OwnerState::None), (5, OwnerState::None), (7, OwnerState::Owned)] {
            store.set_ownership(SHARD.0, Ownership { epoch, state });
            assert!(!rack.leave_lost(&begun), "{epoch} {state:?}");
        }
        store.set_ownership(SHARD.0, Ownership { epoch: 5, state: OwnerState::Owned });
        // A node that is back with its items, or another node.
        assert!(!rack.leave_lost(&place(1, 7, 5)) && !rack.leave_lost(&place(0, 7, 7)));
        assert!(rack.table(1).is_some() && rack.leave_lost(&begun) && rack.table(1).is_none());
        assert!(!rack.leave_lost(&begun));
    }
}
