//! What the papers claim, beside what comes out here.

use serde::Serialize;

use crate::{
    CacheError, Dataset, Fabric, Model,
    figures::{RACK, SLO, Study, rack, slo_speedup},
    multiget, replication, search,
    skew::{ideal_speedup, rack_skew},
};

/// A number of a paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// What is claimed.
    pub claim: &'static str,
    /// Where.
    pub paper: &'static str,
    /// The paper's number.
    pub theirs: f64,
    /// The one from here; not a number where it was not reached.
    pub ours: f64,
    /// How far it is off, as a share of theirs.
    pub off: f64,
}

fn target(claim: &'static str, paper: &'static str, theirs: f64, ours: f64) -> Target {
    Target { claim, paper, theirs, ours, off: ours / theirs - 1.0 }
}

/// All claims, for the study's dataset; the replication claims are about one of `replication_keys`.
///
/// # Errors
/// A parameter is out of bounds, or a popularity cannot be had.
pub fn targets(study: &Study<'_>, replication_keys: u64) -> Result<Vec<Target>, CacheError> {
    let dataset = study.dataset()?;
    let mut targets = skew(study, &dataset)?;
    targets.extend(queueing(study, &dataset)?);
    targets.extend(adaptive(study, &dataset)?);
    targets.extend(copies(study, replication_keys)?);
    targets.extend(widths(study)?);
    Ok(targets)
}

fn skew(study: &Study<'_>, dataset: &Dataset) -> Result<Vec<Target>, CacheError> {
    let small = study.dataset_of(study.keys, study.alpha, 128)?;
    let skew_at = |servers| -> Result<f64, CacheError> {
        Ok(rack_skew(study.dataset_of(study.keys, study.alpha, servers)?.shares(), 1))
    };
    let ideal = |gf, writes| ideal_speedup(dataset.shares(), gf, writes);
    Ok(vec![
        target("shard skew of 128 servers", "RackOut figure 1", 6.5, rack_skew(small.shares(), 1)),
        target("shard skew, 2048 over 1024 servers", "RackOut §2.2", 1.97, skew_at(2048)? / skew_at(1024)?),
        target("ideal speed-up, GF 64, reads only", "RackOut figure 4a", 16.0, ideal(64, 0.0)),
        target("ideal speed-up, GF 64, 5 % writes", "RackOut figure 4b", 9.0, ideal(64, 0.05)),
        target("ideal speed-up, GF 16, reads only", "RackOut §4.2", 9.9, ideal(16, 0.0)),
    ])
}

fn queueing(study: &Study<'_>, dataset: &Dataset) -> Result<Vec<Target>, CacheError> {
    let speedup = |fabric| -> Result<f64, CacheError> {
        let model = |gf| Model::new(dataset.shares(), gf, 0.0, fabric);
        Ok(slo_speedup(study, &model(1)?, &model(16)?)?)
    };
    let (rdma, sonuma) = (speedup(Fabric::RDMA)?, speedup(Fabric::SONUMA)?);
    let rack_of = |gf, writes| -> Result<f64, CacheError> {
        let slo = search(&rack(dataset, gf, writes)?, &SLO, study.arrivals, study.seed)?;
        Ok(slo.utilization)
    };
    let (alone, read, written) = (rack_of(1, 0.0)?, rack_of(RACK, 0.0)?, rack_of(RACK, 0.05)?);
    Ok(vec![
        target("speed-up under 1 ms, GF 16, RDMA", "RackOut figure 7a", 6.0, rdma),
        target("speed-up under 1 ms, GF 16, soNUMA", "RackOut abstract", 8.6, sonuma),
        target("soNUMA over RDMA, GF 16", "RackOut §4.5", 1.45, sonuma / rdma),
        target("utilization of the hottest rack, reads only", "RackOut figure 16a", 0.84, read),
        target("utilization of the hottest rack, 5 % writes", "RackOut figure 16b", 0.57, written),
        target("speed-up of the hottest rack, reads only", "RackOut §1", 8.2, read / alone),
        target("speed-up of the hottest rack, 5 % writes", "RackOut §1", 6.0, written / rack_of(1, 0.05)?),
        target(
            "speed-up of the hottest rack, 20 % writes",
            "RackOut §6.3",
            3.2,
            rack_of(RACK, 0.2)? / rack_of(1, 0.2)?,
        ),
        target(
            "speed-up of the hottest rack, 50 % writes",
            "RackOut §6.3",
            1.7,
            rack_of(RACK, 0.5)? / rack_of(1, 0.5)?,
        ),
    ])
}

fn adaptive(study: &Study<'_>, dataset: &Dataset) -> Result<Vec<Target>, CacheError> {
    let gain = |writes| -> Result<f64, CacheError> {
        let model = rack(dataset, RACK, writes)?;
        Ok(slo_speedup(study, &model, &model.clone().with_algorithm_1()?)?)
    };
    Ok(vec![
        target("algorithm 1 over static, 5 % writes", "RackOut §6.4", 1.36, gain(0.05)?),
        target("algorithm 1 over static, 20 % writes", "RackOut abstract", 1.30, gain(0.2)?),
    ])
}

fn copies(study: &Study<'_>, keys: u64) -> Result<Vec<Target>, CacheError> {
    let all = study.dataset_of(keys, study.alpha, study.servers)?;
    let demands = replication::demands(&all, &all, 0.05)?;
    let run = |gf, steps| replication::run(&all, &demands, gf, Fabric::RDMA.times, steps);
    let (alone, together) = (run(1, 400)?, run(16, 400)?);
    // What 45 copies come to without units.
    let with_45 = alone.iter().filter(|state| state.copies <= 45);
    let reached = with_45.map(|state| state.utilization).fold(0.0, f64::max);
    let needed = replication::copies_for(&together, reached).map_or(f64::NAN, |copies| copies as f64);
    Ok(vec![
        target("plateau with copies, 5 % writes, GF 1", "RackOut figure 11c", 0.30, reached),
        target("copies with GF 16 for what 45 do with GF 1", "RackOut §4.7", 3.0, needed),
    ])
}

fn widths(study: &Study<'_>) -> Result<Vec<Target>, CacheError> {
    let spec = multiget::Spec {
        width: 32,
        nodes: 128,
        gf: 1,
        replicas: 10,
        trials: 1_000,
        exact: false,
        seed: study.seed,
    };
    let outcome = multiget::run(&spec)?;
    Ok(vec![
        target("nodes for 32 keys, 128 nodes, 10 replicas", "Vector §6.1", 9.0, outcome.nodes),
        target("vector width, 128 nodes, 10 replicas", "Vector §6.1", 4.0, outcome.rpc_width),
    ])
}
