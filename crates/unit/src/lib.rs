//! Who owns which micro-shard of a rack, as state machines without I/O (RackOut §3.2, §3.3, §4.7).
//!
//! Writes of a micro-shard go to the one node that owns it. Every node of the owner's unit reads the owner's
//! memory one-sided, and looks at the owner's [`Ownership`] word before and after. Time is passed in, in
//! microseconds of the caller's own clock.
//!
//! - [`Directory`]: the nodes, and the [`Place`] of every micro-shard, under an epoch that only grows.
//! - [`Lease`]: a node's right to answer, for a time.

#![forbid(unsafe_code)]

mod directory;
mod lease;
mod ownership;

pub use directory::{
    ADDRESS_BYTES_MAX, BadDirectory, Change, Directory, MICRO_SHARDS_MAX, NODES_MAX, Node, Place, Standing,
};
pub use lease::{BadTerms, Lease, Terms};
pub use ownership::{Epoch, Holding, Ownership};
