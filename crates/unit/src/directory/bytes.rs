//! The bytes of a directory. Numbers are little-endian.
//!
//! ```text
//! | "MNSD" | version u32 | epoch u32 | micro-shards u32 | copies u32 | nodes u32 | overrides u32 |
//! | a node:      id u32 | unit u32 | standing u8 | length of the address u8 | address, UTF-8 |
//! | an override: micro-shard u32 | node u32 | epoch u32 | since u32 | serving u8 |
//! | for clients: weights, then copies u32 | a copy: micro-shard u32 | node u32 |
//! | for nodes and disk, if there are any: followed micro-shards u32 |
//! | one of them: micro-shard u32 | followers u32 | of each: node u32 | number u32 | safe u8 |
//! ```
//!
//! Nodes, overrides and followers ascend by number. A micro-shard without an override has been where the ring puts it since
//! the first epoch. The same directory always has the same bytes.

use minos_rack::{MicroShard, MicroShards, ServerId, UnitId};

use super::{BadDirectory, Directory, Follower, MICRO_SHARDS_MAX, NODES_MAX, Node, Place, Standing};
use crate::{
    Weights,
    bytes::{BadBytes, Bytes, put},
};

const MAGIC: [u8; 4] = *b"MNSD";
/// Raised also when micro-shards get other keys.
const VERSION: u32 = 2;
const PLACE_BYTES: usize = 17;
const STANDINGS: [Standing; 3] = [Standing::Joining, Standing::Member, Standing::Leaving];

/// What a node shows to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Nodes and places.
    pub directory: Directory,
    /// The weights, if there are any.
    pub weights: Option<Weights>,
    /// Followers that [`Directory::wanted`] does not name.
    pub copies: Vec<(MicroShard, ServerId)>,
}

impl Shown {
    /// The bytes that stand for no weights before copies.
    pub const NO_WEIGHTS: [u8; 8] = [0; 8];

    /// Reads [`Directory::encode_places`], and weights and [`Directory::encode_copies`] behind it, if they are there.
    ///
    /// # Errors
    /// The bytes are something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadDirectory> {
        let mut rest = Bytes(bytes);
        let directory = Directory::read(&mut rest)?;
        let weights = match rest.0.strip_prefix(&Self::NO_WEIGHTS) {
            Some(behind) => {
                rest = Bytes(behind);
                None
            }
            None if rest.0.is_empty() => None,
            None => Some(rest.weights()?),
        };
        let has_copies = !rest.0.is_empty();
        let copy = |it: &mut Bytes<'_>| Ok((MicroShard(it.number()?), ServerId(it.number()?)));
        let copies = if has_copies { rest.list(copy)? } else { Vec::new() };
        rest.end()?;
        Ok(Self { directory, weights, copies })
    }
}

impl Directory {
    /// The bytes, for disk and nodes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.encode_overrides(|place, usual| place != usual);
        if !self.followers.is_empty() {
            put(&mut bytes, self.followers.len() as u32);
            self.followers.iter().for_each(|(it, followers)| put_followers(&mut bytes, *it, followers));
        }
        bytes
    }

    /// The bytes for clients, who look only at the nodes of places: without followers, and without the places where the
    /// ring puts them.
    pub fn encode_places(&self) -> Vec<u8> {
        self.encode_overrides(|place, usual| place.node != usual.node)
    }

    /// The bytes with the places that differ from the usual ones.
    fn encode_overrides(&self, differs: impl Fn(&Place, &Place) -> bool) -> Vec<u8> {
        let usual = self.ring.targets.iter().copied().map(Place::first);
        let overrides: Vec<_> =
            self.places().zip(usual).filter(|((_, place), usual)| differs(place, usual)).collect();
        let counts = [self.nodes.len(), overrides.len()].map(|count| count as u32);
        let mut bytes = MAGIC.to_vec();
        let head = [VERSION, self.epoch, self.micro_shards().count(), self.copies];
        head.into_iter().chain(counts).for_each(|number| put(&mut bytes, number));
        for node in &self.nodes {
            put(&mut bytes, node.id.0);
            put(&mut bytes, node.unit.0);
            bytes.extend([node.standing as u8, node.address.len() as u8]);
            bytes.extend(node.address.as_bytes());
        }
        bytes.reserve(overrides.len() * PLACE_BYTES);
        overrides.into_iter().for_each(|((it, place), _)| put_place(&mut bytes, it, place));
        bytes
    }

    /// The directory of [`Directory::encode`].
    ///
    /// # Errors
    /// The bytes are not those of a directory.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadDirectory> {
        let mut rest = Bytes(bytes);
        let mut directory = Self::read(&mut rest)?;
        if !rest.0.is_empty() {
            let followed = rest.list(|it| it.followers())?;
            let is_in_order = followed.windows(2).all(|pair| pair[0].0 < pair[1].0);
            let has_some =
                followed.iter().all(|(_, followers)| !followers.is_empty()) && !followed.is_empty();
            directory.followers = followed.into_iter().collect();
            directory.are_places_valid()?;
            (is_in_order && has_some).then_some(()).ok_or(BadDirectory("followers"))?;
        }
        rest.end()?;
        Ok(directory)
    }

    /// The bytes of the followers that [`Directory::wanted`] does not name, for clients: those of hot micro-shards.
    pub fn encode_copies(&self) -> Vec<u8> {
        let followers =
            self.followers.iter().flat_map(|(it, list)| list.iter().map(move |copy| (*it, copy.node)));
        let others: Vec<_> =
            followers.filter(|(it, node)| self.wanted(*it).all(|wanted| wanted != *node)).collect();
        let mut bytes = Vec::new();
        put(&mut bytes, others.len() as u32);
        others.iter().flat_map(|(it, node)| [it.0, node.0]).for_each(|number| put(&mut bytes, number));
        bytes
    }

    fn read(rest: &mut Bytes<'_>) -> Result<Self, BadDirectory> {
        if rest.array()? != MAGIC || rest.number()? != VERSION {
            return Err(BadDirectory("another format"));
        }
        let epoch = rest.number()?;
        let micro_shards = rest.at_most(MICRO_SHARDS_MAX, "too many micro-shards")?;
        let micro_shards = MicroShards::new(micro_shards).map_err(|_| BadDirectory("no micro-shards"))?;
        let copies = rest.number()?;
        let nodes = rest.at_most(NODES_MAX as u32, "too many nodes")?;
        let overrides = rest.at_most(micro_shards.count(), "too many overrides")?;
        let nodes: Vec<Node> = (0..nodes).map(|_| rest.node()).collect::<Result<_, _>>()?;
        super::are_nodes_valid(&nodes)?;
        let mut directory = Self::on_ring(epoch, micro_shards, copies, nodes)?;
        let mut after = 0;
        for _ in 0..overrides {
            let (micro_shard, place) = rest.place()?;
            let usual = directory.places.get_mut(micro_shard as usize).filter(|_| micro_shard >= after);
            let usual = usual.filter(|usual| **usual != place).ok_or(BadDirectory("an override"))?;
            *usual = place;
            after = micro_shard + 1;
        }
        directory.are_places_valid()?;
        Ok(directory)
    }
}

pub(crate) fn put_place(bytes: &mut Vec<u8>, micro_shard: MicroShard, place: Place) {
    // At once: of a large directory there are many.
    let numbers = [place.since, place.epoch, place.node.0, micro_shard.0];
    let entry = numbers.into_iter().fold(0, |entry, number| entry << 32 | u128::from(number));
    bytes.extend_from_slice(&entry.to_le_bytes());
    bytes.push(place.is_serving.into());
}

pub(crate) fn put_followers(bytes: &mut Vec<u8>, micro_shard: MicroShard, followers: &[Follower]) {
    put(bytes, micro_shard.0);
    put(bytes, followers.len() as u32);
    for follower in followers {
        put(bytes, follower.node.0);
        put(bytes, follower.number);
        bytes.push(follower.is_safe.into());
    }
}

impl Bytes<'_> {
    pub(crate) fn followers(&mut self) -> Result<(MicroShard, Vec<Follower>), BadBytes> {
        let micro_shard = MicroShard(self.number()?);
        let followers = self.list(|it| {
            let (node, number) = (ServerId(it.number()?), it.number()?);
            Ok(Follower { node, number, is_safe: it.flag()? })
        })?;
        Ok((micro_shard, followers))
    }

    fn node(&mut self) -> Result<Node, BadBytes> {
        let (id, unit) = (ServerId(self.number()?), UnitId(self.number()?));
        let [standing, length] = self.array()?;
        let standing = *STANDINGS.get(usize::from(standing)).ok_or(BadBytes("a standing"))?;
        let address = str::from_utf8(self.take(length.into())?).map_err(|_| BadBytes("an address"))?;
        Ok(Node { id, unit, standing, address: address.to_owned() })
    }

    pub(crate) fn place(&mut self) -> Result<(u32, Place), BadBytes> {
        let (micro_shard, node) = (self.number()?, ServerId(self.number()?));
        let (epoch, since) = (self.number()?, self.number()?);
        Ok((micro_shard, Place { node, epoch, since, is_serving: self.flag()? }))
    }
}
