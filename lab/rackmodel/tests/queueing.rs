//! The simulation beside closed forms.

use minos_rack::ServiceTimes;
use minos_rackmodel::{Fabric, Load, Model, Slo, search, simulate};
use proptest::prelude::*;

const NEAR: Fabric = Fabric { propagation_us: 0.0, ..Fabric::RDMA };

fn zipf_shares(servers: usize) -> Vec<f64> {
    (1..=servers).map(|rank| 1.0 / rank as f64).collect()
}

#[test]
fn one_server_waits_as_pollaczek_and_khinchine_say() {
    for (load, writes) in [(0.3, 0.0), (0.7, 0.0), (0.9, 0.0), (0.8, 0.3), (0.8, 1.0)] {
        let model = Model::new(&[1.0], 1, writes, NEAR).unwrap();
        let ServiceTimes { lr_us, lw_us, .. } = NEAR.times;
        let mean = (1.0 - writes) * lr_us + writes * lw_us;
        let square = (1.0 - writes) * lr_us * lr_us + writes * lw_us * lw_us;
        let rate = load / mean;
        assert!((model.saturation() - 1.0 / mean).abs() < 1e-12);
        let expected = mean + rate * square / (2.0 * (1.0 - load));
        let latencies = simulate(&model, &Load { rate, arrivals: 4_000_000, seed: 1 }).unwrap();
        assert!((latencies.mean() / expected - 1.0).abs() < 0.03, "{} {expected}", latencies.mean());
        assert_eq!(latencies.count(), 3_600_000);
    }
}

#[test]
fn the_way_is_added_once() {
    let model = |fabric| Model::new(&[1.0], 1, 0.0, fabric).unwrap();
    let load = Load { rate: 1e-6, arrivals: 1_000, seed: 1 };
    let far = simulate(&model(Fabric::RDMA), &load).unwrap().mean();
    assert!((far - 39.9).abs() < 1e-6, "{far}");
}

#[test]
fn servers_are_as_busy_as_the_closed_form_says() {
    let model = Model::new(&zipf_shares(32), 8, 0.1, NEAR).unwrap();
    let rate = 0.9 * model.saturation();
    let latencies = simulate(&model, &Load { rate, arrivals: 4_000_000, seed: 3 }).unwrap();
    for (server, busy) in latencies.busy.iter().enumerate() {
        let expected = rate * model.busy_us(server);
        assert!((busy / expected - 1.0).abs() < 0.02, "{server}: {busy} {expected}");
    }
    let hottest = latencies.busy.iter().copied().fold(0.0, f64::max);
    assert!((hottest - 0.9).abs() < 0.02, "{hottest}");
}

#[test]
fn queues_grow_above_saturation_only() {
    let model = Model::new(&zipf_shares(64), 4, 0.05, NEAR).unwrap();
    let p99 = |of: f64| {
        let load = Load { rate: of * model.saturation(), arrivals: 2_000_000, seed: 4 };
        simulate(&model, &load).unwrap().percentile(99.0)
    };
    assert!(p99(0.98) < 1_000.0 && p99(1.05) > 3_000.0, "{} {}", p99(0.98), p99(1.05));
}

#[test]
fn the_search_finds_where_the_percentile_reaches_the_objective() {
    let model = Model::new(&zipf_shares(16), 4, 0.05, Fabric::SONUMA).unwrap();
    let slo = Slo { percentile: 99.0, latency_us: 100.0 };
    let found = search(&model, &slo, 500_000, 7).unwrap();
    let p99 =
        |rate: f64| simulate(&model, &Load { rate, arrivals: 500_000, seed: 7 }).unwrap().percentile(99.0);
    assert_eq!(found.latency_us, p99(found.rate));
    assert!(p99(found.rate) <= 100.0 && p99(found.rate * 1.005) > 100.0);
    assert!((model.utilization(found.rate) - found.utilization).abs() < 1e-12);
    assert!(found.of_saturation > 0.3 && found.of_saturation < 1.0);
    // No request can be faster than the propagation delay.
    let none = search(&model, &Slo { latency_us: 30.0, ..slo }, 10_000, 7).unwrap();
    assert_eq!(none.rate, 0.0);
}

#[test]
fn a_seed_gives_the_same_bits() {
    let model = Model::new(&zipf_shares(16), 4, 0.05, Fabric::SONUMA).unwrap();
    let run = |seed| {
        let load = Load { rate: 0.5 * model.saturation(), arrivals: 100_000, seed };
        let latencies = simulate(&model, &load).unwrap();
        (latencies.mean().to_bits(), latencies.percentile(99.0).to_bits())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn bad_parameters_are_named() {
    let model = Model::new(&[1.0], 1, 0.0, NEAR).unwrap();
    let fault = |rate, arrivals| simulate(&model, &Load { rate, arrivals, seed: 1 }).unwrap_err().to_string();
    assert!(fault(0.0, 10_000).starts_with("rate: 0 is not allowed"));
    assert!(fault(1.0, 10).starts_with("arrivals: 10 is not allowed; allowed is 1000 to"));
    let fault = |percentile, latency_us| {
        search(&model, &Slo { percentile, latency_us }, 1_000, 1).unwrap_err().to_string()
    };
    assert!(fault(100.0, 1.0).starts_with("percentile: 100"));
    assert!(fault(99.0, 0.0).starts_with("slo-us: 0"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn what_comes_in_is_what_is_done(
        shares in proptest::collection::vec(0.001f64..1.0, 16), gf in 0u32..5, writes in 0.0f64..1.0,
    ) {
        let model = Model::new(&shares, 1 << gf, writes, Fabric::RDMA).unwrap();
        for model in [model.clone(), model.clone().with_algorithm_1().unwrap(), model.with_equal_load().unwrap()] {
            let sum: (f64, f64) =
                model.distribution().iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            prop_assert!((sum.0 - (1.0 - writes)).abs() < 1e-9 && (sum.1 - writes).abs() < 1e-9);
            let busiest = (0..16).map(|server| model.busy_us(server)).fold(0.0, f64::max);
            prop_assert!((model.saturation() * busiest - 1.0).abs() < 1e-9);
        }
    }
}
