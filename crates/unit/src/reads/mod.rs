//! Which node of a unit reads: what nodes report of their work, and the weights that follow (RackOut §5).

mod balancer;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use minos_rack::ServerId;

pub(crate) use self::balancer::Balancer;
pub use self::balancer::{Balancing, ReadPolicy, UnknownPolicy};
use crate::{
    NODES_MAX,
    bytes::{BadBytes, Bytes, put},
};

/// The sum of the weights of a unit's nodes.
pub const PARTS: u32 = 1_000_000;

/// What a node's process has executed since it began. It only grows: a lost report takes nothing away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Keys read, in its own memory or in that of other nodes.
    pub reads: u64,
    /// Operations that may change an item.
    pub writes: u64,
    /// Time spent on all of them, in microseconds.
    pub busy_us: u64,
}

/// How many of its unit's reads each node gets, under a version that only grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    version: u32,
    /// By number of the node.
    parts: Vec<(ServerId, u32)>,
}

impl Weights {
    /// Weights of at most [`NODES_MAX`] nodes, each at most [`PARTS`], under a version of 1 or more.
    ///
    /// # Errors
    /// One of them is out of bounds.
    pub fn new(version: u32, parts: BTreeMap<ServerId, u32>) -> Result<Self, BadBytes> {
        let is_valid = version > 0 && parts.len() <= NODES_MAX && parts.values().all(|part| *part <= PARTS);
        is_valid.then(|| Self { version, parts: parts.into_iter().collect() }).ok_or(BadBytes("weights"))
    }

    /// The number of these weights, 1 or more.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The part of a node among the reads of its unit, out of [`PARTS`]; 0 for an unknown node.
    pub fn of(&self, id: ServerId) -> u32 {
        let index = self.parts.binary_search_by_key(&id, |(node, _)| *node);
        index.map_or(0, |index| self.parts[index].1)
    }

    /// The nodes with their parts, by number.
    pub fn parts(&self) -> &[(ServerId, u32)] {
        &self.parts
    }

    /// The bytes, as clients and nodes get them: version u32, number of nodes u32, and for each node, ascending, its
    /// number u32 and its part u32.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.version);
        put(&mut bytes, self.parts.len() as u32);
        for (id, part) in &self.parts {
            put(&mut bytes, id.0);
            put(&mut bytes, *part);
        }
        bytes
    }
}

impl Bytes<'_> {
    pub(crate) fn weights(&mut self) -> Result<Weights, BadBytes> {
        let version = self.number()?;
        let count = self.at_most(NODES_MAX as u32, "too many weights")?;
        let node = |it: &mut Self| Ok((ServerId(it.number()?), it.at_most(PARTS, "a weight")?));
        let parts: Vec<_> = (0..count).map(|_| node(self)).collect::<Result<_, _>>()?;
        let is_sorted = parts.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let is_valid = version > 0 && is_sorted;
        is_valid.then_some(Weights { version, parts }).ok_or(BadBytes("weights"))
    }
}
