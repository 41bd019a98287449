//! An owner's side of followers: it notes what changes, and hands it to each in batches.

use std::collections::{BTreeMap, BTreeSet};

use minos_base::KeyHash;
use minos_rack::{MicroShard, ServerId};

use super::{Effect, Member};
use crate::{
    Asked, Directory, Epoch, FeedId, Follower, Message, More, MoveId, Place,
    switches::{Safeguard, is_on},
};

/// Changed keys that wait for a follower. One that would be further behind has to begin anew.
const BEHIND_MAX: usize = 1 << 17;
/// Leases without a question after which a follower has nothing to come that the directory does not name. One that lives asks
/// four times in a lease, but for those for which it tries a batch.
const SILENCE: u64 = 4;

/// How far a follower is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The follower.
    pub node: ServerId,
    /// The micro-shards that it follows here.
    pub micro_shards: usize,
    /// Changed keys that it has not taken in.
    pub changes: usize,
    /// When the oldest of them was handed over, by the node's clock.
    pub since_us: Option<u64>,
}

/// What this node has for one follower.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) id: FeedId,
    /// The follower's process.
    incarnation: u64,
    /// When it asked last.
    asked_us: u64,
    shards: BTreeMap<MicroShard, Fed>,
    /// Batches that the follower has taken in.
    applied: u64,
    /// The batch after those.
    sent: Option<Sent>,
    pending: BTreeSet<(MicroShard, KeyHash)>,
    /// When the first of `pending` was handed over.
    pending_since_us: u64,
    /// The question that waits for changes.
    question: Option<More>,
    /// What was handed over up to this number is at the follower.
    confirmed: u64,
}

/// A micro-shard that is followed.
#[derive(Debug)]
struct Fed {
    asked: Asked,
    /// True once every writer notes changes.
    is_noted: bool,
    /// True if the directory has named the follower.
    was_listed: bool,
}

#[derive(Debug)]
struct Sent {
    more: More,
    changes: Vec<(MicroShard, KeyHash)>,
    epoch: Epoch,
    /// The last hand-over before it.
    handed: u64,
    since_us: u64,
}

impl Feed {
    fn new(id: FeedId, incarnation: u64, confirmed: u64) -> Self {
        Self {
            id,
            incarnation,
            asked_us: 0,
            shards: BTreeMap::new(),
            applied: 0,
            sent: None,
            pending: BTreeSet::new(),
            pending_since_us: 0,
            question: None,
            confirmed,
        }
    }

    /// True if the follower is told of the changes of a micro-shard.
    pub(super) fn feeds(&self, micro_shard: MicroShard) -> bool {
        self.shards.get(&micro_shard).is_some_and(|fed| fed.is_noted)
    }

    /// Changed keys that the follower has not taken in, as far as is known.
    pub(super) fn left(&self) -> usize {
        self.pending.len() + self.sent.as_ref().map_or(0, |sent| sent.changes.len())
    }

    /// True if none of those is of this micro-shard.
    pub(super) fn has_sent_all_of(&self, micro_shard: MicroShard) -> bool {
        let all = (micro_shard, KeyHash(0))..=(micro_shard, KeyHash(u64::MAX));
        let mut sent = self.sent.iter().flat_map(|sent| &sent.changes);
        self.pending.range(all).next().is_none() && sent.all(|(it, _)| *it != micro_shard)
    }

    /// Answers the question that waits, if there is something to say.
    fn answer(&mut self, now_us: u64, (epoch, handed): (Epoch, u64)) -> Option<Message> {
        let is_due = |more: &More| more.due > 0 && epoch >= more.due;
        let has_news = |more: &More| !self.pending.is_empty() || is_due(more);
        let more = self.question.filter(|more| self.sent.is_none() && has_news(more))?;
        self.question = None;
        let changes: Vec<_> = std::mem::take(&mut self.pending).into_iter().collect();
        let since_us = if changes.is_empty() { now_us } else { self.pending_since_us };
        self.sent = Some(Sent { more, changes: changes.clone(), epoch, handed, since_us });
        Some(Message::Batch { more, epoch, changes })
    }
}

impl Member {
    /// How far each follower is behind. One that follows nothing any more may be dead, and is behind in nothing.
    pub fn followers(&self) -> impl Iterator<Item = Behind> {
        self.feeds.iter().filter(|(_, feed)| !feed.shards.is_empty()).map(|(node, feed)| {
            let sent = feed.sent.iter().filter(|sent| !sent.changes.is_empty()).map(|sent| sent.since_us);
            let pending = (!feed.pending.is_empty()).then_some(feed.pending_since_us);
            Behind {
                node: *node,
                micro_shards: feed.shards.len(),
                changes: feed.left(),
                since_us: sent.chain(pending).min(),
            }
        })
    }

    /// Begins to note the changes of a micro-shard for a follower.
    pub(super) fn follow(&mut self, now_us: u64, from: ServerId, asked: Asked, effects: &mut Vec<Effect>) {
        let micro_shard = asked.id.micro_shard;
        if self.is_behind(asked) {
            return;
        }
        let is_known = self.feeds.get(&from).is_some_and(|feed| feed.incarnation >= asked.incarnation);
        if !self.owns(asked) || self.feeds.get(&from).is_some_and(|it| it.incarnation > asked.incarnation) {
            return effects.push(Effect::Send(from, Message::Refused(asked)));
        }
        if !is_known {
            self.end_feed(from, effects);
        }
        let is_fed = self.feeds.values().any(|feed| feed.shards.contains_key(&micro_shard));
        let (confirmed, id) = (self.confirmed, self.next_feed());
        let feed = self.feeds.entry(from).or_insert_with(|| Feed::new(id, asked.incarnation, confirmed));
        feed.asked_us = now_us;
        match feed.shards.get(&micro_shard) {
            Some(fed) if fed.asked == asked => {
                let followed = Message::Followed(asked, feed.id);
                effects.extend(fed.is_noted.then_some(Effect::Send(from, followed)));
                return;
            }
            Some(fed) if fed.asked.id.number >= asked.id.number => {
                return effects.push(Effect::Send(from, Message::Refused(asked)));
            }
            _ => {}
        }
        feed.shards.insert(micro_shard, Fed { asked, is_noted: false, was_listed: false });
        if self.unfed.get(&(micro_shard, from)) == Some(&asked.id.number) {
            self.unfed.remove(&(micro_shard, from));
        }
        effects.extend((!is_fed).then_some(Effect::Feed(micro_shard)));
        effects.push(Effect::PassLocks(asked.id));
    }

    /// A number for another feed.
    fn next_feed(&mut self) -> FeedId {
        self.last_feed += 1;
        FeedId { incarnation: self.incarnation, number: self.last_feed }
    }

    /// True if the question is of a directory that this node is yet to hear of. It will be repeated.
    pub(super) fn is_behind(&self, asked: Asked) -> bool {
        self.view.directory().is_none_or(|directory| directory.epoch() < asked.epoch)
    }

    /// True if this node is the owner that the question is for.
    pub(super) fn owns(&self, asked: Asked) -> bool {
        let micro_shard = asked.id.micro_shard;
        let place = self.view.directory().and_then(|directory| directory.place(micro_shard));
        let is_place = |place: Place| place.is_served(self.id, asked.epoch);
        let word = self.shards.get(micro_shard).map(|shard| shard.word);
        place.is_some_and(is_place) && word.is_some_and(|word| word.is_valid() && word.epoch == asked.epoch)
    }

    /// Tells followers that changes are noted for them.
    pub(super) fn noted(&mut self, id: MoveId, effects: &mut Vec<Effect>) {
        for (node, feed) in &mut self.feeds {
            let fed = feed.shards.get_mut(&id.micro_shard).filter(|fed| fed.asked.id == id && !fed.is_noted);
            if let Some(fed) = fed {
                fed.is_noted = true;
                effects.push(Effect::Send(*node, Message::Followed(fed.asked, feed.id)));
            }
        }
    }

    /// Takes changes in: this hand-over, and all before it, are known from now on.
    pub(super) fn hand(
        &mut self,
        now_us: u64,
        (handed, changes): (u64, &[(MicroShard, KeyHash)]),
        effects: &mut Vec<Effect>,
    ) {
        self.handed = handed;
        for feed in self.feeds.values_mut() {
            let changes = changes.iter().filter(|(it, _)| feed.shards.contains_key(it)).copied();
            if feed.pending.is_empty() {
                feed.pending_since_us = now_us;
            }
            feed.pending.extend(changes);
        }
        let is_far = |feed: &Feed| feed.pending.len() > BEHIND_MAX;
        let far: Vec<_> = self.feeds.iter().filter(|(_, feed)| is_far(feed)).map(|(node, _)| *node).collect();
        far.into_iter().for_each(|node| self.end_feed(node, effects));
        self.feed(now_us, effects);
    }

    /// Has lost changes: every follower has to begin anew.
    pub(super) fn overrun(&mut self, handed: u64, effects: &mut Vec<Effect>) {
        self.handed = handed;
        let nodes: Vec<_> = self.feeds.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.end_feed(node, effects));
    }

    /// A follower has taken in a batch, and asks for the next one.
    pub(super) fn more(&mut self, now_us: u64, from: ServerId, more: More, effects: &mut Vec<Effect>) {
        // The coordinator has heard of this process before a follower hears that it has lost its owner's.
        if self.view.directory().is_none() {
            return;
        }
        let Some(feed) = self.feeds.get_mut(&from).filter(|feed| feed.id == more.feed) else {
            return effects.push(Effect::Send(from, Message::Lost(more)));
        };
        feed.asked_us = now_us;
        if more.applied < feed.applied {
            return;
        }
        match feed.sent.take_if(|_| more.applied == feed.applied + 1) {
            Some(sent) => (feed.applied, feed.confirmed) = (more.applied, sent.handed),
            None if more.applied == feed.applied => {}
            None => {
                self.end_feed(from, effects);
                return effects.push(Effect::Send(from, Message::Lost(more)));
            }
        }
        match &feed.sent {
            Some(Sent { more, changes, epoch, .. }) => {
                let (more, epoch, changes) = (*more, *epoch, changes.clone());
                effects.push(Effect::Send(from, Message::Batch { more, epoch, changes }));
            }
            None => feed.question = Some(more),
        }
        self.feed(now_us, effects);
    }

    /// Sends what followers wait for, and confirms what all have that the owner waits for.
    pub(super) fn feed(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let epoch = self.view.directory().map_or(0, |directory| directory.epoch());
        let has_lease = self.view.lease.is_held(now_us) || !is_on(Safeguard::FeedLease);
        for (node, feed) in &mut self.feeds {
            if feed.pending.is_empty() && feed.sent.is_none() {
                feed.confirmed = self.handed;
            }
            // Without a lease, others may own what is asked for.
            let answer = has_lease.then(|| feed.answer(now_us, (epoch, self.handed))).flatten();
            effects.extend(answer.map(|message| Effect::Send(*node, message)));
        }
        let waited = self.waited.iter().filter(|_| is_on(Safeguard::Wait));
        let confirmed = waited.map(|node| self.feeds.get(node).map_or(self.confirmed, |feed| feed.confirmed));
        let confirmed = confirmed.min().unwrap_or(self.handed);
        let is_unfed = !self.unfed.is_empty() && is_on(Safeguard::Wait);
        if confirmed > self.confirmed && !is_unfed {
            self.confirmed = confirmed;
            effects.push(Effect::Confirm(confirmed));
        }
        self.give_to_followers(now_us, effects);
    }

    /// Ends what is noted for nothing: what a process of that time has asked for up to this number it follows no more. It may
    /// never have been named, so that no directory says so. If one names it after all, nothing is confirmed until it does not.
    pub(super) fn unfollowed(
        &mut self,
        now_us: u64,
        from: ServerId,
        asked: Asked,
        effects: &mut Vec<Effect>,
    ) {
        let MoveId { micro_shard, number } = asked.id;
        let Some(feed) = self.feeds.get_mut(&from).filter(|it| it.incarnation == asked.incarnation) else {
            return;
        };
        let is_over = |fed: &Fed| fed.asked.id.number <= number && !fed.was_listed;
        if feed.shards.get(&micro_shard).is_some_and(is_over) {
            feed.shards.remove(&micro_shard);
            self.end_feeds_of(&BTreeSet::from([micro_shard]), effects);
            self.feed(now_us, effects);
        }
    }

    /// Ends the feeds of followers that have been silent for so long, where the directory names none of what they follow.
    pub(super) fn end_silent_feeds(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let silence_us = SILENCE * self.terms.honoured_us();
        let is_silent = |feed: &Feed| {
            now_us >= feed.asked_us.saturating_add(silence_us)
                && feed.shards.values().all(|it| !it.was_listed)
        };
        let silent: Vec<_> =
            self.feeds.iter().filter(|(_, feed)| is_silent(feed)).map(|(node, _)| *node).collect();
        silent.into_iter().for_each(|node| self.end_feed(node, effects));
    }

    /// Goes by a newer directory: ends what is followed no more, and waits for the followers that it names.
    pub(super) fn keep_feeds(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let Some(directory) = self.view.directory().cloned() else { return };
        let mut ended = BTreeSet::new();
        for (node, feed) in &mut self.feeds {
            let is_there = directory.node(*node).is_some();
            feed.shards.retain(|micro_shard, fed| {
                let place = directory.place(*micro_shard);
                let is_mine = place.is_some_and(|place| place.is_served(self.id, fed.asked.epoch));
                let listed = directory.follower(*micro_shard, *node);
                let is_listed = listed.is_some_and(|follower| follower.number == fed.asked.id.number);
                let is_kept = is_mine && is_there && (is_listed || !fed.was_listed);
                fed.was_listed |= is_listed;
                if !is_kept {
                    ended.insert(*micro_shard);
                }
                is_kept
            });
        }
        self.end_feeds_of(&ended, effects);
        let followers = directory.followed_at(self.id).flat_map(|(_, _, followers)| followers);
        self.waited = followers.map(|follower| follower.node).collect();
        self.feed(now_us, effects);
    }

    /// Goes by a newer directory, before this node owns anything by it: has changes handed over, and so acknowledged later,
    /// where it names a copy that is told of none.
    pub(super) fn hold_unfed(&mut self, directory: &Directory, effects: &mut Vec<Effect>) {
        let mut unfed = BTreeMap::new();
        for (micro_shard, place, followers) in directory.followed_at(self.id) {
            for Follower { node, number, .. } in followers {
                let fed = self.feeds.get(node).and_then(|feed| feed.shards.get(&micro_shard));
                let is_this =
                    |fed: &Fed| fed.asked.id.number == *number && place.is_served(self.id, fed.asked.epoch);
                if !fed.is_some_and(is_this) {
                    unfed.insert((micro_shard, *node), *number);
                    effects.push(Effect::Feed(micro_shard));
                }
            }
        }
        let before = std::mem::replace(&mut self.unfed, unfed);
        before.into_keys().for_each(|(micro_shard, _)| self.stop_feeding(micro_shard, effects));
    }

    /// Has no more for a follower. If the directory names it, nothing is confirmed until it does not.
    fn end_feed(&mut self, node: ServerId, effects: &mut Vec<Effect>) {
        let Some(feed) = self.feeds.remove(&node) else { return };
        let listed = feed.shards.iter().filter(|(_, fed)| fed.was_listed);
        self.unfed.extend(listed.map(|(micro_shard, fed)| ((*micro_shard, node), fed.asked.id.number)));
        feed.shards.into_keys().for_each(|micro_shard| self.stop_feeding(micro_shard, effects));
    }

    /// Has no more of these micro-shards for those that follow them no more.
    fn end_feeds_of(&mut self, ended: &BTreeSet<MicroShard>, effects: &mut Vec<Effect>) {
        for feed in self.feeds.values_mut() {
            feed.pending.retain(|(micro_shard, _)| feed.shards.contains_key(micro_shard));
        }
        ended.iter().for_each(|micro_shard| self.stop_feeding(*micro_shard, effects));
    }

    fn stop_feeding(&self, micro_shard: MicroShard, effects: &mut Vec<Effect>) {
        let copies = (micro_shard, ServerId(0))..=(micro_shard, ServerId(u32::MAX));
        let is_unfed = self.unfed.range(copies).next().is_some();
        if !is_unfed && self.feeds.values().all(|feed| !feed.shards.contains_key(&micro_shard)) {
            effects.push(Effect::StopFeeding(micro_shard));
        }
    }
}
