//! The rules that change the directory. Each looks at the directory in force and at the nodes' reports alone; what
//! they find is written to disk in one change, and in force after that.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use minos_rack::{MicroShard, ServerId};

use super::{Coordinator, Draft, Effect, Loss, Move, Peer, follows::REST_US};
use crate::{
    Change, MoveId, Node, Place, Progress, Pull, Report, Standing,
    switches::{Safeguard, is_on},
};

impl Move {
    /// The place that a micro-shard gets from the move.
    fn target(&self, place: Place) -> Place {
        let since = if self.pull.base > 0 { self.pull.base } else { self.pull.id.number };
        Place { node: self.to, since, is_serving: true, ..place }
    }
}

impl Coordinator {
    /// Applies the rules, unless a change is on its way to disk.
    pub(super) fn decide(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        if self.draft.is_some() {
            return;
        }
        self.drop_moves(now_us);
        self.introduce(now_us);
        // Nodes change alone: a rule must not name one that goes.
        let copies = Some(self.policy.copies).filter(|copies| *copies != self.directory.copies());
        let (change, moves, follows) = match self.nodes.take() {
            None if copies.is_none() => self.apply(now_us),
            nodes => (Change { nodes, copies, ..Change::default() }, Vec::new(), Vec::new()),
        };
        let is_empty = change == Change::default() && moves.is_empty() && follows.is_empty();
        if is_empty && !self.has_doubts() {
            return;
        }
        // Refused only if epochs are used up: then nothing changes any more.
        let Ok(directory) = self.directory.changed(change) else { return };
        let directory = Arc::new(directory);
        effects.push(Effect::Persist(directory.clone()));
        self.draft = Some(Draft { directory, moves, follows });
    }

    fn apply(&mut self, now_us: u64) -> (Change, Vec<Move>, Vec<(ServerId, Pull)>) {
        let mut change = Change { nodes: self.joined(), ..Change::default() };
        for micro_shard in self.open(now_us) {
            let Some(place) = self.directory.place(micro_shard) else { continue };
            if let Some(next) = self.next_place(now_us, micro_shard, place) {
                change.followers.extend(self.kept_copies(micro_shard, place, next));
                change.places.insert(micro_shard, next);
            }
        }
        let may_follow = self.may_change_follows(now_us);
        if may_follow {
            self.drop_follows(now_us);
            self.relist(now_us, &mut change);
        }
        let moves = self.begin_moves(now_us, &change);
        let mut follows = if may_follow { self.begin_follows(now_us, &change) } else { Vec::new() };
        follows.retain(|(_, pull)| moves.iter().all(|it| it.pull.id != pull.id));
        (change, moves, follows)
    }

    /// The micro-shards that may change their place: few, as a rule. Each report leads here, while writes may wait.
    fn open(&self, now_us: u64) -> BTreeSet<MicroShard> {
        let has_news = |report: &Report| !report.withdrawn.is_empty() || !report.lacking.is_empty();
        let is_loud = |id: &ServerId| {
            self.is_dead(now_us, *id) || self.peers.get(id).is_some_and(|peer| has_news(&peer.report))
        };
        let nodes = self.directory.nodes().iter().map(|node| node.id);
        let loud: BTreeSet<_> = nodes.filter(is_loud).collect();
        let theirs = self.directory.places().filter(|(_, place)| loud.contains(&place.node));
        let theirs = theirs.map(|(micro_shard, _)| micro_shard);
        let others = self.moves.keys().chain(&self.taken).copied();
        if loud.is_empty() { others.collect() } else { others.chain(theirs).collect() }
    }

    /// Forgets moves that cannot end well, and those that have ended.
    fn drop_moves(&mut self, now_us: u64) {
        let is_live = |it: &Move| {
            let place = self.directory.place(it.pull.id.micro_shard);
            let is_taken = place.is_some_and(|place| place.node == it.pull.from && !place.is_serving);
            let progress = self.progress(it);
            let is_possible = match progress {
                Some(Progress::Drained) => true,
                Some(
                    Progress::Failed
                    | Progress::Giving
                    | Progress::Given
                    | Progress::Following
                    | Progress::Safe,
                ) => false,
                None | Some(Progress::Pulling) => {
                    !is_taken
                        && self.is_alive(now_us, it.pull.from)
                        && now_us < it.began_us.saturating_add(self.policy.move_us_max)
                }
            };
            let is_begun = is_taken || self.is_copying(it);
            is_possible && is_begun && self.is_alive(now_us, it.to) && self.has_base(it)
        };
        let over: BTreeMap<_, _> = self
            .moves
            .iter()
            .filter(|(_, it)| !is_live(it))
            .map(|(micro_shard, it)| (*micro_shard, *it))
            .collect();
        self.has_news |= !over.is_empty();
        self.moves.retain(|micro_shard, _| !over.contains_key(micro_shard));
        let has_failed = |it: &&Move| self.is_copying(it) && self.progress(it) == Some(Progress::Failed);
        let failed: Vec<_> = over.values().filter(has_failed).map(|it| it.to).collect();
        self.rests_us.retain(|_, until_us| now_us < *until_us);
        self.rests_us.extend(failed.into_iter().map(|node| (node, now_us.saturating_add(REST_US))));
    }

    /// Forgets the strangers that every node with a lease knows by now. Nothing goes to the others: a flush at a node that
    /// does not know them would leave it there.
    fn introduce(&mut self, now_us: u64) {
        if self.strangers.is_empty() || now_us < self.quiet_until_us {
            return;
        }
        let (peers, count) = (&self.peers, self.strangers.len());
        let knows = |peer: &Peer, since| peer.report.epoch >= since || now_us >= peer.until_us;
        self.strangers.retain(|_, since| !peers.values().all(|peer| knows(peer, *since)));
        self.has_news |= self.strangers.len() < count;
    }

    /// Where a micro-shard is next, if that changes.
    fn next_place(&self, now_us: u64, micro_shard: MicroShard, place: Place) -> Option<Place> {
        let under_way = self.moves.get(&micro_shard);
        let drained = under_way.filter(|it| self.progress(it) == Some(Progress::Drained));
        if let Some(it) = under_way.filter(|it| place.is_serving && self.is_given(it)) {
            return Some(it.target(place));
        }
        if !place.is_serving {
            return self.next_owner(now_us, micro_shard, place, drained);
        }
        let is_dead = self.is_dead(now_us, place.node);
        let is_lost = is_dead && self.may_lose(place.node) && self.substitute(now_us, place.node).is_some();
        if drained.is_some() || is_lost || is_dead && self.heir(now_us, micro_shard, place).is_some() {
            return Some(Place { is_serving: false, ..place });
        }
        let peer = self.peers.get(&place.node).filter(|peer| peer.report.epoch >= place.epoch)?;
        if !peer.lacks(micro_shard) {
            return peer.is_withdrawn(micro_shard).then_some(place);
        }
        // Its unit may still read the memory that it has lost.
        let is_replaced = self.may_lose(place.node) || self.heir(now_us, micro_shard, place).is_some();
        is_replaced.then_some(Place { is_serving: false, ..place })
    }

    /// Who gets a micro-shard that was taken from its owner: the node that copied it, else its last owner if it has the
    /// items, else a follower, else any, without items.
    fn next_owner(
        &self,
        now_us: u64,
        micro_shard: MicroShard,
        place: Place,
        drained: Option<&Move>,
    ) -> Option<Place> {
        let lacks = self.lacks(micro_shard, place);
        let is_released = self.is_released(now_us, place, lacks);
        if let Some(it) = drained {
            return is_released.then_some(it.target(place));
        }
        let is_alive = self.is_alive(now_us, place.node);
        // A process that has begun anew says nothing of what it lacks before it has the directory.
        let is_heard = self.has_enacted(place.node, place.epoch);
        if is_alive && is_heard && !lacks {
            return Some(Place { is_serving: true, ..place });
        }
        let is_gone = is_released && (is_alive || self.is_dead(now_us, place.node));
        if let Some(place) = self.inherited(now_us, micro_shard, place).filter(|_| is_gone) {
            return Some(place);
        }
        if !is_gone || !self.may_lose(place.node) {
            return None;
        }
        let node = if is_alive { place.node } else { self.substitute(now_us, place.node)? };
        Some(Place { node, since: 0, is_serving: true, ..place })
    }

    /// True if the node has said that it has lost the items.
    pub(super) fn lacks(&self, micro_shard: MicroShard, place: Place) -> bool {
        let peer = self.peers.get(&place.node);
        peer.is_some_and(|peer| peer.report.epoch >= place.since && peer.lacks(micro_shard))
    }

    /// True once no node answers from the memory of the owner that was. One that has its items has withdrawn its word there;
    /// one that lacks them may have lost a memory that others still have.
    fn is_released(&self, now_us: u64, place: Place, lacks: bool) -> bool {
        if self.has_enacted(place.node, place.epoch) && !lacks || !is_on(Safeguard::Fence) {
            return true;
        }
        let unit = self.directory.node(place.node).map(|node| node.unit);
        let mut readers = self.peers.iter().filter(|(_, peer)| Some(peer.unit) == unit);
        let is_past = self.is_dead(now_us, place.node) || lacks && now_us >= self.quiet_until_us;
        is_past && readers.all(|(id, peer)| self.has_enacted(*id, place.epoch) || now_us >= peer.until_us)
    }

    fn may_lose(&self, id: ServerId) -> bool {
        self.policy.loss == Loss::Allowed || self.given_up.contains(&id)
    }

    /// The live node with the fewest micro-shards, of the same unit if there is one.
    fn substitute(&self, now_us: u64, dead: ServerId) -> Option<ServerId> {
        let unit = self.directory.node(dead)?.unit;
        let nodes = self.directory.nodes().iter().filter(|node| node.standing != Standing::Leaving);
        let nodes = nodes.filter(|node| node.id != dead && !self.strangers.contains_key(&node.id));
        let alive = nodes.filter(|node| self.is_alive(now_us, node.id));
        let held = |id| self.directory.places().filter(|(_, place)| place.node == id).count();
        alive.min_by_key(|node| (node.unit != unit, held(node.id), node.id)).map(|node| node.id)
    }

    /// The nodes, if one of them has got all its part.
    fn joined(&self) -> Option<Vec<Node>> {
        if self.directory.nodes().iter().all(|node| node.standing != Standing::Joining) {
            return None;
        }
        let misses = |id| {
            let mut places = self.directory.places();
            // One that was to leave may be about to lose some.
            let is_away = |it, place: Place| place.node != id || self.moves.contains_key(&it);
            places.any(|(it, place)| self.directory.target(it) == Some(id) && is_away(it, place))
        };
        let mut nodes = self.directory.nodes().to_vec();
        let joined = nodes.iter_mut().filter(|node| node.standing == Standing::Joining && !misses(node.id));
        let count = joined.map(|node| node.standing = Standing::Member).count();
        (count > 0).then_some(nodes)
    }

    /// Moves to begin with the next epoch, which is their number. None is of a micro-shard that changes in it.
    fn begin_moves(&mut self, now_us: u64, change: &Change) -> Vec<Move> {
        let number = self.directory.epoch().saturating_add(1);
        let mut begun: Vec<Move> = Vec::new();
        let wished: Vec<_> = self.wished.drain(..).collect();
        let is_changing = self.directory.nodes().iter().any(|node| node.standing != Standing::Member);
        let due = || self.directory.places().filter_map(|(it, place)| self.due(it, place)).collect();
        let due: Vec<_> = if is_changing { due() } else { Vec::new() };
        let count = wished.len();
        for (index, (micro_shard, to)) in wished.into_iter().chain(due).enumerate() {
            let is_free = !change.places.contains_key(&micro_shard)
                && !self.moves.contains_key(&micro_shard)
                && begun.iter().all(|it| it.pull.id.micro_shard != micro_shard);
            let has_room = self.moves.len() + begun.len() < self.policy.moves_max;
            // One that has been removed may have its lease yet.
            let is_known = self.directory.node(to).is_some();
            let place = self.directory.place(micro_shard).filter(|place| place.node != to && is_known);
            let Some(place) = place else { continue };
            let base = self.base(micro_shard, to);
            let is_possible =
                place.is_serving && self.is_alive(now_us, place.node) && self.is_alive(now_us, to);
            // Each beginning is a change on disk. An operator sees what fails.
            let is_free = is_free
                && !self.strangers.contains_key(&to)
                && (index < count || !self.rests_us.contains_key(&to));
            if let Some(base) = base.filter(|_| is_free && has_room && is_possible) {
                let id = MoveId { micro_shard, number };
                let pull = Pull { id, from: place.node, epoch: place.epoch, is_follow: false, base };
                let incarnation = self.peers.get(&to).map_or(0, |peer| peer.report.incarnation);
                begun.push(Move { pull, to, incarnation, began_us: now_us });
            } else if index < count && is_possible {
                self.wished.push_back((micro_shard, to));
            }
        }
        begun
    }

    /// Where a micro-shard is to be moved because a node leaves or joins.
    fn due(&self, micro_shard: MicroShard, place: Place) -> Option<(MicroShard, ServerId)> {
        let target = self.directory.target(micro_shard).filter(|target| *target != place.node)?;
        let stands = |id, standing| self.directory.node(id).is_some_and(|node| node.standing == standing);
        let is_due = stands(place.node, Standing::Leaving) || stands(target, Standing::Joining);
        is_due.then_some((micro_shard, target))
    }
}
