//! Requests for tests of the policy.

use minos_base::SizeClass;
use minos_sched::{ControlConfig, Design, Options, Policy, SizeHistogram};
use proptest::prelude::*;
use rand::{RngExt, rngs::StdRng};
use rand_distr::{Distribution, Poisson};

pub(crate) fn classes() -> impl Iterator<Item = SizeClass> {
    (0..SizeClass::COUNT).filter_map(SizeClass::from_index)
}

pub(crate) fn size_aware(config: ControlConfig) -> Policy {
    Policy::new(Design::SizeAware, config, Options::default()).unwrap()
}

pub(crate) fn histogram(sizes: &[(u64, u64)]) -> SizeHistogram {
    let mut histogram = SizeHistogram::new();
    for &(bytes, requests) in sizes {
        histogram.record(SizeClass::of(bytes), requests);
    }
    histogram
}

/// Sizes whose logarithms are uniform over the whole range; counts are mostly small, some huge.
pub(crate) fn any_requests() -> impl Strategy<Value = SizeHistogram> {
    let size = (0u32..=30, 0u64..1 << 30).prop_map(|(bits, bytes)| bytes >> bits);
    let count = prop_oneof![1u64..100, 1u64..1_000_000];
    prop::collection::vec((size, count), 1..60).prop_map(|sizes| histogram(&sizes))
}

/// One second of the papers' trimodal mix with Poisson noise on every count: 40 % tiny, 60 % small
/// up to `small_max` bytes, and large ones at `large_rate` a second.
pub(crate) fn epoch_of_mix(random: &mut StdRng, rate: f64, small_max: u64, large_rate: f64) -> SizeHistogram {
    let mut requests = SizeHistogram::new();
    let mut class_of_many = |mean: f64, min: u64, max: u64| {
        let count = Poisson::new(mean).unwrap().sample(random) as u64;
        for _ in 0..count {
            requests.record(SizeClass::of(random.random_range(min..=max)), 1);
        }
    };
    class_of_many(0.4 * rate, 1, 13);
    class_of_many(0.6 * rate, 14, small_max);
    class_of_many(large_rate, 1500.max(small_max), 500_000);
    requests
}

/// The distance of two sizes in classes.
pub(crate) fn classes_between(left: SizeClass, right: SizeClass) -> usize {
    left.index().abs_diff(right.index())
}
