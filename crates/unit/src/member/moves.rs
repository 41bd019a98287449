//! Both sides of a move: the owner that gives, and the node that copies.

use minos_base::KeyHash;
use minos_rack::{MicroShard, ServerId};

use super::{CopyJob, Effect, Items, Member, Shard};
use crate::{
    Asked, Epoch, FeedId, Holding, Message, MoveId, Ownership, Place, Progress, Pull,
    switches::{Safeguard, is_on},
};

/// Changes in a batch that are few enough for the next one to be the last: writes wait while it is copied.
pub(super) const FEW_CHANGES: usize = 64;
/// Batches after which the next one is the last, however many changes there are.
pub(super) const BATCHES_MAX: u32 = 16;

/// The owner's side.
#[derive(Debug)]
pub(super) struct Source {
    /// The latest question.
    pub(super) asked: Asked,
    pub(super) asker: ServerId,
    /// The changes that the asker takes in, if it is a follower.
    pub(super) feed: Option<FeedId>,
    /// The answer, once it is known; empty for a follower once nothing changes any more.
    pub(super) hashes: Option<Vec<KeyHash>>,
    /// True once the asker has all items, and this node's word is withdrawn for good.
    pub(super) is_given: bool,
}

/// The side that copies.
#[derive(Debug)]
pub(super) struct Target {
    pull: Pull,
    /// The changes that this node takes in, if it is a follower.
    feed: Option<FeedId>,
    stage: Stage,
    batch: u32,
    /// True if the batch is the last.
    freeze: bool,
    /// True if the batch after this one is.
    is_last_next: bool,
    asked_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Older items are being removed.
    Emptying,
    /// The batch was asked for.
    Asking,
    /// The batch is copied.
    Copying,
    /// All items are here, and the owner was told so that it gives the micro-shard away.
    Complete,
    /// It has not done so in time: the coordinator is to take the micro-shard from it.
    Drained,
    Failed,
}

impl Target {
    /// True if a micro-shard that is at `place` may be on its way here. Only a drained one may after it was taken from
    /// its owner.
    pub(super) fn fits(&self, place: Place) -> bool {
        let has_begun = place.epoch == self.pull.epoch && place.is_serving;
        let is_taken = self.has_all() && !place.is_serving;
        place.node == self.pull.from && (has_begun || is_taken)
    }

    fn has_all(&self) -> bool {
        matches!(self.stage, Stage::Complete | Stage::Drained)
    }

    fn question(&self, incarnation: u64) -> Asked {
        let Pull { id, epoch, .. } = self.pull;
        Asked { id, incarnation, epoch, batch: self.batch, freeze: self.freeze }
    }

    /// The question under way.
    pub(super) fn message(&self, incarnation: u64) -> Message {
        let asked = self.question(incarnation);
        self.feed.map_or(Message::Ask(asked), |feed| Message::Take(asked, feed))
    }

    /// That of a node that follows the micro-shard.
    pub(super) fn of_follower(pull: Pull, feed: Option<FeedId>, asked_us: u64) -> Self {
        Self { pull, feed, stage: Stage::Asking, batch: 0, freeze: false, is_last_next: false, asked_us }
    }
}

impl Shard {
    pub(super) fn giving(&self) -> Option<(MoveId, Progress)> {
        let source = self.source.as_ref()?;
        Some((source.asked.id, if source.is_given { Progress::Given } else { Progress::Giving }))
    }

    pub(super) fn pulling(&self) -> Option<(MoveId, Progress)> {
        let target = self.target.as_ref()?;
        let progress = match target.stage {
            Stage::Drained => Progress::Drained,
            Stage::Failed => Progress::Failed,
            Stage::Emptying | Stage::Asking | Stage::Copying | Stage::Complete => Progress::Pulling,
        };
        Some((target.pull.id, progress))
    }

    /// The move whose items are complete here, as the word says after a restart; or the copy that is `kept` here.
    pub(super) fn drained(
        &self,
        id: ServerId,
        micro_shard: MicroShard,
        (place, kept): (Place, Option<Epoch>),
    ) -> Option<(MoveId, Progress)> {
        let is_unknown = !self.is_copying() && place.node != id && self.word != Ownership::VOID;
        let may_come = kept.is_some() || self.is_drained(place) || !place.is_serving;
        let id = MoveId { micro_shard, number: kept.unwrap_or(self.word.epoch) };
        (is_unknown && may_come).then_some((id, Progress::Drained))
    }

    /// True if the items are those of a move that began after `place` was settled.
    pub(super) fn is_drained(&self, place: Place) -> bool {
        self.word.epoch > place.epoch
    }

    /// Ends the owner's part in a move; it writes again if it still owns.
    pub(super) fn end_source(&mut self, micro_shard: MicroShard, effects: &mut Vec<Effect>) {
        let Some(source) = self.source.take() else { return };
        self.closed = self.closed.max(source.asked.id.number);
        effects.push(Effect::StopNoting(micro_shard));
        if self.word.holding == Holding::Frozen {
            self.set_word(micro_shard, Ownership::owned(self.word.epoch), effects);
        }
    }

    pub(super) fn end_target(&mut self) {
        if let Some(target) = self.target.take() {
            self.closed = self.closed.max(target.pull.id.number);
        }
    }

    /// Answers a question, or begins what the answer needs.
    fn answer(&mut self, asker: ServerId, asked: Asked, effects: &mut Vec<Effect>) {
        let micro_shard = asked.id.micro_shard;
        match &mut self.source {
            None => {
                self.source =
                    Some(Box::new(Source { asked, asker, feed: None, hashes: None, is_given: false }));
                effects.extend([Effect::Note(micro_shard), Effect::PassLocks(asked.id)]);
            }
            Some(source) if asked == source.asked => {
                let changed = |hashes: &Vec<_>| Message::Changed { asked, hashes: hashes.clone() };
                effects.extend(source.hashes.as_ref().map(|hashes| Effect::Send(asker, changed(hashes))));
            }
            Some(source)
                if source.asked.batch.checked_add(1) == Some(asked.batch) && source.hashes.is_some() =>
            {
                (source.asked, source.hashes) = (asked, None);
                if asked.freeze {
                    self.set_word(micro_shard, self.word.frozen(), effects);
                }
                let passes = is_on(Safeguard::PassOfLocks);
                effects.push(if passes {
                    Effect::PassLocks(asked.id)
                } else {
                    Effect::TakeChanges(asked.id)
                });
            }
            // An old question, or one that came before its predecessor's answer was ready.
            Some(_) => {}
        }
    }

    fn source_of(&mut self, id: MoveId) -> Option<&mut Source> {
        self.source.as_deref_mut().filter(|source| source.asked.id == id)
    }
}

impl Member {
    /// Begins to copy a micro-shard, unless that is under way or over, or the directory says otherwise.
    pub(super) fn pull(&mut self, now_us: u64, pull: Pull, effects: &mut Vec<Effect>) {
        let MoveId { micro_shard, number } = pull.id;
        let place = self.view.directory().and_then(|directory| directory.place(micro_shard));
        let Some(shard) = self.shards.get_mut(micro_shard) else { return };
        let is_sound =
            place.is_some_and(|place| place.is_served(pull.from, pull.epoch) && place.node != self.id);
        let follows = shard.follow.as_ref().map(|it| it.id().number);
        let newest = shard.target.as_ref().map(|it| it.pull.id.number).max(follows).unwrap_or(0);
        let is_new = number > shard.closed.max(newest);
        // A process that has begun anew may be told to follow and to take over: what is complete here may be newer.
        let has_newer = shard.word.epoch >= number;
        if !is_sound || !is_new || has_newer {
            return;
        }
        if pull.base > 0 {
            return self.ask_to_take_over(now_us, pull, effects);
        }
        self.end_follow(micro_shard, effects);
        let shard = &mut self.shards[micro_shard];
        shard.end_target();
        if pull.is_follow {
            return self.begin_to_follow(now_us, pull, effects);
        }
        let (stage, batch) = (Stage::Emptying, 0);
        let (freeze, is_last_next) = (false, false);
        shard.target =
            Some(Box::new(Target { pull, feed: None, stage, batch, freeze, is_last_next, asked_us: 0 }));
        shard.empty(micro_shard, effects);
        self.begin_copy(now_us, micro_shard, effects);
    }

    /// Asks for the first batch once no older items are left.
    pub(super) fn begin_copy(&mut self, now_us: u64, micro_shard: MicroShard, effects: &mut Vec<Effect>) {
        let shard = &mut self.shards[micro_shard];
        let is_waiting = shard.target.as_ref().is_some_and(|target| target.stage == Stage::Emptying);
        if !is_waiting || shard.items != Items::None {
            return;
        }
        if shard.word != Ownership::VOID {
            shard.set_word(micro_shard, Ownership::VOID, effects);
        }
        shard.items = Items::Some;
        let Some(target) = &mut shard.target else { return };
        (target.stage, target.asked_us) = (Stage::Asking, now_us);
        let question = Message::Ask(target.question(self.incarnation));
        effects.push(Effect::Send(target.pull.from, question));
    }

    /// Repeats questions without an answer, and asks the coordinator for what owners do not give.
    pub(super) fn ask_again(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let (ask_us, incarnation) = (self.timing.ask_us, self.incarnation);
        let mut is_news = false;
        self.shards.for_each_open(|_, shard| {
            let target = shard.target.as_deref_mut();
            let Some(target) = target.filter(|it| now_us >= it.asked_us + ask_us) else { return };
            match target.stage {
                Stage::Asking => {
                    target.asked_us = now_us;
                    target.batch += u32::from(target.feed.is_some());
                    effects.push(Effect::Send(target.pull.from, target.message(incarnation)));
                }
                Stage::Complete => (target.stage, is_news) = (Stage::Drained, true),
                Stage::Emptying | Stage::Copying | Stage::Drained | Stage::Failed => {}
            }
        });
        if is_news {
            self.report_at_us = now_us;
        }
    }

    /// Forgets a move that will not take place, on either side.
    pub(super) fn cancel(&mut self, now_us: u64, id: MoveId, effects: &mut Vec<Effect>) {
        let MoveId { micro_shard, number } = id;
        let place = self.view.directory().and_then(|directory| directory.place(micro_shard));
        let (Some(place), Some(shard)) = (place, self.shards.get_mut(micro_shard)) else { return };
        if shard.source_of(id).is_some() {
            shard.end_source(micro_shard, effects);
            if !shard.word.is_valid() {
                // It was given already, and comes back under a higher epoch.
                self.report_at_us = now_us;
            }
        }
        let is_pulled = shard.target.as_ref().is_some_and(|target| target.pull.id == id);
        let is_followed = shard.follow.as_ref().is_some_and(|follow| follow.id() == id);
        let is_kept = !shard.is_copying() && shard.word == Ownership::owned(number).withdrawn();
        // It follows on with the copy with which it was to take over.
        if is_pulled && shard.follow.is_some() {
            return shard.end_target();
        }
        if place.node != self.id && (is_pulled || is_followed || is_kept) {
            shard.end_target();
            self.end_follow(micro_shard, effects);
            self.shards[micro_shard].empty(micro_shard, effects);
        }
    }

    pub(super) fn on_message(
        &mut self,
        now_us: u64,
        from: ServerId,
        message: Message,
        effects: &mut Vec<Effect>,
    ) {
        match message {
            Message::Ask(asked) => self.asked(from, asked, effects),
            Message::Changed { asked, hashes } => self.changed(now_us, asked, hashes, effects),
            Message::Complete(asked) => self.give(now_us, from, asked, effects),
            Message::Take(asked, feed) => self.take(from, (asked, feed), effects),
            Message::Refused(asked) if self.question_under_way(asked.id) == Some(asked) => {
                self.fail(now_us, asked.id);
            }
            Message::Refused(asked) => {
                self.not_followed(now_us, asked);
                self.unfollowed(now_us, from, asked, effects);
            }
            Message::Follow(asked) => self.follow(now_us, from, asked, effects),
            Message::Followed(asked, feed) => self.followed(now_us, asked, feed, effects),
            Message::More(more) => self.more(now_us, from, more, effects),
            Message::Batch { more, epoch, changes } => {
                self.batch(now_us, from, (more, epoch, changes), effects);
            }
            Message::Lost(more) => self.lost(now_us, from, more, effects),
        }
    }

    fn asked(&mut self, from: ServerId, asked: Asked, effects: &mut Vec<Effect>) {
        let MoveId { micro_shard, number } = asked.id;
        if self.is_behind(asked) {
            return;
        }
        let owns = self.owns(asked);
        let Some(shard) = self.shards.get_mut(micro_shard) else { return };
        // A newer move means that the older one was given up.
        if shard.source.as_ref().is_some_and(|source| source.asked.id.number < number) {
            shard.end_source(micro_shard, effects);
        }
        let is_known = match &shard.source {
            None => asked.batch == 0 && number > shard.closed,
            Some(source) => {
                let known = (source.asked.id, source.asked.incarnation, source.asker);
                known == (asked.id, asked.incarnation, from)
            }
        };
        if owns && is_known {
            shard.answer(from, asked, effects);
        } else {
            effects.push(Effect::Send(from, Message::Refused(asked)));
        }
    }

    pub(super) fn passed(&mut self, now_us: u64, id: MoveId, effects: &mut Vec<Effect>) {
        self.noted(id, effects);
        let Some(shard) = self.shards.get_mut(id.micro_shard) else { return };
        let Some(source) = shard.source_of(id) else { return };
        if source.feed.is_some() {
            source.hashes = Some(Vec::new());
            self.give_to_followers(now_us, effects);
        } else if source.asked.batch == 0 {
            self.changes(id, Some(Vec::new()), effects);
        } else {
            effects.push(Effect::TakeChanges(id));
        }
    }

    /// Sends a batch, or refuses if changes were lost.
    pub(super) fn changes(&mut self, id: MoveId, hashes: Option<Vec<KeyHash>>, effects: &mut Vec<Effect>) {
        let Some(shard) = self.shards.get_mut(id.micro_shard) else { return };
        let Some(source) = shard.source_of(id).filter(|source| source.hashes.is_none()) else { return };
        let (asked, asker) = (source.asked, source.asker);
        match hashes {
            Some(hashes) => {
                source.hashes = Some(hashes.clone());
                effects.push(Effect::Send(asker, Message::Changed { asked, hashes }));
            }
            None => {
                shard.end_source(id.micro_shard, effects);
                effects.push(Effect::Send(asker, Message::Refused(asked)));
            }
        }
    }

    fn changed(&mut self, now_us: u64, asked: Asked, hashes: Vec<KeyHash>, effects: &mut Vec<Effect>) {
        let id = asked.id;
        if self.question_under_way(id) != Some(asked) {
            return;
        }
        let Some(target) = self.shards[id.micro_shard].target.as_mut() else { return };
        let is_first = target.batch == 0;
        target.stage = Stage::Copying;
        target.is_last_next = !is_first && hashes.len() <= FEW_CHANGES || target.batch + 1 >= BATCHES_MAX;
        if is_first || !hashes.is_empty() {
            let Pull { from, epoch, .. } = target.pull;
            let hashes = (!is_first).then_some(hashes);
            effects.push(Effect::Copy(CopyJob { id, from, epoch, hashes }));
        } else {
            self.copied(now_us, id, true, effects);
        }
    }

    /// After a batch: the next one, or the end.
    pub(super) fn copied(&mut self, now_us: u64, id: MoveId, is_whole: bool, effects: &mut Vec<Effect>) {
        if !is_whole {
            return self.fail(now_us, id);
        }
        let Some(shard) = self.shards.get_mut(id.micro_shard) else { return };
        let is_copied = |it: &&mut Target| it.pull.id == id && it.stage == Stage::Copying;
        let Some(target) = shard.target.as_deref_mut().filter(is_copied) else { return };
        if target.freeze {
            (target.stage, target.asked_us) = (Stage::Complete, now_us);
            let (from, asked) = (target.pull.from, target.question(self.incarnation));
            // From now on the items outlive the process.
            shard.set_word(id.micro_shard, Ownership::owned(id.number).withdrawn(), effects);
            effects.push(Effect::Send(from, Message::Complete(asked)));
        } else {
            (target.batch, target.freeze) = (target.batch + 1, target.is_last_next);
            (target.stage, target.asked_us) = (Stage::Asking, now_us);
            let question = Message::Ask(target.question(self.incarnation));
            effects.push(Effect::Send(target.pull.from, question));
        }
    }

    /// Gives a micro-shard away that the asker has by now.
    fn give(&mut self, now_us: u64, from: ServerId, asked: Asked, effects: &mut Vec<Effect>) {
        let micro_shard = asked.id.micro_shard;
        let owns = self.owns(asked);
        let Some(shard) = self.shards.get(micro_shard).filter(|_| owns) else { return };
        let has_sent_all =
            |it: &Source| asked.freeze && (it.asked, it.asker) == (asked, from) && it.hashes.is_some();
        if shard.source.as_deref().is_some_and(has_sent_all) {
            self.give_away(now_us, micro_shard, effects);
        }
    }

    fn question_under_way(&self, id: MoveId) -> Option<Asked> {
        let target = self.shards.get(id.micro_shard)?.target.as_ref()?;
        (target.stage == Stage::Asking && target.pull.id == id).then(|| target.question(self.incarnation))
    }

    fn fail(&mut self, now_us: u64, id: MoveId) {
        let Some(shard) = self.shards.get_mut(id.micro_shard) else { return };
        let target = shard.target.as_mut().filter(|it| it.pull.id == id && !it.has_all());
        if let Some(target) = target {
            target.stage = Stage::Failed;
            self.report_at_us = now_us;
        }
    }
}
