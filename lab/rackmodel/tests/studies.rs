//! Adaptive reads, replication and figures, on small datasets.

use std::collections::BTreeSet;

use minos_rackmodel::{
    Cache, Dataset, Fabric, Model, Popularity, PopularitySpec,
    adaptive::{self, Interference, Reads, Spec, WARMUP_POLLS},
    figures::{NUMBERS, Study, figure, hottest_keys},
    replication::{copies_for, demands, plateau, run},
    targets::targets,
};

const SHARES: [f64; 8] = [0.5, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05];

fn model(write_share: f64) -> Model {
    Model::new(&SHARES, 8, write_share, Fabric::SONUMA).unwrap()
}

fn spec(write_share: f64, reads: Reads, rate: f64) -> Spec {
    Spec {
        shares: SHARES.to_vec(),
        write_share,
        fabric: Fabric::SONUMA,
        reads,
        rate,
        arrivals: 400_000,
        polling_us: 20_000.0,
        staleness_us: 2_000.0,
        interference: None,
        seed: 1,
    }
}

fn p99(spec: &Spec) -> f64 {
    adaptive::run(spec).unwrap().latencies.percentile(99.0)
}

#[test]
fn what_servers_report_leads_to_what_is_expected() {
    for reads in [Reads::Writes, Reads::PrintedWrites] {
        let outcome = adaptive::run(&spec(0.1, reads, 0.5)).unwrap();
        let expected = model(0.1).with_algorithm_1().unwrap();
        for (found, expected) in outcome.reads.iter().zip(expected.distribution()) {
            assert!((found - expected.0 / 0.9).abs() < 0.02, "{found} {expected:?}");
        }
        assert!(outcome.updates > 10);
    }
}

#[test]
fn the_hottest_keys_and_the_rest_are_the_load_of_the_hottest_rack() {
    let popularity = |spec| Ok(Popularity::exact(spec, 2, |_| ())?);
    let study = Study {
        keys: 100_000,
        alpha: 0.99,
        servers: 64,
        micro_shards_per_server: 10,
        arrivals: 1000,
        seed: 1,
        popularity: &popularity,
    };
    let keys = hottest_keys(&study, 20).unwrap().rows;
    assert_eq!(keys.len(), 16 * 21);
    let dataset = study.dataset().unwrap();
    let first = keys[0][0] as usize / 16 * 16;
    let units = dataset.shares().chunks(16).map(|unit| unit.iter().sum::<f64>());
    assert!((units.fold(0.0, f64::max) - keys.iter().map(|row| row[2]).sum::<f64>()).abs() < 1e-6);
    for server in first..first + 16 {
        let of_it: Vec<_> = keys.iter().filter(|row| row[0] as usize == server).collect();
        let sum: f64 = of_it.iter().map(|row| row[2]).sum();
        assert!((sum - dataset.shares()[server]).abs() < 1e-6, "{server}");
        assert!(of_it.is_sorted_by(|one, other| other[1] == 0.0 || one[1] < other[1]));
    }
    assert!(hottest_keys(&Study { servers: 24, ..study }, 20).is_err());
}

#[test]
fn adapting_carries_loads_that_static_reads_do_not() {
    // Half of the writes fall on one server.
    let rate = model(0.2).saturation() * 1.1;
    assert!(rate < model(0.2).with_algorithm_1().unwrap().saturation());
    assert!(p99(&spec(0.2, Reads::Static, rate)) > 2_000.0);
    assert!(p99(&spec(0.2, Reads::Writes, rate)) < 1_000.0);
    assert!(p99(&spec(0.2, Reads::TwoChoices, rate)) < 1_000.0);
}

#[test]
fn the_backlog_of_the_start_is_not_counted() {
    // Uniform reads, which the first poll ends, cannot carry this load.
    let rate = 0.97 * model(0.1).with_algorithm_1().unwrap().saturation();
    assert!(rate > 1.2 * model(0.1).saturation());
    let outcome = adaptive::run(&spec(0.1, Reads::Writes, rate)).unwrap();
    let p99 = outcome.latencies.percentile(99.0);
    assert!(p99 < 1_000.0, "{p99}");
    // No poll of the counted time is much worse than the average one.
    let counted = &outcome.p99_by_poll_us[WARMUP_POLLS as usize..];
    assert!(counted.iter().all(|poll| *poll < 2.0 * p99), "{counted:?} {p99}");
}

#[test]
fn a_slow_server_is_avoided_from_the_next_poll_on_and_not_before() {
    let interference =
        Some(Interference { server: 3, factor: 4.0, from_us: 200_000.0, until_us: f64::INFINITY });
    let rate = 0.7 * model(0.05).saturation();
    let run = |reads| adaptive::run(&Spec { interference, ..spec(0.05, reads, rate) }).unwrap();
    let (blind, seeing) = (run(Reads::Writes), run(Reads::WritesAndTimes));
    assert!(seeing.reads[3] < 0.02 && blind.reads[3] > 0.1, "{:?} {:?}", seeing.reads, blind.reads);
    assert!(seeing.service_us[3] > 15.0 && seeing.service_us[2] < 7.0);
    let by_poll = &seeing.p99_by_poll_us;
    // The tenth poll ends at 200 ms; in the interval after it, clients still use the old distribution.
    assert!(by_poll[9] < 200.0 && by_poll[10] > 1_000.0, "{by_poll:?}");
    assert!(*by_poll.last().unwrap() < *blind.p99_by_poll_us.last().unwrap() / 5.0);
}

#[test]
fn older_information_costs() {
    let interference =
        Some(Interference { server: 3, factor: 4.0, from_us: 100_000.0, until_us: f64::INFINITY });
    let rate = 0.7 * model(0.05).saturation();
    let mean = |staleness_us| {
        let spec = Spec { interference, staleness_us, ..spec(0.05, Reads::WritesAndTimes, rate) };
        adaptive::run(&spec).unwrap().latencies.mean()
    };
    assert!(mean(0.0) < mean(20_000.0));
}

#[test]
fn bad_parameters_of_adaptive_runs_are_named() {
    let good = spec(0.1, Reads::Static, 0.5);
    let fault = |spec: Spec| adaptive::run(&spec).unwrap_err().to_string();
    assert!(fault(Spec { polling_us: 0.0, ..good.clone() }).starts_with("polling-us: 0"));
    assert!(fault(Spec { staleness_us: 30_000.0, ..good.clone() }).starts_with("staleness-us: 30000"));
    assert!(fault(Spec { write_share: -0.1, ..good.clone() }).starts_with("write-share: -0.1"));
    let interference = Some(Interference { server: 8, factor: 2.0, from_us: 0.0, until_us: 1.0 });
    assert!(fault(Spec { interference, ..good }).starts_with("interference-server: 8"));
}

fn dataset(alpha: f64) -> Dataset {
    let spec = PopularitySpec { keys: 100_000, alpha, micro_shards: 6_400, seed: 1 };
    Dataset::new(Popularity::exact(spec, 1, |_| ()).unwrap(), 64).unwrap()
}

#[test]
fn every_dataset_has_a_ring_of_its_own() {
    let owners = |seed| {
        let spec = PopularitySpec { keys: 10_000, alpha: 0.99, micro_shards: 6_400, seed };
        let dataset = Dataset::new(Popularity::sketch(spec, 1_000).unwrap(), 64).unwrap();
        assert!(dataset.owners().iter().all(|owner| *owner < 64));
        dataset.owners().to_vec()
    };
    let first = owners(1);
    assert_eq!(owners(1), first);
    for seed in [0, 2, 3, u64::MAX] {
        let same = owners(seed).iter().zip(&first).filter(|(a, b)| a == b).count();
        assert!(same < 200, "{seed}: {same} of 6400 micro-shards lie where they lay, 100 by chance");
    }
}

#[test]
fn copies_even_out_what_is_read() {
    let dataset = dataset(0.99);
    let reads = demands(&dataset, &dataset, 0.0).unwrap();
    let states = |gf| run(&dataset, &reads, gf, Fabric::RDMA.times, 2_000).unwrap();
    let (alone, together) = (states(1), states(16));
    // By itself a server reads locally; in units of 16, 15 of 16 reads are remote.
    assert!(plateau(&alone) > 0.95, "{}", plateau(&alone));
    let remote = 5.0 / (5.0 / 16.0 + 8.4 * 15.0 / 16.0);
    assert!((plateau(&together) / remote - 1.0).abs() < 0.05, "{}", plateau(&together));
    assert!(copies_for(&together, 0.5).unwrap() < copies_for(&alone, 0.5).unwrap());
    // The first state is that of the queueing model.
    let model = Model::new(dataset.shares(), 16, 0.0, Fabric::RDMA).unwrap();
    assert!((together[0].utilization - model.utilization(model.saturation())).abs() < 1e-9);
}

#[test]
fn reads_are_what_writes_leave() {
    let (all, writes) = (dataset(0.99), dataset(0.9));
    let demands = demands(&all, &writes, 0.05).unwrap();
    let sum = |of: fn(&minos_rack::Demand) -> f64| demands.iter().map(of).sum::<f64>();
    assert!((sum(|demand| demand.writes) - 0.05).abs() < 1e-9);
    assert!((sum(|demand| demand.reads) - 0.95).abs() < 1e-9);
}

/// Figures from a small dataset, without a cache.
fn small<T>(use_it: impl FnOnce(&Study<'_>) -> T) -> T {
    let popularity = |spec: PopularitySpec| {
        let spec = PopularitySpec { keys: spec.keys.min(50_000), ..spec };
        Ok(Popularity::exact(spec, 1, |_| ())?)
    };
    use_it(&Study {
        keys: 50_000,
        alpha: 0.99,
        servers: 128,
        micro_shards_per_server: 20,
        arrivals: 2_000,
        seed: 1,
        popularity: &popularity,
    })
}

#[test]
fn every_figure_has_rows_as_wide_as_its_header() {
    small(|study| {
        for number in NUMBERS.iter().chain(&["reads"]).filter(|number| **number != "8") {
            let figure = figure(number, study).unwrap();
            assert!(!figure.rows.is_empty(), "{number}");
            assert!(figure.rows.iter().all(|row| row.len() == figure.columns.len()), "{number}");
        }
        let fault = figure("99", study).unwrap_err().to_string();
        assert!(fault.starts_with("figure: 99 is not allowed; allowed is 1, 2a"), "{fault}");
    });
}

#[test]
fn every_target_has_a_number() {
    small(|study| {
        let targets = targets(study, study.keys).unwrap();
        assert!(targets.len() > 15);
        let keys: BTreeSet<_> = targets.iter().map(|target| target.key).collect();
        assert_eq!(keys.len(), targets.len());
        // A dataset this small needs more steps than are made to reach the utilization of 45 copies.
        let reached = targets.iter().filter(|target| !target.claim.contains(" with GF 1 for"));
        assert!(reached.into_iter().all(|target| target.ours > 0.0), "{targets:?}");
    });
}

#[test]
fn figures_come_from_a_cache_as_they_were_computed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path());
    small(|study| {
        let cached = |spec| cache.popularity(spec, 1, |_| ());
        let again = || figure("4b", &Study { popularity: &cached, ..*study }).unwrap();
        assert_eq!(again(), figure("4b", study).unwrap());
        assert_eq!(again(), again());
    });
}
