//! Utilization after each step of migration and replication (RackOut §4.7).

use minos_rack::{BadParameter, Cluster, Demand, ServiceTimes, StepKind};

use crate::Dataset;

/// After a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Steps so far.
    pub steps: usize,
    /// Copies beyond the first of each micro-shard.
    pub copies: usize,
    /// Copies of the most requested micro-shard beyond the first.
    pub copies_of_hottest: usize,
    /// The rate at which the first server saturates, of the best possible.
    pub utilization: f64,
}

/// Reads and writes of each micro-shard. Writes follow `writes`, all requests follow `all`, and reads are
/// the difference (§4.7, figure 11 b).
///
/// # Errors
/// There are not as many micro-shards in one as in the other, or `write_share` is no share.
pub fn demands(all: &Dataset, writes: &Dataset, write_share: f64) -> Result<Vec<Demand>, BadParameter> {
    BadParameter::unless_share("write-share", write_share)?;
    let (all, writes) = (all.popularity().shares(), writes.popularity().shares());
    if all.len() != writes.len() {
        return Err(BadParameter::new("micro-shards", writes.len(), all.len()));
    }
    let demand = |(all, writes): (f64, f64)| {
        let writes = write_share * writes;
        Demand { reads: (all - writes).max(0.0), writes }
    };
    Ok(all.zip(writes).map(demand).collect())
}

/// The states from the first on, after at most `steps` steps.
///
/// # Errors
/// The servers do not divide into units, or a service time is not above zero.
pub fn run(
    dataset: &Dataset,
    demands: &[Demand],
    gf: u32,
    times: ServiceTimes,
    steps: usize,
) -> Result<Vec<State>, BadParameter> {
    let servers = dataset.shares().len() as u32;
    let mut cluster = Cluster::new(servers, gf, times, dataset.owners(), demands)?;
    let asked = |demand: &Demand| demand.reads + demand.writes;
    let hottest = (0..demands.len()).max_by(|&a, &b| asked(&demands[a]).total_cmp(&asked(&demands[b])));
    let mut state = State { steps: 0, copies: 0, copies_of_hottest: 0, utilization: cluster.utilization() };
    let mut states = vec![state];
    while let Some(step) = (states.len() <= steps).then(|| cluster.relieve()).flatten() {
        state.steps += 1;
        if step.kind == StepKind::Replication {
            state.copies += 1;
            state.copies_of_hottest += usize::from(hottest == Some(step.micro_shard as usize));
        }
        state.utilization = cluster.utilization();
        states.push(state);
    }
    Ok(states)
}

/// The fewest copies that reach `utilization`; `None` if none did.
pub fn copies_for(states: &[State], utilization: f64) -> Option<usize> {
    states.iter().find(|state| state.utilization >= utilization).map(|state| state.copies)
}

/// The highest utilization of all.
pub fn plateau(states: &[State]) -> f64 {
    states.iter().map(|state| state.utilization).fold(0.0, f64::max)
}
