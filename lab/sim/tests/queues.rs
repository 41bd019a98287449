//! The results of the simulator of queues, and the parameters it must refuse.

use minos_sim::{
    Distribution,
    queues::{Binding, Figure2, Outcome, Spec, SpecError, figure2, run, run_all},
};

fn paper(binding: Binding, load: f64, k: f64) -> Outcome {
    let distribution = Distribution::Bimodal { k, large_percent: 0.125 };
    run(&Spec { distribution, arrivals: 2_000_000, ..Spec::new(binding, load) }).unwrap()
}

fn p99(outcome: &Outcome) -> f64 {
    outcome.response.all.percentile.value
}

#[test]
fn a_seed_names_a_run() {
    let spec = |seed| Spec { seed, arrivals: 200_000, ..Spec::new(Binding::SizeAwareHelping, 0.7) };
    let first = run(&spec(1)).unwrap();
    assert_eq!(first, run(&spec(1)).unwrap());
    assert_ne!(first.response, run(&spec(2)).unwrap().response);
    // Side by side or one after the other is the same.
    let specs: Vec<_> = (1..=5).map(spec).collect();
    assert_eq!(run_all(&specs, || {}).unwrap()[0], first);
}

#[test]
fn large_requests_delay_small_ones_in_blind_designs_only() {
    // Minos §2.2: 0.125 % of the requests, though fewer than 1 %, raise the 99th percentile.
    let (without, with) = (paper(Binding::Early, 0.5, 1.0), paper(Binding::Early, 0.5, 100.0));
    assert!(p99(&with) > 10.0 * p99(&without), "{} after {}", p99(&with), p99(&without));
    let size_aware = paper(Binding::SizeAware, 0.5, 100.0);
    assert!(p99(&size_aware) < 2.0 * p99(&without), "{} after {}", p99(&size_aware), p99(&without));
    assert!(size_aware.response.large.percentile.value > p99(&size_aware));
}

#[test]
fn designs_come_in_the_order_of_the_paper() {
    let of = |binding| p99(&paper(binding, 0.8, 100.0));
    let (early, late, stealing, size_aware) =
        (of(Binding::Early), of(Binding::Late), of(Binding::Stealing), of(Binding::SizeAware));
    assert!(
        size_aware < late && late <= stealing && stealing < early,
        "{size_aware} {late} {stealing} {early}"
    );
}

#[test]
fn helping_does_not_harm() {
    let (alone, helping) =
        (paper(Binding::SizeAware, 0.8, 1000.0), paper(Binding::SizeAwareHelping, 0.8, 1000.0));
    assert!(alone.large_workers > 0, "there is nobody to help");
    assert!(p99(&helping) <= p99(&alone), "{} after {}", p99(&helping), p99(&alone));
}

#[test]
fn figure_2_has_a_row_a_point() {
    let mut figure = Figure2::paper();
    figure.base.arrivals = 100_000;
    (figure.ks, figure.loads) = (vec![1.0, 1000.0], vec![0.1, 0.5]);
    let rows = figure2(&figure, || {}).unwrap();
    assert_eq!(rows.len(), 3 * 2 * 2);
    // "At only 10 % utilization": two orders of magnitude for early binding (Minos §2.2).
    let early =
        |k| rows.iter().find(|row| row.model == Binding::Early && row.k == k && row.load == 0.1).unwrap();
    assert!(early(1000.0).percentile > 100.0 * early(1.0).percentile, "{rows:?}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let good = Spec::new(Binding::Early, 0.5);
    assert_eq!(good.check(), Ok(()));
    let bad = [
        ("workers", Spec { workers: 0, ..good.clone() }),
        ("workers", Spec { workers: 129, ..good.clone() }),
        ("load", Spec { load: 1.0, ..good.clone() }),
        ("load", Spec { load: f64::NAN, ..good.clone() }),
        ("percentile", Spec { percentile: 100.0, ..good.clone() }),
        ("small-percentile", Spec { small_percentile: 0.0, ..good.clone() }),
        ("arrivals", Spec { arrivals: 10, ..good.clone() }),
        ("warmup-percent", Spec { warmup_percent: 100.0, ..good.clone() }),
        ("epoch-arrivals", Spec { epoch_arrivals: 0, ..good.clone() }),
        ("k", Spec { distribution: Distribution::Bimodal { k: 0.0, large_percent: 1.0 }, ..good.clone() }),
    ];
    for (name, spec) in bad {
        let message = run(&spec).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{name}: ")) && message.contains("allowed is"), "{message}");
    }
    assert!(matches!(run_all(&[good, Spec::new(Binding::Late, 2.0)], || {}), Err(SpecError::Load(_))));
}
