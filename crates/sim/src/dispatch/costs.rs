//! What things cost on some machine: the file that a calibration writes.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::workload::Request;
use crate::Ticks;

/// Ticks in a nanosecond: a packet of 84 bytes takes 16.8 ns at 40 Gbit/s, so that whole nanoseconds are
/// too coarse.
pub(super) const TICKS_A_NS: f64 = 1000.0;

/// Bytes that each packet carries on the wire beside the value: preamble, gap and checksum, the
/// headers of Ethernet, IP and UDP, and 8 of the request's own.
pub(super) const PACKET_OVERHEAD_BYTES: u64 = 24 + 14 + 20 + 8 + 8;
/// Value bytes that one packet carries.
pub(super) const PACKET_BYTES: u64 = 1448;

/// Costs, in nanoseconds of one worker's time unless the name says otherwise.
///
/// As a file, TOML with these names as keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Where they come from.
    pub source: String,
    /// To parse and execute a request and to compose the reply, without what follows.
    pub per_request_ns: f64,
    /// To receive or send a packet.
    pub per_packet_ns: f64,
    /// To copy a byte of a value.
    pub per_byte_ns: f64,
    /// To find an item, or its size.
    pub lookup_ns: f64,
    /// To put a request in a ring that others take from, and for them to take it out: a cache line goes
    /// from one core to the other. One's own costs a look.
    pub hand_off_ns: f64,
    /// To look at an RX queue or a ring, found something or not.
    pub poll_ns: f64,
    /// To count the size of a request.
    pub profile_ns: f64,
    /// What the network and the client add to a request, there and back.
    pub network_ns: f64,
    /// Bandwidth of the server's link, each way.
    pub link_gbps: f64,
}

/// Why costs cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CostsError {
    /// A file that cannot be read.
    #[error("costs: {path}: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system or the reader said.
        error: String,
    },
    /// A cost below zero, or no number.
    #[error("costs: {name}: {value} is not allowed; allowed is {allowed}")]
    Value {
        /// Which.
        name: &'static str,
        /// What it is.
        value: f64,
        /// What it may be.
        allowed: &'static str,
    },
}

impl Costs {
    /// A kernel-bypass path like that of the paper's platform: DPDK, 40 Gbit/s (Minos §5.1).
    ///
    /// Fitted to the paper's numbers, not measured: the highest throughput while the processor is the limit
    /// (about 7 Mops at p_L = 0.0625), a mean response of about 5 us without load, and HKH+WS reaching
    /// 2.3 Mops within 50 us in the default workload, for which a value must be copied faster than the link
    /// carries it. The cost of a hand-off is what a cache line takes between two cores.
    pub fn kernel_bypass() -> Self {
        Self {
            source: "fitted to the platform of Minos §5.1".to_owned(),
            per_request_ns: 680.0,
            per_packet_ns: 60.0,
            per_byte_ns: 0.05,
            lookup_ns: 200.0,
            hand_off_ns: 100.0,
            poll_ns: 30.0,
            profile_ns: 15.0,
            network_ns: 3500.0,
            link_gbps: 40.0,
        }
    }

    /// Kernel TCP or UDP on sockets: nearly all of a request is two system calls.
    pub fn sockets() -> Self {
        Self {
            source: "rough measurements of loopback TCP; not calibrated on this machine".to_owned(),
            per_request_ns: 4000.0,
            per_packet_ns: 150.0,
            per_byte_ns: 0.2,
            lookup_ns: 200.0,
            hand_off_ns: 500.0,
            poll_ns: 500.0,
            profile_ns: 15.0,
            network_ns: 20_000.0,
            link_gbps: 10.0,
        }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, CostsError> {
        let unreadable = |error: String| CostsError::Unreadable { path: path.display().to_string(), error };
        let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        let costs: Self = toml::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        costs.check().map(|()| costs)
    }

    /// Says what is wrong with them, if anything is.
    pub fn check(&self) -> Result<(), CostsError> {
        let times = [
            ("per_request_ns", self.per_request_ns),
            ("per_packet_ns", self.per_packet_ns),
            ("per_byte_ns", self.per_byte_ns),
            ("lookup_ns", self.lookup_ns),
            ("hand_off_ns", self.hand_off_ns),
            ("profile_ns", self.profile_ns),
            ("network_ns", self.network_ns),
        ];
        for (name, value) in times {
            if !(0.0..=1e9).contains(&value) {
                return Err(CostsError::Value { name, value, allowed: "0 to 1e9" });
            }
        }
        // A worker that looks for work in no time would look for ever at the same time.
        if !(1.0..=1e9).contains(&self.poll_ns) {
            return Err(CostsError::Value { name: "poll_ns", value: self.poll_ns, allowed: "1 to 1e9" });
        }
        if !(0.001..=1e5).contains(&self.link_gbps) {
            return Err(CostsError::Value {
                name: "link_gbps",
                value: self.link_gbps,
                allowed: "0.001 to 1e5",
            });
        }
        Ok(())
    }
}

/// The same in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct TickCosts {
    pub(super) per_request: Ticks,
    pub(super) per_packet: Ticks,
    per_byte: f64,
    pub(super) lookup: Ticks,
    pub(super) hand_off: Ticks,
    pub(super) poll: Ticks,
    pub(super) profile: Ticks,
    pub(super) network: Ticks,
    /// For the link: ticks a byte.
    pub(super) link_byte: f64,
}

impl TickCosts {
    pub(super) fn new(costs: &Costs) -> Self {
        let ticks = |ns: f64| (ns * TICKS_A_NS + 0.5) as Ticks;
        Self {
            per_request: ticks(costs.per_request_ns),
            per_packet: ticks(costs.per_packet_ns),
            per_byte: costs.per_byte_ns * TICKS_A_NS,
            lookup: ticks(costs.lookup_ns),
            hand_off: ticks(costs.hand_off_ns),
            poll: ticks(costs.poll_ns).max(1),
            profile: ticks(costs.profile_ns),
            network: ticks(costs.network_ns),
            link_byte: 8.0 / costs.link_gbps * TICKS_A_NS,
        }
    }

    /// To copy so many bytes.
    pub(super) fn copy(&self, bytes: u64) -> Ticks {
        (bytes as f64 * self.per_byte + 0.5) as Ticks
    }

    /// To receive a request.
    pub(super) fn receive(&self, request: &Request) -> Ticks {
        self.per_packet * packets(request.bytes_in())
    }
}

/// Packets that carry so many value bytes.
pub(super) fn packets(value_bytes: u64) -> u64 {
    value_bytes.div_ceil(PACKET_BYTES).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_can_be_and_read_back() {
        for costs in [Costs::kernel_bypass(), Costs::sockets()] {
            assert_eq!(costs.check(), Ok(()));
            let text = toml::to_string(&costs).unwrap();
            assert_eq!(toml::from_str::<Costs>(&text).unwrap(), costs);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let bad = Costs { poll_ns: 0.0, ..Costs::sockets() };
        assert!(bad.check().unwrap_err().to_string().starts_with("costs: poll_ns: 0 is not allowed"));
        let bad = Costs { per_byte_ns: f64::NAN, ..Costs::sockets() };
        assert!(bad.check().is_err());
        assert!(Costs::read(Path::new("/nowhere")).unwrap_err().to_string().contains("/nowhere"));
    }
}
