//! The owner of each key, and the memory of other nodes.

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use minos_base::{Clock, KeyHash, Seconds, hash_key};
use minos_engine::{Answer, Engine, Get, ItemView, Mode, OwnerState, Ownership, ReadOnly, StagedOwned};
use minos_rack::{MicroShards, ServerId, UnitId};
use minos_unit::{Directory, Node, Standing};

use super::{
    RackCounters,
    config::{RackConfig, RackNode},
    notes::Notes,
};

/// The other node that owns a key, and the key's micro-shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) node: u16,
    pub(crate) micro_shard: u32,
}

/// The rack as one of its nodes knows it.
pub(crate) struct Rack<M: Mode> {
    pub(crate) config: RackConfig,
    micro_shards: MicroShards,
    direction_seed: u64,
    /// The node of each micro-shard.
    owners: Box<[u16]>,
    /// The directory for native clients, and its epoch.
    directory: (Box<[u8]>, u64),
    neighbours: Box<[Mutex<Neighbour<M>>]>,
    /// Raised whenever a neighbour's memory is attached or lost.
    version: AtomicU64,
}

/// Another node of the unit.
struct Neighbour<M: Mode> {
    table: Option<Arc<ReadOnly<M>>>,
    state: &'static str,
}

impl<M: Mode> Rack<M> {
    /// The rack of `config`, whose values are within their bounds.
    pub(crate) fn new(config: RackConfig) -> Self {
        let directory = directory(&config);
        let owners = directory.places().map(|(_, place)| place.node.0 as u16);
        let mine = config.nodes[config.node].unit;
        let neighbour = |node: &RackNode| {
            let state = if node.unit == mine { "not attached" } else { "of another unit" };
            Mutex::new(Neighbour { table: None, state })
        };
        Self {
            micro_shards: directory.micro_shards(),
            direction_seed: config.direction_seed(),
            owners: owners.collect(),
            directory: (directory.encode().into(), u64::from(directory.epoch())),
            neighbours: config.nodes.iter().map(neighbour).collect(),
            version: AtomicU64::new(0),
            config,
        }
    }

    /// The owner of a key, unless it is this node.
    #[inline]
    pub(crate) fn elsewhere(&self, key: &[u8]) -> Option<Owner> {
        let micro_shard = self.micro_shards.of(hash_key(key, self.direction_seed)).0;
        let node = self.owners[micro_shard as usize];
        (usize::from(node) != self.config.node).then_some(Owner { node, micro_shard })
    }

    /// Declares in this node's memory which micro-shards it owns, so that others may read them there.
    pub(crate) fn own(&self, store: &Engine<M>) {
        for (micro_shard, &owner) in (0..).zip(&self.owners) {
            let epoch = store.ownership(micro_shard).epoch + 1;
            let is_mine = usize::from(owner) == self.config.node;
            let state = if is_mine { OwnerState::Owned } else { OwnerState::None };
            store.set_ownership(micro_shard, Ownership { epoch, state });
        }
    }

    /// The other nodes of this node's unit.
    pub(crate) fn unit(&self) -> impl Iterator<Item = usize> + '_ {
        let nodes = &self.config.nodes;
        let mine = nodes[self.config.node].unit;
        (0..nodes.len()).filter(move |&node| node != self.config.node && nodes[node].unit == mine)
    }

    /// Replaces the attached memory of a node.
    pub(crate) fn attach(&self, node: usize, table: Option<Arc<ReadOnly<M>>>, state: &'static str) {
        *self.neighbour(node) = Neighbour { table, state };
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Notes that a node cannot be reached, although its memory can be read.
    pub(super) fn lose(&self, node: usize, state: &'static str) {
        self.neighbour(node).state = state;
    }

    fn neighbour(&self, node: usize) -> MutexGuard<'_, Neighbour<M>> {
        // It is replaced as a whole, so it is never half written.
        self.neighbours[node].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Emits what `stats rack` shows besides the workers' counters.
    pub(crate) fn emit(&self, emit: &mut dyn FnMut(&str, &dyn Display)) {
        let RackConfig { name, node, nodes, micro_shards, .. } = &self.config;
        emit("rack", name);
        emit("node", node);
        emit("nodes", &nodes.len());
        emit("micro_shards", micro_shards);
        for (number, other) in nodes.iter().enumerate() {
            let owned = self.owners.iter().filter(|&&owner| usize::from(owner) == number).count();
            let state = if number == *node { "self" } else { self.neighbour(number).state };
            emit(&format!("node:{number}:unit"), &other.unit);
            emit(&format!("node:{number}:micro_shards"), &owned);
            emit(&format!("node:{number}:memory"), &state);
        }
    }
}

/// Who owns what: each micro-shard is where the ring puts it. The configuration is checked.
fn directory(config: &RackConfig) -> Directory {
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
    pub(crate) counters: Arc<RackCounters>,
    clock_zero_s: u64,
    version: u64,
    tables: Box<[Option<Table<M>>]>,
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
        let mut view = Self { rack, counters, clock_zero_s: clock.zero_unix_s(), version: u64::MAX, tables };
        view.refresh();
        view
    }

    /// Takes over what was attached or lost since the last call.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        // Acquire: pairs with the change that raised it.
        let version = self.rack.version.load(Ordering::Acquire);
        if version != self.version {
            self.version = version;
            self.take_over();
        }
    }

    #[cold]
    fn take_over(&mut self) {
        for (node, entry) in self.tables.iter_mut().enumerate() {
            let table = self.rack.neighbour(node).table.clone();
            let clock_zero_s = self.clock_zero_s;
            *entry = table.map(|table| {
                let ahead_s = clock_zero_s.cast_signed() - table.clock_base().cast_signed();
                Table { table, ahead_s, notes: Notes::default() }
            });
        }
    }

    /// As [`Rack::elsewhere`].
    #[inline]
    pub(crate) fn elsewhere(&self, key: &[u8]) -> Option<Owner> {
        self.rack.elsewhere(key)
    }

    /// The bytes of the directory, and its epoch.
    pub(crate) fn directory(&self) -> (&[u8], u64) {
        (&self.rack.directory.0, self.rack.directory.1)
    }

    /// The numbers of all other nodes.
    pub(crate) fn others(&self) -> Vec<u16> {
        let config = &self.rack.config;
        (0..config.nodes.len()).filter(|&node| node != config.node).map(|node| node as u16).collect()
    }

    /// Asks for the cache line in which a key is looked up in the memory of its owner.
    #[inline]
    pub(crate) fn prefetch(&self, owner: Owner, hash: KeyHash) {
        if let Some(Table { table, .. }) = &self.tables[usize::from(owner.node)] {
            table.prefetch_bucket(hash);
        }
    }

    /// Looks a key up in the memory of its owner, and asks for the item; `None` if that memory is not attached.
    #[inline]
    pub(crate) fn stage(&self, owner: Owner, hash: KeyHash) -> Option<StagedOwned<'_>> {
        let Table { table, .. } = self.tables[usize::from(owner.node)].as_ref()?;
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
        let Some(Table { table, ahead_s, notes }) = &self.tables[usize::from(owner.node)] else {
            return Answer::AskOwner;
        };
        let mut noted = None;
        let answer = table.read_staged_owned(staged, get, shifted(now, *ahead_s), |item| {
            noted = table.is_noteworthy(get.hash, item).then(|| item.slot_word());
            f(item, *ahead_s)
        });
        if let (Answer::Found(_), Some(slot)) = (&answer, noted) {
            notes.add(get.hash, slot);
            self.counters.remote_noted.count();
        }
        answer
    }

    /// Calls `send` with each node and the frame of notes for it.
    pub(crate) fn take_notes(&self, mut send: impl FnMut(usize, &[u8])) {
        for (node, table) in self.tables.iter().enumerate() {
            table.iter().for_each(|table| table.notes.take(|frame| send(node, frame)));
        }
    }
}

/// A time on a clock that is `ahead_s` seconds ahead of the one that shows `time`; never zero, which is no time.
pub(super) fn shifted(time: Seconds, ahead_s: i64) -> Seconds {
    (i64::from(time) + ahead_s).clamp(1, i64::from(Seconds::MAX)) as Seconds
}
