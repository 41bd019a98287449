//! What a node's workers need for each request.

use std::sync::Arc;

use minos_rack::{MicroShard, ServerId};

use crate::{
    Directory, Epoch, Lease,
    switches::{Safeguard, is_on},
};

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// This node owns the micro-shard.
    Here,
    /// This node may read the owner's memory; the owner writes.
    Unit(ServerId),
    /// The owner is in another unit.
    Elsewhere(ServerId),
    /// The micro-shard changes hands, or nothing is known.
    Nowhere,
}

/// The right to answer requests for a micro-shard: asked for once a burst, before the first look at memory, and
/// checked by [`View::may_answer`] after the last, before answers leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    micro_shard: MicroShard,
    owner: ServerId,
    /// The owner's items have not been anywhere else since.
    since: Epoch,
    lease: u64,
}

#[cfg(test)]
impl Permit {
    /// See [`Place::since`](crate::Place::since).
    pub(crate) fn since(&self) -> Epoch {
        self.since
    }
}

/// A node's directory and lease at a moment. Workers load the newest one for each check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    id: ServerId,
    pub(super) directory: Option<Arc<Directory>>,
    pub(super) lease: Lease,
}

impl View {
    /// Without directory and lease yet.
    pub(super) fn new(id: ServerId) -> Self {
        Self { id, directory: None, lease: Lease::default() }
    }

    /// The lease.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// The newest directory, if any has come.
    pub fn directory(&self) -> Option<&Arc<Directory>> {
        self.directory.as_ref()
    }

    /// Where requests for a micro-shard go.
    pub fn route(&self, micro_shard: MicroShard) -> Route {
        let Some(directory) = &self.directory else { return Route::Nowhere };
        let Some(place) = directory.place(micro_shard).filter(|place| place.is_serving) else {
            return Route::Nowhere;
        };
        let unit = |id| directory.node(id).map(|node| node.unit);
        match place.node {
            owner if owner == self.id => Route::Here,
            owner if unit(owner) == unit(self.id) => Route::Unit(owner),
            owner => Route::Elsewhere(owner),
        }
    }

    /// The right to answer for a micro-shard, if the node has it now.
    pub fn permit(&self, now_us: u64, micro_shard: MicroShard) -> Option<Permit> {
        let place = self.directory.as_ref()?.place(micro_shard).filter(|place| place.is_serving)?;
        let lease = if is_on(Safeguard::Lease) { self.lease.number(now_us)? } else { 0 };
        Some(Permit { micro_shard, owner: place.node, since: place.since, lease })
    }

    /// True if the node has had the right without a gap since `permit` was given.
    pub fn may_answer(&self, now_us: u64, permit: &Permit) -> bool {
        self.permit(now_us, permit.micro_shard).as_ref() == Some(permit)
    }
}
