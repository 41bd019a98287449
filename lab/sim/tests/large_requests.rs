//! The penalty of large requests for the benefit of small ones (Minos §6.1), where copying and not the link
//! is the bottleneck.

use minos_sim::dispatch::{Costs, Design, Outcome, Spec, run};

/// 100 Gbit/s and 0.2 ns a byte: the paper's "factor of 2" shows.
fn outcome(design: Design, rate: f64) -> Outcome {
    let costs = Costs { per_byte_ns: 0.2, link_gbps: 100.0, ..Costs::kernel_bypass() };
    let spec = Spec { costs, requests: 1_000_000, epoch_requests: 50_000, ..Spec::new(design, rate) };
    run(&spec).unwrap()
}

fn p99s(design: Design, rate: f64) -> (f64, f64) {
    let latency = outcome(design, rate).latency_us;
    (latency.small.p99, latency.large.p99)
}

#[test]
fn nobody_idle_while_anything_waits_lifts_the_penalty() {
    for rate in [2e6, 5.6e6] {
        let (_, stealing) = p99s(Design::Stealing, rate);
        let (minos_small, minos) = p99s(Design::SizeAware, rate);
        let (small, large) = p99s(Design::WorkConserving, rate);
        assert!(minos > 1.25 * stealing, "at {rate} there is no penalty: {minos}, HKH+WS {stealing}");
        assert!(large < 1.2 * stealing, "at {rate}: {large}, HKH+WS {stealing}");
        assert!(small <= minos_small, "at {rate}: small {small}, Minos {minos_small}");
    }
}

#[test]
fn helping_alone_does_not() {
    let ((_, helping), (_, stealing)) = (p99s(Design::Helping, 5.6e6), p99s(Design::Stealing, 5.6e6));
    assert!(helping > 1.3 * stealing, "{helping}, HKH+WS {stealing}");
}
