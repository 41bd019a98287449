//! A node's part: it enacts directories, holds a lease, and takes part in moves.

mod feed;
mod follow;
mod moves;
mod shards;
mod takeover;
#[cfg(test)]
mod tests;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use minos_base::KeyHash;
use minos_rack::{MicroShard, ServerId};

use crate::{
    Directory, Epoch, Heat, Load, Message, MoveId, Orders, Ownership, Place, Report, Terms, Weights,
    switches::{Safeguard, is_on},
};
pub use feed::Behind;
use feed::Feed;
use follow::{Follow, Stream};
use moves::{Source, Target};
use shards::Shards;
pub use view::{Permit, Route, View};

/// How often a node reports and repeats, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Between two reports without news.
    pub report_us: u64,
    /// Until a question to another node is repeated.
    pub ask_us: u64,
    /// How old a copy may be that is read here; `None` if none is read.
    pub copies_us: Option<u64>,
}

/// Items to be copied from another node's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyJob {
    /// The move.
    pub id: MoveId,
    /// The owner. Its word must say [`crate::Holding::Owned`] or `Frozen` with `epoch` before and after each read, also of
    /// what is not there: a process that has begun anew shows no items.
    pub from: ServerId,
    /// See `from`.
    pub epoch: Epoch,
    /// The keys to copy, or to remove if they are gone; all of the micro-shard if `None`.
    pub hashes: Option<Vec<KeyHash>>,
}

/// What happened at the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Time has passed.
    Tick,
    /// The coordinator's orders.
    Orders(Orders),
    /// A message of another node.
    Message(ServerId, Message),
    /// [`Effect::PassLocks`] is done.
    Passed(MoveId),
    /// The changed keys of [`Effect::TakeChanges`]; `None` if some were lost, for lack of room.
    Changes(MoveId, Option<Vec<KeyHash>>),
    /// [`Effect::Copy`] is done; false if a read failed.
    Copied(MoveId, bool),
    /// [`Effect::Empty`] is done.
    Emptied(MicroShard),
    /// Keys that were changed, of the micro-shards of [`Effect::Feed`]. Hand-overs have ascending numbers.
    Handed(u64, Vec<(MicroShard, KeyHash)>),
    /// Changed keys were left out, for lack of room, up to the hand-over of this number.
    Overrun(u64),
    /// [`Effect::Apply`] is done; false if a read failed.
    Applied(ServerId, bool),
}

/// What the node is to do. Effects are carried out in order, and what belongs to one micro-shard one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Store the word, visible to others before anything that follows.
    SetWord(MicroShard, Ownership),
    /// Remove all items of a micro-shard, each under its partition's lock. Running copies of it end first.
    Empty(MicroShard),
    /// From now on writers note the keys of a micro-shard that they change, under the partition's lock. Notes begin
    /// empty.
    Note(MicroShard),
    /// Writers note no more.
    StopNoting(MicroShard),
    /// Lock and unlock every partition once. Writers look at the word under the lock, so that whoever saw an older
    /// word has finished then, and has noted what it changed. What they hand over is taken in before [`Input::Passed`].
    PassLocks(MoveId),
    /// Take the noted keys, so that notes begin anew.
    TakeChanges(MoveId),
    /// Copy items one-sided.
    Copy(CopyJob),
    /// From now on writers hand over the keys of a micro-shard that they change, before they answer.
    Feed(MicroShard),
    /// Writers hand over no more.
    StopFeeding(MicroShard),
    /// Changes that were handed over up to this number are with all followers that the owner waits for.
    Confirm(u64),
    /// From now on the copy of a micro-shard may be read here, or no longer.
    ReadCopy(MicroShard, bool),
    /// Copies may be read until this time, by the node's clock.
    Fresh(u64),
    /// Do these jobs, which are for changed keys of one node, one after another, and never beside another one of the same
    /// micro-shard.
    Apply(ServerId, Vec<CopyJob>),
    /// Show the view to the workers, before anything that follows.
    Show(View),
    /// Tell the operators that the coordinator's directory, of the first epoch, is older than this node's memory, which has the
    /// second one, or is of another rack. The node goes by none.
    Outdated(Epoch, Epoch),
    /// Show the weights to native clients.
    Weigh(Arc<Weights>),
    /// Send to a node.
    Send(ServerId, Message),
    /// Send to the coordinator.
    Report(Report),
}

/// The items of a micro-shard in this node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Items {
    /// There may be some.
    Some,
    /// They are being removed.
    Emptying,
    /// There are none.
    None,
}

/// What a node knows of a micro-shard. It is small where there is no move.
#[derive(Debug)]
struct Shard {
    /// A copy of the word in memory.
    word: Ownership,
    items: Items,
    source: Option<Box<Source>>,
    target: Option<Box<Target>>,
    follow: Option<Box<Follow>>,
    /// Moves up to this number are over.
    closed: Epoch,
}

/// The state of one node.
#[derive(Debug)]
pub struct Member {
    id: ServerId,
    incarnation: u64,
    /// The highest epoch of the words that were in memory at first.
    kept: Epoch,
    terms: Terms,
    timing: Timing,
    view: View,
    shards: Shards,
    report_at_us: u64,
    /// The last report. The coordinator takes two of the same time for one.
    reported_us: Option<u64>,
    load: Option<Load>,
    heat: (Vec<Heat>, u32),
    weights: Option<Arc<Weights>>,
    /// The nodes that follow this one's micro-shards.
    feeds: BTreeMap<ServerId, Feed>,
    last_feed: u32,
    /// Those that the directory names, for which this node waits.
    waited: BTreeSet<ServerId>,
    /// Copies that it names under a number, and that are told of no changes: nothing is acknowledged meanwhile.
    unfed: BTreeMap<(MicroShard, ServerId), Epoch>,
    /// Micro-shards that followers are to own.
    taken: BTreeSet<MicroShard>,
    handed: u64,
    confirmed: u64,
    /// The nodes whose micro-shards this one follows.
    streams: BTreeMap<ServerId, Stream>,
    fresh_until_us: u64,
}

impl Member {
    /// A node whose memory holds `words`, one a micro-shard. The process has withdrawn them ([`crate::Holding::None`],
    /// the epochs kept) before it changed anything else in that memory. `incarnation` grows with each process.
    pub fn new(id: ServerId, incarnation: u64, words: &[Ownership], terms: Terms, timing: Timing) -> Self {
        Self {
            id,
            incarnation,
            kept: words.iter().map(|word| word.epoch).max().unwrap_or(0),
            terms,
            timing,
            view: View::new(id),
            shards: Shards::new(words),
            report_at_us: 0,
            reported_us: None,
            load: None,
            heat: (Vec::new(), 0),
            weights: None,
            feeds: BTreeMap::new(),
            last_feed: 0,
            waited: BTreeSet::new(),
            unfed: BTreeMap::new(),
            taken: BTreeSet::new(),
            handed: 0,
            confirmed: 0,
            streams: BTreeMap::new(),
            fresh_until_us: 0,
        }
    }

    /// Notes what the process has executed so far, for the reports from now on.
    pub fn note_load(&mut self, load: Load) {
        self.load = Some(load);
    }

    /// Notes the hottest micro-shards among so many sampled requests, for the reports from now on.
    pub fn note_heat(&mut self, heat: Vec<Heat>, sampled: u32) {
        self.heat = (heat, sampled);
    }

    /// True while a micro-shard is on its way to this node.
    pub fn is_pulling(&self) -> bool {
        self.shards.open().any(|(_, shard)| shard.target.is_some()) || self.is_catching_up()
    }

    /// Takes an input, and adds what is to be done to `effects`.
    pub fn handle(&mut self, now_us: u64, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Tick => {
                self.ask_again(now_us, effects);
                self.follow_again(now_us, effects);
                self.end_silent_feeds(now_us, effects);
            }
            Input::Orders(orders) => self.obey(now_us, orders, effects),
            Input::Message(from, message) => self.on_message(now_us, from, message, effects),
            Input::Passed(id) => self.passed(now_us, id, effects),
            Input::Changes(id, hashes) => self.changes(id, hashes, effects),
            Input::Copied(id, is_whole) => {
                if !self.copied_to_follow(now_us, (id, is_whole), effects) {
                    self.copied(now_us, id, is_whole, effects);
                }
            }
            Input::Handed(number, changes) => self.hand(now_us, (number, &changes), effects),
            Input::Overrun(number) => self.overrun(number, effects),
            Input::Applied(from, is_whole) => self.applied(now_us, (from, is_whole), effects),
            Input::Emptied(micro_shard) => self.emptied(now_us, micro_shard, effects),
        }
    }

    /// Reports if that is due, after all inputs of a moment: of much news, one report comes.
    pub fn report_if_due(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        if now_us >= self.report_at_us && self.reported_us < Some(now_us) {
            self.close();
            self.reported_us = Some(now_us);
            self.report_at_us = now_us + self.timing.report_us;
            effects.push(Effect::Report(self.report(now_us)));
        }
    }

    fn obey(&mut self, now_us: u64, orders: Orders, effects: &mut Vec<Effect>) {
        if orders.incarnation != self.incarnation {
            return;
        }
        if let Some(directory) = orders.directory {
            self.install(now_us, directory, effects);
        }
        let is_current = self.view.directory().is_some_and(|directory| directory.epoch() >= orders.epoch);
        // Under an older directory the node would serve what the coordinator may have given away.
        if let Some(asked_us) = orders.lease.filter(|_| is_current) {
            self.view.lease.extend(now_us, asked_us, &self.terms);
            effects.push(Effect::Show(self.view.clone()));
        }
        let known = self.weights.as_ref().map_or(0, |weights| weights.version());
        if let Some(weights) = orders.weights.filter(|weights| weights.version() > known) {
            self.weights = Some(weights.clone());
            effects.push(Effect::Weigh(weights));
        }
        orders.cancelled.into_iter().for_each(|id| self.cancel(now_us, id, effects));
        orders.pulls.into_iter().for_each(|pull| self.pull(now_us, pull, effects));
    }

    /// Enacts a newer directory, and none that is older than the memory: under it, another node might own what is here. Words
    /// are withdrawn before the next report confirms it.
    fn install(&mut self, now_us: u64, directory: Arc<Directory>, effects: &mut Vec<Effect>) {
        let is_older = |held: &Arc<Directory>| !directory.is_newer_than(held);
        let is_other_size = directory.micro_shards().count() as usize != self.shards.count();
        if is_other_size || self.view.directory().is_some_and(is_older) {
            return;
        }
        if directory.epoch() < self.kept {
            return effects.push(Effect::Outdated(directory.epoch(), self.kept));
        }
        let mut open: BTreeSet<_> = self.shards.open().map(|(micro_shard, _)| micro_shard).collect();
        let before = self.view.directory.replace(Arc::clone(&directory));
        match &before {
            Some(before) => open.extend(directory.places_since(before).map(|(micro_shard, _)| micro_shard)),
            None => open.extend(directory.micro_shards().iter()),
        }
        effects.push(Effect::Show(self.view.clone()));
        self.hold_unfed(&directory, effects);
        for micro_shard in open {
            let place = directory.place(micro_shard);
            place.into_iter().for_each(|place| self.enact(micro_shard, place, effects));
        }
        self.keep_feeds(now_us, effects);
        self.note_listings(now_us, effects);
        self.report_at_us = now_us;
    }

    fn enact(&mut self, micro_shard: MicroShard, place: Place, effects: &mut Vec<Effect>) {
        let is_mine = place.node == self.id;
        if self.shards[micro_shard].follow.as_ref().is_some_and(|follow| !follow.fits(place)) {
            self.end_follow(micro_shard, effects);
        }
        let is_deferred = self.is_deferred(micro_shard);
        let is_kept = self.kept(micro_shard).is_some();
        let shard = &mut self.shards[micro_shard];
        if !(is_mine && place.is_serving) {
            // Before the end of a move would thaw it.
            if shard.word.is_valid() {
                shard.set_word(micro_shard, shard.word.withdrawn(), effects);
            }
            shard.end_source(micro_shard, effects);
        } else if shard.source.as_ref().is_some_and(|source| source.asked.epoch != place.epoch) {
            shard.end_source(micro_shard, effects);
        }
        if shard.target.as_ref().is_some_and(|target| !target.fits(place)) {
            shard.end_target();
        }
        match (is_mine, place.is_serving) {
            (true, true) if !is_deferred => shard.take_over(micro_shard, place, effects),
            (false, true) if !shard.is_copying() && !shard.is_drained(place) && !is_kept => {
                shard.empty(micro_shard, effects);
            }
            // Whoever may get the micro-shard keeps what it has.
            (true, true) | (_, false) | (false, true) => {}
        }
    }

    /// The number under which the directory names a copy that is here as a whole.
    fn kept(&self, micro_shard: MicroShard) -> Option<Epoch> {
        let number = self.view.directory()?.follower(micro_shard, self.id)?.number;
        (number <= self.shards[micro_shard].word.epoch).then_some(number)
    }

    /// Takes a micro-shard over that is this node's by now.
    fn settle(&mut self, micro_shard: MicroShard, effects: &mut Vec<Effect>) {
        let place = self.view.directory().and_then(|directory| directory.place(micro_shard));
        let mine = place.filter(|place| place.node == self.id && place.is_serving);
        mine.into_iter().for_each(|place| self.shards[micro_shard].take_over(micro_shard, place, effects));
    }

    fn emptied(&mut self, now_us: u64, micro_shard: MicroShard, effects: &mut Vec<Effect>) {
        let place = self.view.directory().and_then(|directory| directory.place(micro_shard));
        let (Some(place), Some(shard)) = (place, self.shards.get_mut(micro_shard)) else { return };
        shard.items = Items::None;
        if place.node == self.id && place.is_serving {
            shard.take_over(micro_shard, place, effects);
            self.report_at_us = now_us;
        }
        self.begin_copy(now_us, micro_shard, effects);
        self.ask_to_follow(now_us, micro_shard, effects);
    }

    /// Closes the micro-shards of which nothing is to be reported, and nothing to be done.
    fn close(&mut self) {
        let Some(directory) = &self.view.directory else { return };
        let id = self.id;
        self.shards.close_if(|micro_shard, shard| {
            directory.place(micro_shard).is_some_and(|place| shard.is_enacted(id, place))
        });
    }

    fn report(&self, now_us: u64) -> Report {
        let directory = self.view.directory();
        let epoch = directory.map_or(0, |directory| directory.epoch());
        let mut report = Report {
            node: self.id,
            incarnation: self.incarnation,
            sent_us: now_us,
            epoch,
            kept: self.kept,
            withdrawn: Vec::new(),
            lacking: Vec::new(),
            moves: Vec::new(),
            load: self.load,
            weights: self.weights.as_ref().map_or(0, |weights| weights.version()),
            heat: self.heat.0.clone(),
            sampled: self.heat.1,
        };
        let mut is_emptying = false;
        for (micro_shard, shard) in self.shards.open() {
            let Some(place) = directory.and_then(|directory| directory.place(micro_shard)) else { continue };
            let misses = place.node == self.id && shard.word.epoch < place.since;
            report.lacking.extend((misses && place.since < place.epoch).then_some(micro_shard));
            if place.node == self.id && place.is_serving {
                is_emptying |= misses && place.since == place.epoch;
                let is_given = shard.source.as_ref().is_some_and(|source| source.is_given);
                let is_withdrawn = !shard.word.is_valid() && shard.word.epoch >= place.epoch && !is_given;
                report.withdrawn.extend(is_withdrawn.then_some(micro_shard));
            }
            if shard.is_at_rest() {
                continue;
            }
            let follow = shard.follow.as_deref().map(Follow::progress);
            let drained = shard.drained(self.id, micro_shard, (place, self.kept(micro_shard)));
            let moves = [shard.giving(), shard.pulling(), follow, drained];
            report.moves.extend(moves.into_iter().flatten());
        }
        // Each change is one on disk: those that are emptied one by one get their epochs together.
        if is_emptying {
            report.withdrawn.clear();
        }
        report
    }
}

impl Shard {
    fn new(word: Ownership) -> Self {
        Self { word, items: Items::Some, source: None, target: None, follow: None, closed: 0 }
    }

    /// True while items come from elsewhere.
    fn is_copying(&self) -> bool {
        self.target.is_some() || self.follow.is_some()
    }

    /// True if it is as a place has it, with no move: another directory with this place asks nothing of it.
    fn is_enacted(&self, id: ServerId, place: Place) -> bool {
        let is_right = match place.node == id {
            true => self.word == Ownership::owned(place.epoch),
            false => self.word == Ownership::VOID && self.items == Items::None,
        };
        is_right && place.is_serving && self.source.is_none() && !self.is_copying()
    }

    /// True if the node takes part in no move of it, and has none of another owner's items.
    fn is_at_rest(&self) -> bool {
        let has_another_ones = !self.word.is_valid() && self.word != Ownership::VOID;
        self.source.is_none() && !self.is_copying() && !has_another_ones
    }

    fn set_word(&mut self, micro_shard: MicroShard, word: Ownership, effects: &mut Vec<Effect>) {
        self.word = word;
        effects.push(Effect::SetWord(micro_shard, word));
    }

    /// Becomes the owner under a newer epoch, if the items are complete. Where the place begins without items, those
    /// that are here go first, and the word notes that none is complete: the next epoch then makes this node
    /// the owner. Nothing is written before, so that a memory lost later is never taken for a new one.
    fn take_over(&mut self, micro_shard: MicroShard, place: Place, effects: &mut Vec<Effect>) {
        let is_same = self.word.epoch == place.epoch && !self.word.is_valid();
        let is_newer = place.epoch > self.word.epoch || (is_same && !is_on(Safeguard::HigherEpoch));
        let is_complete = self.word.epoch >= place.since;
        if is_newer && is_complete {
            self.items = Items::Some;
            self.set_word(micro_shard, Ownership::owned(place.epoch), effects);
        } else if is_newer && place.since == place.epoch {
            self.empty(micro_shard, effects);
            if self.items == Items::None {
                self.set_word(micro_shard, Ownership::owned(place.epoch).withdrawn(), effects);
            }
        }
    }

    /// Removes the items. The word says so first, in case the process dies halfway.
    fn empty(&mut self, micro_shard: MicroShard, effects: &mut Vec<Effect>) {
        if self.items == Items::Some && !is_on(Safeguard::Emptying) {
            self.items = Items::None;
        } else if self.items == Items::Some {
            self.items = Items::Emptying;
            self.set_word(micro_shard, Ownership::VOID, effects);
            effects.push(Effect::Empty(micro_shard));
        }
    }
}
