//! The papers' claims beside our numbers.

use minos_rack::BadParameter;
use serde::Serialize;

use crate::{
    CacheError, Dataset, Fabric, Model, NodeRates,
    adaptive::Reads,
    figures::{RACK, SLO, Study, adaptive_utilization, for_datasets, rack, slo_speedup},
    multiget, replication, search,
    skew::{hottest, ideal_speedup, rack_skew, unit_over_server, unit_shares},
    unit_size_max,
};

/// A number of a paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// A short name.
    pub key: &'static str,
    /// The claim.
    pub claim: &'static str,
    /// The place in the paper.
    pub paper: &'static str,
    /// The paper's number.
    pub theirs: f64,
    /// Our number; NaN if it was not reached.
    pub ours: f64,
    /// Difference between the two, as a share of theirs.
    pub off: f64,
    /// True if a parameter was fitted to this number, which is then no evidence.
    pub fitted: bool,
    /// The spread over other datasets, where it explains much of the difference.
    pub others: Option<Spread>,
}

/// The spread over datasets that differ in their seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// One in twenty is below.
    pub p5: f64,
    /// Half are below.
    pub median: f64,
    /// One in twenty is above.
    pub p95: f64,
}

const DATASETS: u64 = 100;
/// Steps of migration and replication, at most.
const STEPS: usize = 400;

fn target(key: &'static str, claim: &'static str, paper: &'static str, theirs: f64, ours: f64) -> Target {
    Target { key, claim, paper, theirs, ours, off: ours / theirs - 1.0, fitted: false, others: None }
}

/// Claims of one place in a paper: names, claims, their numbers and ours.
fn table<const N: usize>(
    paper: &'static str,
    rows: [(&'static str, &'static str, f64, f64); N],
) -> [Target; N] {
    rows.map(|(key, claim, theirs, ours)| target(key, claim, paper, theirs, ours))
}

/// All claims, for the study's dataset; the replication claims are about one of `replication_keys`.
///
/// # Errors
/// A parameter is out of bounds, or a popularity cannot be had.
pub fn targets(study: &Study<'_>, replication_keys: u64) -> Result<Vec<Target>, CacheError> {
    let dataset = study.dataset()?;
    let mut targets = skew(study, &dataset)?;
    targets.push(hottest_rack(study, replication_keys)?);
    targets.extend(queueing(study, &dataset)?);
    targets.extend(hottest_keys(study)?);
    targets.push(unit_size()?);
    targets.extend(adaptive(study, &dataset)?);
    targets.extend(interference(study, &dataset)?);
    targets.extend(copies(study, replication_keys)?);
    targets.extend(widths(study)?);
    Ok(targets)
}

fn skew(study: &Study<'_>, dataset: &Dataset) -> Result<Vec<Target>, CacheError> {
    let small = study.dataset_of(study.keys, study.alpha, 128)?;
    let skew_at = |servers| -> Result<f64, CacheError> {
        Ok(rack_skew(study.dataset_of(study.keys, study.alpha, servers)?.shares(), 1))
    };
    let ideals =
        |shares: &[f64]| [(64, 0.0), (64, 0.05), (16, 0.0)].map(|(gf, w)| ideal_speedup(shares, gf, w));
    let [many, written, few] = ideals(dataset.shares());
    let mut targets = vec![
        target(
            "skew-128",
            "shard skew of 128 servers",
            "RackOut figure 1",
            6.5,
            rack_skew(small.shares(), 1),
        ),
        target("ideal-64-reads", "ideal speed-up, GF 64, reads only", "RackOut figure 4a", 16.0, many),
        target("ideal-64-writes", "ideal speed-up, GF 64, 5 % writes", "RackOut figure 4b", 9.0, written),
        target("ideal-16-reads", "ideal speed-up, GF 16, reads only", "RackOut §4.2", 9.9, few),
    ];
    let spreads = spreads(study, study.keys, 128, |shares| [rack_skew(shares, 1); 1])?.into_iter();
    let spreads = spreads.chain(self::spreads(study, study.keys, study.servers, ideals)?);
    targets.iter_mut().zip(spreads).for_each(|(target, spread)| target.others = Some(spread));
    let doubled = skew_at(2048)? / skew_at(1024)?;
    targets.push(target("skew-doubled", "shard skew, 2048 over 1024 servers", "RackOut §2.2", 1.97, doubled));
    Ok(targets)
}

/// From 512 servers to 32 racks (§4).
fn hottest_rack(study: &Study<'_>, keys: u64) -> Result<Target, CacheError> {
    let ratio = |shares: &[f64]| unit_over_server(shares, RACK);
    let dataset = study.dataset_of(keys, study.alpha, study.servers)?;
    let (key, claim) = ("rack-over-server", "load of the hottest rack over that of the hottest server");
    let others = spreads(study, keys, study.servers, |shares| [ratio(shares)])?.into_iter().next();
    Ok(Target { others, ..target(key, claim, "RackOut §4", 1.05, ratio(dataset.shares())) })
}

/// The text speaks of zipf 0.99.
fn hottest_keys(study: &Study<'_>) -> Result<Vec<Target>, CacheError> {
    const CLAIMS: [(f64, u32, f64, &str, &str); 6] = [
        (0.99, 1, 0.90, "keys-0.99-1", "50 hottest keys, zipf 0.99, GF 1"),
        (0.99, 4, 0.70, "keys-0.99-4", "50 hottest keys, zipf 0.99, GF 4"),
        (0.99, 16, 0.46, "keys-0.99-16", "50 hottest keys, zipf 0.99, GF 16"),
        (0.9, 1, 0.90, "keys-0.9-1", "50 hottest keys, zipf 0.9, GF 1"),
        (0.9, 4, 0.70, "keys-0.9-4", "50 hottest keys, zipf 0.9, GF 4"),
        (0.9, 16, 0.46, "keys-0.9-16", "50 hottest keys, zipf 0.9, GF 16"),
    ];
    let mut targets = Vec::new();
    for claims in CLAIMS.chunks(3) {
        let dataset = study.dataset_of(study.keys, claims[0].0, study.servers)?;
        for &(_, gf, theirs, key, claim) in claims {
            let unit = hottest(&unit_shares(dataset.shares(), gf));
            let ours = dataset.top_keys(gf, unit, 50).iter().sum();
            targets.push(target(key, claim, "RackOut §4.4, figure 9", theirs, ours));
        }
    }
    Ok(targets)
}

fn unit_size() -> Result<Target, BadParameter> {
    let ours = f64::from(unit_size_max(&NodeRates::RDMA)?);
    Ok(Target { fitted: true, ..target("unit-size", "largest unit, RDMA", "RackOut §4.6", 16.0, ours) })
}

/// The spread of each number that `of` computes from a dataset's shares.
fn spreads<const N: usize>(
    study: &Study<'_>,
    keys: u64,
    servers: u32,
    of: impl Fn(&[f64]) -> [f64; N],
) -> Result<[Spread; N], BadParameter> {
    let mut numbers = [const { Vec::new() }; N];
    for_datasets(study, keys, servers, DATASETS, |dataset| {
        numbers.iter_mut().zip(of(dataset.shares())).for_each(|(all, number)| all.push(number));
        Ok(())
    })?;
    Ok(numbers.map(|mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        let at = |percent: usize| all[percent * (all.len() - 1) / 100];
        Spread { p5: at(5), median: at(50), p95: at(95) }
    }))
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
    let gain = |writes| -> Result<f64, CacheError> { Ok(rack_of(RACK, writes)? / rack_of(1, writes)?) };
    let mut targets = vec![
        target("speedup-rdma", "speed-up under 1 ms, GF 16, RDMA", "RackOut figure 7a", 6.0, rdma),
        target("speedup-sonuma", "speed-up under 1 ms, GF 16, soNUMA", "RackOut abstract", 8.6, sonuma),
        target("sonuma-over-rdma", "soNUMA over RDMA, GF 16", "RackOut §4.5", 1.45, sonuma / rdma),
        target("rack-reads", "utilization of the hottest rack, reads only", "RackOut figure 16a", 0.84, read),
    ];
    let claim = "utilization of the hottest rack, 5 % writes";
    targets.push(target("rack-writes", claim, "RackOut figure 16b", 0.57, written));
    let (none, few) = (read / alone, written / rack_of(1, 0.05)?);
    targets.extend(table(
        "RackOut §1",
        [
            ("rack-speedup-0", "speed-up of the hottest rack, reads only", 8.2, none),
            ("rack-speedup-5", "speed-up of the hottest rack, 5 % writes", 6.0, few),
        ],
    ));
    targets.extend(table(
        "RackOut §6.3",
        [
            ("rack-speedup-20", "speed-up of the hottest rack, 20 % writes", 3.2, gain(0.2)?),
            ("rack-speedup-50", "speed-up of the hottest rack, 50 % writes", 1.7, gain(0.5)?),
        ],
    ));
    Ok(targets)
}

fn adaptive(study: &Study<'_>, dataset: &Dataset) -> Result<Vec<Target>, CacheError> {
    let gain = |writes| -> Result<f64, CacheError> {
        let model = rack(dataset, RACK, writes)?;
        Ok(slo_speedup(study, &model, &model.clone().with_algorithm_1()?)?)
    };
    let (few, many) = (gain(0.05)?, gain(0.2)?);
    Ok(vec![
        target("adaptive-gain-5", "algorithm 1 over static, 5 % writes", "RackOut §6.4", 1.36, few),
        target("adaptive-gain-20", "algorithm 1 over static, 20 % writes", "RackOut abstract", 1.30, many),
    ])
}

/// With a coordinator, and with server 13 so slow that algorithm 1 alone gives the paper's number; and
/// slower, so that it gets no reads.
fn interference(study: &Study<'_>, dataset: &Dataset) -> Result<Vec<Target>, CacheError> {
    let model = rack(dataset, RACK, 0.05)?;
    let keeps = |reads, factor| adaptive_utilization(study, &model, reads, factor);
    let still = keeps(Reads::Static, 1.0)?;
    let blind = keeps(Reads::Writes, 1.43)? / still;
    let claim = "algorithm 1, one server 1.43 times as slow, over static";
    let blind = target("slowed-blind", claim, "RackOut §6.4", 1.03, blind);
    let (claim, paper) = ("utilization with algorithm 1", "RackOut §6.4, figure 18");
    let one = target("adaptive-utilization", claim, paper, 0.80, keeps(Reads::Writes, 1.0)?);
    let both = |factor| keeps(Reads::WritesAndTimes, factor);
    let (once, thrice) = (both(1.43)?, both(3.0)?);
    let both = table(
        "RackOut §6.4, figure 21",
        [
            ("slowed-1.43", "utilization with both algorithms, one server 1.43 times as slow", 0.65, once),
            ("slowed-3", "utilization with both algorithms, one server three times as slow", 0.65, thrice),
        ],
    );
    Ok([one, Target { fitted: true, ..blind }].into_iter().chain(both).collect())
}

fn copies(study: &Study<'_>, keys: u64) -> Result<Vec<Target>, CacheError> {
    let all = study.dataset_of(keys, study.alpha, study.servers)?;
    let demands = replication::demands(&all, &all, 0.05)?;
    let run = |gf| replication::run(&all, &demands, gf, Fabric::RDMA.times, STEPS);
    let (alone, few, together) = (run(1)?, run(4)?, run(16)?);
    let mut targets = copies_needed(&alone, &together);
    for (key, claim, states) in [
        ("plateau-16", "most with GF 16, 5 % writes", &together),
        ("plateau-4", "most with GF 4, 5 % writes", &few),
        ("plateau-1", "most with GF 1, 5 % writes", &alone),
    ] {
        targets.push(target(key, claim, "RackOut figure 11c", 0.30, replication::plateau(states)));
    }
    let spread = study.dataset_of(keys, 0.9, study.servers)?;
    let apart = replication::demands(&all, &spread, 0.05)?;
    let apart = replication::plateau(&replication::run(&all, &apart, 1, Fabric::RDMA.times, STEPS)?);
    let claim = "most with GF 1, writes of zipf 0.9";
    targets.push(target("plateau-apart", claim, "RackOut figure 11b", 0.63, apart));
    Ok(targets)
}

/// Copies that single servers need to reach the utilization of three copies in units.
fn copies_needed(alone: &[replication::State], together: &[replication::State]) -> Vec<Target> {
    let with_3 = together.iter().filter(|state| state.copies <= 3);
    let reached = with_3.map(|state| state.utilization).fold(0.0, f64::max);
    let first = alone.iter().find(|state| state.utilization >= reached);
    let needed = |of: fn(&replication::State) -> usize| first.map_or(f64::NAN, |state| of(state) as f64);
    let (copies, steps) = (needed(|state| state.copies), needed(|state| state.steps));
    let of_hottest = needed(|state| state.copies_of_hottest);
    table(
        "RackOut §4.7, figure 11c",
        [
            ("three-copies", "utilization with 3 copies, 5 % writes, GF 16", 0.30, reached),
            ("copies", "copies with GF 1 for what 3 do with GF 16", 45.0, copies),
            ("steps", "steps with GF 1 for the same", 45.0, steps),
            ("copies-of-hottest", "copies of the hottest micro-shard among them", 20.0, of_hottest),
        ],
    )
    .to_vec()
}

fn widths(study: &Study<'_>) -> Result<Vec<Target>, CacheError> {
    let spec = multiget::Spec {
        width: 32,
        nodes: 128,
        gf: 1,
        replicas: 10,
        trials: 1_000,
        exact: true,
        seed: study.seed,
    };
    let outcome = multiget::run(&spec)?;
    let fewest = outcome.exact_nodes.unwrap_or(f64::NAN);
    let width = f64::from(spec.width) / fewest;
    Ok(table(
        "Vector §6.1",
        [
            ("multiget-fewest", "fewest nodes for 32 keys, 128 nodes, 10 replicas", 9.0, fewest),
            ("multiget-width", "vector width, the same", 4.0, width),
            ("multiget-greedy", "nodes chosen greedily, the same", 9.0, outcome.nodes),
        ],
    )
    .to_vec())
}
