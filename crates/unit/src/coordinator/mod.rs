//! The one who changes the directory, and grants leases.
//!
//! Nothing but the directory is kept on disk. After a restart the coordinator waits until every lease of
//! its predecessor has run out before it takes anything from a silent node; moves that were not settled begin
//! anew.

mod follows;
mod relief;
mod rules;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use minos_rack::{MicroShard, ServerId, UnitId};

use follows::Follows;
use relief::Relief;

use crate::{
    BadDirectory, Balancing, Change, Directory, Epoch, Follower, MoveId, Node, Orders, Progress, Pull,
    Report, Standing, Terms, Weights, reads::Balancer,
};

/// Whether a dead node's micro-shards go to others, without their items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// They wait for the node, unless an operator gives it up: a store.
    Never,
    /// They go to another node as empty: a cache.
    Allowed,
}

/// What a coordinator may do.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// What a death means.
    pub loss: Loss,
    /// Moves at a time.
    pub moves_max: usize,
    /// Until a move is given up, in microseconds.
    pub move_us_max: u64,
    /// Copies of each micro-shard, the owner's included, each in another unit.
    pub copies: u32,
}

/// An operator's wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Move a micro-shard to a node.
    Move(MicroShard, ServerId),
    /// Add a node that reports, and move its part to it. Or take back that it is to be drained.
    Add(ServerId, UnitId, String),
    /// Move everything away from a node.
    Drain(ServerId),
    /// Remove a node that owns nothing.
    Remove(ServerId),
    /// Move every micro-shard to where the ring puts it.
    Balance,
    /// Treat the items of a node as lost if it is dead or lacks them, whatever the policy says, until it is back.
    GiveUp(ServerId),
}

/// A wish that cannot be fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such node.
    #[error("there is no node {}", .0.0)]
    UnknownNode(ServerId),
    /// There is no such micro-shard.
    #[error("there is no micro-shard {}", .0.0)]
    UnknownMicroShard(MicroShard),
    /// The node has micro-shards or copies, or is to get some.
    #[error("node {} still has micro-shards or copies, or is to get some: drain it first", .0.0)]
    InUse(ServerId),
    /// The node has a lease and all its items.
    #[error("node {} is alive and has all its items", .0.0)]
    Whole(ServerId),
    /// Too many moves wait.
    #[error("too many moves wait")]
    Busy,
    /// The node has not reported lately.
    #[error("node {} does not report to this coordinator: is it running, with --coordinator?", .0.0)]
    Silent(ServerId),
    /// Nothing moves to the node.
    #[error("node {} is to leave the rack: `add` it before, to let it stay", .0.0)]
    Leaving(ServerId),
    /// The micro-shard has been taken from its last owner.
    #[error("micro-shard {} has no owner at the moment", .0.0)]
    Ownerless(MicroShard),
    /// The node is there, and stays.
    #[error("node {} is in the rack already", .0.0)]
    Known(ServerId),
    /// The node is there, in this unit.
    #[error("node {} is in unit {}", .0.0, .1.0)]
    OtherUnit(ServerId, UnitId),
    /// The nodes would make no directory.
    #[error("the rack cannot be so: {}", .0.0)]
    Nodes(#[from] BadDirectory),
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// A node's report.
    Report(Report),
    /// The directory of this epoch is on disk.
    Persisted(Epoch),
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Write to disk, durably, in place of the last directory.
    Persist(Arc<Directory>),
    /// Send to a node.
    Send(ServerId, Orders),
    /// End: the node knows a directory of this later epoch. It was kept before it was published, so that this coordinator's
    /// is older, or of another rack.
    Outdated(ServerId, Epoch),
    /// Tell the operators: the memory of the node is of this later epoch, and others have gone by this directory for longer than a
    /// lease. It gets none.
    Stale(ServerId, Epoch),
}

/// A node's state, for its operators.
#[derive(Clone, Copy, Debug)]
pub struct NodeState<'a> {
    /// The node.
    pub node: &'a Node,
    /// True if it has a lease.
    pub is_alive: bool,
    /// The directory that it goes by; zero for none.
    pub epoch: Epoch,
    /// The micro-shards that are at it.
    pub micro_shards: usize,
    /// Those of which it has lost the items.
    pub lacking: usize,
    /// What went wrong at it since this coordinator began to lead.
    pub mishaps: Mishaps,
}

/// What went wrong at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mishaps {
    /// Times that its lease ran out before it reported again.
    pub lapses: u64,
    /// Times that another process of it reported.
    pub restarts: u64,
    /// Its copies that were given up because it was silent, began anew, or could not take all changes in.
    pub failed_copies: u64,
}

/// A node as its reports show it.
#[derive(Debug)]
struct Peer {
    unit: UnitId,
    /// What it lacks is in order.
    report: Report,
    /// Those of the report.
    moves: HashMap<MoveId, Progress>,
    /// When the last lease has run out.
    until_us: u64,
    mishaps: Mishaps,
}

impl Peer {
    /// True if the node has said that it has lost the items.
    fn lacks(&self, micro_shard: MicroShard) -> bool {
        // A node may lack all of them, and each is looked for.
        self.report.lacking.binary_search(&micro_shard).is_ok()
    }

    /// True if the node has the items, and waits for a higher epoch.
    fn is_withdrawn(&self, micro_shard: MicroShard) -> bool {
        self.report.withdrawn.binary_search(&micro_shard).is_ok()
    }
}

/// A move under way.
#[derive(Clone, Copy, Debug)]
struct Move {
    pull: Pull,
    to: ServerId,
    /// The process of `to`.
    incarnation: u64,
    began_us: u64,
}

/// What is being written to disk.
#[derive(Debug)]
struct Draft {
    directory: Arc<Directory>,
    moves: Vec<Move>,
    follows: Vec<(ServerId, Pull)>,
}

/// The coordinator's state.
#[derive(Debug)]
pub struct Coordinator {
    terms: Terms,
    policy: Policy,
    directory: Arc<Directory>,
    /// Its micro-shards that nobody serves.
    taken: Vec<MicroShard>,
    draft: Option<Draft>,
    peers: BTreeMap<ServerId, Peer>,
    /// Nodes that report and are not in the directory, and until when each counts as running.
    callers: BTreeMap<ServerId, u64>,
    moves: BTreeMap<MicroShard, Move>,
    /// Until when nothing moves to a node that has failed to copy, but for what an operator asked for.
    rests_us: BTreeMap<ServerId, u64>,
    follows: Follows,
    /// True if followers may change: something has, since they were looked at.
    has_news: bool,
    /// The nodes that were alive then.
    alive: Vec<ServerId>,
    /// Moves that an operator asked for.
    wished: VecDeque<(MicroShard, ServerId)>,
    nodes: Option<Vec<Node>>,
    /// Nodes that one with a lease may not know yet, and since when the directory has them.
    strangers: BTreeMap<ServerId, Epoch>,
    given_up: Vec<ServerId>,
    /// Nodes of a new directory that have not reported. One of them may know that it is not the rack's first.
    unheard: BTreeSet<ServerId>,
    /// When the leases of an earlier coordinator have run out.
    quiet_until_us: u64,
    balancer: Option<Balancer>,
    relief: Option<Relief>,
    /// Steps that were taken to relieve nodes.
    relieved: u64,
}

impl Coordinator {
    /// A coordinator that starts at `now_us` with the directory on its disk.
    pub fn new(directory: Directory, terms: Terms, policy: Policy, now_us: u64) -> Self {
        let joining = directory.nodes().iter().filter(|node| node.standing == Standing::Joining);
        let is_new = directory.epoch() == Directory::FIRST_EPOCH;
        let nodes = directory.nodes().iter().filter(|_| is_new);
        Self {
            unheard: nodes.map(|node| node.id).collect(),
            strangers: joining.map(|node| (node.id, directory.epoch())).collect(),
            terms,
            policy,
            follows: Follows::of(&directory),
            has_news: true,
            alive: Vec::new(),
            taken: taken(&directory),
            directory: Arc::new(directory),
            draft: None,
            peers: BTreeMap::new(),
            callers: BTreeMap::new(),
            moves: BTreeMap::new(),
            rests_us: BTreeMap::new(),
            wished: VecDeque::new(),
            nodes: None,
            given_up: Vec::new(),
            quiet_until_us: now_us + terms.honoured_us(),
            balancer: None,
            relief: None,
            relieved: 0,
        }
    }

    /// Distributes reads, too, from `now_us` on.
    #[must_use]
    pub fn with_balancing(self, balancing: Balancing, now_us: u64) -> Self {
        Self { balancer: Some(Balancer::new(balancing, now_us)), ..self }
    }

    /// Relieves the busiest node, too, by one step each `interval_us` from `now_us` on.
    #[must_use]
    pub fn with_relief(self, interval_us: u64, now_us: u64) -> Self {
        Self { relief: Some(Relief::new(interval_us, now_us)), ..self }
    }

    /// Steps that were taken to relieve nodes.
    pub fn relieved(&self) -> u64 {
        self.relieved
    }

    /// The weights in force, if reads are distributed and an interval has passed.
    pub fn weights(&self) -> Option<&Arc<Weights>> {
        self.balancer.as_ref()?.weights()
    }

    /// The directory in force.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// The nodes, as their reports show them.
    pub fn nodes(&self, now_us: u64) -> impl Iterator<Item = NodeState<'_>> {
        self.directory.nodes().iter().map(move |node| {
            let peer = self.peers.get(&node.id);
            NodeState {
                node,
                is_alive: self.is_alive(now_us, node.id),
                epoch: peer.map_or(0, |peer| peer.report.epoch),
                micro_shards: self.directory.places().filter(|(_, place)| place.node == node.id).count(),
                lacking: peer.map_or(0, |peer| peer.report.lacking.len()),
                mishaps: peer.map_or_else(Mishaps::default, |peer| peer.mishaps),
            }
        })
    }

    /// The nodes that have a lease.
    pub fn leased(&self, now_us: u64) -> impl Iterator<Item = ServerId> {
        self.peers.keys().copied().filter(move |id| self.is_alive(now_us, *id))
    }

    /// The copies that may replace their owners'.
    pub fn safe_copies(&self) -> usize {
        let listed = |it| self.directory.followers(it).iter().map(move |follower| (it, follower));
        let is_followed = |(it, follower): &(MicroShard, &Follower)| {
            let id = MoveId { micro_shard: *it, number: follower.number };
            follower.is_safe && self.follows.has(&id, follower.node)
        };
        self.directory.micro_shards().iter().flat_map(listed).filter(is_followed).count()
    }

    /// How many moves are under way, and how many wait that an operator asked for.
    pub fn moves(&self) -> (usize, usize) {
        let drafted = self.draft.as_ref().map_or(0, |draft| draft.moves.len());
        (self.moves.len() + drafted, self.wished.len())
    }

    /// Takes an input, and adds what is to be done to `effects`.
    pub fn handle(&mut self, now_us: u64, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Tick => {}
            Input::Report(report) => self.on_report(now_us, report, effects),
            Input::Persisted(epoch) => self.publish(epoch, effects),
        }
        self.callers.retain(|_, until_us| now_us < *until_us);
        self.relieve(now_us);
        self.decide(now_us, effects);
        self.balance(now_us);
    }

    /// Computes weights. They travel with the answers to the next reports.
    fn balance(&mut self, now_us: u64) {
        let Some(mut balancer) = self.balancer.take() else { return };
        balancer.decide(now_us, self.directory.nodes(), |id| self.is_alive(now_us, id));
        self.balancer = Some(balancer);
    }

    /// Takes a report and grants its lease, but changes nothing before the next input: of many reports at a time, one change
    /// comes.
    pub fn hear(&mut self, now_us: u64, report: Report, effects: &mut Vec<Effect>) {
        self.on_report(now_us, report, effects);
    }

    /// Takes an operator's wish; it is fulfilled step by step with the inputs that follow. Returns the epoch of the directory that
    /// will have it, if one does: a coordinator that ends before that has forgotten it.
    ///
    /// # Errors
    /// It cannot be fulfilled.
    pub fn command(&mut self, now_us: u64, command: Command) -> Result<Option<Epoch>, Refused> {
        // Also what an earlier command has changed and is not kept yet.
        let newest = Arc::clone(self.draft.as_ref().map_or(&self.directory, |draft| &draft.directory));
        let mut nodes = self.nodes.clone().unwrap_or_else(|| newest.nodes().to_vec());
        let index = |id| nodes.iter().position(|node| node.id == id).ok_or(Refused::UnknownNode(id));
        match command {
            Command::Move(micro_shard, to) => {
                let to = &nodes[index(to)?];
                return self.wish(now_us, micro_shard, to).map(|()| None);
            }
            Command::Balance => {
                let is_live = |it: &ServerId| {
                    self.directory.node(*it).is_some_and(|node| node.standing != Standing::Leaving)
                };
                let places = self.directory.places();
                let targets =
                    places.filter_map(|(it, place)| Some((it, self.directory.target(it)?, place.node)));
                let strays = targets.filter(|(_, target, node)| target != node && is_live(target));
                self.wished = strays.map(|(it, target, _)| (it, target)).collect();
                return Ok(None);
            }
            Command::GiveUp(id) => {
                index(id)?;
                if self.is_whole(now_us, id) {
                    return Err(Refused::Whole(id));
                }
                self.given_up.push(id);
                return Ok(None);
            }
            Command::Add(id, unit, address) => self.add(&mut nodes, (id, unit, address))?,
            Command::Drain(id) => {
                let index = index(id)?;
                nodes[index].standing = Standing::Leaving;
            }
            Command::Remove(id) => {
                let index = index(id)?;
                if self.is_in_use(id) {
                    return Err(Refused::InUse(id));
                }
                nodes.remove(index);
            }
        }
        let next = newest.changed(Change { nodes: Some(nodes.clone()), ..Change::default() })?;
        self.nodes = Some(nodes);
        Ok(Some(next.epoch()))
    }

    /// Adds a node, or lets one stay that was to leave.
    fn add(
        &self,
        nodes: &mut Vec<Node>,
        (id, unit, address): (ServerId, UnitId, String),
    ) -> Result<(), Refused> {
        match nodes.iter_mut().find(|node| node.id == id) {
            None if self.callers.contains_key(&id) || self.directory.node(id).is_some() => {
                nodes.push(Node { id, unit, standing: Standing::Joining, address });
            }
            None => return Err(Refused::Silent(id)),
            Some(node) if node.standing != Standing::Leaving => return Err(Refused::Known(id)),
            Some(node) if node.unit != unit => return Err(Refused::OtherUnit(id, node.unit)),
            Some(node) => node.standing = Standing::Joining,
        }
        Ok(())
    }

    /// Notes a move that can begin now: one that cannot is forgotten later.
    fn wish(&mut self, now_us: u64, micro_shard: MicroShard, to: &Node) -> Result<(), Refused> {
        let place = self.directory.place(micro_shard).ok_or(Refused::UnknownMicroShard(micro_shard))?;
        if to.standing == Standing::Leaving {
            return Err(Refused::Leaving(to.id));
        }
        if let Some(silent) = [place.node, to.id].into_iter().find(|id| !self.is_alive(now_us, *id)) {
            return Err(Refused::Silent(silent));
        }
        if !place.is_serving {
            return Err(Refused::Ownerless(micro_shard));
        }
        if self.wished.len() >= self.directory.micro_shards().count() as usize {
            return Err(Refused::Busy);
        }
        self.wished.push_back((micro_shard, to.id));
        Ok(())
    }

    /// True if a node has a lease and all its items.
    fn is_whole(&self, now_us: u64, id: ServerId) -> bool {
        self.is_alive(now_us, id) && self.peers.get(&id).is_some_and(|peer| peer.report.lacking.is_empty())
    }

    fn is_in_use(&self, id: ServerId) -> bool {
        let newest = self.draft.as_ref().map_or(&self.directory, |draft| &draft.directory);
        let started = self.draft.iter().flat_map(|draft| &draft.moves);
        let mut moves = self.moves.values().chain(started);
        newest.places().any(|(_, place)| place.node == id)
            || moves.any(|it| it.to == id)
            || self.follows.names(id)
            || newest.places().any(|(it, _)| newest.follower(it, id).is_some())
            || self.wished.iter().any(|(_, to)| *to == id)
    }

    fn on_report(&mut self, now_us: u64, mut report: Report, effects: &mut Vec<Effect>) {
        let later = report.epoch.max(report.kept);
        if later > self.directory.epoch() {
            // One node that was forgotten when all began anew ends no rack.
            let is_first = self.peers.is_empty() || now_us < self.quiet_until_us;
            let effect = if is_first { Effect::Outdated } else { Effect::Stale };
            return effects.push(effect(report.node, later));
        }
        for list in [&mut report.lacking, &mut report.withdrawn] {
            list.sort_unstable();
        }
        let peer = self.peers.get(&report.node);
        let known = peer.map(|peer| &peer.report);
        let order = |report: &Report| (report.incarnation, report.sent_us);
        if known.is_some_and(|known| order(&report) <= order(known)) {
            return;
        }
        let Some(node) = self.directory.node(report.node) else {
            self.callers.insert(report.node, now_us + self.terms.honoured_us());
            return;
        };
        let (id, asked_us) = (report.node, report.sent_us);
        let is_whole = report.withdrawn.is_empty() && report.lacking.is_empty();
        if is_whole && report.epoch == self.directory.epoch() {
            self.given_up.retain(|it| *it != id);
        }
        if let Some(balancer) = &mut self.balancer {
            balancer.note(&report);
        }
        let until_us = now_us + self.terms.honoured_us();
        let state = |it: &Report| (it.incarnation, it.epoch);
        self.has_news |= known.is_none_or(|known| {
            state(known) != state(&report)
                || known.moves != report.moves
                || known.lacking != report.lacking
                || known.withdrawn != report.withdrawn
        });
        let moves = report.moves.iter().copied().collect();
        let mut mishaps = peer.map_or_else(Mishaps::default, |peer| peer.mishaps);
        mishaps.lapses += u64::from(peer.is_some_and(|peer| peer.until_us <= now_us));
        mishaps.restarts += u64::from(known.is_some_and(|known| known.incarnation != report.incarnation));
        self.peers.insert(id, Peer { unit: node.unit, report, moves, until_us, mishaps });
        self.unheard.remove(&id);
        let may_serve = self.unheard.is_empty() || now_us >= self.quiet_until_us;
        self.send(id, Some(asked_us).filter(|_| may_serve), effects);
    }

    /// What is on disk is in force.
    fn publish(&mut self, epoch: Epoch, effects: &mut Vec<Effect>) {
        let Some(draft) = self.draft.take_if(|draft| draft.directory.epoch() == epoch) else { return };
        let before = std::mem::replace(&mut self.directory, draft.directory);
        self.taken = taken(&self.directory);
        self.moves.extend(draft.moves.into_iter().map(|it| (it.pull.id.micro_shard, it)));
        self.follows.begin(draft.follows);
        self.note_strangers(&before);
        self.has_news = true;
        // First to new owners: requests that others send them then find them ready.
        let changed = self.directory.places_since(&before);
        let owners: BTreeSet<_> = changed.map(|(_, place)| place.node).collect();
        let (first, then): (Vec<_>, Vec<_>) = self.peers.keys().copied().partition(|id| owners.contains(id));
        first.into_iter().chain(then).for_each(|id| self.send(id, None, effects));
    }

    /// Notes who has joined since an earlier directory, and forgets who has left.
    fn note_strangers(&mut self, before: &Directory) {
        let (directory, epoch) = (&self.directory, self.directory.epoch());
        self.strangers.retain(|id, _| directory.node(*id).is_some());
        let new = directory.nodes().iter().filter(|node| before.node(node.id).is_none());
        self.strangers.extend(new.map(|node| (node.id, epoch)));
    }

    fn send(&self, id: ServerId, lease: Option<u64>, effects: &mut Vec<Effect>) {
        let Some(Peer { report, moves, .. }) = self.peers.get(&id) else { return };
        let epoch = self.directory.epoch();
        let is_behind = report.epoch < epoch;
        let pulls = self.moves.values().filter(|it| it.to == id && self.is_copying(it));
        let pulls = pulls.map(|it| it.pull).chain(self.follows.orders(id, |it| moves.contains_key(it)));
        let is_move = |it: &MoveId| self.moves.get(&it.micro_shard).is_some_and(|known| known.pull.id == *it);
        let is_over = |it: &MoveId| !is_move(it) && !self.is_copy_kept(it, id);
        let cancelled = report.moves.iter().map(|(id, _)| *id).filter(is_over);
        let orders = Orders {
            incarnation: report.incarnation,
            lease,
            epoch,
            directory: is_behind.then(|| self.directory.clone()),
            pulls: pulls.collect(),
            // Its news may end the move in another way.
            cancelled: if is_behind { Vec::new() } else { cancelled.collect() },
            weights: self.weights().filter(|weights| weights.version() > report.weights).cloned(),
        };
        effects.push(Effect::Send(id, orders));
    }

    /// True until the micro-shard is taken from its owner.
    fn is_copying(&self, it: &Move) -> bool {
        let place = self.directory.place(it.pull.id.micro_shard);
        place.is_some_and(|place| place.is_served(it.pull.from, it.pull.epoch))
    }

    fn is_alive(&self, now_us: u64, id: ServerId) -> bool {
        self.peers.get(&id).is_some_and(|peer| now_us < peer.until_us)
    }

    /// True once no lease of the node is valid, whoever granted it.
    fn is_dead(&self, now_us: u64, id: ServerId) -> bool {
        now_us >= self.quiet_until_us && !self.is_alive(now_us, id)
    }

    /// True if a node has said that it goes by this epoch or a later one.
    fn has_enacted(&self, id: ServerId, epoch: Epoch) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.report.epoch >= epoch)
    }

    fn progress(&self, it: &Move) -> Option<Progress> {
        self.peers.get(&it.to)?.moves.get(&it.pull.id).copied()
    }

    /// True if the owner has given the micro-shard away. A process that began to copy later may not be the one that has
    /// the items, unless it says so.
    fn is_given(&self, it: &Move) -> bool {
        let gives = self.peers.get(&it.pull.from).and_then(|peer| peer.moves.get(&it.pull.id));
        let is_same = self.peers.get(&it.to).is_some_and(|peer| peer.report.incarnation == it.incarnation);
        gives == Some(&Progress::Given) && (is_same || self.progress(it) == Some(Progress::Drained))
    }
}

/// The micro-shards that are taken from their owners.
fn taken(directory: &Directory) -> Vec<MicroShard> {
    directory.places().filter(|(_, place)| !place.is_serving).map(|(micro_shard, _)| micro_shard).collect()
}
