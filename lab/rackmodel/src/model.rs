//! Servers, their load, and the rate at which the first one saturates (RackOut §4.2).

use minos_rack::{BadParameter, ReadDistribution, ServiceTimes, adaptive, unit_count};

use crate::skew::{hottest, unit_shares};

/// Requests that stand for shares where whole counts of writes are expected.
const COUNTED: f64 = 1e15;

/// Service times and network delay of a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fabric {
    /// Service times of requests at servers.
    pub times: ServiceTimes,
    /// Time to a server and back, in microseconds.
    pub propagation_us: f64,
}

impl Fabric {
    /// Table 1, measured on RDMA.
    pub const RDMA: Self =
        Self { times: ServiceTimes { lr_us: 5.0, rr_us: 8.4, lw_us: 6.9 }, propagation_us: 34.9 };
    /// Table 1, projected for Scale-Out NUMA.
    pub const SONUMA: Self =
        Self { times: ServiceTimes { lr_us: 5.0, rr_us: 5.8, lw_us: 6.9 }, propagation_us: 34.9 };
}

/// A cluster under a load that does not change.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) gf: usize,
    pub(crate) fabric: Fabric,
    pub(crate) write_share: f64,
    /// Requests for keys of each server, as a share of all.
    pub(crate) shares: Vec<f64>,
    pub(crate) reads: Vec<ReadDistribution>,
    /// Factor on all service times of each server.
    pub(crate) slowdown: Vec<f64>,
}

impl Model {
    /// Units of `gf` servers that read uniformly (RackOut_static).
    ///
    /// # Errors
    /// A parameter is out of bounds.
    pub fn new(shares: &[f64], gf: u32, write_share: f64, fabric: Fabric) -> Result<Self, BadParameter> {
        let servers = u32::try_from(shares.len()).unwrap_or(u32::MAX);
        let units = unit_count(servers, gf)? as usize;
        BadParameter::unless_share("write-share", write_share)?;
        fabric.times.checked()?;
        if !(fabric.propagation_us.is_finite() && fabric.propagation_us >= 0.0) {
            return Err(BadParameter::new("propagation-us", fabric.propagation_us, "0 or more"));
        }
        let sum: f64 = shares.iter().sum();
        if !sum.is_finite() || sum <= 0.0 || shares.iter().any(|share| *share < 0.0) {
            return Err(BadParameter::new("shares", sum, "0 or more each, above 0 in all"));
        }
        let uniform = ReadDistribution::uniform(gf as usize)?;
        Ok(Self {
            gf: gf as usize,
            fabric,
            write_share,
            shares: shares.iter().map(|share| share / sum).collect(),
            reads: vec![uniform; units],
            slowdown: vec![1.0; shares.len()],
        })
    }

    /// Multiplies all service times of `server` by `factor`.
    ///
    /// # Errors
    /// There is no such server, or the factor is not above zero.
    pub fn with_interference(mut self, server: usize, factor: f64) -> Result<Self, BadParameter> {
        BadParameter::unless_positive("interference", factor)?;
        let servers = self.shares.len();
        let slowed = self.slowdown.get_mut(server);
        let fault = || BadParameter::new("interference-server", server, format_args!("below {servers}"));
        *slowed.ok_or_else(fault)? = factor;
        Ok(self)
    }

    /// Reads by algorithm 1, from the writes to be expected.
    ///
    /// # Errors
    /// None that the model does not already rule out.
    pub fn with_algorithm_1(mut self) -> Result<Self, BadParameter> {
        for (unit, reads) in self.shares.chunks(self.gf).zip(&mut self.reads) {
            let all: f64 = unit.iter().sum();
            let count = |share: f64| (share / all.max(f64::MIN_POSITIVE) * COUNTED).round() as u64;
            let writes: Vec<u64> = unit.iter().map(|share| count(share * self.write_share)).collect();
            *reads = adaptive::by_writes(&writes, count(all * (1.0 - self.write_share)))?;
        }
        Ok(self)
    }

    /// Reads by algorithm 1, then by algorithm 2 from the service times to be expected.
    ///
    /// # Errors
    /// None that the model does not already rule out.
    pub fn with_algorithms_1_and_2(self) -> Result<Self, BadParameter> {
        let mut model = self.with_algorithm_1()?;
        for unit in 0..model.reads.len() {
            let servers = unit * model.gf..(unit + 1) * model.gf;
            let times: Vec<f64> = servers.map(|server| model.mean_service_us(server)).collect();
            model.reads[unit] = adaptive::by_service_times(&times, &model.reads[unit])?;
        }
        Ok(model)
    }

    /// Reads such that the servers of a unit are equally busy.
    ///
    /// # Errors
    /// None that the model does not already rule out.
    pub fn with_equal_load(mut self) -> Result<Self, BadParameter> {
        for unit in 0..self.reads.len() {
            let servers = unit * self.gf..(unit + 1) * self.gf;
            let busy: Vec<f64> = servers.clone().map(|server| self.writes_us(server)).collect();
            let per_read: Vec<f64> = servers.map(|server| self.per_read_us(server)).collect();
            let reads = self.unit_share(unit) * (1.0 - self.write_share);
            self.reads[unit] = adaptive::by_load(&busy, &per_read, reads)?;
        }
        Ok(self)
    }

    /// A model of only the `servers` consecutive servers with the highest load, in units of this model's
    /// size, without slow servers and with uniform reads.
    ///
    /// # Errors
    /// The units do not divide the servers.
    pub fn hottest_rack(&self, servers: u32) -> Result<Self, BadParameter> {
        unit_count(self.shares.len() as u32, servers)?;
        let rack = hottest(&unit_shares(&self.shares, servers));
        let shares = self.shares.chunks(servers as usize).nth(rack).unwrap_or(&[]);
        Self::new(shares, self.gf as u32, self.write_share, self.fabric)
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.shares.len()
    }

    /// The reads and the writes at each server, as shares of all requests.
    pub fn distribution(&self) -> Vec<(f64, f64)> {
        let of = |server: usize| {
            let unit = server / self.gf;
            let reads = self.unit_share(unit) * (1.0 - self.write_share);
            let probability = self.reads[unit].probabilities()[server % self.gf];
            (reads * probability, self.shares[server] * self.write_share)
        };
        (0..self.servers()).map(of).collect()
    }

    /// Mean time that a server spends per request of the cluster, in microseconds: the sum of rates times
    /// service times, over the rate of all requests.
    pub fn busy_us(&self, server: usize) -> f64 {
        self.distribution()[server].0 * self.per_read_us(server) + self.writes_us(server)
    }

    /// Requests per microsecond at which the first server saturates.
    pub fn saturation(&self) -> f64 {
        let distribution = self.distribution();
        let busy = |server: usize| distribution[server].0 * self.per_read_us(server) + self.writes_us(server);
        1.0 / (0..self.servers()).map(busy).fold(0.0, f64::max)
    }

    /// A rate as a share of the servers' throughput if all requests were local reads, spread evenly (§4.2).
    pub fn utilization(&self, rate: f64) -> f64 {
        rate * self.fabric.times.lr_us / self.servers() as f64
    }

    fn unit_share(&self, unit: usize) -> f64 {
        self.shares[unit * self.gf..(unit + 1) * self.gf].iter().sum()
    }

    fn writes_us(&self, server: usize) -> f64 {
        self.shares[server] * self.write_share * self.fabric.times.lw_us * self.slowdown[server]
    }

    /// Mean service time at this server of a read from the unit.
    fn per_read_us(&self, server: usize) -> f64 {
        let all = self.unit_share(server / self.gf);
        let local = if all > 0.0 { self.shares[server] / all } else { 1.0 };
        let ServiceTimes { lr_us, rr_us, .. } = self.fabric.times;
        (local * lr_us + (1.0 - local) * rr_us) * self.slowdown[server]
    }

    /// Mean service time at this server; that of a read if it gets no requests.
    fn mean_service_us(&self, server: usize) -> f64 {
        let (reads, writes) = self.distribution()[server];
        if reads + writes <= 0.0 {
            return self.per_read_us(server);
        }
        (reads * self.per_read_us(server) + self.writes_us(server)) / (reads + writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: [f64; 4] = [0.4, 0.2, 0.3, 0.1];

    #[test]
    fn saturation_by_hand() {
        let saturation = |gf, writes| Model::new(&SHARES, gf, writes, Fabric::RDMA).unwrap().saturation();
        // The hottest server reads 0.4 of all, 5 us each.
        assert!((saturation(1, 0.0) - 1.0 / 2.0).abs() < 1e-12);
        // It reads half of 0.6, two thirds of which locally.
        let pair = 0.3 * (5.0 * 2.0 / 3.0 + 8.4 / 3.0);
        // Its partner reads as many, but only a third locally.
        let partner = 0.3 * (5.0 / 3.0 + 8.4 * 2.0 / 3.0);
        assert!(partner > pair && (saturation(2, 0.0) - 1.0 / partner).abs() < 1e-12);
        // Only writes: units do not help.
        assert!((saturation(2, 1.0) - 1.0 / (0.4 * 6.9)).abs() < 1e-12);
    }

    #[test]
    fn equal_load_is_equal_and_best() {
        for writes in [0.0, 0.05, 0.2] {
            let model = Model::new(&SHARES, 4, writes, Fabric::SONUMA).unwrap();
            let best = model.clone().with_equal_load().unwrap();
            let busy: Vec<f64> = (0..4).map(|server| best.busy_us(server)).collect();
            assert!(busy.iter().all(|time| (time - busy[0]).abs() < 1e-9), "{busy:?}");
            let printed = model.clone().with_algorithm_1().unwrap();
            assert!(best.saturation() >= printed.saturation() - 1e-12);
            assert!(printed.saturation() >= model.saturation() - 1e-2);
        }
    }

    #[test]
    fn a_slow_server_is_asked_less() {
        let model = Model::new(&SHARES, 4, 0.05, Fabric::SONUMA).unwrap().with_interference(2, 4.0).unwrap();
        let blind = model.clone().with_algorithm_1().unwrap();
        let seeing = model.with_algorithms_1_and_2().unwrap();
        assert!(seeing.saturation() > 1.5 * blind.saturation());
        assert_eq!(seeing.distribution()[2].0, 0.0);
    }

    #[test]
    fn bad_parameters_are_named() {
        let fault = |gf, writes, fabric| Model::new(&SHARES, gf, writes, fabric).unwrap_err().to_string();
        assert_eq!(
            fault(3, 0.0, Fabric::RDMA),
            "gf: 3 is not allowed; allowed is a divisor of the 4 servers"
        );
        assert_eq!(fault(2, 1.5, Fabric::RDMA), "write-share: 1.5 is not allowed; allowed is 0 to 1");
        assert!(fault(2, f64::NAN, Fabric::RDMA).starts_with("write-share: NaN"));
        let far = Fabric { propagation_us: -1.0, ..Fabric::RDMA };
        assert!(fault(2, 0.5, far).starts_with("propagation-us: -1"));
        assert!(Model::new(&[], 1, 0.0, Fabric::RDMA).unwrap_err().to_string().starts_with("servers: 0"));
        let model = Model::new(&SHARES, 2, 0.0, Fabric::RDMA).unwrap();
        assert!(model.clone().with_interference(4, 2.0).is_err() && model.with_interference(0, 0.0).is_err());
    }
}
