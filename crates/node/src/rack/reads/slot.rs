//! One read under way, and what it comes to.

use std::time::Instant;

use minos_base::{Seconds, SizeClass};
use minos_engine::remote::{Range, RemoteRead, RemoteTable, Step};
use minos_proto::memcache::KeyBuffer;

use super::{Expected, peer::Peer};
use crate::{
    memcache::ReadOfOne,
    ops::Facts,
    rack::{Forward, Owner, RackCounters, links::PartId, owners::shifted, routes::Right},
    resp,
};

/// Times that a read begins anew because a writer was in its way.
const RETRIES_MAX: u32 = 16;

/// A command whose key is read, and which goes to its owner otherwise.
pub(in crate::rack) struct Asked {
    pub(in crate::rack) part: PartId,
    pub(in crate::rack) forward: Forward,
    /// The right that this node had when the read began.
    pub(in crate::rack) right: Right,
    pub(in crate::rack) since: Instant,
}

impl Asked {
    /// The owner of the key.
    pub(in crate::rack) fn owner(&self) -> Option<Owner> {
        let Forward { node, micro_shard, .. } = &self.forward;
        node.zip(*micro_shard).map(|(node, micro_shard)| Owner { node, micro_shard })
    }
}

/// What is read, and for whom.
#[derive(Default)]
pub(super) enum Job {
    /// Nobody waits for it.
    #[default]
    Left,
    /// Where the table of its node is.
    Meet,
    Read(Asked),
}

/// How a read goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// With what its state machine needs.
    Need,
    /// With another part of the table's beginning.
    NeedRange(Range),
    Found,
    Missing,
    /// With another attempt, if there were not too many.
    Retry,
    /// It has ended without an answer.
    AskOwner,
}

impl From<Step<'_>> for Turn {
    fn from(step: Step<'_>) -> Self {
        match step {
            Step::Need(_) => Self::Need,
            Step::Found => Self::Found,
            Step::Missing => Self::Missing,
            Step::Retry => Self::Retry,
            Step::AskOwner => Self::AskOwner,
        }
    }
}

/// Room for one read under way.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) node: usize,
    /// The serial of its peer.
    pub(super) peer: u64,
    job: Job,
    read: RemoteRead,
    retries: u32,
}

impl Slot {
    /// Says what is read.
    pub(super) fn take_up(&mut self, node: usize, peer: u64, job: Job) {
        (self.node, self.peer, self.job) = (node, peer, job);
    }

    /// Begins to read the key of a command; false if it has none alone.
    pub(super) fn begin(&mut self, peer: &Peer, micro_shard: u32, command: &[u8], now: Seconds) -> bool {
        let Some((table, ahead_s)) = peer.open() else { return false };
        let mut buffer = KeyBuffer::default();
        let read = ReadOfOne::of(command);
        let key = match &read {
            Some(read) => Some(read.key(&mut buffer)),
            None => resp::key_of_get(command),
        };
        self.retries = 0;
        let Some(key) = key else { return false };
        matches!(self.read.begin(table, micro_shard, key, shifted(now, ahead_s)), Step::Need(_))
    }

    /// Goes on with the words that were needed.
    pub(super) fn turn(
        &mut self,
        peer: Option<&mut Peer>,
        words: Option<&[u64]>,
        expected: &Expected,
        counters: &RackCounters,
    ) -> Turn {
        let Some(peer) = peer else { return Turn::AskOwner };
        match self.job {
            Job::Left => {
                peer.given_up = peer.given_up.saturating_sub(1);
                Turn::AskOwner
            }
            Job::Meet => {
                let range = words.and_then(|words| peer.learn(words, expected));
                range.map_or(Turn::AskOwner, Turn::NeedRange)
            }
            Job::Read(_) => match (words, peer.table()) {
                (Some(words), Some(table)) => self.step(table, words, counters),
                _ => Turn::AskOwner,
            },
        }
    }

    fn step(&mut self, table: &mut RemoteTable, words: &[u64], counters: &RackCounters) -> Turn {
        let turn = Turn::from(self.read.step(table, words));
        if turn != Turn::Retry || self.retries == RETRIES_MAX {
            return turn;
        }
        self.retries += 1;
        counters.fabric_retries.count();
        self.read.again(table).into()
    }

    /// What the state machine needs.
    pub(super) fn needed(&self) -> &[Range] {
        self.read.needed()
    }

    /// The command whose key is read, if anyone waits for it.
    pub(super) fn asked(&self) -> Option<&Asked> {
        if let Job::Read(asked) = &self.job { Some(asked) } else { None }
    }

    /// Ends, or lets nobody wait for it any more; returns what it was for.
    pub(super) fn take_job(&mut self) -> Job {
        std::mem::take(&mut self.job)
    }

    /// The reply to a command whose key was read, and the class of the value if there is one; `None` if only its owner can
    /// tell.
    pub(super) fn reply(
        &self,
        (peer, counters): (&Peer, &RackCounters),
        command: &[u8],
        is_found: bool,
        now: Seconds,
    ) -> Option<(Vec<u8>, Option<SizeClass>)> {
        let mut facts = self.read.state().filter(|_| is_found).map(Facts::from);
        if let Some(facts) = facts.as_mut().filter(|facts| facts.expiry != 0) {
            facts.expiry = shifted(facts.expiry, -peer.ahead_s());
        }
        let class = facts.as_ref().map(|facts| SizeClass::of(facts.value_bytes));
        let reply = match ReadOfOne::of(command) {
            Some(read) => read.reply(now, facts.as_ref(), |tx| self.read.copy_value_to(tx))?,
            // Its clock tells whether it has expired within this second.
            None if facts.as_ref().is_some_and(|facts| facts.early_ms != 0) => return None,
            None => {
                let mut value = Vec::new();
                self.read.copy_value_to(&mut value);
                resp::reply_to_get(command, is_found.then_some(&value))
            }
        };
        if let Some((slot, _)) = self.read.note().filter(|(_, is_due)| is_found && peer.is_noted(*is_due)) {
            peer.notes.add(self.read.hash(), slot);
            counters.remote_noted.count();
        }
        Some((reply, class))
    }
}
