//! The simulator of queues agrees with closed forms within 1 %.

mod theory;

use minos_sim::{
    Distribution,
    queues::{Binding, Outcome, Spec, run},
};

const ARRIVALS: u64 = 10_000_000;

fn simulate(binding: Binding, workers: usize, load: f64, distribution: Distribution) -> Outcome {
    let spec = Spec { workers, distribution, arrivals: ARRIVALS, ..Spec::new(binding, load) };
    run(&spec).unwrap()
}

#[track_caller]
fn assert_close(what: &str, had: f64, wanted: f64) {
    assert!((had / wanted - 1.0).abs() < 0.01, "{what}: {had}, not {wanted}");
}

#[test]
fn waits_of_m_m_1() {
    for load in [0.3, 0.7] {
        let outcome = simulate(Binding::Early, 4, load, Distribution::Exponential);
        assert_close("M/M/1", outcome.response.all.mean_wait.value, theory::mg1_mean_wait(load, 1.0));
        assert_close("M/M/1, response", outcome.response.all.mean.value, 1.0 / (1.0 - load));
    }
}

#[test]
fn percentiles_of_m_m_1() {
    let outcome = simulate(Binding::Early, 2, 0.6, Distribution::Exponential);
    let all = outcome.response.all;
    for (percentile, had) in [(50.0, all.p50), (90.0, all.p90), (99.0, all.p99)] {
        assert_close("M/M/1, percentile", had, theory::mm1_response(0.6, percentile));
    }
}

#[test]
fn waits_of_m_d_1() {
    for load in [0.3, 0.8] {
        let outcome = simulate(Binding::Early, 2, load, Distribution::Deterministic);
        assert_close("M/D/1", outcome.response.all.mean_wait.value, theory::mg1_mean_wait(load, 0.0));
    }
}

#[test]
fn waits_of_m_g_1() {
    // Two per cent take ten times as long: the variation by hand.
    let distribution = Distribution::Bimodal { k: 10.0, large_percent: 2.0 };
    let mean = distribution.mean();
    let squared_variation = (0.98 + 0.02 * 100.0) / (mean * mean) - 1.0;
    let outcome = simulate(Binding::Early, 1, 0.5, distribution);
    let wanted = theory::mg1_mean_wait(0.5, squared_variation) * mean;
    assert_close("M/G/1", outcome.response.all.mean_wait.value, wanted);
}

#[test]
fn waits_of_m_m_n() {
    for (workers, load) in [(2, 0.6), (4, 0.7), (8, 0.7)] {
        let outcome = simulate(Binding::Late, workers, load, Distribution::Exponential);
        let wanted = theory::mmn_mean_wait(workers, load);
        assert_close("M/M/n", outcome.response.all.mean_wait.value, wanted);
    }
}

#[test]
fn who_steals_from_everybody_waits_as_in_m_m_n() {
    // Stealing changes who goes first, not how many wait.
    let outcome = simulate(Binding::Stealing, 8, 0.7, Distribution::Exponential);
    assert_close("stealing", outcome.response.all.mean_wait.value, theory::mmn_mean_wait(8, 0.7));
}

#[test]
fn the_check_tells_five_percent_of_load() {
    // The control: the same run held against the wait of a load that is a twentieth higher.
    let outcome = simulate(Binding::Early, 4, 0.5, Distribution::Exponential);
    let wrong = theory::mg1_mean_wait(0.525, 1.0);
    assert!((outcome.response.all.mean_wait.value / wrong - 1.0).abs() > 0.05);
}

#[test]
fn workers_are_busy_as_much_as_the_load_says() {
    for binding in Binding::ALL {
        let spec = Spec { arrivals: 1_000_000, ..Spec::new(binding, 0.5) };
        let outcome = run(&spec).unwrap();
        let busy = outcome.busy.iter().sum::<f64>() / outcome.busy.len() as f64;
        assert!((busy - 0.5).abs() < 0.02, "{binding:?}: {busy}");
    }
}
