//! What nodes and coordinator tell each other. Every message may be lost, repeated, delayed or overtaken.

mod bytes;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use minos_base::KeyHash;
use minos_rack::{MicroShard, ServerId};

use crate::{Directory, Epoch, Load, Patch, Weights};

/// A move of a micro-shard. No two moves of a micro-shard have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MoveId {
    /// What is moved.
    pub micro_shard: MicroShard,
    /// The epoch under which the move began.
    pub number: Epoch,
}

/// A node's part in a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It gives the micro-shard away.
    Giving,
    /// It copies; or it has just told the owner that it has all items.
    Pulling,
    /// It has all items, the other writes no more, and has not given the micro-shard away in time.
    Drained,
    /// It has given up.
    Failed,
    /// It copies as a follower, and has all items but for the latest changes.
    Following,
    /// As `Following`, and has all that the owner has acknowledged since it waits for this follower.
    Safe,
    /// It gave the micro-shard away to the process that has all items: its word is withdrawn, and stays so under this
    /// epoch.
    Given,
}

/// A node to the coordinator, at intervals and upon news: its whole state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The sender.
    pub node: ServerId,
    /// The process; a later one has a higher number.
    pub incarnation: u64,
    /// When it was sent, by the node's clock. It asks for a lease from that moment on.
    pub sent_us: u64,
    /// The directory that the node has enacted; zero for none.
    pub epoch: Epoch,
    /// The highest epoch of the words that the process found in its memory: a directory of it was published.
    pub kept: Epoch,
    /// The node's complete micro-shards with withdrawn words, which wait for a higher epoch.
    pub withdrawn: Vec<MicroShard>,
    /// The node's micro-shards of which it has lost the items.
    pub lacking: Vec<MicroShard>,
    /// Moves that it takes part in.
    pub moves: Vec<(MoveId, Progress)>,
    /// What the process has executed, if it is known.
    pub load: Option<Load>,
    /// The version of the weights that the node shows to clients; zero for none.
    pub weights: u32,
    /// The micro-shards of most of the requests that the node has sampled of late.
    pub heat: Vec<Heat>,
    /// All those requests.
    pub sampled: u32,
}

/// Sampled requests for a micro-shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heat {
    /// The micro-shard.
    pub micro_shard: MicroShard,
    /// Reads.
    pub reads: u32,
    /// What may change an item.
    pub changes: u32,
}

/// The coordinator to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// The process it is for.
    pub incarnation: u64,
    /// A lease for the report that was sent at this time by the node's clock.
    pub lease: Option<u64>,
    /// The newest directory. The lease is worth nothing under an older one.
    pub epoch: Epoch,
    /// That directory, if the node does not have it.
    pub directory: Option<Arc<Directory>>,
    /// What the node is to copy.
    pub pulls: Vec<Pull>,
    /// Moves that will not take place.
    pub cancelled: Vec<MoveId>,
    /// The newest weights, if the node does not have them.
    pub weights: Option<Arc<Weights>>,
}

/// An order to copy a micro-shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The move.
    pub id: MoveId,
    /// The owner.
    pub from: ServerId,
    /// The epoch in which it became the owner.
    pub epoch: Epoch,
    /// True if the copy is to follow its owner instead of replacing it.
    pub is_follow: bool,
    /// The number under which the node follows the owner already, if it is to take over with that copy; zero if it copies
    /// all items.
    pub base: Epoch,
}

/// A question of the node that copies to the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The move.
    pub id: MoveId,
    /// The process that asks.
    pub incarnation: u64,
    /// The epoch in which the asked node became the owner.
    pub epoch: Epoch,
    /// Which batch of changes. Batch zero is empty; changes are noted from then on.
    pub batch: u32,
    /// True if it is to be the last: the owner freezes before it takes the changes.
    pub freeze: bool,
}

/// The changes that an owner keeps for a follower. No two of an owner have the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedId {
    /// The owner's process.
    pub incarnation: u64,
    /// Counts those of that process.
    pub number: u32,
}

/// A follower's question for the next changes of all micro-shards that it follows at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct More {
    /// Those that it follows.
    pub feed: FeedId,
    /// Batches that it has taken in so far.
    pub applied: u64,
    /// When it was asked, by the follower's clock.
    pub asked_us: u64,
    /// If not zero, an answer is due as soon as the owner goes by this epoch or a later one, also one without changes.
    pub due: Epoch,
}

/// Between two nodes, of which one copies from the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A question, repeated until it is answered.
    Ask(Asked),
    /// The answer.
    Changed {
        /// What was asked.
        asked: Asked,
        /// Keys that changed since the batch before.
        hashes: Vec<KeyHash>,
    },
    /// The asked node takes no part in the move, or no longer. From a follower: it follows the micro-shard no more by orders up
    /// to this number.
    Refused(Asked),
    /// To the owner, after its last answer: all items are here. If it is lost, the coordinator takes the micro-shard.
    Complete(Asked),
    /// A follower's wish to own what it follows with this feed, repeated under a higher batch until it owns it. The owner
    /// gives the micro-shard away once the follower has taken in all changes.
    Take(Asked, FeedId),
    /// The first question of a follower, for one micro-shard. Its batch is zero.
    Follow(Asked),
    /// The answer: changes are noted for the follower. Those of other micro-shards with another feed are lost.
    Followed(Asked, FeedId),
    /// The question is answered when there are changes.
    More(More),
    /// The answer.
    Batch {
        /// The question that it was taken for.
        more: More,
        /// The directory that the owner went by when it took the changes.
        epoch: Epoch,
        /// Changed keys.
        changes: Vec<(MicroShard, KeyHash)>,
    },
    /// The asked node has these changes no more, or not all.
    Lost(More),
}

/// What goes over a network. Who sent it is for the transport to prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// To the coordinator.
    Report(Report),
    /// To a node.
    Orders(Orders),
    /// From this node to another one.
    Message(ServerId, Message),
    /// To a node: what makes the newest directory of the one sent before on this stream.
    Patch(Patch),
}
