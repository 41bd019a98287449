//! The largest size of a unit (RackOut §4.6).

use crate::BadParameter;

/// The rates of a node's interface and cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeRates {
    /// Operations a second that the interface of the inner network serves.
    pub nic_ops: f64,
    /// Share of them that is left unused, so that requests do not queue there.
    pub nic_reserve: f64,
    /// Cores that serve requests.
    pub cores: u32,
    /// Service time of a remote read at a core, in microseconds.
    pub remote_read_us: f64,
}

impl NodeRates {
    /// 40 million operations a second and RDMA's reads (RackOut §4.6, table 1).
    ///
    /// The paper does not give the number of cores, and says only "about 50 %" of the reserve. Twelve cores
    /// and 45 % give its 16 nodes.
    pub const RDMA: Self = Self { nic_ops: 40e6, nic_reserve: 0.45, cores: 12, remote_read_us: 8.4 };
}

/// The largest unit in which all other nodes can read from one node.
///
/// # Errors
/// A rate is not above zero, or the reserve is no share.
pub fn unit_size_max(rates: &NodeRates) -> Result<u32, BadParameter> {
    BadParameter::unless_positive("nic-ops", rates.nic_ops)?;
    BadParameter::unless_positive("remote-read-us", rates.remote_read_us)?;
    BadParameter::unless_share("nic-reserve", rates.nic_reserve)?;
    if rates.cores == 0 {
        return Err(BadParameter::new("cores", 0, "1 or more"));
    }
    // Most remote reads a second that a node issues.
    let remote_reads = f64::from(rates.cores) * 1e6 / rates.remote_read_us;
    let others = rates.nic_ops * (1.0 - rates.nic_reserve) / remote_reads;
    Ok(1 + others.floor().min(f64::from(u32::MAX - 1)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_unit_has_sixteen_nodes() {
        assert_eq!(unit_size_max(&NodeRates::RDMA), Ok(16));
    }

    #[test]
    fn solved_by_hand() {
        let rates = NodeRates { nic_ops: 10e6, nic_reserve: 0.5, cores: 1, remote_read_us: 1.0 };
        // Five million of ten may be used; each other node asks for one million.
        assert_eq!(unit_size_max(&rates), Ok(6));
        assert_eq!(unit_size_max(&NodeRates { nic_reserve: 1.0, ..rates }), Ok(1));
    }

    #[test]
    fn bad_parameters_are_named() {
        let rates = NodeRates::RDMA;
        for (rates, name) in [
            (NodeRates { nic_ops: 0.0, ..rates }, "nic-ops"),
            (NodeRates { nic_reserve: 1.1, ..rates }, "nic-reserve"),
            (NodeRates { cores: 0, ..rates }, "cores"),
            (NodeRates { remote_read_us: f64::NAN, ..rates }, "remote-read-us"),
        ] {
            assert!(unit_size_max(&rates).unwrap_err().to_string().starts_with(name));
        }
    }
}
