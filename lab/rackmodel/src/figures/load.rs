//! Figures about queues, replicas and adaptive reads.

use minos_rack::{BadParameter, ServiceTimes, unit_count};

use super::{Figure, Study};
use crate::{
    CacheError, Dataset, Fabric, Load, Model, Popularity, PopularitySpec, Slo,
    adaptive::{self, Interference, Reads},
    replication, search, simulate,
    skew::{hottest, unit_shares},
};

const GROUPINGS: [u32; 5] = [1, 2, 4, 8, 16];
/// The objective of all figures (§4.2).
pub(crate) const SLO: Slo = Slo { percentile: 99.0, latency_us: 1_000.0 };
/// Servers of the rack that §6 looks at.
pub(crate) const RACK: u32 = 16;
/// Keys that a sketch takes exactly.
const SKETCH_HEAD: u64 = 200_000;
/// Loads of a curve's points, as shares of the saturation.
const POINTS: [f64; 9] = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995];

/// The latencies of a model from idle to saturation, as rows behind `names`.
fn curve(
    study: &Study<'_>,
    model: &Model,
    names: &[f64],
    rows: &mut Vec<Vec<f64>>,
) -> Result<(), BadParameter> {
    for point in POINTS {
        let rate = model.saturation() * point;
        let load = Load { rate, arrivals: study.arrivals, seed: study.seed };
        let latencies = simulate(model, &load)?;
        let numbers = [model.utilization(rate), latencies.mean(), latencies.percentile(99.0)];
        rows.push([names, &numbers[..]].concat());
    }
    Ok(())
}

pub(super) fn figure_7(
    figure: &'static str,
    study: &Study<'_>,
    write_share: f64,
) -> Result<Figure, CacheError> {
    let dataset = study.dataset()?;
    let mut rows = Vec::new();
    for gf in study.groupings(&[1, 2, 4, 8, 16, 32, 64]) {
        let model = Model::new(dataset.shares(), gf, write_share, Fabric::RDMA)?;
        curve(study, &model, &[f64::from(gf)], &mut rows)?;
    }
    let columns = vec!["gf", "utilization", "mean us", "p99 us"];
    Ok(Figure { figure, title: "Latency by utilization of the datacenter, RDMA", columns, rows })
}

/// Calls the closure with each of `count` datasets of `keys` keys, each on its own ring. All but the most
/// popular keys are sketched.
pub(crate) fn for_datasets(
    study: &Study<'_>,
    keys: u64,
    servers: u32,
    count: u64,
    mut visit: impl FnMut(&Dataset) -> Result<(), BadParameter>,
) -> Result<(), BadParameter> {
    let spec = study.spec(keys, study.alpha)?;
    for seed in (0..count).map(|index| study.seed.wrapping_add(index)) {
        let popularity = Popularity::sketch(PopularitySpec { seed, ..spec }, SKETCH_HEAD)?;
        visit(&Dataset::new(popularity, servers)?)?;
    }
    Ok(())
}

/// The utilization at which each of `count` datasets saturates, for each unit size, lowest first.
///
/// # Errors
/// A parameter is out of bounds.
pub fn saturations_of_datasets(
    study: &Study<'_>,
    count: u64,
    groupings: &[u32],
) -> Result<Vec<Vec<f64>>, BadParameter> {
    let mut saturations = vec![Vec::new(); groupings.len()];
    for_datasets(study, 50_000_000, study.servers, count, |dataset| {
        for (gf, found) in groupings.iter().zip(&mut saturations) {
            let model = Model::new(dataset.shares(), *gf, 0.05, Fabric::RDMA)?;
            found.push(model.utilization(model.saturation()));
        }
        Ok(())
    })?;
    saturations.iter_mut().for_each(|found| found.sort_by(f64::total_cmp));
    Ok(saturations)
}

pub(super) fn figure_8(study: &Study<'_>, datasets: u64) -> Result<Figure, CacheError> {
    let groupings = study.groupings(&GROUPINGS);
    let saturations = saturations_of_datasets(study, datasets, &groupings)?;
    let mut rows = Vec::new();
    for (gf, found) in groupings.iter().zip(saturations) {
        for (place, utilization) in found.iter().enumerate() {
            rows.push(vec![f64::from(*gf), *utilization, (place + 1) as f64 / found.len() as f64]);
        }
    }
    let columns = vec!["gf", "utilization", "share of datasets"];
    Ok(Figure {
        figure: "8",
        title: "Saturation of 500 datasets of 50 million keys, 5 % writes",
        columns,
        rows,
    })
}

pub(super) fn figure_10(study: &Study<'_>) -> Result<Figure, CacheError> {
    let dataset = study.dataset()?;
    let alone = Model::new(dataset.shares(), 1, 0.0, Fabric::RDMA)?.saturation();
    let mut rows = Vec::new();
    for ratio in [1.0, 1.16, 1.4, 1.68, 2.0, 2.5, 3.0] {
        for gf in study.groupings(&[2, 4, 8, 16, 32, 64]) {
            let times = ServiceTimes { rr_us: ratio * Fabric::RDMA.times.lr_us, ..Fabric::RDMA.times };
            let model = Model::new(dataset.shares(), gf, 0.0, Fabric { times, ..Fabric::RDMA })?;
            rows.push(vec![ratio, f64::from(gf), model.saturation() / alone]);
        }
    }
    let columns = vec!["RR/LR", "gf", "speed-up"];
    Ok(Figure { figure: "10", title: "Speed-up at saturation by the price of remote reads", columns, rows })
}

pub(super) fn figure_11(
    figure: &'static str,
    study: &Study<'_>,
    write_share: f64,
    write_alpha: f64,
) -> Result<Figure, CacheError> {
    let all = study.dataset()?;
    let writes = study.dataset_of(study.keys, write_alpha, study.servers)?;
    let demands = replication::demands(&all, &writes, write_share)?;
    let mut rows = Vec::new();
    for gf in study.groupings(&[1, 4, 16]) {
        for state in replication::run(&all, &demands, gf, Fabric::RDMA.times, 400)? {
            rows.push(vec![f64::from(gf), state.steps as f64, state.copies as f64, state.utilization]);
        }
    }
    let columns = vec!["gf", "steps", "copies", "utilization"];
    Ok(Figure { figure, title: "Utilization by steps of migration and replication", columns, rows })
}

/// The hottest 16 servers, in units of `gf`, on soNUMA (§6.3).
pub(crate) fn rack(dataset: &Dataset, gf: u32, write_share: f64) -> Result<Model, BadParameter> {
    Model::new(dataset.shares(), gf, write_share, Fabric::SONUMA)?.hottest_rack(RACK)
}

/// The keys of the hottest 16 servers, `count` of each, for a real rack to be asked for. The rest of a server's
/// share has rank 0.
///
/// # Errors
/// A parameter is out of bounds, or the popularity cannot be had.
pub fn hottest_keys(study: &Study<'_>, count: usize) -> Result<Figure, CacheError> {
    let dataset = study.dataset()?;
    unit_count(study.servers, RACK)?;
    let unit = hottest(&unit_shares(dataset.shares(), RACK));
    let keys = dataset.hottest_keys(RACK, unit as u32, count);
    let rows = keys.into_iter().map(|(server, rank, share)| vec![f64::from(server), rank as f64, share]);
    Ok(Figure {
        figure: "keys",
        title: "Most popular keys of the hottest rack by server; rank 0: all others",
        columns: vec!["server", "rank", "share"],
        rows: rows.collect(),
    })
}

pub(super) fn figure_16(study: &Study<'_>) -> Result<Figure, CacheError> {
    let dataset = study.dataset()?;
    let mut rows = Vec::new();
    for percent in [0, 5, 20, 50] {
        for gf in study.groupings(&GROUPINGS) {
            let model = rack(&dataset, gf, f64::from(percent) / 100.0)?;
            curve(study, &model, &[f64::from(percent), f64::from(gf)], &mut rows)?;
        }
    }
    let columns = vec!["writes %", "gf", "utilization", "mean us", "p99 us"];
    Ok(Figure { figure: "16", title: "Latency of the hottest rack, soNUMA", columns, rows })
}

pub(super) fn figure_15_17(study: &Study<'_>) -> Result<Figure, CacheError> {
    let model = rack(&study.dataset()?, RACK, 0.05)?;
    let adapted = model.clone().with_algorithm_1()?;
    let (plain, adapted) = (model.distribution(), adapted.distribution());
    let row = |server: usize| {
        let ((read, written), (adapted, _)) = (plain[server], adapted[server]);
        vec![server as f64, written, read, adapted, read + written, adapted + written]
    };
    Ok(Figure {
        figure: "15, 17",
        title: "Requests of the hottest unit by server, 5 % writes",
        columns: vec!["server", "writes", "reads static", "reads adaptive", "static", "adaptive"],
        rows: (0..model.servers()).map(row).collect(),
    })
}

pub(super) fn figure_19(study: &Study<'_>) -> Result<Figure, CacheError> {
    let dataset = study.dataset()?;
    let mut rows = Vec::new();
    for percent in [0, 1, 2, 5, 10, 15, 20] {
        let writes = f64::from(percent) / 100.0;
        let alone = rack(&dataset, 1, writes)?.saturation();
        let model = rack(&dataset, RACK, writes)?;
        let models = [model.clone(), model.clone().with_algorithm_1()?, model.with_equal_load()?];
        let speedups = models.map(|model| model.saturation() / alone);
        rows.push([&[f64::from(percent)], &speedups[..]].concat());
    }
    let columns = vec!["writes %", "static", "algorithm 1", "equal load"];
    Ok(Figure {
        figure: "19",
        title: "Speed-up of the hottest rack at saturation, GF 16, soNUMA",
        columns,
        rows,
    })
}

/// What the hottest rack carries as one unit, over the same servers alone, by each way of choosing who reads.
pub(super) fn figure_reads(study: &Study<'_>) -> Result<Figure, CacheError> {
    let dataset = study.dataset()?;
    let ways = [Reads::Static, Reads::Writes, Reads::WritesAndTimes, Reads::TwoChoices];
    let mut rows = Vec::new();
    for percent in [0, 5, 20, 50] {
        let writes = f64::from(percent) / 100.0;
        let alone = search(&rack(&dataset, 1, writes)?, &SLO, study.arrivals, study.seed)?.utilization;
        let model = rack(&dataset, RACK, writes)?;
        let mut row = vec![f64::from(percent)];
        for reads in ways {
            row.push(adaptive_utilization(study, &model, reads, 1.0)? / alone);
        }
        row.push(row[2] / row[1]);
        rows.push(row);
    }
    let columns =
        vec!["writes %", "static", "algorithm 1", "algorithms 1, 2", "two choices", "algorithm 1 / static"];
    Ok(Figure {
        figure: "reads",
        title: "Speed-up of the hottest rack under 1 ms, GF 16, soNUMA",
        columns,
        rows,
    })
}

/// Utilizations of figures 18 and 21, in percent: close together where the objective is missed.
const PERCENTS: [u32; 19] = [20, 30, 40, 45, 50, 55, 60, 65, 70, 71, 72, 73, 74, 75, 76, 78, 80, 82, 85];

/// Static reads, algorithm 1 and both algorithms, with server 13 undisturbed and slowed.
pub(super) fn figure_18_21(study: &Study<'_>) -> Result<Figure, CacheError> {
    let model = rack(&study.dataset()?, RACK, 0.05)?;
    let mut rows = Vec::new();
    for factor in [1.0, 1.43, 3.0] {
        for (reads, name) in [(Reads::Static, 0.0), (Reads::Writes, 1.0), (Reads::WritesAndTimes, 12.0)] {
            for percent in PERCENTS {
                let utilization = f64::from(percent) / 100.0;
                let outcome = adaptive::run(&adaptive_spec(study, &model, reads, utilization, factor))?;
                let numbers = [outcome.latencies.percentile(99.0), outcome.service_us[13], outcome.reads[13]];
                rows.push([&[factor, name, utilization], &numbers[..]].concat());
            }
        }
    }
    let columns = vec!["slowdown", "algorithm", "utilization", "p99 us", "service us of 13", "reads of 13"];
    Ok(Figure { figure: "18, 20, 21", title: "Adaptive reads and interference, 5 % writes", columns, rows })
}

/// A unit whose server 13 takes `factor` times as long. The coordinator polls about twenty times in a run.
fn adaptive_spec(
    study: &Study<'_>,
    model: &Model,
    reads: Reads,
    utilization: f64,
    factor: f64,
) -> adaptive::Spec {
    let rate = utilization / model.utilization(1.0);
    let polling_us = study.arrivals as f64 / rate / 20.0;
    adaptive::Spec {
        shares: model.shares.clone(),
        write_share: model.write_share,
        fabric: model.fabric,
        reads,
        rate,
        arrivals: study.arrivals,
        polling_us,
        staleness_us: polling_us / 10.0,
        interference: Some(Interference { server: 13, factor, from_us: 0.0, until_us: f64::INFINITY }),
        seed: study.seed,
    }
}

/// The highest utilization, in steps of half a percent, at which a unit with a coordinator meets the
/// objective.
pub(crate) fn adaptive_utilization(
    study: &Study<'_>,
    model: &Model,
    reads: Reads,
    factor: f64,
) -> Result<f64, BadParameter> {
    let (mut low, mut high) = (0u32, 200);
    while high - low > 1 {
        let middle = low.midpoint(high);
        let spec = adaptive_spec(study, model, reads, f64::from(middle) / 200.0, factor);
        let keeps = adaptive::run(&spec)?.latencies.percentile(SLO.percentile) <= SLO.latency_us;
        *if keeps { &mut low } else { &mut high } = middle;
    }
    Ok(f64::from(low) / 200.0)
}

/// The highest rate that meets the objective, relative to that of the same servers without units.
pub(crate) fn slo_speedup(study: &Study<'_>, alone: &Model, together: &Model) -> Result<f64, BadParameter> {
    let alone = search(alone, &SLO, study.arrivals, study.seed)?;
    Ok(search(together, &SLO, study.arrivals, study.seed)?.rate / alone.rate)
}
