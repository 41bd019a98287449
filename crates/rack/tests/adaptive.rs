//! The generalised algorithms beside the paper's, and cases solved by hand.

use minos_rack::{ReadDistribution, adaptive, printed};
use proptest::prelude::*;

fn close(ours: &[f64], theirs: &[f64]) -> bool {
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() < 1e-9)
}

/// How many servers have more writes than their part of all requests.
fn overloaded(writes: &[u64], reads: u64) -> usize {
    let total = (writes.iter().sum::<u64>() + reads) as f64;
    writes.iter().filter(|count| **count as f64 > total / writes.len() as f64).count()
}

#[test]
fn by_hand() {
    // 100 requests over four servers make 25 each: 20 writes leave room for 5 reads, and so on.
    let reads = adaptive::by_writes(&[20, 0, 0, 0], 80).unwrap();
    assert!(close(reads.probabilities(), &[5.0 / 80.0, 25.0 / 80.0, 25.0 / 80.0, 25.0 / 80.0]));
    // Two have more than 25 already; the others share the 30 reads: 10 + 10 = 0 + 20.
    let reads = adaptive::by_writes(&[30, 30, 10, 0], 30).unwrap();
    assert!(close(reads.probabilities(), &[0.0, 0.0, 10.0 / 30.0, 20.0 / 30.0]));
    // The pseudo-code loses the excess of one of them, and its probabilities do not sum to one.
    let sum: f64 = printed::algorithm_1(&[30, 30, 10, 0], 70, 30).iter().sum();
    assert!((sum - 1.0).abs() > 0.01, "{sum}");
    // Twice as slow as the others: 2/5 of all times, 0.15 above the average.
    let uniform = ReadDistribution::uniform(4).unwrap();
    let reads = adaptive::by_service_times(&[2.0, 1.0, 1.0, 1.0], &uniform).unwrap();
    assert!(close(reads.probabilities(), &[0.10, 0.30, 0.30, 0.30]));
    // A server that needs twice as long for a read gets half as many.
    let reads = adaptive::by_load(&[0.0, 0.0], &[2.0, 1.0], 3.0).unwrap();
    assert!(close(reads.probabilities(), &[1.0 / 3.0, 2.0 / 3.0]));
}

#[test]
fn without_reads_or_writes_all_are_alike() {
    for (writes, reads) in [([0, 0], 10), ([5, 1], 0), ([0, 0], 0)] {
        assert_eq!(adaptive::by_writes(&writes, reads).unwrap().probabilities(), [0.5, 0.5]);
        assert_eq!(printed::algorithm_1(&writes, writes.iter().sum(), reads), [0.5, 0.5]);
    }
}

#[test]
fn one_server_alone_reads_all() {
    assert_eq!(adaptive::by_writes(&[7], 3).unwrap().probabilities(), [1.0]);
}

#[test]
fn bad_parameters_are_named() {
    let uniform = ReadDistribution::uniform(2).unwrap();
    for times in [vec![1.0], vec![1.0, -1.0], vec![1.0, f64::NAN]] {
        let fault = adaptive::by_service_times(&times, &uniform).unwrap_err().to_string();
        assert!(fault.starts_with("service-time"), "{fault}");
    }
    assert!(adaptive::by_load(&[1.0], &[0.0], 1.0).unwrap_err().to_string().starts_with("per-read"));
    assert!(adaptive::by_writes(&[], 1).is_err());
}

proptest! {
    #[test]
    fn algorithm_1_is_the_papers_for_one_overloaded_server(
        mut writes in proptest::collection::vec(0u64..50, 2..32), hot in 0u64..5_000, reads in 1u64..10_000,
    ) {
        writes[0] = hot;
        let printed = printed::algorithm_1(&writes, writes.iter().sum(), reads);
        // Beyond one overloaded server, and where the pseudo-code goes below zero, it is not defined.
        prop_assume!(overloaded(&writes, reads) <= 1 && printed.iter().all(|p| *p >= 0.0));
        let zeros = printed.iter().filter(|p| **p == 0.0).count();
        prop_assume!(zeros <= overloaded(&writes, reads));
        let ours = adaptive::by_writes(&writes, reads).unwrap();
        prop_assert!(close(ours.probabilities(), &printed), "{:?} {printed:?}", ours.probabilities());
    }

    #[test]
    fn algorithm_2_is_the_papers_for_one_slow_server(
        mut times in proptest::collection::vec(4.5f64..5.5, 8..32), slow in 1.0f64..60.0,
    ) {
        times[0] = slow;
        let uniform = ReadDistribution::uniform(times.len()).unwrap();
        let printed = printed::algorithm_2(&times, uniform.probabilities().to_vec());
        let ours = adaptive::by_service_times(&times, &uniform).unwrap();
        prop_assert!(close(ours.probabilities(), &printed), "{:?} {printed:?}", ours.probabilities());
    }

    #[test]
    fn no_server_is_filled_above_one_that_gets_reads(
        writes in proptest::collection::vec(0u64..1_000, 1..64), reads in 1u64..10_000,
    ) {
        let distribution = adaptive::by_writes(&writes, reads).unwrap();
        let probabilities = distribution.probabilities();
        prop_assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let level = |i: usize| writes[i] as f64 + probabilities[i] * reads as f64;
        let lowest = (0..writes.len()).map(level).fold(f64::MAX, f64::min);
        for i in (0..writes.len()).filter(|&i| probabilities[i] > 0.0) {
            prop_assert!(level(i) <= lowest + 1e-6);
        }
    }

    #[test]
    fn equally_busy(
        servers in proptest::collection::vec((0.0f64..100.0, 0.1f64..10.0), 1..64), reads in 0.1f64..1e4,
    ) {
        let (busy, per_read): (Vec<f64>, Vec<f64>) = servers.into_iter().unzip();
        let distribution = adaptive::by_load(&busy, &per_read, reads).unwrap();
        let probabilities = distribution.probabilities();
        let level = |i: usize| busy[i] + probabilities[i] * reads * per_read[i];
        let lowest = (0..busy.len()).map(level).fold(f64::MAX, f64::min);
        for i in (0..busy.len()).filter(|&i| probabilities[i] > 0.0) {
            prop_assert!(level(i) <= lowest * (1.0 + 1e-9) + 1e-6);
        }
    }
}
