//! A popularity laid over servers.

use minos_rack::{BadParameter, MicroShards, Placement, VIRTUAL_NODES};

use crate::Popularity;

/// Keys, and the servers that hold them.
#[derive(Clone, Debug)]
pub struct Dataset {
    popularity: Popularity,
    owners: Vec<u32>,
    shares: Vec<f64>,
}

impl Dataset {
    /// Micro-shards on a ring of `servers`, which is another one for each seed.
    ///
    /// # Errors
    /// There are no servers, or too many.
    pub fn new(popularity: Popularity, servers: u32) -> Result<Self, BadParameter> {
        let spec = popularity.spec();
        let micro_shards = MicroShards::new(spec.micro_shards)?;
        // The servers of seed 1 are numbered from 0.
        let rings = u64::from(u32::MAX / servers.max(1));
        let first = (spec.seed.wrapping_sub(1) % rings) as u32 * servers;
        // Units do not change where micro-shards lie.
        let placement = Placement::regular(micro_shards, VIRTUAL_NODES, first..first + servers, 1)?;
        // All have an owner, since no server is dead.
        let owners: Vec<u32> =
            placement.owners().into_iter().flatten().map(|owner| owner.0 - first).collect();
        let mut shares = vec![0.0; servers as usize];
        for (owner, share) in owners.iter().zip(popularity.shares()) {
            shares[*owner as usize] += share;
        }
        Ok(Self { popularity, owners, shares })
    }

    /// The share of all requests of each server.
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// The owner of each micro-shard.
    pub fn owners(&self) -> &[u32] {
        &self.owners
    }

    /// The popularity of the micro-shards.
    pub fn popularity(&self) -> &Popularity {
        &self.popularity
    }

    /// The `count` most popular keys of each server of the unit, as server, rank and share of all requests, and
    /// behind them the rest of each server's share under rank 0. Fewer if there are not so many keys.
    pub fn hottest_keys(&self, gf: u32, unit: u32, count: usize) -> Vec<(u32, u64, f64)> {
        let spec = self.popularity.spec();
        let micro_shards = MicroShards::new(spec.micro_shards).expect("the dataset was made with them");
        let mut left: Vec<usize> = vec![count; gf as usize];
        let mut rest: Vec<f64> = self.shares.chunks(gf as usize).nth(unit as usize).unwrap_or(&[]).to_vec();
        let mut found = Vec::new();
        for rank in 1..=spec.keys {
            let owner = self.owners[spec.micro_shard(micro_shards, rank) as usize];
            let at = (owner % gf) as usize;
            if owner / gf != unit || left[at] == 0 {
                continue;
            }
            let share = self.popularity.key_share(rank);
            (left[at], rest[at]) = (left[at] - 1, (rest[at] - share).max(0.0));
            found.push((owner, rank, share));
            if found.len() == count * gf as usize {
                break;
            }
        }
        found.extend((unit * gf..).zip(rest).map(|(server, share)| (server, 0, share)));
        found
    }

    /// The share of the unit's requests of each of its `count` most popular keys (RackOut §4.4).
    pub fn top_keys(&self, gf: u32, unit: usize, count: usize) -> Vec<f64> {
        let spec = self.popularity.spec();
        let micro_shards = MicroShards::new(spec.micro_shards).expect("the dataset was made with them");
        let unit_share: f64 = self.shares.chunks(gf as usize).nth(unit).unwrap_or(&[]).iter().sum();
        let here = |rank: &u64| {
            let owner = self.owners[spec.micro_shard(micro_shards, *rank) as usize];
            (owner / gf) as usize == unit
        };
        let ranks = (1..=spec.keys).filter(here).take(count);
        ranks.map(|rank| self.popularity.key_share(rank) / unit_share).collect()
    }
}
