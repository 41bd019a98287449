//! The paper's algorithms 1 and 2 to the letter (RackOut §5.2).
//!
//! They are right for at most one server with more than its part of the load. With more, `to_sub` is
//! overwritten and the probabilities do not sum to one; a large `to_sub` can make some negative. The rack
//! uses [`crate::adaptive`]; the tests show where both agree.

/// Algorithm 1: the read distribution from the servers' counts of writes.
///
/// Where the pseudo-code computes nothing, the result is the uniform distribution.
pub fn algorithm_1(wr_cnt: &[u64], wr_total: u64, rd_total: u64) -> Vec<f64> {
    let gf = wr_cnt.len();
    let mut rd_pr = vec![1.0 / gf as f64; gf];
    let mut wr_pr = vec![0.0; gf];
    let mut to_sub = 0.0;
    let wr_fr = wr_total as f64 / (wr_total + rd_total) as f64;
    let rd_fr = 1.0 - wr_fr;
    for i in 0..gf {
        wr_pr[i] = wr_cnt[i] as f64 / wr_total as f64;
    }
    if wr_total > 0 && rd_total > 0 {
        for i in 0..gf {
            let diff = (1.0 / gf as f64 - wr_pr[i] * wr_fr) / rd_fr;
            if diff < 0.0 {
                to_sub = diff.abs() / (gf as f64 - 1.0);
                rd_pr[i] = 0.0;
            } else {
                rd_pr[i] = diff;
            }
        }
        if to_sub > 0.0 {
            subtract(&mut rd_pr, to_sub);
        }
    }
    rd_pr
}

/// Algorithm 2: the read distribution `rd_pr` adjusted to the servers' average service times.
pub fn algorithm_2(avg_st: &[f64], mut rd_pr: Vec<f64>) -> Vec<f64> {
    let gf = avg_st.len();
    let mut avg_st_total = 0.0;
    let mut avg_st_nr = vec![0.0; gf];
    let mut to_sub = 0.0;
    for time in avg_st {
        avg_st_total += time;
    }
    for i in 0..gf {
        avg_st_nr[i] = avg_st[i] / avg_st_total;
    }
    for i in 0..gf {
        let diff = rd_pr[i] - (avg_st_nr[i] - 1.0 / gf as f64);
        if diff < 0.0 {
            to_sub = diff.abs() / (gf as f64 - 1.0);
            rd_pr[i] = 0.0;
        } else {
            rd_pr[i] = diff;
        }
    }
    if to_sub > 0.0 {
        subtract(&mut rd_pr, to_sub);
    }
    rd_pr
}

/// Lines 15 to 18 of algorithm 1, 14 to 17 of algorithm 2.
fn subtract(rd_pr: &mut [f64], to_sub: f64) {
    for probability in rd_pr {
        if *probability > 0.0 {
            *probability -= to_sub;
        }
    }
}
