//! A node's part in a rack (RackOut §3): the owner of each key, reads from the memory of other nodes, and the
//! commands that go to the owner.
//!
//! A key belongs to a micro-shard and that to one node, which executes all writes to it. A node reads items of
//! the other nodes of its unit in their memory. Whatever it cannot do so it forwards to the owner, over a Unix
//! socket or TCP, in memcached's protocol. With a coordinator, micro-shards move between nodes while they are used.

mod attach;
pub(crate) mod config;
pub mod coordinator;
#[cfg(feature = "ucx")]
mod fabric;
mod flushing;
mod frames;
mod greeting;
mod handing;
mod hearing;
mod heat;
mod holes;
mod links;
mod member;
pub(crate) mod notes;
mod owners;
mod readers;
#[cfg(any(test, feature = "ucx"))]
mod reads;
mod remote;
mod routes;
mod stream;
pub(crate) mod uniques;

pub(crate) use attach::{Attacher, Passed};
#[cfg(feature = "ucx")]
pub(crate) use fabric::{answer_reads, tell as tell_of_memory};
pub(crate) use flushing::Flushing;
pub(crate) use greeting::Greeting;
pub(crate) use handing::Owed;
pub(crate) use hearing::Hearing;
pub(crate) use holes::{Forwards, Holes};
#[cfg(feature = "ucx")]
pub(crate) use links::Afar;
pub(crate) use links::{Answered, Links};
pub(crate) use member::{Driver, Visitors};
pub(crate) use owners::{Intent, Owner, Rack, RackView, ShownDirectory};
pub(crate) use readers::News;
pub(crate) use remote::{Remote, read};
pub(crate) use routes::{Guard, NOWHERE, Right};
#[cfg(feature = "ucx")]
pub(crate) use stream::ControlStream;

use minos_proto::{memcache::text, resp::Id};

use crate::{
    ops::{counters::worker_counters, receiving::ReceivePermit},
    tracking::Origin,
};

worker_counters! {
    /// A worker's counters of what it did for keys of other nodes.
    RackCounters, "":
    /// Keys looked up in other nodes' memory.
    remote_reads,
    /// Those that were found there.
    remote_hits,
    /// Keys whose owner was asked instead, because its memory is not attached or only it can tell.
    remote_asked,
    /// Keys whose reads in memory that is not mapped here have begun.
    fabric_reads,
    /// Those that were found there.
    fabric_hits,
    /// Those that were not.
    fabric_misses,
    /// Attempts at such a read that a writer has disturbed.
    fabric_retries,
    /// Such reads whose owner was asked after all: disturbed too often, late, or of values that are large.
    fabric_given_up,
    /// Keys of another unit that were looked up in copies here.
    copy_reads,
    /// Reads that the owner was told of, so that it keeps what is read.
    remote_noted,
    /// Commands forwarded to their owner.
    forwarded,
    /// Forwarded commands that failed because their node was lost or could not be reached.
    forward_failed,
    /// Forwarded commands that were given up because no reply came in time.
    forward_late,
    /// Forwarded commands refused because too many were under way.
    forward_refused,
    /// Times that a command waited because its micro-shard changed hands, or its owner could not be reached; or a read or one
    /// for many keys, because too many were under way.
    forward_parked,
    /// Connections closed because this node lost the right to answer while it executed their commands, or before it could
    /// acknowledge their changes.
    unanswered,
    /// Commands that another node forwarded here although this one does not own their key.
    not_owner,
    /// Operations of native clients that were told the owner of their key.
    native_not_owner,
}

/// The no-op behind each forwarded command: what comes before its reply is the reply to the command.
pub(crate) const END_OF_FORWARD: &[u8] = b"mn\r\n";
/// The reply to a node that takes this one for the owner of a key.
pub(crate) const NOT_OWNER: &[u8] = b"SERVER_ERROR this node of the rack does not own the key\r\n";

/// The byte before the origin of the commands behind it on a link, until there is another one.
pub(crate) const ORIGIN_MARK: u8 = 2;
/// The byte by which a node asks to be told of every change here.
pub(crate) const TELL_MARK: u8 = 3;

/// A command for other nodes than the one that has received it.
pub(crate) struct Forward {
    /// The node that executes it; `None` until it is divided.
    pub(crate) node: Option<u16>,
    /// The micro-shard of its key, if it has one: whoever owns that executes it.
    pub(crate) micro_shard: Option<u32>,
    /// Divides it among the owners of its keys, if it has many.
    pub(crate) divide: Option<Divide>,
    /// The command as its client sent it, or what it comes to.
    pub(crate) bytes: Vec<u8>,
    /// True if its value, or that of its reply, may be large: it must not hold up small ones.
    pub(crate) is_large: bool,
    /// True if it asks for one key of several, so that its reply ends before the last line.
    pub(crate) is_part: bool,
    /// The connection whose changes these are, if it wants no notices of them.
    pub(crate) origin: Origin,
    /// True if it changes nothing, so that it may be executed twice.
    pub(crate) is_read: bool,
    /// True if its client expects no reply, not even that it has failed.
    pub(crate) is_silent: bool,
    /// For the memory of a large value.
    pub(crate) permit: Option<ReceivePermit>,
    /// What follows its bytes and is not in them.
    pub(crate) tail: &'static [u8],
    /// Makes the client's reply, if it does not speak the protocol of nodes. It gets the replies to all parts of a command
    /// that was divided, one behind the other.
    pub(crate) translate: Option<Translate>,
    /// The command of Redis' protocol that fails if its reply is an error.
    pub(crate) command: Option<Id>,
}

/// Makes a client's reply of that of another node, or of the line that stands for it.
pub(crate) type Translate = Box<dyn FnOnce(&[u8]) -> Vec<u8> + Send>;

/// The commands for the nodes that it concerns, of the bytes of a command for many keys and the node of each key.
pub(crate) type Divide = fn(&[u8], &dyn Fn(&[u8]) -> u16) -> Vec<(u16, Vec<u8>)>;

impl Forward {
    /// A small command for the owner of its key, whose bytes its caller fills in.
    pub(crate) fn to(owner: Owner) -> Self {
        Self { micro_shard: Some(owner.micro_shard), ..Self::to_node(Some(owner.node)) }
    }

    /// As [`Forward::to`], for a node whatever it owns, or to be divided.
    pub(crate) fn to_node(node: Option<u16>) -> Self {
        Self {
            node,
            micro_shard: None,
            divide: None,
            bytes: Vec::new(),
            is_large: false,
            is_part: false,
            origin: Origin::default(),
            is_read: false,
            is_silent: false,
            permit: None,
            tail: &[],
            translate: None,
            command: None,
        }
    }

    /// The reply of another node, without what ends it if it is that to one key of several.
    pub(crate) fn shortened(&self, mut reply: Vec<u8>) -> Vec<u8> {
        if self.is_part && reply.ends_with(text::END) {
            reply.truncate(reply.len() - text::END.len());
        }
        reply
    }

    /// True if it goes where its keys are, also when they move.
    pub(crate) fn follows_keys(&self) -> bool {
        self.micro_shard.is_some() || self.divide.is_some()
    }
}
