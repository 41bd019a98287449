//! Keys to micro-shards, micro-shards to servers, servers to units (RackOut §2.2, §4, §6.1).

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Range, RangeInclusive},
};

use minos_base::KeyHash;

use crate::BadParameter;

/// Points of a server on the ring: servers' parts differ by 1/sqrt of it, 6 % of the average.
pub const VIRTUAL_NODES: u32 = 256;
/// Most servers.
pub const SERVERS_MAX: u32 = 65_536;
/// Most micro-shards.
pub const MICRO_SHARDS_MAX: u32 = 1 << 26;
/// Odd, so that hashes stay different: 2^64 divided by the golden ratio. Part of the placement, as [`mix`] is.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
const VIRTUAL_NODES_ALLOWED: RangeInclusive<u32> = 1..=4096;

/// A server, by a number that it keeps for life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub u32);

/// A unit of servers that read each other's memory: a rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnitId(pub u32);

/// A micro-shard: the unit of migration and replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MicroShard(pub u32);

/// The number of micro-shards, fixed for the life of a cluster. As wide as a hash, by which it is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroShards(u64);

impl MicroShards {
    /// `count` micro-shards.
    ///
    /// # Errors
    /// None at all, or more than [`MICRO_SHARDS_MAX`].
    pub fn new(count: u32) -> Result<Self, BadParameter> {
        let allowed = (1..=MICRO_SHARDS_MAX).contains(&count);
        let fault = || BadParameter::new("micro-shards", count, format_args!("1 to {MICRO_SHARDS_MAX}"));
        allowed.then_some(Self(count.into())).ok_or_else(fault)
    }

    /// The number of micro-shards.
    pub fn count(self) -> u32 {
        self.0 as u32
    }

    /// The micro-shard of a key.
    ///
    /// The hash is spread first: its highest bits choose the queue, or the partition, within the server, and a server's
    /// keys must not have those in common. A hash is mixed already, so that one multiplication is enough: the highest bits
    /// of the product depend on all bits of the hash.
    #[inline]
    pub fn of(self, hash: KeyHash) -> MicroShard {
        MicroShard(((u128::from(hash.0.wrapping_mul(SPREAD)) * u128::from(self.0)) >> 64) as u32)
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = MicroShard> {
        (0..self.count()).map(MicroShard)
    }
}

/// Which server holds which micro-shard.
///
/// A ring with virtual nodes: a micro-shard belongs to the server whose point follows its own. Replicas
/// follow along the ring, each in a unit that has none yet. A new server takes micro-shards from others, and
/// a removed server's go to others; no others move. A failed server keeps its place until it is removed;
/// meanwhile the first surviving replica owns its micro-shards (RackOut §3.3), and nobody if none survives: a
/// server beyond the copies has no data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    micro_shards: MicroShards,
    virtual_nodes: u32,
    /// Copies of a micro-shard, the owner's included.
    copies: usize,
    /// In the order of the points.
    ring: Vec<(u64, ServerId)>,
    units: BTreeMap<ServerId, UnitId>,
    /// How many different ones those are.
    unit_count: usize,
    /// Dead servers that still have their place on the ring.
    failed: BTreeSet<ServerId>,
}

impl Placement {
    /// Without servers yet, for one copy of each micro-shard.
    ///
    /// # Errors
    /// There are no virtual nodes, or too many.
    pub fn new(micro_shards: MicroShards, virtual_nodes: u32) -> Result<Self, BadParameter> {
        if !VIRTUAL_NODES_ALLOWED.contains(&virtual_nodes) {
            return Err(BadParameter::new("virtual-nodes", virtual_nodes, "1 to 4096"));
        }
        Ok(Self {
            micro_shards,
            virtual_nodes,
            copies: 1,
            ring: Vec::new(),
            units: BTreeMap::new(),
            unit_count: 0,
            failed: BTreeSet::new(),
        })
    }

    /// Servers with these numbers, where each `gf` consecutive ones are a unit. Other numbers give another
    /// ring.
    ///
    /// # Errors
    /// There are no servers, too many, or they do not divide into units of `gf`.
    pub fn regular(
        micro_shards: MicroShards,
        virtual_nodes: u32,
        servers: Range<u32>,
        gf: u32,
    ) -> Result<Self, BadParameter> {
        unit_count(servers.end.saturating_sub(servers.start), gf)?;
        let mut placement = Self::new(micro_shards, virtual_nodes)?;
        placement
            .add_all((0..).zip(servers).map(|(place, server)| (ServerId(server), UnitId(place / gf))))?;
        Ok(placement)
    }

    /// The same servers, with `copies` of each micro-shard, the owner's included.
    ///
    /// # Errors
    /// There are no copies, or more than servers can be.
    pub fn with_copies(self, copies: u32) -> Result<Self, BadParameter> {
        if !(1..=SERVERS_MAX).contains(&copies) {
            return Err(BadParameter::new("copies", copies, format_args!("1 to {SERVERS_MAX}")));
        }
        Ok(Self { copies: copies as usize, ..self })
    }

    /// Adds a server.
    ///
    /// # Errors
    /// It is there already.
    pub fn add(&mut self, server: ServerId, unit: UnitId) -> Result<(), BadParameter> {
        self.add_all([(server, unit)])
    }

    /// Adds servers; faster than one after another.
    ///
    /// # Errors
    /// One of them is there already. Those before it are added.
    pub fn add_all(
        &mut self,
        servers: impl IntoIterator<Item = (ServerId, UnitId)>,
    ) -> Result<(), BadParameter> {
        let added = servers.into_iter().try_for_each(|(server, unit)| self.insert(server, unit));
        self.ring.sort_unstable();
        self.count_units();
        added
    }

    /// Marks a server as failed. No micro-shard moves: only holders of copies are named. Returns true if it
    /// was alive.
    pub fn fail(&mut self, server: ServerId) -> bool {
        self.units.contains_key(&server) && self.failed.insert(server)
    }

    /// Removes a server, after others have copied its micro-shards. Returns true if it was there.
    pub fn remove(&mut self, server: ServerId) -> bool {
        self.ring.retain(|(_, other)| *other != server);
        self.failed.remove(&server);
        let was_there = self.units.remove(&server).is_some();
        self.count_units();
        was_there
    }

    /// How many micro-shards there are.
    pub fn micro_shards(&self) -> MicroShards {
        self.micro_shards
    }

    /// The servers with their units, by number; dead ones, too.
    pub fn servers(&self) -> impl ExactSizeIterator<Item = (ServerId, UnitId)> + '_ {
        self.units.iter().map(|(server, unit)| (*server, *unit))
    }

    /// The unit of a server.
    pub fn unit(&self, server: ServerId) -> Option<UnitId> {
        self.units.get(&server).copied()
    }

    /// The server with the master copy: the first holder that is alive. None if no holder is.
    pub fn owner(&self, micro_shard: MicroShard) -> Option<ServerId> {
        self.replicas(micro_shard).next()
    }

    /// The owner and the holders of further copies, each in another unit: fewer than the copies asked for if
    /// there are fewer units, or if holders are dead.
    pub fn replicas(&self, micro_shard: MicroShard) -> impl Iterator<Item = ServerId> + '_ {
        let holders = self.places(micro_shard).take(self.copies);
        holders.filter(|server| !self.failed.contains(server))
    }

    /// The owner of each micro-shard in turn.
    pub fn owners(&self) -> Vec<Option<ServerId>> {
        self.micro_shards.iter().map(|micro_shard| self.owner(micro_shard)).collect()
    }

    fn insert(&mut self, server: ServerId, unit: UnitId) -> Result<(), BadParameter> {
        if self.units.contains_key(&server) {
            return Err(BadParameter::new("server", server.0, "one that is not there yet"));
        }
        let point = |node| mix((u64::from(server.0) << 32) | u64::from(node));
        self.ring.extend((0..self.virtual_nodes).map(|node| (point(node), server)));
        self.units.insert(server, unit);
        Ok(())
    }

    fn count_units(&mut self) {
        self.unit_count = self.units.values().collect::<BTreeSet<_>>().len();
    }

    /// The first server of each unit along the ring, dead or alive.
    fn places(&self, micro_shard: MicroShard) -> impl Iterator<Item = ServerId> + '_ {
        self.firsts(self.walk(micro_shard))
    }

    /// The first of these servers of each unit. Nobody looks at the rest of them for more units than there are.
    fn firsts(&self, servers: impl Iterator<Item = ServerId>) -> impl Iterator<Item = ServerId> {
        let mut taken: Vec<UnitId> = Vec::new();
        let firsts = servers.filter(move |server| {
            let unit = self.units[server];
            let is_first = !taken.contains(&unit);
            if is_first {
                taken.push(unit);
            }
            is_first
        });
        firsts.take(self.unit_count)
    }

    /// The ring, once round, from the micro-shard's point.
    fn walk(&self, micro_shard: MicroShard) -> impl Iterator<Item = ServerId> + '_ {
        // Complemented, so that no micro-shard has the point of a virtual node by design.
        let point = mix(!u64::from(micro_shard.0));
        let begin = self.ring.partition_point(|(other, _)| *other < point);
        self.ring[begin..].iter().chain(&self.ring[..begin]).map(|(_, server)| *server)
    }
}

/// How many units of `gf` servers there are.
///
/// # Errors
/// There are no servers, too many, or they do not divide into units of `gf`.
pub fn unit_count(servers: u32, gf: u32) -> Result<u32, BadParameter> {
    if !(1..=SERVERS_MAX).contains(&servers) {
        return Err(BadParameter::new("servers", servers, format_args!("1 to {SERVERS_MAX}")));
    }
    if gf == 0 || !servers.is_multiple_of(gf) {
        return Err(BadParameter::new("gf", gf, format_args!("a divisor of the {servers} servers")));
    }
    Ok(servers / gf)
}

/// A bijection that scatters (the finalizer of SplitMix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn nobody_looks_for_more_units_than_there_are() {
        const SERVERS: u32 = 8;
        for units in 1..=SERVERS {
            let micro_shards = MicroShards::new(64).unwrap();
            let mut placement = Placement::new(micro_shards, 16).unwrap();
            placement.add_all((0..SERVERS).map(|id| (ServerId(id), UnitId(id % units)))).unwrap();
            for micro_shard in micro_shards.iter() {
                let last = Cell::new(None);
                let walk = placement.walk(micro_shard).inspect(|server| last.set(Some(*server)));
                let firsts: Vec<_> = placement.firsts(walk).collect();
                assert_eq!((firsts.len(), firsts.last().copied()), (units as usize, last.get()));
            }
        }
    }
}
