//! Both sides of a move to a node that follows the micro-shard already: it takes over with the copy that it has.
//!
//! The follower goes on to take changes in, and stays a follower in the directory: whatever becomes of the move or the
//! owner, its copy is kept. The owner freezes, and every change is then in the feed. Once the follower has taken in all of
//! this micro-shard, the owner gives it away as in any move.

use minos_rack::{MicroShard, ServerId};

use super::{
    Effect, Member,
    moves::{BATCHES_MAX, FEW_CHANGES, Source, Target},
};
use crate::{
    Asked, FeedId, Pull,
    switches::{Safeguard, is_on},
};

impl Member {
    /// Asks the owner for what this node follows. A node that has this copy no longer says so in its reports.
    pub(super) fn ask_to_take_over(&mut self, now_us: u64, pull: Pull, effects: &mut Vec<Effect>) {
        let feed = self.streams.get(&pull.from).and_then(|stream| stream.feed);
        let shard = &mut self.shards[pull.id.micro_shard];
        let is_base = shard.follow.as_ref().is_some_and(|follow| follow.is_safe(pull.base));
        if feed.is_none() || !is_base {
            return;
        }
        shard.end_target();
        let target = Target::of_follower(pull, feed, now_us);
        effects.push(Effect::Send(pull.from, target.message(self.incarnation)));
        shard.target = Some(Box::new(target));
    }

    /// A follower is to own what it follows: writes wait from now on, unless too much is on its way to it yet.
    pub(super) fn take(&mut self, from: ServerId, (asked, feed): (Asked, FeedId), effects: &mut Vec<Effect>) {
        let micro_shard = asked.id.micro_shard;
        if self.is_behind(asked) {
            return;
        }
        let owns = self.owns(asked);
        let Some(shard) = self.shards.get_mut(micro_shard) else { return };
        if shard.source.as_ref().is_some_and(|it| (it.asked.id, it.asker) == (asked.id, from)) {
            return;
        }
        // A newer move means that the older one was given up.
        if shard.source.as_ref().is_some_and(|source| source.asked.id.number < asked.id.number) {
            shard.end_source(micro_shard, effects);
        }
        let fed = self.feeds.get(&from).filter(|it| it.id == feed && it.feeds(micro_shard));
        let is_new = shard.source.is_none() && asked.id.number > shard.closed;
        let Some(fed) = fed.filter(|_| owns && is_new) else {
            return effects.push(Effect::Send(from, crate::Message::Refused(asked)));
        };
        if fed.left() > FEW_CHANGES && asked.batch < BATCHES_MAX {
            return;
        }
        let source = Source { asked, asker: from, feed: Some(feed), hashes: None, is_given: false };
        shard.source = Some(Box::new(source));
        shard.set_word(micro_shard, shard.word.frozen(), effects);
        effects.push(Effect::PassLocks(asked.id));
        self.taken.insert(micro_shard);
    }

    /// Gives away what followers have by now that are to own it. What one of them follows no more stays here.
    pub(super) fn give_to_followers(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        for micro_shard in std::mem::take(&mut self.taken) {
            let shard = &mut self.shards[micro_shard];
            let Some(source) = shard.source.as_ref().filter(|source| source.feed.is_some()) else { continue };
            let feed = self.feeds.get(&source.asker).filter(|feed| Some(feed.id) == source.feed);
            let Some(feed) = feed.filter(|feed| feed.feeds(micro_shard)) else {
                shard.end_source(micro_shard, effects);
                continue;
            };
            let is_drained = feed.has_sent_all_of(micro_shard) || !is_on(Safeguard::Drain);
            if source.hashes.is_some() && is_drained {
                self.give_away(now_us, micro_shard, effects);
            } else {
                self.taken.insert(micro_shard);
            }
        }
    }

    /// The word is withdrawn before the next report says that the micro-shard is given.
    pub(super) fn give_away(&mut self, now_us: u64, micro_shard: MicroShard, effects: &mut Vec<Effect>) {
        let shard = &mut self.shards[micro_shard];
        let Some(source) = shard.source.as_deref_mut() else { return };
        source.is_given = true;
        if is_on(Safeguard::Withdrawal) {
            shard.set_word(micro_shard, shard.word.withdrawn(), effects);
        }
        self.report_at_us = now_us;
    }
}
