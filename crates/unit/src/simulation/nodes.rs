//! What nodes do: requests, steps of work, and the effects of their [`Member`].

use std::collections::BTreeSet;

use minos_base::{KeyHash, hash_key};
use minos_rack::{MicroShard, ServerId};
use minos_testkit::history::Call;
use rand::RngExt;

use super::{
    host::{CopyFor, Copying, Held, Locked, PARTITIONS, Process, Reading, Write},
    memory::{Found, Look},
    world::{Body, Event, KEYS, Outcome, Party, Request, SHARDS, World, terms, timing},
};
use crate::{
    CopyJob, Epoch, Heat, Load, Member, Message, Permit, Route,
    node::{Effect, Input},
    switches::{Safeguard, is_on},
};

/// Until others have attached the memory of a node that has begun anew.
const ATTACH_US: u64 = 10_000;

pub(super) fn hash(key: usize) -> KeyHash {
    hash_key(&key.to_le_bytes(), 1)
}

impl World {
    /// A node's process begins, with the memory of the last one.
    pub(super) fn restart_node(&mut self, id: ServerId) {
        let delay_us = self.random.random_range(100..3000);
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.process.is_none()) else { return };
        host.life += 1;
        let life = host.life;
        if is_on(Safeguard::NoneFirst) {
            host.memory.withdraw();
        }
        host.memory.begin_repair();
        self.after(delay_us, Event::Repair(id, life));
    }

    pub(super) fn end_repair(&mut self, id: ServerId, life: u64) {
        let now_us = self.now_us;
        let Some(host) = self.hosts.get_mut(&id).filter(|host| host.life == life) else { return };
        host.lost.iter_mut().for_each(|(_, until_us)| *until_us = (*until_us).min(now_us + ATTACH_US));
        host.memory.end_repair();
        host.memory.withdraw();
        let member = Member::new(id, life, &host.memory.words, terms(), timing());
        host.process = Some(Process::new(member));
        self.after(0, Event::Tick(Party::Node(id), life));
    }

    pub(super) fn kill_node(&mut self, id: ServerId) {
        let Some(host) = self.hosts.get_mut(&id) else { return };
        host.life += 1;
        host.process = None;
        host.paused_until_us = 0;
    }

    /// Gives an input to a node, and does what it says.
    pub(super) fn node(&mut self, id: ServerId, input: Input) {
        let host = self.hosts.get_mut(&id).expect("a node");
        let now_us = host.drift.at(self.now_us);
        let Some(process) = host.process.as_mut() else { return };
        let mut effects = Vec::new();
        let [reads, writes] = [10, 20 * (1 + u64::from(id.0))].map(|every_us| now_us / every_us);
        let is_copied = self.plan.copies > 1;
        let busy_us = if is_copied { now_us / 6 * (1 + u64::from(id.0)) } else { now_us / 2 };
        process.member.note_load(Load { reads, writes, busy_us });
        if is_copied {
            let heat = Heat { micro_shard: MicroShard(id.0 % SHARDS), reads: 40, changes: 10 };
            process.member.note_heat(vec![heat], 100);
        }
        process.member.handle(now_us, input, &mut effects);
        process.member.report_if_due(now_us, &mut effects);
        for effect in effects {
            if self.is_killed_at(name_of(&effect), Party::Node(id)) {
                return;
            }
            self.perform(id, effect);
        }
    }

    fn perform(&mut self, id: ServerId, effect: Effect) {
        let (life, shards) = (self.hosts[&id].life, self.shards);
        let Some((process, memory)) = self.process(id, life) else { return };
        match effect {
            Effect::SetWord(micro_shard, word) => memory.words[micro_shard.0 as usize] = word,
            Effect::Note(micro_shard) => drop(process.notes.insert(micro_shard, BTreeSet::new())),
            Effect::StopNoting(micro_shard) => drop(process.notes.remove(&micro_shard)),
            Effect::Empty(micro_shard) => {
                process.end_copies(micro_shard, &shards);
                process.left.insert((micro_shard, 0), PARTITIONS);
                (0..PARTITIONS).for_each(|it| self.push(id, it, Locked::Empty(micro_shard)));
            }
            Effect::PassLocks(move_id) => {
                process.left.insert((move_id.micro_shard, move_id.number), PARTITIONS);
                (0..PARTITIONS).for_each(|it| self.push(id, it, Locked::Pass(move_id)));
            }
            Effect::TakeChanges(move_id) => {
                let notes = process.notes.get_mut(&move_id.micro_shard).map(std::mem::take);
                let hashes = notes.map(|keys| keys.into_iter().map(hash).collect());
                self.node(id, Input::Changes(move_id, hashes));
            }
            Effect::Show(view) => process.view = Some(view),
            Effect::Outdated(directory, kept) => {
                panic!("a directory of epoch {directory}, and memory of epoch {kept}")
            }
            Effect::Weigh(weights) => {
                assert!(weights.version() > process.weighed, "weights that are old");
                process.weighed = weights.version();
                self.tally.note("weights");
            }
            Effect::Copy(CopyJob { id: move_id, from, epoch, hashes }) => {
                let is_of = |key: &usize| shards[*key] == move_id.micro_shard.0 as usize;
                let is_named = |key: &usize| hashes.as_ref().is_none_or(|it| it.contains(&hash(*key)));
                let keys: Vec<usize> = (0..KEYS).filter(is_of).filter(is_named).collect();
                self.begin_copying(id, (CopyFor::Shard(move_id), from, Some(epoch)), keys);
            }
            Effect::Apply(from, jobs) => {
                let has = |job: &CopyJob, key: usize| job.hashes.iter().flatten().any(|it| *it == hash(key));
                let is_named = |key: &usize| jobs.iter().any(|job| has(job, *key));
                let keys: Vec<usize> = (0..KEYS).filter(is_named).collect();
                self.begin_copying(id, (CopyFor::Batch, from, None), keys);
            }
            Effect::Feed(micro_shard) => drop(process.fed.insert(micro_shard)),
            Effect::StopFeeding(micro_shard) => drop(process.fed.remove(&micro_shard)),
            Effect::ReadCopy(micro_shard, true) => drop(process.copied.insert(micro_shard)),
            Effect::ReadCopy(micro_shard, false) => drop(process.copied.remove(&micro_shard)),
            Effect::Fresh(until_us) => process.fresh_until_us = until_us,
            Effect::Confirm(number) => {
                process.confirmed = number;
                self.release(id);
            }
            Effect::Send(to, message) => self.send(Party::Node(id), Party::Node(to), Body::Message(message)),
            Effect::Report(report) => {
                if !report.withdrawn.is_empty() {
                    self.tally.note("adoptions asked for");
                }
                self.send(Party::Node(id), Party::Coordinator, Body::Report(report));
            }
        }
    }

    fn begin_copying(
        &mut self,
        id: ServerId,
        (what, from, epoch): (CopyFor, ServerId, Option<Epoch>),
        keys: Vec<usize>,
    ) {
        let life = self.hosts[&id].life;
        let Some((process, _)) = self.process(id, life) else { return };
        process.next += 1;
        let number = process.next;
        process.copies.insert(number, Copying { what, from, epoch, keys, look: None, failures: 0 });
        self.after(1, Event::Copying(id, life, number));
    }

    /// One more line of a copy.
    pub(super) fn copying(&mut self, id: ServerId, life: u64, number: u64) {
        let shards = self.shards;
        let Some((process, _)) = self.process(id, life) else { return };
        if process.busy.is_some_and(|busy| busy != number) {
            return self.after(2, Event::Copying(id, life, number));
        }
        let Some(mut copying) = process.copies.remove(&number) else { return };
        process.busy = None;
        let Some(&key) = copying.keys.first() else { return self.end_copying(id, &copying, true) };
        let mut look = copying.look.unwrap_or_else(|| Look::new(key, shards[key], copying.epoch));
        let found = look.advance(&self.hosts[&copying.from].memory);
        copying.look = found.is_none().then_some(look);
        match found {
            None => {}
            Some(Found::Value(value)) => {
                let memory = &mut self.hosts.get_mut(&id).expect("a node").memory;
                memory.buckets[key].put(value);
                copying.keys.remove(0);
            }
            Some(Found::AskOwner) if copying.failures >= 3 => return self.end_copying(id, &copying, false),
            Some(Found::AskOwner) => copying.failures += 1,
        }
        if let Some((process, _)) = self.process(id, life) {
            process.busy = copying.look.is_some().then_some(number);
            process.copies.insert(number, copying);
        }
        let delay_us = self.step_us();
        self.after(delay_us, Event::Copying(id, life, number));
    }

    fn end_copying(&mut self, id: ServerId, copying: &Copying, is_whole: bool) {
        self.node(
            id,
            match copying.what {
                CopyFor::Shard(move_id) => Input::Copied(move_id, is_whole),
                CopyFor::Batch => Input::Applied(copying.from, is_whole),
            },
        );
    }

    /// A client's request comes to a node.
    pub(super) fn request(&mut self, id: ServerId, request: Request) {
        let micro_shard = self.shard(request.key);
        let host = &self.hosts[&id];
        let Some(process) = &host.process else { return };
        let route = process.view.as_ref().map_or(Route::Nowhere, |view| view.route(micro_shard));
        let permit =
            process.view.as_ref().and_then(|view| view.permit(host.drift.at(self.now_us), micro_shard));
        let is_read = matches!(request.call, Call::Get(_));
        let is_fresh = !is_on(Safeguard::Freshness) || host.drift.at(self.now_us) < process.fresh_until_us;
        if is_read && is_fresh && !self.is_healed && process.copied.contains(&micro_shard) {
            return self.read_copy(id, request);
        }
        match (route, permit) {
            (Route::Here, Some(permit)) if is_read => self.begin_reading(id, id, request, permit),
            (Route::Unit(owner), Some(permit)) if is_read => self.begin_reading(id, owner, request, permit),
            (Route::Here, Some(permit)) => {
                let write = Write::new(request.key, self.shards[request.key], Some((request, permit)));
                self.push(id, request.key % PARTITIONS, Locked::Write(write));
            }
            (Route::Unit(owner) | Route::Elsewhere(owner), _)
                if !is_read && !request.is_forwarded && self.random.random_bool(0.5) =>
            {
                let request = Request { is_forwarded: true, ..request };
                self.send(Party::Node(id), Party::Node(owner), Body::Request(request));
            }
            _ => self.answer(id, request, Outcome::NotHere),
        }
    }

    /// Reads a copy at one instant: nobody else changes it.
    fn read_copy(&mut self, id: ServerId, request: Request) {
        self.tally.note("copies read");
        let value = self.hosts[&id].memory.buckets[request.key].value();
        self.answer(id, request, Outcome::Stale(value));
    }

    fn begin_reading(&mut self, id: ServerId, owner: ServerId, request: Request, permit: Permit) {
        let look = Look::new(request.key, self.shards[request.key], None).since(permit.since());
        let life = self.hosts[&id].life;
        let Some((process, _)) = self.process(id, life) else { return };
        process.next += 1;
        let number = process.next;
        process.readings.insert(number, Reading { request, permit, owner, look });
        if owner != id {
            self.tally.note("remote reads");
        }
        self.after(1, Event::Reading(id, life, number));
    }

    /// One more line of a read.
    pub(super) fn reading(&mut self, id: ServerId, life: u64, number: u64) {
        let Some((process, _)) = self.process(id, life) else { return };
        let Some(mut reading) = process.readings.remove(&number) else { return };
        let owner = &self.hosts[&reading.owner];
        let memory = if reading.owner == id { &owner.memory } else { owner.attached(self.now_us) };
        let found = reading.look.advance(memory);
        let Reading { request, permit, .. } = reading;
        match found {
            Some(Found::Value(value)) if self.may_answer(id, &permit) => {
                self.answer(id, request, Outcome::Value(value));
            }
            Some(_) => self.answer(id, request, Outcome::NotHere),
            None => {
                let delay_us = self.step_us();
                if let Some((process, _)) = self.process(id, life) {
                    process.readings.insert(number, reading);
                }
                self.after(delay_us, Event::Reading(id, life, number));
            }
        }
    }

    fn may_answer(&self, id: ServerId, permit: &Permit) -> bool {
        let host = &self.hosts[&id];
        let now_us = host.drift.at(self.now_us);
        let view = host.process.as_ref().and_then(|process| process.view.as_ref());
        view.is_some_and(|view| view.may_answer(now_us, permit))
    }

    fn answer(&mut self, id: ServerId, request: Request, outcome: Outcome) {
        let view = self.hosts[&id].process.as_ref().and_then(|process| process.view.as_ref());
        let directory = view.and_then(|view| view.directory().cloned());
        let reply = Body::Reply(request.attempt, outcome, directory);
        self.send(Party::Node(id), Party::Client(request.client), reply);
    }

    /// Queues work under a partition's lock.
    fn push(&mut self, id: ServerId, partition: usize, work: Locked) {
        let life = self.hosts[&id].life;
        let Some((process, _)) = self.process(id, life) else { return };
        process.partitions[partition].push_back(work);
        if process.partitions[partition].len() == 1 {
            self.after(1, Event::Locked(id, life, partition));
        }
    }

    /// One more line of the work that has the lock.
    pub(super) fn locked(&mut self, id: ServerId, life: u64, partition: usize) {
        let shards = self.shards;
        let Some((process, memory)) = self.process(id, life) else { return };
        let Some(work) = process.partitions[partition].front_mut() else { return };
        let ended = match work {
            Locked::Write(write) => {
                let ended = write.advance(memory);
                if let Some((_, true)) = ended.filter(|_| is_on(Safeguard::Log)) {
                    let notes = process.notes.get_mut(&MicroShard(write.shard as u32));
                    notes.into_iter().for_each(|keys| keys.extend([write.key]));
                }
                ended
            }
            Locked::Pass(_) => Some((Outcome::Done, false)),
            Locked::Empty(micro_shard) => {
                let keys = (0..KEYS).filter(|key| key % PARTITIONS == partition);
                let keys = keys.filter(|key| shards[*key] == micro_shard.0 as usize);
                keys.for_each(|key| memory.buckets[key].put(None));
                Some((Outcome::Done, false))
            }
        };
        let Some(ended) = ended else {
            let delay_us = self.step_us();
            return self.after(delay_us, Event::Locked(id, life, partition));
        };
        let work = process.partitions[partition].pop_front();
        if !process.partitions[partition].is_empty() {
            self.after(1, Event::Locked(id, life, partition));
        }
        work.into_iter().for_each(|work| self.unlocked(id, life, work, ended));
    }

    fn unlocked(&mut self, id: ServerId, life: u64, work: Locked, (outcome, has_changed): (Outcome, bool)) {
        let (key, input) = match work {
            Locked::Write(Write { request: Some((request, permit)), .. }) => {
                let number = if has_changed { self.hand_over(id, request.key) } else { 0 };
                let number = if self.plan.is_eager { 0 } else { number };
                let Some((process, _)) = self.process(id, life) else { return };
                process.held.push(Held { number, request, outcome, permit });
                return self.release(id);
            }
            Locked::Write(_) => return,
            Locked::Pass(it) => ((it.micro_shard, it.number), Input::Passed(it)),
            Locked::Empty(micro_shard) => ((micro_shard, 0), Input::Emptied(micro_shard)),
        };
        let Some((process, _)) = self.process(id, life) else { return };
        let Some(left) = process.left.get_mut(&key) else { return };
        *left -= 1;
        if *left == 0 {
            process.left.remove(&key);
            self.node(id, input);
        }
    }

    /// Hands a change over to the followers, if there are any; returns the number of the hand-over.
    fn hand_over(&mut self, id: ServerId, key: usize) -> u64 {
        let (life, micro_shard) = (self.hosts[&id].life, self.shard(key));
        let Some((process, _)) = self.process(id, life) else { return 0 };
        if !process.fed.contains(&micro_shard) {
            return 0;
        }
        process.handed += 1;
        let number = process.handed;
        self.node(id, Input::Handed(number, vec![(micro_shard, hash(key))]));
        number
    }

    /// Answers what waits for followers no more.
    fn release(&mut self, id: ServerId) {
        let life = self.hosts[&id].life;
        let Some((process, _)) = self.process(id, life) else { return };
        let confirmed = process.confirmed;
        let held = std::mem::take(&mut process.held);
        let (free, held) = held.into_iter().partition(|held| held.number <= confirmed);
        process.held = held;
        let free: Vec<Held> = free;
        for Held { request, outcome, permit, .. } in free {
            if outcome == Outcome::NotHere || self.may_answer(id, &permit) {
                self.answer(id, request, outcome);
            }
        }
    }

    /// A cache's owner evicts an item.
    pub(super) fn evict(&mut self) {
        if self.is_healed || self.plan.loss == crate::Loss::Never {
            return;
        }
        let key = self.random.random_range(0..KEYS);
        let ids: Vec<_> = self.hosts.keys().copied().collect();
        for id in ids {
            if self.hosts[&id].memory.words[self.shards[key]].is_valid() {
                self.push(id, key % PARTITIONS, Locked::Write(Write::new(key, self.shards[key], None)));
            }
        }
        let delay_us = self.random.random_range(0..10_000);
        self.after(delay_us, Event::Evict);
    }
}

/// The step of a move or an adoption that an effect is.
fn name_of(effect: &Effect) -> &'static str {
    match effect {
        Effect::SetWord(_, word) if word.is_valid() => "kill: own or freeze",
        Effect::SetWord(_, word) if word.epoch > 0 => "kill: withdraw or complete",
        Effect::SetWord(..) => "kill: void",
        Effect::Empty(_) => "kill: empty",
        Effect::Note(_) => "kill: note",
        Effect::StopNoting(_) => "kill: stop noting",
        Effect::PassLocks(_) => "kill: pass of locks",
        Effect::TakeChanges(_) => "kill: take changes",
        Effect::Copy(_) => "kill: copy",
        Effect::Send(_, Message::Ask(_)) => "kill: ask",
        Effect::Send(_, Message::Changed { .. }) => "kill: send changes",
        Effect::Send(_, Message::Complete(_)) => "kill: send that all is copied",
        Effect::Send(_, Message::Take(..)) => "kill: ask to take over",
        Effect::Send(_, Message::Refused(_)) => "kill: refuse",
        Effect::Send(_, Message::Follow(_) | Message::Followed(..)) => "kill: begin to follow",
        Effect::Send(_, Message::More(_)) => "kill: ask for more",
        Effect::Send(_, Message::Batch { .. }) => "kill: send a batch",
        Effect::Send(_, Message::Lost(_)) => "kill: lose a follower",
        Effect::Feed(_) | Effect::StopFeeding(_) => "kill: feed",
        Effect::Apply(..) => "kill: take a batch in",
        Effect::Confirm(_) => "kill: confirm",
        // Not a step of a move.
        Effect::Show(_)
        | Effect::Outdated(..)
        | Effect::Weigh(_)
        | Effect::Report(_)
        | Effect::ReadCopy(..)
        | Effect::Fresh(_) => "",
    }
}
