//! Covers by hand, against all subsets, and against the closed form.

use minos_rackmodel::{
    figures::figure_13,
    multiget::{Spec, cover_exactly, cover_greedily, nodes_expected, run},
};
use proptest::prelude::*;

const SPEC: Spec = Spec { width: 32, nodes: 128, gf: 1, replicas: 1, trials: 4_000, exact: false, seed: 1 };

#[test]
fn by_hand() {
    // The largest set misleads: after 0b011110 two more are needed, but two are enough.
    let sets = [0b001_110, 0b000_111, 0b111_000, 0b011_110];
    assert_eq!((cover_greedily(&sets, 0b111_111), cover_exactly(&sets, 0b111_111)), (3, Some(2)));
    assert_eq!((cover_greedily(&[], 0), cover_exactly(&[], 0)), (0, Some(0)));
    assert_eq!(cover_exactly(&[0b01], 0b11), None);
    assert_eq!(nodes_expected(32, 1), 1.0);
    assert!((32.0 / nodes_expected(32, 2) - 16.0).abs() < 1e-6);
    // Two keys on two of three nodes each always have one in common.
    let spec = Spec { width: 2, nodes: 3, replicas: 2, exact: true, ..SPEC };
    let outcome = run(&spec).unwrap();
    assert_eq!((outcome.nodes, outcome.exact_nodes), (1.0, Some(1.0)));
}

#[test]
fn one_copy_is_balls_into_bins() {
    for nodes in [1, 2, 8, 32, 128, 1024] {
        let outcome = run(&Spec { nodes, ..SPEC }).unwrap();
        let expected = nodes_expected(32, nodes);
        let off = (outcome.nodes - expected).abs();
        assert!(off <= 2.0 * outcome.nodes_plus_minus + 1e-9, "{nodes}: {} {expected}", outcome.nodes);
    }
}

#[test]
fn as_many_copies_as_nodes_need_one_node() {
    assert_eq!(run(&Spec { nodes: 8, replicas: 8, ..SPEC }).unwrap().nodes, 1.0);
}

#[test]
fn units_are_as_nodes() {
    let spec = Spec { replicas: 3, ..SPEC };
    let units = run(&Spec { nodes: 256, gf: 16, ..spec }).unwrap();
    assert_eq!(units, run(&Spec { nodes: 16, gf: 1, ..spec }).unwrap());
    assert!(units.nodes < run(&Spec { nodes: 256, ..spec }).unwrap().nodes);
}

#[test]
fn greedy_is_near_the_best() {
    let spec = Spec { width: 16, nodes: 32, replicas: 3, trials: 500, exact: true, ..SPEC };
    let outcome = run(&spec).unwrap();
    let exact = outcome.exact_nodes.unwrap();
    assert!(exact <= outcome.nodes && outcome.nodes < exact * 1.15, "{exact} {}", outcome.nodes);
    assert!(outcome.greedy_worse > 0 && outcome.given_up == 0);
    assert_eq!(run(&spec).unwrap(), outcome);
}

#[test]
fn the_papers_example_takes_nine_nodes() {
    let outcome = run(&Spec { replicas: 10, trials: 1_000, ..SPEC }).unwrap();
    assert!((outcome.nodes - 9.0).abs() < 0.9, "{}", outcome.nodes);
}

#[test]
fn the_figure_has_a_row_for_each_point() {
    let figure = figure_13(10, 1).unwrap();
    assert!(figure.rows.iter().all(|row| row.len() == figure.columns.len()));
    assert!(figure.rows.iter().any(|row| row[..3] == [1.0, 10.0, 128.0]));
}

#[test]
fn bad_parameters_are_named() {
    let fault = |spec: Spec| run(&spec).unwrap_err().to_string();
    assert_eq!(fault(Spec { width: 0, ..SPEC }), "width: 0 is not allowed; allowed is 1 to 128");
    assert_eq!(
        fault(Spec { width: 65, exact: true, ..SPEC }),
        "width: 65 is not allowed; allowed is 1 to 64"
    );
    assert_eq!(fault(Spec { replicas: 9, gf: 16, ..SPEC }), "replicas: 9 is not allowed; allowed is 1 to 8");
    assert!(fault(Spec { gf: 3, ..SPEC }).starts_with("gf: 3"));
    assert!(fault(Spec { nodes: 0, ..SPEC }).starts_with("servers: 0"));
    assert!(fault(Spec { trials: 0, ..SPEC }).starts_with("trials: 0"));
}

/// The fewest of all subsets.
fn by_all_subsets(sets: &[u128], all: u128) -> Option<u32> {
    let union = |chosen: u32| {
        let taken = (0..sets.len()).filter(|index| chosen >> index & 1 == 1);
        taken.fold(0, |union, index| union | sets[index])
    };
    let covering = (0u32..1 << sets.len()).filter(|chosen| union(*chosen) & all == all);
    covering.map(u32::count_ones).min()
}

proptest! {
    #[test]
    fn the_exact_search_finds_the_fewest(sets in proptest::collection::vec(0u128..1 << 12, 0..10)) {
        let all = sets.iter().fold(0, |union, set| union | set);
        let best = by_all_subsets(&sets, all);
        prop_assert_eq!(cover_exactly(&sets, all), best);
        prop_assert!(Some(cover_greedily(&sets, all)) >= best);
    }
}
