//! The directory of a rack, as its client uses it.

use std::net::SocketAddr;

use minos_base::hash_key;
use minos_rack::{Alias, MicroShards, ServerId};
use minos_unit::{Directory, Shown, Weights};

use crate::Request;

/// Nodes that read each other's memory.
#[derive(Debug, Default)]
pub(super) struct Unit {
    /// The seats of its nodes.
    pub(super) seats: Vec<usize>,
    /// Their weights; empty without any.
    pub(super) weights: Vec<u32>,
    /// Draws one of `seats` by its weight; none if they have no weights.
    pub(super) alias: Option<Alias>,
    /// The node that gets the reads submitted now, and the bytes of records that it is still to get.
    pub(super) batch: Option<(usize, usize)>,
}

/// Who owns which key, and which seat leads there.
#[derive(Debug)]
pub(super) struct Map {
    epoch: u32,
    micro_shards: MicroShards,
    direction_seed: u64,
    /// The place of each micro-shard's owner in `nodes`.
    owners: Vec<u16>,
    nodes: Vec<Node>,
    pub(super) units: Vec<Unit>,
    /// Micro-shards, in order, and the seats of nodes of other units that have copies; none unless copies are read.
    copies: Vec<(u32, usize)>,
    /// Decides for each key whether a copy is read, as long as a batch lasts: so keys for one node share datagrams.
    pub(super) luck: u32,
}

/// Who reads and writes a key.
pub(super) struct Holder {
    pub(super) micro_shard: u32,
    /// The seat of the owner, if it can be reached.
    pub(super) seat: Option<usize>,
    /// The place of its unit.
    pub(super) unit: usize,
}

#[derive(Debug)]
struct Node {
    number: u32,
    /// Its place in `units`.
    unit: usize,
    seat: Option<usize>,
}

impl Map {
    /// The map for a directory whose keys are hashed under this seed. `seat_for` finds the seat of a node at an address,
    /// if the client can reach it.
    pub(super) fn new(
        directory: &Directory,
        direction_seed: u64,
        mut seat_for: impl FnMut(SocketAddr) -> Option<usize>,
    ) -> Self {
        let mut units: Vec<(u32, Unit)> = Vec::new();
        let mut nodes = Vec::new();
        for node in directory.nodes() {
            let at = units.iter().position(|(number, _)| *number == node.unit.0).unwrap_or_else(|| {
                units.push((node.unit.0, Unit::default()));
                units.len() - 1
            });
            let seat = node.address.parse().ok().and_then(&mut seat_for);
            units[at].1.seats.extend(seat);
            nodes.push(Node { number: node.id.0, unit: at, seat });
        }
        let place_of = |number: u32| nodes.binary_search_by_key(&number, |node| node.number).unwrap_or(0);
        let owners = directory.places().map(|(_, place)| place_of(place.node.0) as u16).collect();
        Self {
            epoch: directory.epoch(),
            micro_shards: directory.micro_shards(),
            direction_seed,
            owners,
            nodes,
            units: units.into_iter().map(|(_, unit)| unit).collect(),
            copies: Vec::new(),
            luck: 0,
        }
    }

    /// From now on copies are known: of all micro-shards where the ring puts them, and of hot ones where nodes say.
    pub(super) fn note_copies(&mut self, shown: &Shown) {
        let micro_shards = self.micro_shards.iter();
        let usual = micro_shards.flat_map(|it| shown.directory.wanted(it).map(move |node| (it, node)));
        let all = usual.chain(shown.copies.iter().copied());
        self.copies = all.filter_map(|(it, node)| Some((it.0, self.seat_of(node.0)?))).collect();
        self.copies.sort_unstable();
        self.copies.dedup();
    }

    /// The seats of the copies of a micro-shard.
    pub(super) fn copies(&self, micro_shard: u32) -> impl Iterator<Item = usize> + Clone {
        let from = self.copies.partition_point(|(other, _)| *other < micro_shard);
        let those = self.copies[from..].iter().take_while(move |(other, _)| *other == micro_shard);
        those.map(|(_, seat)| *seat)
    }

    /// Reads go by these weights.
    pub(super) fn weigh(&mut self, weights: &Weights) {
        self.units.iter_mut().for_each(|unit| unit.weights.clear());
        for node in self.nodes.iter().filter(|node| node.seat.is_some()) {
            self.units[node.unit].weights.push(weights.of(ServerId(node.number)));
        }
        for unit in &mut self.units {
            let shares: Vec<f64> = unit.weights.iter().copied().map(f64::from).collect();
            unit.alias = Alias::new(&shares).ok();
            unit.batch = None;
        }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The owner of a key.
    pub(super) fn owner(&self, key: &[u8]) -> Holder {
        let micro_shard = self.micro_shard(key);
        let Node { unit, seat, .. } = *self.owner_of(micro_shard);
        Holder { micro_shard, seat, unit }
    }

    /// True if the node of this seat may execute a request.
    pub(super) fn serves(&self, seat: usize, request: &Request) -> bool {
        if !request.verb.names_item() {
            return true;
        }
        let owner = self.owner(&request.key);
        let is_reader = !request.verb.writes() && self.units[owner.unit].seats.contains(&seat);
        is_reader || owner.seat == Some(seat)
    }

    /// The number of the owner of a key.
    pub(super) fn owner_number(&self, key: &[u8]) -> u32 {
        self.owner_of(self.micro_shard(key)).number
    }

    /// The seat of the node with this number.
    pub(super) fn seat_of(&self, number: u32) -> Option<usize> {
        let at = self.nodes.binary_search_by_key(&number, |node| node.number).ok()?;
        self.nodes[at].seat
    }

    fn micro_shard(&self, key: &[u8]) -> u32 {
        self.micro_shards.of(hash_key(key, self.direction_seed)).0
    }

    fn owner_of(&self, micro_shard: u32) -> &Node {
        &self.nodes[usize::from(self.owners[micro_shard as usize])]
    }

    /// The seats of all nodes that can be reached.
    pub(super) fn seats(&self) -> impl Iterator<Item = usize> {
        self.nodes.iter().filter_map(|node| node.seat)
    }
}
