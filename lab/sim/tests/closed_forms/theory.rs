//! Closed forms of queueing theory. Times are in mean service times; `load` is the workers' utilization,
//! below 1.

/// Mean wait in M/G/1 (Pollaczek and Khinchine), for a squared coefficient of variation of the service
/// times: 1 if they are exponential, 0 if they are all the same.
pub(crate) fn mg1_mean_wait(load: f64, squared_variation: f64) -> f64 {
    load * (1.0 + squared_variation) / (2.0 * (1.0 - load))
}

/// Percentile of the response times in M/M/1 first come first served, which are exponential.
pub(crate) fn mm1_response(load: f64, percentile: f64) -> f64 {
    -libm::log(1.0 - percentile / 100.0) / (1.0 - load)
}

/// Probability of having to wait in M/M/n (Erlang C).
fn erlang_c(workers: usize, load: f64) -> f64 {
    let offered = load * workers as f64;
    // Erlang B by its recursion, then C from B.
    let blocked = (1..=workers).fold(1.0, |b, n| offered * b / (n as f64 + offered * b));
    blocked / (1.0 - load * (1.0 - blocked))
}

/// Mean wait in M/M/n.
pub(crate) fn mmn_mean_wait(workers: usize, load: f64) -> f64 {
    erlang_c(workers, load) / (workers as f64 * (1.0 - load))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[test]
    fn known_values() {
        assert!(close(mg1_mean_wait(0.5, 1.0), 1.0) && close(mg1_mean_wait(0.5, 0.0), 0.5));
        assert!(close(mm1_response(0.5, 50.0), 2.0 * std::f64::consts::LN_2));
        // One worker: the wait of M/M/1. Two: C = 2 rho^2 / (1 + rho).
        assert!(close(mmn_mean_wait(1, 0.8), mg1_mean_wait(0.8, 1.0)));
        assert!(close(erlang_c(2, 0.75), 2.0 * 0.75 * 0.75 / 1.75));
    }
}
