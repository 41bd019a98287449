//! Reads of keys in the memory of nodes whose memory this process cannot map. Many are under way at once, while the
//! connections that have asked wait as for forwarded commands.

mod peer;
mod slot;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use minos_base::{Clock, KeyHash, Seconds, SizeClass};
use minos_engine::remote::{Completion, Fabric};

use self::{
    peer::Peer,
    slot::{Job, Slot, Turn},
};
use super::{Forward, Owner, RackCounters, links::PartId, routes::Right};
pub(super) use slot::Asked;

/// Reads of one worker under way.
const READS_MAX: usize = 256;

/// The reads of one worker.
pub(super) struct Reads<F> {
    pub(super) fabric: F,
    clock: Clock,
    rack: Expected,
    /// Time after which the owner is asked.
    late: Duration,
    /// By the number of the node.
    peers: Box<[Option<Peer>]>,
    /// Peers so far.
    known: u64,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Those whose words have come in this turn, and how they go on. Empty between turns.
    turned: Vec<(usize, Turn)>,
    ended: VecDeque<Ended>,
    has_notes: bool,
}

/// What the tables of a rack have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) nodes: usize,
    pub(super) micro_shards: u32,
    /// The hash of `minos`.
    pub(super) hash: KeyHash,
    /// The time of the calendar at which this node's clock shows 0.
    pub(super) zero_unix_s: u64,
}

/// A read that has ended.
pub(super) struct Ended {
    pub(super) asked: Asked,
    /// The reply, and the class of the value if there is an item; `None` if the owner is to be asked.
    pub(super) reply: Option<(Vec<u8>, Option<SizeClass>)>,
}

impl<F: Fabric> Reads<F> {
    /// No reads, over a fabric without peers.
    pub(super) fn new(fabric: F, clock: Clock, rack: Expected, late: Duration) -> Self {
        Self {
            fabric,
            clock,
            rack,
            late,
            peers: (0..rack.nodes).map(|_| None).collect(),
            known: 0,
            slots: Vec::new(),
            free: Vec::new(),
            turned: Vec::new(),
            ended: VecDeque::new(),
            has_notes: false,
        }
    }

    /// True if nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Begins to learn where the table of a node is, whose number for the fabric is given; reads can begin later.
    pub(super) fn meet(&mut self, node: usize, number: usize) {
        self.known += 1;
        let (peer, first) = Peer::new(number, self.known);
        self.peers[node] = Some(peer);
        let slot = self.free.pop().unwrap_or_else(|| self.add_slot());
        self.slots[slot].take_up(node, self.known, Job::Meet);
        self.fabric.read(number, &[first], slot as u64);
    }

    /// Reads a node no more; returns its number for the fabric. Who waits for its reads asks it instead.
    pub(super) fn leave(&mut self, node: usize) -> Option<usize> {
        let peer = self.peers[node].take()?;
        self.give_up_if(|slot| slot.node == node);
        Some(peer.number)
    }

    /// Begins to read the key of a command in the memory of its node. Returns the command if its owner is to be asked: it
    /// reads no key alone, the memory is not known, or too much is under way.
    pub(super) fn begin(
        &mut self,
        part: PartId,
        forward: Forward,
        (right, now, counters): (Right, Instant, &RackCounters),
    ) -> Option<Forward> {
        let (Some(node), Some(micro_shard)) = (forward.node.map(usize::from), forward.micro_shard) else {
            return Some(forward);
        };
        let peer = self.peers.get(node).and_then(Option::as_ref).filter(|peer| peer.open().is_some());
        let is_full = self.free.is_empty() && self.slots.len() >= READS_MAX;
        let Some(peer) = peer.filter(|_| forward.is_read && !is_full) else { return Some(forward) };
        let (number, serial) = (peer.number, peer.serial);
        let at = self.free.pop().unwrap_or_else(|| self.add_slot());
        let now_s = self.clock.seconds_at(now);
        let (slot, peer) = (&mut self.slots[at], &self.peers[node]);
        let begin = |peer: &Peer| slot.begin(peer, micro_shard, &forward.bytes, now_s);
        if !peer.as_ref().is_some_and(begin) {
            self.free.push(at);
            return Some(forward);
        }
        counters.fabric_reads.count();
        slot.take_up(node, serial, Job::Read(Asked { part, forward, right, since: now }));
        self.fabric.read(number, slot.needed(), at as u64);
        None
    }

    /// Goes on with reads whose words have come.
    pub(super) fn advance(&mut self, now: Instant, counters: &RackCounters) {
        if self.is_idle() {
            return;
        }
        let (slots, peers, turned) = (&mut self.slots, &mut self.peers, &mut self.turned);
        let expected = self.rack;
        self.fabric.poll(|Completion { token, words }| {
            let slot = &mut slots[token as usize];
            let peer = peers[slot.node].as_mut().filter(|peer| peer.serial == slot.peer);
            turned.push((token as usize, slot.turn(peer, words, &expected, counters)));
        });
        let now_s = self.clock.seconds_at(now);
        while let Some((at, turn)) = self.turned.pop() {
            self.go_on(at, turn, (now_s, counters));
        }
    }

    fn go_on(&mut self, at: usize, turn: Turn, (now, counters): (Seconds, &RackCounters)) {
        let slot = &mut self.slots[at];
        let number = self.peers[slot.node].as_ref().map(|peer| peer.number);
        match (turn, number) {
            (Turn::Need, Some(number)) => self.fabric.read(number, slot.needed(), at as u64),
            (Turn::NeedRange(range), Some(number)) => self.fabric.read(number, &[range], at as u64),
            _ => {
                if let Job::Read(asked) = slot.take_job() {
                    let is_known = matches!(turn, Turn::Found | Turn::Missing);
                    let peer = self.peers[slot.node].as_ref().filter(|_| is_known);
                    let (command, is_found) = (&asked.forward.bytes, turn == Turn::Found);
                    let reply = peer.and_then(|peer| slot.reply((peer, counters), command, is_found, now));
                    self.has_notes |= is_found;
                    self.ended.push_back(Ended { asked, reply });
                }
                self.free.push(at);
            }
        }
    }

    /// A read that has ended.
    pub(super) fn take_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// Gives up the reads whose time is over.
    pub(super) fn give_up_late(&mut self, now: Instant) {
        let late = self.late;
        self.give_up_if(|slot| {
            slot.asked().is_some_and(|asked| now.saturating_duration_since(asked.since) >= late)
        });
    }

    /// Gives up the reads that may no longer be made at their owners.
    pub(super) fn give_up_unless(&mut self, is_owner: impl Fn(Owner) -> bool) {
        let is_owner = |asked: &Asked| asked.owner().is_some_and(&is_owner);
        self.give_up_if(|slot| slot.asked().is_some_and(|asked| !is_owner(asked)));
    }

    /// Lets nobody wait for these any more. Their slots are free, and their nodes read again, once they have ended.
    fn give_up_if(&mut self, is_over: impl Fn(&Slot) -> bool) {
        for slot in self.slots.iter_mut().filter(|slot| is_over(slot)) {
            if let Job::Read(asked) = slot.take_job() {
                let peer = self.peers[slot.node].as_mut().filter(|peer| peer.serial == slot.peer);
                peer.into_iter().for_each(|peer| peer.given_up += 1);
                self.ended.push_back(Ended { asked, reply: None });
            }
        }
    }

    /// True if nodes are to be told of reads.
    pub(super) fn has_notes(&self) -> bool {
        self.has_notes
    }

    /// Calls `send` with each node and the frame of notes for it.
    pub(super) fn take_notes(&mut self, mut send: impl FnMut(usize, &[u8])) {
        self.has_notes = false;
        for (node, peer) in self.peers.iter().enumerate() {
            peer.iter().for_each(|peer| peer.notes.take(|frame| send(node, frame)));
        }
    }

    fn add_slot(&mut self) -> usize {
        self.slots.push(Slot::default());
        self.slots.len() - 1
    }
}
