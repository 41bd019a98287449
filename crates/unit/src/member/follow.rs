//! A follower's side: it copies a micro-shard, and then takes in what changes.

use std::{cmp::Ordering, collections::BTreeSet};

use minos_base::KeyHash;
use minos_rack::{MicroShard, ServerId};

use super::{CopyJob, Effect, Items, Member};
use crate::{
    Asked, Directory, Epoch, FeedId, Message, More, MoveId, Ownership, Place, Progress, Pull,
    switches::{Safeguard, is_on},
};

/// Leases for which a batch is tried before its micro-shards are to be copied anew. After the first, the coordinator knows
/// whether the owner is dead, in whose place the copy is needed; the second is for a report that came late. No copy is lost by
/// less patience: the coordinator asks the owner before it drops one.
const PATIENCE: u64 = 2;
/// Copies that are read are freshened so many times in the time that they may be old.
const FRESHENED: u64 = 3;

/// A micro-shard that this node follows.
#[derive(Debug)]
pub(super) struct Follow {
    pull: Pull,
    stage: FollowStage,
    asked_us: u64,
    /// True once all items are here, but for the latest changes.
    is_complete: bool,
    /// The epoch in which this node first saw itself named as a follower.
    listed: Option<Epoch>,
    /// True if the directory in force names this node. Its owner may note changes for no others.
    is_listed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowStage {
    /// Older items are being removed.
    Emptying,
    /// The owner was asked to note changes.
    Asking,
    /// All items are copied.
    Copying,
    /// The batch of this number ends the copy.
    Catching(u64),
    Following,
    Safe,
    Failed,
}

/// Changes that come from one node.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The micro-shards that are followed.
    follows: usize,
    /// Those that are asked for.
    pub(super) feed: Option<FeedId>,
    /// Batches of it that were taken in.
    applied: u64,
    /// What the owner had at this time, or later, is here.
    fresh_us: u64,
    stage: StreamStage,
    /// True if a micro-shard waits for a batch.
    is_awaited: bool,
    /// Micro-shards that have become this node's while a batch was being taken in.
    deferred: BTreeSet<MicroShard>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum StreamStage {
    #[default]
    Idle,
    Asking {
        due: Epoch,
        asked_us: u64,
    },
    Applying(Batch),
    /// It failed, and is tried again.
    Waiting(Batch, u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Batch {
    feed: FeedId,
    asked_us: u64,
    epoch: Epoch,
    /// A job for each micro-shard.
    jobs: Vec<CopyJob>,
    /// When it first failed.
    failed_us: Option<u64>,
}

impl Follow {
    pub(super) fn id(&self) -> MoveId {
        self.pull.id
    }

    pub(super) fn progress(&self) -> (MoveId, Progress) {
        let progress = match self.stage {
            FollowStage::Following => Progress::Following,
            FollowStage::Safe => Progress::Safe,
            FollowStage::Failed => Progress::Failed,
            _ => Progress::Pulling,
        };
        (self.pull.id, progress)
    }

    /// True if this is the copy of this number, and has all that was acknowledged.
    pub(super) fn is_safe(&self, number: Epoch) -> bool {
        self.pull.id.number == number && self.stage == FollowStage::Safe
    }

    /// True while something is to be asked again soon.
    pub(super) fn is_starting(&self) -> bool {
        matches!(self.stage, FollowStage::Emptying | FollowStage::Asking | FollowStage::Catching(_))
    }

    /// True if a micro-shard that is at `place` may be followed. One that was taken from its owner goes to a follower.
    pub(super) fn fits(&self, place: Place) -> bool {
        let is_complete = self.is_complete;
        let is_same = place.epoch == self.pull.epoch && place.is_serving;
        place.node == self.pull.from && (is_same || is_complete && !place.is_serving)
    }

    /// Notes whether the directory names this node; true if that is news.
    fn note(&mut self, directory: &Directory, node: ServerId) -> bool {
        let MoveId { micro_shard, number } = self.pull.id;
        let is_listed = directory.follower(micro_shard, node).is_some_and(|it| it.number == number);
        self.is_listed = is_listed;
        let is_news = is_listed && self.listed.is_none();
        self.listed = self.listed.or(is_listed.then_some(directory.epoch()));
        is_news
    }

    fn question(&self, incarnation: u64) -> Asked {
        let Pull { id, epoch, .. } = self.pull;
        Asked { id, incarnation, epoch, batch: 0, freeze: false }
    }

    /// True if the copy may be read while it is fresh.
    fn is_readable(&self) -> bool {
        let takes_in = matches!(self.stage, FollowStage::Following | FollowStage::Safe);
        takes_in && (self.is_listed || !is_on(Safeguard::Listing))
    }

    /// The epoch by which its owner has to go for an answer that this micro-shard waits for; zero for none.
    fn due(&self) -> Epoch {
        match (self.stage, self.listed) {
            (FollowStage::Catching(_), _) => 1,
            (FollowStage::Following, Some(listed)) => listed,
            _ => 0,
        }
    }
}

impl Member {
    /// True while this node waits for batches that it must ask for again soon.
    pub(super) fn is_catching_up(&self) -> bool {
        let is_starting = self.follows().any(Follow::is_starting);
        let is_late = |stream: &Stream| stream.is_awaited || matches!(stream.stage, StreamStage::Waiting(..));
        is_starting || self.streams.values().any(is_late)
    }

    /// The micro-shards that it follows. They are open.
    fn follows(&self) -> impl Iterator<Item = &Follow> {
        self.shards.open().filter_map(|(_, shard)| shard.follow.as_deref())
    }

    fn for_each_follow(&mut self, mut f: impl FnMut(&mut Follow)) {
        self.shards.for_each_open(|_, shard| shard.follow.as_deref_mut().into_iter().for_each(&mut f));
    }

    /// Begins to follow; the order is sound and new, and nothing else is under way.
    pub(super) fn begin_to_follow(&mut self, now_us: u64, pull: Pull, effects: &mut Vec<Effect>) {
        let micro_shard = pull.id.micro_shard;
        let shard = &mut self.shards[micro_shard];
        shard.follow = Some(Box::new(Follow {
            pull,
            stage: FollowStage::Emptying,
            asked_us: 0,
            is_complete: false,
            listed: None,
            is_listed: false,
        }));
        self.streams.entry(pull.from).or_default().follows += 1;
        shard.empty(micro_shard, effects);
        self.ask_to_follow(now_us, micro_shard, effects);
    }

    /// Asks the owner to note changes once no older items are left.
    pub(super) fn ask_to_follow(&mut self, now_us: u64, micro_shard: MicroShard, effects: &mut Vec<Effect>) {
        let shard = &mut self.shards[micro_shard];
        let Some(follow) = &mut shard.follow else { return };
        if follow.stage != FollowStage::Emptying || shard.items != Items::None {
            return;
        }
        (follow.stage, follow.asked_us) = (FollowStage::Asking, now_us);
        let question = Message::Follow(follow.question(self.incarnation));
        effects.push(Effect::Send(follow.pull.from, question));
        shard.items = Items::Some;
        if shard.word != Ownership::VOID {
            shard.set_word(micro_shard, Ownership::VOID, effects);
        }
    }

    /// The owner notes changes: all items may be copied.
    pub(super) fn followed(&mut self, now_us: u64, asked: Asked, feed: FeedId, effects: &mut Vec<Effect>) {
        let Some(from) = self.asking_to_follow(asked).map(|follow| follow.pull.from) else { return };
        if self.streams.get(&from).is_some_and(|stream| stream.feed != Some(feed)) {
            self.change_feed(now_us, from, Some(feed), effects);
        }
        let Some(follow) = self.asking_to_follow(asked) else { return };
        follow.stage = FollowStage::Copying;
        let Pull { id, from, epoch, .. } = follow.pull;
        effects.push(Effect::Copy(CopyJob { id, from, epoch, hashes: None }));
    }

    /// The owner notes nothing for this node.
    pub(super) fn not_followed(&mut self, now_us: u64, asked: Asked) {
        if let Some(follow) = self.asking_to_follow(asked) {
            follow.stage = FollowStage::Failed;
            self.report_at_us = now_us;
        }
    }

    fn asking_to_follow(&mut self, asked: Asked) -> Option<&mut Follow> {
        let follow = self.shards.get_mut(asked.id.micro_shard)?.follow.as_deref_mut()?;
        let question = follow.question(self.incarnation);
        (follow.stage == FollowStage::Asking && question == asked).then_some(follow)
    }

    /// All items are copied, or not; false if that was not for a follower.
    pub(super) fn copied_to_follow(
        &mut self,
        now_us: u64,
        (id, is_whole): (MoveId, bool),
        effects: &mut Vec<Effect>,
    ) -> bool {
        let shard = self.shards.get_mut(id.micro_shard);
        let follow = shard.and_then(|shard| shard.follow.as_mut());
        let Some(follow) = follow.filter(|it| it.pull.id == id && it.stage == FollowStage::Copying) else {
            return false;
        };
        if !is_whole {
            follow.stage = FollowStage::Failed;
            self.report_at_us = now_us;
            return true;
        }
        let from = follow.pull.from;
        let Some(stream) = self.streams.get_mut(&from) else { return true };
        // What is on its way may have been taken before the copy was complete.
        let batches = if stream.stage == StreamStage::Idle { 1 } else { 2 };
        follow.stage = FollowStage::Catching(stream.applied + batches);
        stream.is_awaited = true;
        self.ask_for_more(now_us, from, effects);
        true
    }

    /// Asks a node for its changes, unless a question is under way that will be answered as soon.
    pub(super) fn ask_for_more(&mut self, now_us: u64, from: ServerId, effects: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&from).filter(|stream| stream.follows > 0) else { return };
        let Some(feed) = stream.feed else { return };
        let mut due = 0;
        if stream.is_awaited {
            let follows = self.shards.open().filter_map(|(_, shard)| shard.follow.as_deref());
            due = follows.filter(|it| it.pull.from == from).map(Follow::due).max().unwrap_or(0);
            stream.is_awaited = due > 0;
        }
        if let Some(copies_us) = self.timing.copies_us
            && now_us >= stream.fresh_us + copies_us / FRESHENED
        {
            due = due.max(1);
        }
        let is_needed = match &stream.stage {
            StreamStage::Idle => true,
            StreamStage::Asking { due: asked, asked_us } => {
                let patience_us = if due > 0 { self.timing.ask_us } else { self.timing.report_us };
                due > *asked || now_us >= asked_us + patience_us
            }
            StreamStage::Applying(_) | StreamStage::Waiting(..) => false,
        };
        if is_needed {
            stream.stage = StreamStage::Asking { due, asked_us: now_us };
            let more = More { feed, applied: stream.applied, asked_us: now_us, due };
            effects.push(Effect::Send(from, Message::More(more)));
        }
    }

    /// Takes a batch in.
    pub(super) fn batch(
        &mut self,
        now_us: u64,
        from: ServerId,
        (more, epoch, changes): (More, Epoch, Vec<(MicroShard, KeyHash)>),
        effects: &mut Vec<Effect>,
    ) {
        let Some(stream) = self.streams.get(&from) else { return };
        let is_asked = matches!(stream.stage, StreamStage::Asking { .. });
        if !is_asked || (Some(more.feed), more.applied) != (stream.feed, stream.applied) {
            return;
        }
        self.refuse_changes(from, &changes, effects);
        let jobs = self.jobs_for(from, &changes);
        // Another node sends the time back, and nothing is fresher than now.
        let asked_us = more.asked_us.min(now_us);
        let batch = Batch { feed: more.feed, asked_us, epoch, jobs, failed_us: None };
        self.apply(now_us, from, batch, effects);
    }

    fn apply(&mut self, now_us: u64, from: ServerId, batch: Batch, effects: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&from) else { return };
        let jobs = batch.jobs.clone();
        stream.stage = StreamStage::Applying(batch);
        if jobs.is_empty() {
            self.applied(now_us, (from, true), effects);
        } else {
            effects.push(Effect::Apply(from, jobs));
        }
    }

    /// Tries a batch again that has failed. What is followed no more is left out: it may be empty, or this node's own. Where the
    /// directory still names this node, the owner would take the next question for a confirmation.
    fn apply_again(&mut self, now_us: u64, from: ServerId, effects: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&from) else { return };
        let StreamStage::Waiting(batch, since_us) = &stream.stage else { return };
        if now_us < since_us + self.timing.ask_us {
            return;
        }
        let mut batch = batch.clone();
        batch.jobs.retain(|job| {
            let follow = self.shards[job.id.micro_shard].follow.as_ref();
            follow.is_some_and(|it| it.id() == job.id && (it.takes_changes() || it.is_listed))
        });
        self.apply(now_us, from, batch, effects);
    }

    /// What is to be copied for these changes: those of the micro-shards that are followed, each in turn.
    fn jobs_for(&self, from: ServerId, changes: &[(MicroShard, KeyHash)]) -> Vec<CopyJob> {
        let mut jobs: Vec<CopyJob> = Vec::new();
        for (micro_shard, hash) in changes {
            let follow = self.shards.get(*micro_shard).and_then(|shard| shard.follow.as_ref());
            let Some(follow) = follow.filter(|it| it.pull.from == from && it.takes_changes()) else {
                continue;
            };
            let Pull { id, epoch, .. } = follow.pull;
            match jobs.last_mut().filter(|job| job.id == id) {
                Some(job) => job.hashes.iter_mut().for_each(|hashes| hashes.push(*hash)),
                None => jobs.push(CopyJob { id, from, epoch, hashes: Some(vec![*hash]) }),
            }
        }
        jobs
    }

    /// Tells the owner which of these this node follows no more: one that the directory has never named must say so itself. It
    /// is said again with the next change.
    fn refuse_changes(&self, from: ServerId, changes: &[(MicroShard, KeyHash)], effects: &mut Vec<Effect>) {
        let micro_shards: BTreeSet<_> = changes.iter().map(|(micro_shard, _)| *micro_shard).collect();
        for micro_shard in micro_shards {
            let shard = self.shards.get(micro_shard).filter(|shard| shard.follow.is_none());
            let asked = shard.map(|shard| {
                let id = MoveId { micro_shard, number: shard.closed };
                Asked { id, incarnation: self.incarnation, epoch: 0, batch: 0, freeze: false }
            });
            effects.extend(asked.map(|asked| Effect::Send(from, Message::Refused(asked))));
        }
    }

    /// A batch is taken in, or not wholly.
    pub(super) fn applied(
        &mut self,
        now_us: u64,
        (from, is_whole): (ServerId, bool),
        effects: &mut Vec<Effect>,
    ) {
        let Some(stream) = self.streams.get_mut(&from) else { return };
        let StreamStage::Applying(mut batch) = std::mem::take(&mut stream.stage) else { return };
        if stream.feed != Some(batch.feed) {
            // Its micro-shards are copied anew.
        } else if is_whole {
            stream.applied += 1;
            // By a newer directory, the owner may keep changes of fewer micro-shards.
            if batch.epoch <= self.view.directory().map_or(0, |directory| directory.epoch()) {
                stream.fresh_us = batch.asked_us;
            }
            self.catch_up(now_us, from, batch.epoch, effects);
        } else {
            let failed_us = *batch.failed_us.get_or_insert(now_us);
            let is_given_up = now_us >= failed_us + PATIENCE * self.terms.honoured_us();
            stream.stage = StreamStage::Waiting(batch, now_us);
            if is_given_up {
                self.fail_follows(now_us, from, effects);
            }
        }
        self.freshen(effects);
        let deferred = self.streams.get_mut(&from).map(|stream| std::mem::take(&mut stream.deferred));
        for micro_shard in deferred.into_iter().flatten() {
            self.settle(micro_shard, effects);
            self.report_at_us = now_us;
        }
        self.ask_for_more(now_us, from, effects);
    }

    /// Says until when copies may be read: as long as the oldest of them may.
    fn freshen(&mut self, effects: &mut Vec<Effect>) {
        let Some(copies_us) = self.timing.copies_us else { return };
        let followed = self.streams.iter().filter(|(_, stream)| stream.follows > 0);
        let ends = followed.filter_map(|(from, stream)| match stream.fresh_us {
            // Before its first fresh batch copies may be complete: by a newer directory than this node's.
            0 => self.reads_copies_from(*from).then_some(0),
            fresh_us => Some(fresh_us + copies_us),
        });
        let until_us = ends.min().unwrap_or(0);
        // An earlier end is known before more copies are read, a later one once some are read no more.
        let at = match until_us.cmp(&self.fresh_until_us) {
            Ordering::Less => 0,
            Ordering::Equal => return,
            Ordering::Greater => effects.len(),
        };
        self.fresh_until_us = until_us;
        effects.insert(at, Effect::Fresh(until_us));
    }

    fn reads_copies_from(&self, from: ServerId) -> bool {
        self.follows().any(|follow| follow.pull.from == from && follow.is_readable())
    }

    /// What the batch has ended.
    fn catch_up(&mut self, now_us: u64, from: ServerId, epoch: Epoch, effects: &mut Vec<Effect>) {
        let Some(Stream { applied, is_awaited: true, .. }) = self.streams.get(&from) else { return };
        let mut is_news = false;
        self.shards.for_each_open(|micro_shard, shard| {
            let follow = shard.follow.as_mut().filter(|follow| follow.pull.from == from);
            let Some(follow) = follow else { return };
            match follow.stage {
                FollowStage::Catching(batch) if *applied >= batch => {
                    (follow.stage, follow.is_complete) = (FollowStage::Following, true);
                    is_news = true;
                    let word = Ownership::owned(follow.pull.id.number).withdrawn();
                    let is_readable = follow.is_readable();
                    // From now on the items outlive the process.
                    shard.set_word(micro_shard, word, effects);
                    effects.push(Effect::ReadCopy(micro_shard, is_readable));
                }
                FollowStage::Following if follow.listed.is_some_and(|listed| listed <= epoch) => {
                    (follow.stage, is_news) = (FollowStage::Safe, true);
                }
                _ => {}
            }
        });
        if is_news {
            self.report_at_us = now_us;
        }
    }

    /// The owner has lost changes: what was followed there begins anew.
    pub(super) fn lost(&mut self, now_us: u64, from: ServerId, more: More, effects: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get(&from) else { return };
        let is_asked = matches!(stream.stage, StreamStage::Asking { .. });
        if is_asked && (Some(more.feed), more.applied) == (stream.feed, stream.applied) {
            self.change_feed(now_us, from, None, effects);
        }
    }

    /// Asks for another feed from now on. What was followed with the old one has failed.
    fn change_feed(&mut self, now_us: u64, from: ServerId, feed: Option<FeedId>, effects: &mut Vec<Effect>) {
        let Some(stream) = self.streams.get_mut(&from) else { return };
        (stream.feed, stream.applied, stream.fresh_us) = (feed, 0, 0);
        if matches!(stream.stage, StreamStage::Asking { .. } | StreamStage::Waiting(..)) {
            stream.stage = StreamStage::Idle;
        }
        self.fail_follows(now_us, from, effects);
    }

    fn fail_follows(&mut self, now_us: u64, from: ServerId, effects: &mut Vec<Effect>) {
        self.report_at_us = now_us;
        self.for_each_follow(|follow| {
            if follow.pull.from == from && follow.takes_changes() {
                follow.stage = FollowStage::Failed;
                effects.push(Effect::ReadCopy(follow.pull.id.micro_shard, false));
            }
        });
    }

    /// Repeats what has no answer.
    pub(super) fn follow_again(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let (ask_us, incarnation) = (self.timing.ask_us, self.incarnation);
        self.for_each_follow(|follow| {
            if follow.stage == FollowStage::Asking && now_us >= follow.asked_us + ask_us {
                follow.asked_us = now_us;
                let question = Message::Follow(follow.question(incarnation));
                effects.push(Effect::Send(follow.pull.from, question));
            }
        });
        let streams: Vec<_> = self.streams.keys().copied().collect();
        for from in streams {
            self.apply_again(now_us, from, effects);
            self.ask_for_more(now_us, from, effects);
        }
    }

    /// Goes by a newer directory: where it names this node, the owner waits for what this node takes in.
    pub(super) fn note_listings(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let Some(directory) = self.view.directory().cloned() else { return };
        let (mut news, id) = (BTreeSet::new(), self.id);
        self.for_each_follow(|follow| {
            let was_readable = follow.is_readable();
            if follow.note(&directory, id) {
                news.insert(follow.pull.from);
            }
            if follow.is_readable() != was_readable {
                effects.push(Effect::ReadCopy(follow.pull.id.micro_shard, follow.is_readable()));
            }
        });
        self.freshen(effects);
        for from in news {
            self.streams.entry(from).or_default().is_awaited = true;
            self.ask_for_more(now_us, from, effects);
        }
    }

    /// Ends to follow a micro-shard. If a batch is being taken in, it must not become this node's before.
    pub(super) fn end_follow(&mut self, micro_shard: MicroShard, effects: &mut Vec<Effect>) {
        let shard = &mut self.shards[micro_shard];
        let Some(follow) = shard.follow.take() else { return };
        effects.push(Effect::ReadCopy(micro_shard, false));
        shard.closed = shard.closed.max(follow.pull.id.number);
        let Some(stream) = self.streams.get_mut(&follow.pull.from) else { return };
        stream.follows -= 1;
        // Nobody asks any more, and so nothing comes.
        stream.is_awaited &= stream.follows > 0;
        if matches!(stream.stage, StreamStage::Applying(_)) {
            stream.deferred.insert(micro_shard);
        }
    }

    /// True while a batch is being taken in that may change the micro-shard.
    pub(super) fn is_deferred(&self, micro_shard: MicroShard) -> bool {
        self.streams.values().any(|stream| stream.deferred.contains(&micro_shard))
    }
}

impl Follow {
    /// True if changes are noted for it.
    fn takes_changes(&self) -> bool {
        use FollowStage::{Catching, Copying, Following, Safe};
        matches!(self.stage, Copying | Catching(_) | Following | Safe)
    }
}
