//! The rules for followers: who copies which micro-shard, for whom its owner waits, and who replaces a lost owner.

use std::collections::BTreeMap;

use minos_rack::{MicroShard, ServerId};

use super::{Coordinator, Move, Peer, relief::Relief};
use crate::{
    Change, Directory, Epoch, Follower, MoveId, Place, Progress, Pull,
    switches::{Safeguard, is_on},
};

/// Time without new orders to a node that has failed to follow, or to copy what is to move to it, in microseconds.
pub(super) const REST_US: u64 = 1_000_000;

/// Followers and the nodes that are to become some.
#[derive(Debug, Default)]
pub(super) struct Follows {
    pulls: BTreeMap<(MicroShard, ServerId), Pull>,
    /// Until when a node that has failed gets no new orders.
    rests_us: BTreeMap<ServerId, u64>,
    /// Copies that the directory names and that have come to nothing, with the epoch in which the owner must have said that it
    /// has the items before they are dropped: if it has lost them, a copy may be the last one.
    doubts: BTreeMap<(MicroShard, ServerId), Epoch>,
}

impl Follows {
    /// Those of a directory.
    pub(super) fn of(directory: &Directory) -> Self {
        let mut pulls = BTreeMap::new();
        for (micro_shard, place) in directory.places() {
            for follower in directory.followers(micro_shard) {
                let id = MoveId { micro_shard, number: follower.number };
                let pull = Pull { id, from: place.node, epoch: place.epoch, is_follow: true, base: 0 };
                pulls.insert((micro_shard, follower.node), pull);
            }
        }
        Self { pulls, ..Self::default() }
    }

    /// The orders that a node does not know yet.
    pub(super) fn orders<'a>(
        &'a self,
        node: ServerId,
        is_known: impl Fn(&MoveId) -> bool + 'a,
    ) -> impl Iterator<Item = Pull> + 'a {
        let of_node = self.pulls.iter().filter(move |((_, to), _)| *to == node).map(|(_, pull)| *pull);
        of_node.filter(move |pull| !is_known(&pull.id))
    }

    /// True if a node is to follow by this order.
    pub(super) fn has(&self, id: &MoveId, node: ServerId) -> bool {
        self.pulls.get(&(id.micro_shard, node)).is_some_and(|pull| pull.id == *id)
    }

    pub(super) fn begin(&mut self, pulls: Vec<(ServerId, Pull)>) {
        self.pulls.extend(pulls.into_iter().map(|(node, pull)| ((pull.id.micro_shard, node), pull)));
    }

    /// True if a node follows anything.
    pub(super) fn names(&self, node: ServerId) -> bool {
        self.pulls.keys().any(|(_, to)| *to == node)
    }
}

impl Coordinator {
    /// True if followers may have to change since this was asked last. It costs a look at every micro-shard, also in a rack
    /// at rest.
    pub(super) fn may_change_follows(&mut self, now_us: u64) -> bool {
        let alive: Vec<_> = self.leased(now_us).collect();
        let Follows { rests_us, doubts, .. } = &self.follows;
        let is_waiting = now_us < self.quiet_until_us || !rests_us.is_empty() || !doubts.is_empty();
        self.follows.rests_us.retain(|_, until_us| now_us < *until_us);
        let is_news = std::mem::take(&mut self.has_news) || alive != self.alive;
        self.alive = alive;
        is_news || is_waiting
    }

    /// Forgets the orders that came to nothing. Whom an owner waits for is changed by [`Coordinator::relist`].
    pub(super) fn drop_follows(&mut self, now_us: u64) {
        let mut follows = std::mem::take(&mut self.follows);
        let (mut failed, doubts) = (Vec::new(), std::mem::take(&mut follows.doubts));
        follows.pulls.retain(|(micro_shard, node), pull| {
            let Some(place) = self.directory.place(*micro_shard) else { return false };
            let is_same = place.node == pull.from && (place.epoch == pull.epoch || !place.is_serving);
            // A follower of an owner that is lost may replace it.
            if !is_same || !self.is_owner_fit(now_us, *micro_shard, place) {
                return is_same;
            }
            let progress = self.follow_progress(*node, pull.id);
            if progress == Some(Progress::Failed) {
                follows.rests_us.insert(*node, now_us.saturating_add(REST_US));
            }
            let listed = self.directory.follower(*micro_shard, *node);
            let is_listed = listed.is_some_and(|it| it.number == pull.id.number);
            let is_possible = !self.is_dead(now_us, *node)
                && match progress {
                    Some(Progress::Pulling | Progress::Following | Progress::Safe) => true,
                    // It has not heard of it, or nobody has heard it yet.
                    None => !is_listed || !self.peers.contains_key(node),
                    Some(Progress::Giving | Progress::Given | Progress::Drained | Progress::Failed) => false,
                };
            let takes_over = self.moves.get(micro_shard).is_some_and(|it| it.to == *node);
            let is_wanted = takes_over
                || self.wanted(*micro_shard).any(|wanted| wanted == *node)
                || is_listed && !self.has_wanted_copies(*micro_shard);
            if is_listed && !is_possible {
                let key = (*micro_shard, *node);
                let epoch = doubts.get(&key).copied().unwrap_or(self.directory.epoch().saturating_add(1));
                if is_on(Safeguard::Doubt) && !self.has_enacted(place.node, epoch) {
                    follows.doubts.insert(key, epoch);
                    return true;
                }
                failed.push(*node);
            }
            is_possible && is_wanted
        });
        self.follows = follows;
        for node in failed {
            self.peers.entry(node).and_modify(|peer| peer.mishaps.failed_copies += 1);
        }
    }

    /// True if an owner is to be asked, by another epoch, whether it still has its items.
    pub(super) fn has_doubts(&self) -> bool {
        self.follows.doubts.values().any(|epoch| *epoch > self.directory.epoch())
    }

    /// True if as many copies of a micro-shard are complete as there are to be, without those that no node is to have any more.
    fn has_wanted_copies(&self, micro_shard: MicroShard) -> bool {
        let is_safe =
            |node: &ServerId| self.directory.follower(micro_shard, *node).is_some_and(|it| it.is_safe);
        let needed = self.directory.wanted(micro_shard).count();
        self.wanted(micro_shard).filter(is_safe).count() >= needed
    }

    /// The number of the copy with which a move to a node ends; zero if it copies all items. `None` while the node is about to
    /// have a copy, or to lose one that the directory names.
    pub(super) fn base(&self, micro_shard: MicroShard, node: ServerId) -> Option<Epoch> {
        let listed = self.directory.follower(micro_shard, node).map(|it| it.number);
        let ordered = self.follows.pulls.get(&(micro_shard, node)).map(|it| it.id.number);
        let is_safe =
            |number| self.follow_progress(node, MoveId { micro_shard, number }) == Some(Progress::Safe);
        match (listed, ordered) {
            (None, None) => Some(0),
            (Some(listed), Some(ordered)) if listed == ordered && is_safe(listed) => Some(listed),
            _ => None,
        }
    }

    /// True unless a move was to end with a copy that is gone, or behind.
    pub(super) fn has_base(&self, it: &Move) -> bool {
        let id = MoveId { number: it.pull.base, ..it.pull.id };
        id.number == 0 || self.follow_progress(it.to, id) == Some(Progress::Safe)
    }

    /// The copies that the directory still names where a follower becomes the owner, or the owner goes on under a higher
    /// epoch, until that node has said that it has the items: it may have lost them since it said so. An owner that was
    /// another node is one of them.
    pub(super) fn kept_copies(
        &self,
        micro_shard: MicroShard,
        place: Place,
        next: Place,
    ) -> Option<(MicroShard, Vec<Follower>)> {
        let is_same = place.node == next.node;
        let is_known = is_same || self.directory.follower(micro_shard, next.node).is_some();
        if next.since == 0 || !is_known || !is_on(Safeguard::Keeping) {
            return None;
        }
        let others = self.directory.followers(micro_shard).iter().filter(|it| it.node != next.node);
        let was = Follower { node: place.node, number: place.since, is_safe: true };
        let was = Some(was).filter(|_| !is_same && !self.lacks(micro_shard, place));
        let mut kept: Vec<_> = others.copied().chain(was).collect();
        kept.sort_by_key(|it| it.node);
        Some((micro_shard, kept))
    }

    /// True if an owner answers, and has its items. A process that has not said so yet may have lost them.
    fn is_owner_fit(&self, now_us: u64, micro_shard: MicroShard, place: Place) -> bool {
        let has_items = |peer: &Peer| {
            peer.report.epoch >= place.epoch && !peer.is_withdrawn(micro_shard) && !peer.lacks(micro_shard)
        };
        let is_whole = self.peers.get(&place.node).is_some_and(has_items);
        place.is_serving && self.is_alive(now_us, place.node) && is_whole
    }

    /// True if a node is to keep the copy of this order. One that the directory names may be an heir, also where it is to
    /// follow no more.
    pub(super) fn is_copy_kept(&self, id: &MoveId, node: ServerId) -> bool {
        let listed = self.directory.follower(id.micro_shard, node);
        let is_listed = listed.is_some_and(|it| it.number == id.number);
        is_listed || self.follows.has(id, node)
    }

    fn follow_progress(&self, node: ServerId, id: MoveId) -> Option<Progress> {
        self.peers.get(&node)?.moves.get(&id).copied()
    }

    /// The followers that the directory is to name, where they change.
    pub(super) fn relist(&self, now_us: u64, change: &mut Change) {
        if self.follows.pulls.is_empty() && !self.directory.has_followers() {
            return;
        }
        for (micro_shard, place) in self.directory.places() {
            let listed = self.directory.followers(micro_shard);
            let is_changed = change.places.contains_key(&micro_shard);
            if is_changed || !self.is_owner_fit(now_us, micro_shard, place) {
                continue;
            }
            let wanted = self.wanted_list(micro_shard, listed);
            if wanted != listed {
                change.followers.insert(micro_shard, wanted);
            }
        }
    }

    fn wanted_list(&self, micro_shard: MicroShard, listed: &[Follower]) -> Vec<Follower> {
        let mut wanted = Vec::new();
        let pulls = (micro_shard, ServerId(0))..=(micro_shard, ServerId(u32::MAX));
        for ((_, node), pull) in self.follows.pulls.range(pulls) {
            let was = listed.iter().find(|it| (it.node, it.number) == (*node, pull.id.number));
            let progress = self.follow_progress(*node, pull.id);
            let is_complete = matches!(progress, Some(Progress::Following | Progress::Safe));
            let is_safe =
                was.is_some() && progress == Some(Progress::Safe) || is_complete && !is_on(Safeguard::Safe);
            if was.is_some() || is_complete {
                let is_safe = is_safe || was.is_some_and(|it| it.is_safe);
                wanted.push(Follower { node: *node, number: pull.id.number, is_safe });
            }
        }
        wanted
    }

    /// Orders to begin with the next epoch, which is their number.
    pub(super) fn begin_follows(&self, now_us: u64, change: &Change) -> Vec<(ServerId, Pull)> {
        let number = self.directory.epoch().saturating_add(1);
        let is_new = |((micro_shard, node), _): &(&(MicroShard, ServerId), &Pull)| {
            self.directory.follower(*micro_shard, *node).is_none()
        };
        let under_way = self.follows.pulls.iter().filter(is_new).count();
        let mut begun = Vec::new();
        if self.directory.copies() <= 1 && !self.relief.as_ref().is_some_and(Relief::has_copies) {
            return begun;
        }
        for (micro_shard, place) in self.directory.places() {
            let is_still =
                self.is_owner_fit(now_us, micro_shard, place) && !change.places.contains_key(&micro_shard);
            for node in self.wanted(micro_shard).filter(|_| is_still) {
                let rests = self.follows.rests_us.get(&node).is_some_and(|until_us| now_us < *until_us);
                let is_free = !self.follows.pulls.contains_key(&(micro_shard, node))
                    && !self.strangers.contains_key(&node)
                    && !rests;
                // A move to it copies the same items.
                let moves = self.moves.get(&micro_shard).is_some_and(|it| it.to == node);
                if under_way + begun.len() < self.policy.moves_max
                    && is_free
                    && !moves
                    && self.is_alive(now_us, node)
                {
                    let id = MoveId { micro_shard, number };
                    let pull = Pull { id, from: place.node, epoch: place.epoch, is_follow: true, base: 0 };
                    begun.push((node, pull));
                }
            }
        }
        begun
    }

    /// A follower that may become the owner: it has all that was acknowledged. Its report is of the time since the last
    /// change of the place: once the micro-shard is taken from its owner, nothing makes a follower drop its items.
    pub(super) fn heir(&self, now_us: u64, micro_shard: MicroShard, place: Place) -> Option<Follower> {
        let followers = self.directory.followers(micro_shard).iter();
        let is_fit = |it: &&Follower| {
            let id = MoveId { micro_shard, number: it.number };
            let progress = self.follow_progress(it.node, id);
            // It keeps what it has also where it cannot follow any more.
            let is_there = matches!(
                progress,
                Some(Progress::Following | Progress::Safe | Progress::Drained | Progress::Failed)
            );
            let is_confirmed = self.has_enacted(it.node, place.epoch);
            it.is_safe && is_there && is_confirmed && self.is_alive(now_us, it.node)
        };
        followers.into_iter().find(is_fit).copied()
    }

    /// The place of a micro-shard at its heir.
    pub(super) fn inherited(&self, now_us: u64, micro_shard: MicroShard, place: Place) -> Option<Place> {
        let Follower { node, number, .. } = self.heir(now_us, micro_shard, place)?;
        Some(Place { node, since: number, is_serving: true, ..place })
    }
}
