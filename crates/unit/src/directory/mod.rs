//! Nodes, and the place of every micro-shard.

pub(crate) mod bytes;
mod ring;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use minos_base::KeyHash;
use minos_rack::{MicroShard, MicroShards, ServerId, UnitId};

use self::ring::Ring;
use crate::{Epoch, bytes::BadBytes};

pub use self::bytes::Shown;

/// Most nodes of a directory. Their numbers are below it.
pub const NODES_MAX: usize = 64;
/// Most micro-shards of a directory.
pub const MICRO_SHARDS_MAX: u32 = 65_536;
/// Most copies of a micro-shard, the owner's included.
pub const COPIES_MAX: u32 = 8;
/// Longest address, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 255;

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its part of the micro-shards is moved to it.
    Joining,
    /// It stays.
    Member,
    /// Its micro-shards are moved away.
    Leaving,
}

/// A node of the rack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number for life.
    pub id: ServerId,
    /// Nodes of a unit read each other's memory.
    pub unit: UnitId,
    /// What becomes of it.
    pub standing: Standing,
    /// Where it is found; this crate does not interpret it.
    pub address: String,
}

/// Where the valid copy of a micro-shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The node with the valid copy.
    pub node: ServerId,
    /// The epoch of the last change.
    pub epoch: Epoch,
    /// The node's items are complete if its word has this epoch or a later one. Equal to `epoch` where the node
    /// begins without items; it serves from the next change on.
    pub since: Epoch,
    /// False while the micro-shard is taken from the node, before another gets it.
    pub is_serving: bool,
}

impl Place {
    /// The place that is not written down.
    fn first(node: ServerId) -> Self {
        Self { node, epoch: 1, since: 1, is_serving: true }
    }

    /// True if the node serves the micro-shard, and has since this epoch.
    pub(crate) fn is_served(self, node: ServerId, epoch: Epoch) -> bool {
        self.is_serving && (self.node, self.epoch) == (node, epoch)
    }
}

/// A node of another unit that has a copy of a micro-shard's items, and takes in what changes at their owner; or that keeps
/// one while a new owner is yet to say that it has the items, and acknowledges nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    /// The node.
    pub node: ServerId,
    /// The epoch under which it began to copy, or since which the items of an owner before are complete; its word has it, or a
    /// later one, once the copy is complete.
    pub number: Epoch,
    /// True if the owner has waited for it since before the last change that the copy may lack. It may become the owner.
    pub is_safe: bool,
}

/// A directory that breaks a bound or contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a directory: {0}")]
pub struct BadDirectory(pub(crate) &'static str);

impl From<BadBytes> for BadDirectory {
    fn from(BadBytes(fault): BadBytes) -> Self {
        Self(fault)
    }
}

/// What a new directory changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Other places. Their epochs are set by [`Directory::changed`], and `since`, if it is zero.
    pub places: BTreeMap<MicroShard, Place>,
    /// Other nodes, if they change.
    pub nodes: Option<Vec<Node>>,
    /// Other followers. A micro-shard that is given to a node has no others.
    pub followers: BTreeMap<MicroShard, Vec<Follower>>,
    /// Another number of copies, the owner's included.
    pub copies: Option<u32>,
}

/// The places in which one directory differs from an earlier one with the same nodes. It is short where few micro-shards
/// have moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The epoch of the earlier one.
    pub from: Epoch,
    /// That of the later one.
    pub epoch: Epoch,
    /// The later one's places.
    pub places: Vec<(MicroShard, Place)>,
    /// And its followers.
    pub followers: Vec<(MicroShard, Vec<Follower>)>,
}

/// The nodes of a rack and the owner of every micro-shard, under an epoch. It never changes: a change makes another
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    epoch: Epoch,
    copies: u32,
    /// By number.
    nodes: Vec<Node>,
    /// Of the nodes that stay.
    ring: Arc<Ring>,
    places: Vec<Place>,
    /// Of the micro-shards that have some.
    followers: BTreeMap<MicroShard, Vec<Follower>>,
}

impl Directory {
    /// The epoch of a new rack's directory.
    pub(crate) const FIRST_EPOCH: Epoch = 1;

    /// The first directory of a rack: each micro-shard belongs to its place on the ring.
    ///
    /// # Errors
    /// A number is out of bounds, a node is there twice, or none stays.
    pub fn new(micro_shards: MicroShards, copies: u32, nodes: Vec<Node>) -> Result<Self, BadDirectory> {
        Self::on_ring(Self::FIRST_EPOCH, micro_shards, copies, nodes)
    }

    /// The directory of the next epoch. A place of `change` gets that epoch.
    ///
    /// # Errors
    /// As for [`Directory::new`]; a place is at an unknown node; or epochs are used up.
    pub fn changed(&self, change: Change) -> Result<Self, BadDirectory> {
        let epoch = self.epoch.checked_add(1).ok_or(BadDirectory("epochs are used up"))?;
        let are_others_valid = change.nodes.is_none();
        let mut next = if change.nodes.is_some() || change.copies.is_some() {
            let (nodes, copies) =
                (change.nodes.unwrap_or_else(|| self.nodes.clone()), change.copies.unwrap_or(self.copies));
            let (places, followers) = (self.places.clone(), self.followers.clone());
            Self { places, followers, ..Self::on_ring(epoch, self.micro_shards(), copies, nodes)? }
        } else {
            Self { epoch, ..self.clone() }
        };
        let changed: Vec<_> = change.places.keys().copied().collect();
        for (micro_shard, place) in change.places {
            let slot = next.places.get_mut(micro_shard.0 as usize).ok_or(BadDirectory("micro-shard"))?;
            let since = if place.since == 0 { epoch } else { place.since };
            *slot = Place { epoch, since, ..place };
            if place.is_serving {
                // What its followers have is another owner's.
                next.followers.remove(&micro_shard);
            }
        }
        change.followers.into_iter().for_each(|(micro_shard, followers)| next.follow(micro_shard, followers));
        if are_others_valid {
            next.are_valid(changed.iter().map(|it| &next.places[it.0 as usize]))?;
        } else {
            next.are_places_valid()?;
        }
        Ok(next)
    }

    fn follow(&mut self, micro_shard: MicroShard, followers: Vec<Follower>) {
        if followers.is_empty() {
            self.followers.remove(&micro_shard);
        } else {
            self.followers.insert(micro_shard, followers);
        }
    }

    /// What makes this directory of an earlier one; `None` if the nodes differ.
    pub fn patch(&self, earlier: &Self) -> Option<Patch> {
        let shape = |it: &Self| (it.micro_shards(), it.copies);
        let is_alike = self.nodes == earlier.nodes && shape(self) == shape(earlier);
        let places = self.places_since(earlier).collect();
        let shards = self.followers.keys().chain(earlier.followers.keys()).collect::<BTreeSet<_>>();
        let differs = |it: &&MicroShard| self.followers(**it) != earlier.followers(**it);
        let followers = shards.into_iter().filter(differs);
        let followers = followers.map(|it| (*it, self.followers(*it).to_vec())).collect();
        is_alike.then_some(Patch { from: earlier.epoch, epoch: self.epoch, places, followers })
    }

    /// The directory that a patch makes of this one.
    ///
    /// # Errors
    /// The patch is for another directory, or what it makes is none.
    pub fn patched(&self, patch: &Patch) -> Result<Self, BadDirectory> {
        if patch.from != self.epoch || patch.epoch < self.epoch {
            return Err(BadDirectory("a patch for another one"));
        }
        let mut next = Self { epoch: patch.epoch, ..self.clone() };
        for (micro_shard, place) in &patch.places {
            let slot = next.places.get_mut(micro_shard.0 as usize).ok_or(BadDirectory("micro-shard"))?;
            *slot = *place;
        }
        for (micro_shard, followers) in &patch.followers {
            next.follow(*micro_shard, followers.clone());
        }
        // The others are as they were, under a higher epoch.
        next.are_valid(patch.places.iter().map(|(_, place)| place))?;
        Ok(next)
    }

    /// The number of this directory.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// True if this directory replaces `other`.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.epoch > other.epoch
    }

    /// How many copies of a micro-shard there should be, the owner's included.
    pub fn copies(&self) -> u32 {
        self.copies
    }

    /// The followers of a micro-shard.
    pub fn followers(&self, micro_shard: MicroShard) -> &[Follower] {
        self.followers.get(&micro_shard).map_or(&[], Vec::as_slice)
    }

    /// The micro-shards that a node serves and others follow, with their followers.
    pub(crate) fn followed_at(
        &self,
        node: ServerId,
    ) -> impl Iterator<Item = (MicroShard, Place, &[Follower])> + '_ {
        let followed =
            self.followers.iter().filter_map(|(it, list)| Some((*it, self.place(*it)?, &list[..])));
        followed.filter(move |(_, place, _)| place.is_serving && place.node == node)
    }

    /// True if any micro-shard has followers.
    pub(crate) fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    /// A node as the follower of a micro-shard, if it is one.
    pub fn follower(&self, micro_shard: MicroShard, node: ServerId) -> Option<Follower> {
        self.followers(micro_shard).iter().copied().find(|follower| follower.node == node)
    }

    /// The nodes that should follow a micro-shard: the next on the ring, each of another unit than the owner and the
    /// others.
    pub fn wanted(&self, micro_shard: MicroShard) -> impl Iterator<Item = ServerId> + '_ {
        let unit = |id| self.node(id).map(|node| node.unit);
        let owner = self.place(micro_shard).and_then(|place| unit(place.node));
        let Ring { targets, holders, .. } = &*self.ring;
        let count = holders.len() / targets.len();
        let holders = holders.iter().skip(micro_shard.0 as usize * count).take(count);
        holders.copied().filter(move |id| unit(*id) != owner).take(self.copies as usize - 1)
    }

    /// How many micro-shards there are.
    pub fn micro_shards(&self) -> MicroShards {
        self.ring.micro_shards
    }

    /// The nodes, by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node.
    pub fn node(&self, id: ServerId) -> Option<&Node> {
        let index = self.nodes.binary_search_by_key(&id, |node| node.id).ok()?;
        self.nodes.get(index)
    }

    /// The places of all micro-shards in turn.
    pub fn places(&self) -> impl Iterator<Item = (MicroShard, Place)> + '_ {
        (0..).map(MicroShard).zip(self.places.iter().copied())
    }

    /// The places that differ from those of an earlier directory.
    pub fn places_since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = (MicroShard, Place)> + 'a {
        let pairs = self.places().zip(&earlier.places);
        pairs.filter(|((_, place), old)| place != *old).map(|(place, _)| place)
    }

    /// Where a micro-shard is. `None` if there is no such micro-shard.
    pub fn place(&self, micro_shard: MicroShard) -> Option<Place> {
        self.places.get(micro_shard.0 as usize).copied()
    }

    /// The node to ask for a write of a key. `None` while its micro-shard changes hands.
    pub fn writer(&self, hash: KeyHash) -> Option<&Node> {
        let place = self.place(self.micro_shards().of(hash)).filter(|place| place.is_serving)?;
        self.node(place.node)
    }

    /// The nodes to ask for a read of a key: all of the owner's unit, or none while its micro-shard changes hands.
    pub fn readers(&self, hash: KeyHash) -> impl Iterator<Item = &Node> {
        let unit = self.writer(hash).map(|node| node.unit);
        self.nodes.iter().filter(move |node| Some(node.unit) == unit)
    }

    /// Where a micro-shard belongs by the ring of the nodes that stay.
    pub fn target(&self, micro_shard: MicroShard) -> Option<ServerId> {
        self.ring.targets.get(micro_shard.0 as usize).copied()
    }

    /// A directory in which each micro-shard is where the ring puts it.
    fn on_ring(
        epoch: Epoch,
        micro_shards: MicroShards,
        copies: u32,
        mut nodes: Vec<Node>,
    ) -> Result<Self, BadDirectory> {
        nodes.sort_by_key(|node| node.id);
        are_nodes_valid(&nodes)?;
        if micro_shards.count() > MICRO_SHARDS_MAX {
            return Err(BadDirectory("too many micro-shards"));
        }
        if copies > COPIES_MAX {
            return Err(BadDirectory("copies"));
        }
        let staying = nodes.iter().filter(|node| node.standing != Standing::Leaving);
        let ring = Ring::of(micro_shards, copies, staying.map(|node| (node.id, node.unit)))?;
        let places = ring.targets.iter().copied().map(Place::first).collect();
        Ok(Self { epoch, copies, nodes, ring, places, followers: BTreeMap::new() })
    }

    fn are_places_valid(&self) -> Result<(), BadDirectory> {
        self.are_valid(self.places.iter())
    }

    /// Looks at these places, and at all followers.
    fn are_valid<'a>(&self, mut places: impl Iterator<Item = &'a Place>) -> Result<(), BadDirectory> {
        let is_valid = |place: &Place| {
            let has_epochs =
                (1..=self.epoch).contains(&place.epoch) && (1..=place.epoch).contains(&place.since);
            has_epochs && self.node(place.node).is_some()
        };
        places.all(is_valid).then_some(()).ok_or(BadDirectory("a place"))?;
        let is_known = |(micro_shard, followers): (&MicroShard, &Vec<Follower>)| {
            let is_sound = |it: &Follower| it.number <= self.epoch && self.node(it.node).is_some();
            let is_first =
                |(index, it): (usize, &Follower)| followers[..index].iter().all(|other| other.node < it.node);
            let is_in_order = followers.iter().enumerate().all(is_first);
            self.place(*micro_shard).is_some() && is_in_order && followers.iter().all(is_sound)
        };
        self.followers.iter().all(is_known).then_some(()).ok_or(BadDirectory("a follower"))
    }
}

fn are_nodes_valid(nodes: &[Node]) -> Result<(), BadDirectory> {
    if nodes.len() > NODES_MAX {
        return Err(BadDirectory("too many nodes"));
    }
    if nodes.iter().any(|node| node.id.0 as usize >= NODES_MAX) {
        return Err(BadDirectory("a node has a number above 63"));
    }
    if nodes.iter().any(|node| node.address.len() > ADDRESS_BYTES_MAX) {
        return Err(BadDirectory("an address is too long"));
    }
    if nodes.windows(2).any(|pair| pair[0].id >= pair[1].id) {
        return Err(BadDirectory("a node is there twice"));
    }
    Ok(())
}
