//! The greedy algorithm beside one that follows the paper's sentences and computes everything anew.

use std::collections::BTreeSet;

use minos_rack::{Cluster, Demand, ServiceTimes, Step, StepKind};
use proptest::prelude::*;

const TIMES: ServiceTimes = ServiceTimes { lr_us: 5.0, rr_us: 8.4, lw_us: 6.9 };

/// RackOut §4.7, sentence by sentence.
struct Literal<'a> {
    servers: u32,
    gf: u32,
    demands: &'a [Demand],
    copies: Vec<Vec<u32>>,
    ever: BTreeSet<usize>,
}

impl Literal<'_> {
    fn load(&self, server: u32) -> f64 {
        let mut load = 0.0;
        for (demand, copies) in self.demands.iter().zip(&self.copies) {
            for &copy in copies.iter().filter(|copy| *copy / self.gf == server / self.gf) {
                let time = if copy == server { TIMES.lr_us } else { TIMES.rr_us };
                load += demand.reads / copies.len() as f64 / f64::from(self.gf) * time;
                load += if copy == server { demand.writes * TIMES.lw_us } else { 0.0 };
            }
        }
        load
    }

    fn contribution(&self, shard: usize) -> f64 {
        let local = 1.0 / f64::from(self.gf);
        let read = local * TIMES.lr_us + (1.0 - local) * TIMES.rr_us;
        self.demands[shard].reads / self.copies[shard].len() as f64 * read
            + self.demands[shard].writes * TIMES.lw_us
    }

    fn step(&mut self) -> Option<Step> {
        // (i) the hottest server in the cluster and its corresponding unit;
        let first_max =
            |best: u32, server: u32| if self.load(server) > self.load(best) { server } else { best };
        let relieved = (0..self.servers).reduce(first_max)?;
        // (ii) for that unit, the micro-shard contributing most to the load;
        let in_unit =
            |shard: &usize| self.copies[*shard].iter().any(|copy| copy / self.gf == relieved / self.gf);
        let units = (self.servers / self.gf) as usize;
        let movable =
            (0..self.demands.len()).filter(in_unit).filter(|shard| self.copies[*shard].len() < units);
        let shard = movable.reduce(|a, b| if self.contribution(b) > self.contribution(a) { b } else { a })?;
        // the least loaded node in the cluster; replicas only across different units;
        let free = |server: &u32| self.copies[shard].iter().all(|copy| copy / self.gf != server / self.gf);
        let first_min =
            |best: u32, server: u32| if self.load(server) < self.load(best) { server } else { best };
        let to = (0..self.servers).filter(free).reduce(first_min)?;
        // (iii) never migrated or replicated: migrate; (iv) else replicate.
        let kind = if self.ever.insert(shard) {
            self.copies[shard] = vec![to];
            StepKind::Migration
        } else {
            self.copies[shard].push(to);
            StepKind::Replication
        };
        Some(Step { kind, micro_shard: shard as u32, relieved, to })
    }
}

/// Different enough that no two sums are nearly the same.
fn demands(weights: &[u32], write_share: f64) -> Vec<Demand> {
    let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
    let share = |weight: &u32| f64::from(*weight) / sum;
    let demand = |share| Demand { reads: share * (1.0 - write_share), writes: share * write_share };
    weights.iter().map(|weight| demand(share(weight))).collect()
}

proptest! {
    #[test]
    fn steps_are_those_of_the_paper(
        weights in proptest::collection::vec(1u32..1_000_000, 8..40),
        gf in prop_oneof![Just(1u32), Just(2), Just(4)],
        write_share in 0.0f64..0.3,
    ) {
        let demands = demands(&weights, write_share);
        let owners: Vec<u32> = (0..weights.len() as u32).map(|shard| shard % 8).collect();
        let mut ours = Cluster::new(8, gf, TIMES, &owners, &demands).unwrap();
        let copies = owners.iter().map(|owner| vec![*owner]).collect();
        let mut literal = Literal { servers: 8, gf, demands: &demands, copies, ever: BTreeSet::new() };
        for step in 0..12 {
            for server in 0..8 {
                prop_assert!((ours.load(server) - literal.load(server)).abs() < 1e-9);
            }
            let (mine, theirs) = (ours.relieve(), literal.step());
            if mine != theirs {
                // Sums that are the same but for rounding may be told apart either way.
                let tie = |a: u32, b: u32| (ours.load(a) - ours.load(b)).abs() < 1e-9;
                let (Some(mine), Some(theirs)) = (mine, theirs) else { panic!("{step}: {mine:?} {theirs:?}") };
                prop_assert!(tie(mine.to, theirs.to) || tie(mine.relieved, theirs.relieved), "{mine:?} {theirs:?}");
                break;
            }
        }
    }
}

#[test]
fn by_hand() {
    // Two servers, one of which has all; nothing is written.
    let demands = [Demand { reads: 0.75, writes: 0.0 }, Demand { reads: 0.25, writes: 0.0 }];
    let mut cluster = Cluster::new(2, 1, TIMES, &[0, 0], &demands).unwrap();
    assert_eq!((cluster.hottest(), cluster.utilization()), ((0, 5.0), 0.5));
    let step = cluster.relieve().unwrap();
    assert_eq!(step, Step { kind: StepKind::Migration, micro_shard: 0, relieved: 0, to: 1 });
    assert_eq!(cluster.hottest(), (1, 3.75));
    // Now it is known to be hot: half of its reads go back.
    let step = cluster.relieve().unwrap();
    assert_eq!(step, Step { kind: StepKind::Replication, micro_shard: 0, relieved: 1, to: 0 });
    assert_eq!(cluster.hottest(), (0, 3.125));
    assert_eq!([0, 1].map(|micro_shard| cluster.holders(micro_shard).len()), [2, 1]);
    // Everything is read from both in the end, and no step is left.
    assert_eq!(cluster.relieve().map(|step| step.kind), Some(StepKind::Migration));
    while cluster.relieve().is_some() {}
    assert_eq!(cluster.holders(1).len(), 2);
    assert!((cluster.utilization() - 1.0).abs() < 1e-12);
}

#[test]
fn copies_cost_writes() {
    let demands = [Demand { reads: 0.5, writes: 0.5 }];
    let mut cluster = Cluster::new(2, 1, TIMES, &[0], &demands).unwrap();
    cluster.relieve();
    cluster.relieve();
    // Each does all writes and half of the reads.
    assert!((cluster.hottest().1 - (0.5 * 6.9 + 0.25 * 5.0)).abs() < 1e-12);
}

#[test]
fn bad_parameters_are_named() {
    let demands = [Demand::default(); 2];
    let fault = |servers, gf, times, owners: &[u32]| {
        Cluster::new(servers, gf, times, owners, &demands).unwrap_err().to_string()
    };
    assert!(fault(4, 3, TIMES, &[0, 0]).starts_with("gf: 3"));
    assert!(fault(4, 2, ServiceTimes { rr_us: -1.0, ..TIMES }, &[0, 0]).starts_with("rr-us: -1"));
    assert!(fault(4, 2, TIMES, &[0, 4]).starts_with("owner: 4"));
    assert!(fault(4, 2, TIMES, &[0]).starts_with("owners: 1"));
}
