//! Where micro-shards belong.

use std::{cell::RefCell, sync::Arc};

use minos_rack::{MicroShard, MicroShards, Placement, ServerId, UnitId, VIRTUAL_NODES};

use super::BadDirectory;

thread_local! {
    /// The ring of the last directory. To sort the points of eight nodes takes longer than all else about a directory, and
    /// most directories that a thread reads have the same nodes.
    static LAST: RefCell<Option<Arc<Ring>>> = const { RefCell::new(None) };
}

/// The places of all micro-shards on the ring of these nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ring {
    pub(super) micro_shards: MicroShards,
    copies: u32,
    nodes: Vec<(ServerId, UnitId)>,
    /// Where each micro-shard belongs.
    pub(super) targets: Box<[ServerId]>,
    /// Where its copies belong, that of `targets` included: as many for each micro-shard as there may be. Empty if there
    /// is one copy.
    pub(super) holders: Box<[ServerId]>,
}

impl Ring {
    /// The ring of these nodes.
    ///
    /// # Errors
    /// There are no copies, no nodes, or one of them twice.
    pub(super) fn of(
        micro_shards: MicroShards,
        copies: u32,
        nodes: impl Iterator<Item = (ServerId, UnitId)>,
    ) -> Result<Arc<Self>, BadDirectory> {
        let nodes: Vec<_> = nodes.collect();
        let is_it = |ring: &&Arc<Self>| {
            ring.nodes == nodes && (ring.micro_shards, ring.copies) == (micro_shards, copies)
        };
        if let Some(ring) = LAST.with_borrow(|last| last.as_ref().filter(is_it).cloned()) {
            return Ok(ring);
        }
        let ring = Arc::new(Self::new(micro_shards, copies, nodes)?);
        LAST.set(Some(Arc::clone(&ring)));
        Ok(ring)
    }

    fn new(
        micro_shards: MicroShards,
        copies: u32,
        nodes: Vec<(ServerId, UnitId)>,
    ) -> Result<Self, BadDirectory> {
        let placement = Placement::new(micro_shards, VIRTUAL_NODES);
        let mut placement =
            placement.and_then(|it| it.with_copies(copies)).map_err(|_| BadDirectory("copies"))?;
        placement.add_all(nodes.iter().copied()).map_err(|_| BadDirectory("a node is there twice"))?;
        let targets: Option<Box<[_]>> = placement.owners().into_iter().collect();
        let targets = targets.ok_or(BadDirectory("no node stays"))?;
        // A copy for each unit, if there are so few.
        let followed = micro_shards.iter().filter(|_| copies > 1);
        let holders_of = |it: MicroShard| placement.replicas(it).collect::<Vec<_>>();
        let holders = followed.flat_map(holders_of).collect();
        Ok(Self { micro_shards, copies, nodes, targets, holders })
    }
}
