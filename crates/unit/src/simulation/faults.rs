//! What goes wrong, and its end.

use minos_rack::{MicroShard, ServerId};
use rand::RngExt;

use super::{
    memory::Memory,
    world::{Event, Moment, Party, SHARDS, World},
};
use crate::{Command, Directory, Follower, Orders, Place, Pull, Standing};

impl World {
    /// One fault, or a wish of the operator; and the time of the next.
    pub(super) fn fault(&mut self) {
        let has_lost = self.plan.loss_at.is_some() && self.tally.of("memory losses") > 0;
        if self.is_healed || has_lost {
            return;
        }
        let plan = self.plan;
        let weights = [
            plan.kills,
            plan.pauses,
            plan.cuts,
            plan.coordinator_kills,
            plan.moves,
            plan.joins,
            plan.memory_losses,
        ];
        let mut drawn = self.random.random_range(0..weights.iter().sum::<u32>());
        let kind = weights.iter().position(|weight| {
            let is_it = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_it
        });
        match kind {
            Some(0) => self.kill_one(),
            Some(1) => self.pause_one(),
            Some(2) => self.cut_one(),
            Some(3) => self.kill(Party::Coordinator),
            Some(4) => self.move_one(),
            Some(5) => self.add_or_drain(),
            _ => self.lose_memory(),
        }
        let delay_us = self.random.random_range(0..2 * plan.fault_us);
        self.after(delay_us, Event::Fault);
    }

    /// Everything works from now on.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
        self.cuts.clear();
        let ids: Vec<_> = self.hosts.keys().copied().collect();
        ids.into_iter().for_each(|id| self.restart_node(id));
        self.restart_coordinator();
    }

    /// True if the plan kills the party at this step. It may kill another node instead.
    pub(super) fn is_killed_at(&mut self, step: &'static str, party: Party) -> bool {
        if self.is_healed || step.is_empty() || !self.happens(self.plan.step_kills) {
            return false;
        }
        self.tally.note(step);
        let victim = if self.random.random_bool(0.5) { party } else { Party::Node(self.one()) };
        self.kill(victim);
        victim == party
    }

    fn one(&mut self) -> ServerId {
        let index = self.random.random_range(0..self.hosts.len());
        *self.hosts.keys().nth(index).expect("a node")
    }

    fn a_while_us(&mut self) -> u64 {
        let short = self.random.random_bool(0.5);
        self.random.random_range(200..if short { 3000 } else { 60_000 })
    }

    fn kill(&mut self, party: Party) {
        self.tally.note("kills");
        match party {
            Party::Node(id) => self.kill_node(id),
            _ => self.kill_coordinator(),
        }
        let delay_us = self.a_while_us();
        self.after(delay_us, Event::Restart(party));
    }

    fn kill_one(&mut self) {
        let id = self.one();
        self.kill(Party::Node(id));
    }

    /// A process dies, and its memory with it. Others may have that attached for a while.
    fn lose_memory(&mut self) {
        let id = self.one();
        self.lose_memory_of(id);
    }

    fn lose_memory_of(&mut self, id: ServerId) {
        self.tally.note("memory losses");
        self.kill(Party::Node(id));
        let host = self.hosts.get_mut(&id).expect("a node");
        host.lost = Some((std::mem::replace(&mut host.memory, Memory::new()), u64::MAX));
    }

    /// One node is to lose its memory, at any moment.
    pub(super) fn lose_one(&mut self) {
        if self.plan.loss_at == Some(Moment::Any) {
            let id = self.one();
            let delay_us = self.random.random_range(40_000..200_000);
            self.after(delay_us, Event::Lose(id, Vec::new()));
        }
    }

    /// The owner of a micro-shard that a follower is told to take over is to lose its memory.
    pub(super) fn lose_an_owner(&mut self, to: ServerId, orders: &Orders) {
        let directory = Directory::decode(&self.control.disk).expect("what was written");
        let is_safe = |it: &&Pull| directory.follower(it.id.micro_shard, to).is_some_and(|it| it.is_safe);
        let pull = orders.pulls.iter().find(|pull| !pull.is_follow && is_safe(pull));
        if let Some(pull) = pull.filter(|_| self.plan.loss_at == Some(Moment::MoveToFollower)) {
            let delay_us = self.random.random_range(0..1500);
            self.after(delay_us, Event::Lose(pull.from, vec![pull.id.micro_shard]));
        }
    }

    /// A follower that becomes the owner is to lose its memory before it hears of that.
    pub(super) fn lose_an_heir(&mut self, new: &Directory) {
        let old = Directory::decode(&self.control.disk).expect("what was written");
        let is_heir = |(it, place): &(MicroShard, Place)| {
            let was_serving = old.place(*it).is_some_and(|old| old.is_serving);
            place.is_serving && !was_serving && old.follower(*it, place.node).is_some()
        };
        let inherited: Vec<_> = new.places_since(&old).filter(is_heir).collect();
        let Some((_, Place { node, .. })) = inherited.first().copied() else { return };
        if self.plan.loss_at == Some(Moment::Inheritance) {
            let delay_us = self.random.random_range(0..20);
            let spared = inherited.into_iter().filter(|(_, place)| place.node == node).map(|(it, _)| it);
            self.after(delay_us, Event::Lose(node, spared.collect()));
        }
    }

    /// A node loses its memory, once in a run, if what it owns is at nodes that follow it: of the spared micro-shards the
    /// directory's word is enough, and of an heir's that is known. Nothing else goes wrong afterwards.
    pub(super) fn lose_if_lossless(&mut self, id: ServerId, spared: &[MicroShard]) {
        let directory = Directory::decode(&self.control.disk).expect("what was written");
        let is_heir = self.plan.loss_at == Some(Moment::Inheritance);
        let owned = directory.places().filter(|(_, place)| place.node == id);
        let mut owned = owned.filter(|(it, _)| !is_heir || !spared.contains(it));
        let has_copy = |(it, place): (MicroShard, Place), follower: &Follower| {
            let process = self.hosts[&follower.node].process.as_ref();
            // A copy from before a move or a restart of its owner is dropped for one that follows.
            let follows = follower.number >= place.epoch;
            let has_all = follows && process.is_some_and(|process| process.copied.contains(&it));
            follower.is_safe && (has_all || spared.contains(&it))
        };
        let are_safe = owned.all(|owned| directory.followers(owned.0).iter().any(|to| has_copy(owned, to)));
        let process = self.hosts[&id].process.as_ref();
        let is_pulling = process.is_some_and(|process| process.member.is_pulling());
        // Once an heir has said that it has the spared ones, no other copy of them is kept.
        let known = process.and_then(|process| process.view.as_ref()?.directory());
        let has_said = is_heir && known.is_some_and(|known| known.epoch() >= directory.epoch());
        if are_safe && !is_pulling && !has_said && !self.is_healed && self.tally.of("memory losses") == 0 {
            self.lose_memory_of(id);
        }
    }

    fn pause_one(&mut self) {
        self.tally.note("pauses");
        let until_us = self.now_us + self.a_while_us();
        if self.random.random_bool(0.2) {
            self.control.paused_until_us = until_us;
            return;
        }
        let id = self.one();
        self.hosts.get_mut(&id).expect("a node").paused_until_us = until_us;
    }

    fn cut_one(&mut self) {
        self.tally.note("cuts");
        let one = Party::Node(self.one());
        let other = match self.random.random_range(0..3) {
            0 => None,
            1 => Some(Party::Node(self.one())),
            _ => Some(Party::Coordinator),
        };
        self.cuts.insert((one, other));
        let delay_us = self.a_while_us();
        self.after(delay_us, Event::Mend(one, other));
    }

    fn move_one(&mut self) {
        let to = self.one();
        let micro_shard = MicroShard(self.random.random_range(0..SHARDS));
        let command = Command::Move(micro_shard, to);
        let now_us = self.control.drift.at(self.now_us);
        let is_taken = self.control.process.as_mut().is_some_and(|it| it.command(now_us, command).is_ok());
        if is_taken {
            self.tally.note("moves wished");
        }
    }

    /// A node leaves, or one that left comes back.
    fn add_or_drain(&mut self) {
        let id = self.one();
        let now_us = self.control.drift.at(self.now_us);
        let Some(process) = self.control.process.as_mut() else { return };
        let node = process.directory().node(id).cloned();
        let command = match node {
            None => Command::Add(id, minos_rack::UnitId(0), String::new()),
            Some(node) if node.standing == Standing::Leaving => Command::Remove(id),
            Some(_) => Command::Drain(id),
        };
        if process.command(now_us, command).is_ok() {
            self.tally.note("nodes changed");
        }
    }
}
