//! RackOut_adaptive for any number of overloaded servers (RackOut §5.2).
//!
//! The paper's algorithms assume that at most one server of a unit has more than its part of the load; the
//! paper says that they can be extended. Both are a water-filling problem: reads fill servers up to a common
//! level. With at most one overloaded server, the result is that of the pseudo-code.

use crate::{BadParameter, ReadDistribution};

/// Algorithm 1 for any number of overloaded servers: reads fill each server up to a common level; servers
/// whose writes alone are above it get none.
///
/// # Errors
/// The unit has no server.
pub fn by_writes(writes: &[u64], reads_total: u64) -> Result<ReadDistribution, BadParameter> {
    if reads_total == 0 {
        return ReadDistribution::uniform(writes.len());
    }
    let taken: Vec<f64> = writes.iter().map(|count| *count as f64).collect();
    ReadDistribution::new(fill(&taken, &vec![1.0; taken.len()], reads_total as f64))
}

/// Algorithm 2 for any number of servers whose probability would become negative. From each server's
/// probability it subtracts the amount by which the server's share of all service times exceeds the average.
/// The excess of servers at zero is taken in equal parts from the others.
///
/// # Errors
/// A service time is negative or not finite, or there are not as many as servers.
pub fn by_service_times(times: &[f64], reads: &ReadDistribution) -> Result<ReadDistribution, BadParameter> {
    let probabilities = reads.probabilities();
    if times.len() != probabilities.len() {
        return Err(BadParameter::new("service-times", times.len(), probabilities.len()));
    }
    if let Some(time) = times.iter().find(|time| !time.is_finite() || **time < 0.0) {
        return Err(BadParameter::new("service-time", time, "0 or more"));
    }
    let sum: f64 = times.iter().sum();
    if sum <= 0.0 {
        return Ok(reads.clone());
    }
    let fair = 1.0 / times.len() as f64;
    let ground: Vec<f64> =
        probabilities.iter().zip(times).map(|(read, time)| time / sum - fair - read).collect();
    ReadDistribution::new(fill(&ground, &vec![1.0; ground.len()], 1.0))
}

/// Makes all servers equally busy, by the service times of reads and writes at each. Neither of the paper's
/// algorithms does.
///
/// `busy` is the time that each server spends on work that cannot be moved, `per_read` the service time of
/// one read there, and `reads_total` the number of reads, all within the same interval.
///
/// # Errors
/// A time of `busy` is not finite, one of `per_read` is not above zero, or their lengths differ.
pub fn by_load(busy: &[f64], per_read: &[f64], reads_total: f64) -> Result<ReadDistribution, BadParameter> {
    if busy.len() != per_read.len() {
        return Err(BadParameter::new("per-read", per_read.len(), busy.len()));
    }
    if let Some(time) = busy.iter().find(|time| !time.is_finite()) {
        return Err(BadParameter::new("busy", time, "a finite time"));
    }
    for time in per_read {
        BadParameter::unless_positive("per-read", *time)?;
    }
    if reads_total <= 0.0 {
        return ReadDistribution::uniform(busy.len());
    }
    ReadDistribution::new(fill(busy, per_read, reads_total))
}

/// Distributes `amount` over servers, such that `ground + cost * part` is equal for all servers with a part,
/// and not above the `ground` of the others.
fn fill(ground: &[f64], cost: &[f64], amount: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ground.len()).collect();
    order.sort_by(|&a, &b| ground[a].total_cmp(&ground[b]).then(a.cmp(&b)));
    let (mut width, mut weighed, mut level) = (0.0, 0.0, 0.0);
    for (place, &server) in order.iter().enumerate() {
        // The level at which the servers up to this one hold the whole amount.
        width += 1.0 / cost[server];
        weighed += ground[server] / cost[server];
        level = (amount + weighed) / width;
        if order.get(place + 1).is_none_or(|&next| level <= ground[next]) {
            break;
        }
    }
    ground.iter().zip(cost).map(|(ground, cost)| ((level - ground) / cost).max(0.0)).collect()
}
