//! The options of a node of a rack.

use std::{path::PathBuf, time::Duration};

use crate::server::config::{InvalidOption, bound};

/// Most nodes of a rack.
pub const NODES_MAX: usize = 64;

/// A node's place in its rack.
#[derive(Clone, Debug)]
pub struct RackConfig {
    /// Name of the rack: nodes of another do not talk to this one.
    pub name: String,
    /// Number of this node in `nodes`.
    pub node: usize,
    /// All nodes of the rack.
    pub nodes: Vec<RackNode>,
    /// Micro-shards, into which the keys are divided; the same at all nodes.
    pub micro_shards: u32,
    /// Time that a forwarded command waits for its reply.
    pub timeout: Duration,
    /// Commands of one worker under way to one node.
    pub waiting_max: usize,
}

/// A node as the others know it.
#[derive(Clone, Debug)]
pub struct RackNode {
    /// Its unit, whose nodes read each other's memory.
    pub unit: u32,
    /// Its Unix socket for forwarded commands. It passes its memory at the same path with `.memory` behind it.
    pub path: PathBuf,
}

impl RackConfig {
    pub(crate) fn check(&self) -> Result<(), InvalidOption> {
        bound("--peers", self.nodes.len() as u64, 1, NODES_MAX as u64)?;
        bound("--node", self.node as u64, 0, self.nodes.len() as u64 - 1)?;
        bound("--micro-shards", u64::from(self.micro_shards), self.nodes.len() as u64, 1 << 20)?;
        bound("--rack-timeout", self.timeout.as_millis() as u64, 1, 3_600_000)?;
        bound("--rack-waiting", self.waiting_max as u64, 1, 1 << 20)
    }
}
