//! Who owns which micro-shard of a rack, as state machines without I/O (RackOut §3.2, §3.3, §4.7).
//!
//! Writes of a micro-shard go to the one node that owns it. Every node of the owner's unit reads the owner's
//! memory one-sided, and looks at the owner's [`Ownership`] word before and after. Time is passed in, in
//! microseconds of the caller's own clock; what is to be done comes out as effects.
//!
//! - [`Directory`]: the nodes, and the [`Place`] of every micro-shard, under an epoch that only grows.
//! - [`Coordinator`]: changes the directory and grants leases. It is never on the way of a request.
//! - [`Member`]: a node's part. It enacts directories and takes part in moves. Its [`View`] says where a request
//!   goes ([`Route`]), and lets an answer leave only under a lease that held from its beginning ([`Permit`]).
//!
//! **A move** of a micro-shard from A to B has a number, the epoch under which it began. B copies A's items
//! one-sided while A notes changed hashes, and asks for those in batches. For the last one A freezes: writes wait,
//! reads go on, and a pass through every partition lock lets writers finish that were past their check. B then
//! marks its word with the number, and tells A, which withdraws its word for good, and reports that: the coordinator
//! gives the micro-shard to B. If A does not do so soon, the coordinator takes the micro-shard from it first, and gives
//! it to B once A has withdrawn. Until B owns it, A keeps the items, so that a crash of anyone at any step loses none. If
//! B does not become the owner, A is again, under a higher epoch.
//!
//! **A follower** takes a micro-shard over with the copy that it has. It goes on to take changes in, and stays a
//! follower in the directory. The owner freezes when few changes are left, and withdraws its word when the follower has
//! all.
//!
//! **A node that restarts** with its memory has withdrawn its words first. It gets its micro-shards
//! back under a higher epoch, so that no reader's two looks meet the same word on both sides of the crash.
//!
//! **Reads** of a unit go to its nodes by [`Weights`], which the coordinator computes from the nodes' [`Load`]s and sends
//! with its orders. They decide nothing about correctness, and may be old anywhere.
//!
//! **A dead node** loses its micro-shards only if that is allowed ([`Loss`]), and once its lease and the leases of
//! all who could still read its memory have run out, unless they have confirmed the change. So does one that is back
//! without its items: others may still have the memory that it has lost. If a follower becomes the owner, the directory
//! still names the other copies, and that of the owner before, until the follower has reported under this directory that
//! it has the items. It acknowledges nothing before that, so that each of them has all that is acknowledged.

#![forbid(unsafe_code)]

mod bytes;
mod coordinator;
mod directory;
mod lease;
mod member;
mod messages;
mod ownership;
mod reads;
#[cfg(test)]
mod simulation;
mod switches;

pub use bytes::BadBytes;
pub use coordinator::{Command, Coordinator, Loss, Mishaps, NodeState, Policy, Refused};
pub use directory::{
    ADDRESS_BYTES_MAX, BadDirectory, COPIES_MAX, Change, Directory, Follower, MICRO_SHARDS_MAX, NODES_MAX,
    Node, Patch, Place, Shown, Standing,
};
pub use lease::{BadTerms, Lease, Terms};
pub use member::{Behind, CopyJob, Member, Permit, Route, Timing, View};
pub use messages::{Asked, FeedId, Heat, Message, More, MoveId, Orders, Packet, Progress, Pull, Report};
pub use ownership::{Epoch, Holding, Ownership};
pub use reads::{Balancing, Load, PARTS, ReadPolicy, UnknownPolicy, Weights};

/// Inputs and effects of a [`Member`].
pub mod node {
    pub use crate::member::{Effect, Input};
}

/// Inputs and effects of a [`Coordinator`].
pub mod control {
    pub use crate::coordinator::{Effect, Input};
}
