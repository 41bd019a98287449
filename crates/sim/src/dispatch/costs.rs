//! What things cost on some machine: the file that a calibration writes.

use std::{collections::BTreeMap, fs, path::Path};

use minos_base::limits::PACKET_BYTES;
use serde::{Deserialize, Serialize};

use super::workload::Request;
use crate::Ticks;

/// Ticks in a nanosecond: a packet of 84 bytes takes 16.8 ns at 40 Gbit/s, so that whole nanoseconds are
/// too coarse.
pub(super) const TICKS_A_NS: f64 = 1000.0;

/// Bytes that each packet carries on the wire beside the value: preamble, gap and checksum, the
/// headers of Ethernet, IP and UDP, and 8 of the request's own.
pub(super) const PACKET_OVERHEAD_BYTES: u64 = 24 + 14 + 20 + 8 + 8;

/// Costs, in nanoseconds of one worker's time unless the name says otherwise.
///
/// As a file, TOML with these names as keys. What has a default may be left out: without any of it, a packet costs the
/// same whichever way it goes, and nothing is saved by receiving or sending several at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// To receive what is there at an RX queue, beside the look and the packets: once for a burst. 0 by default.
    #[serde(default)]
    pub per_receive_ns: f64,
    /// To send what was composed, beside the packets: once for a burst, and for each slice of a value that takes
    /// several packets. 0 by default.
    #[serde(default)]
    pub per_send_ns: f64,
    /// To send a packet; by default as `per_packet_ns`, which then is for receiving one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_packet_out_ns: Option<f64>,
    /// To receive a further packet of the same value, the segment of a train; by default as `per_packet_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_segment_ns: Option<f64>,
    /// To send one; by default as any packet that is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_segment_out_ns: Option<f64>,
    /// To copy a byte of a value that is stored; by default as `per_byte_ns`, which then is for GETs only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_byte_in_ns: Option<f64>,
    /// What a PUT takes beside `per_request_ns`. 0 by default.
    #[serde(default)]
    pub per_put_ns: f64,
    /// What a reply of several packets takes beside those and its bytes: once for each. 0 by default.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub per_long_reply_ns: f64,
    /// To look at a ring; by default as `poll_ns`, which then is for RX queues only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_poll_ns: Option<f64>,
    /// Until a worker with nothing to do goes on when something comes, beside the look: it sleeps, and takes no
    /// processor time meanwhile. 0 by default, for one that polls all the time.
    #[serde(default)]
    pub wake_ns: f64,
    /// By key, how far its measurements lie apart: their median absolute deviation in percent. For people.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread_percent: BTreeMap<String, f64>,
    /// What was measured with the others and is not simulated. For people.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also_measured: BTreeMap<String, f64>,
}

/// Whether a cost need not be written: figures that were drawn before there was such a cost say nothing of it.
fn is_nothing(ns: &f64) -> bool {
    *ns == 0.0
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
            ..Self::default()
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
            ..Self::default()
        }
    }

    /// Those of that name, `kernel-bypass` or `sockets`, or of the file with that path.
    pub fn named(name: &str) -> Result<Self, CostsError> {
        match name {
            "kernel-bypass" => Ok(Self::kernel_bypass()),
            "sockets" => Ok(Self::sockets()),
            path => Self::read(Path::new(path)),
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
        for (name, value) in self.times() {
            if !(0.0..=1e9).contains(&value) {
                return Err(CostsError::Value { name, value, allowed: "0 to 1e9" });
            }
        }
        // A worker that looks for work in no time would look for ever at the same time.
        for (name, value) in [("poll_ns", self.poll_ns), ("ring_poll_ns", self.ring_poll())] {
            if !(1.0..=1e9).contains(&value) {
                return Err(CostsError::Value { name, value, allowed: "1 to 1e9" });
            }
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

    /// Those that may be nothing.
    fn times(&self) -> [(&'static str, f64); 16] {
        [
            ("per_request_ns", self.per_request_ns),
            ("per_packet_ns", self.per_packet_ns),
            ("per_byte_ns", self.per_byte_ns),
            ("lookup_ns", self.lookup_ns),
            ("hand_off_ns", self.hand_off_ns),
            ("profile_ns", self.profile_ns),
            ("network_ns", self.network_ns),
            ("per_receive_ns", self.per_receive_ns),
            ("per_send_ns", self.per_send_ns),
            ("per_packet_out_ns", self.per_packet_out()),
            ("per_segment_ns", self.per_segment()),
            ("per_segment_out_ns", self.per_segment_out()),
            ("per_byte_in_ns", self.per_byte_in()),
            ("per_put_ns", self.per_put_ns),
            ("per_long_reply_ns", self.per_long_reply_ns),
            ("wake_ns", self.wake_ns),
        ]
    }

    fn per_packet_out(&self) -> f64 {
        self.per_packet_out_ns.unwrap_or(self.per_packet_ns)
    }

    fn per_segment(&self) -> f64 {
        self.per_segment_ns.unwrap_or(self.per_packet_ns)
    }

    fn per_segment_out(&self) -> f64 {
        self.per_segment_out_ns.unwrap_or_else(|| self.per_packet_out())
    }

    fn per_byte_in(&self) -> f64 {
        self.per_byte_in_ns.unwrap_or(self.per_byte_ns)
    }

    fn ring_poll(&self) -> f64 {
        self.ring_poll_ns.unwrap_or(self.poll_ns)
    }
}

/// The same in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct TickCosts {
    per_request: Ticks,
    per_put: Ticks,
    per_long_reply: Ticks,
    inbound: Moving,
    outbound: Moving,
    pub(super) lookup: Ticks,
    pub(super) hand_off: Ticks,
    /// A look at an RX queue.
    pub(super) poll: Ticks,
    /// A look at a ring.
    pub(super) ring_poll: Ticks,
    pub(super) wake: Ticks,
    pub(super) profile: Ticks,
    pub(super) network: Ticks,
    /// For the link: ticks a byte.
    pub(super) link_byte: f64,
}

/// Of one way: the call, the first packet of a value, further ones, and bytes.
#[derive(Clone, Copy, Debug)]
struct Moving {
    call: Ticks,
    packet: Ticks,
    segment: Ticks,
    byte: f64,
}

impl TickCosts {
    pub(super) fn new(costs: &Costs) -> Self {
        let ticks = |ns: f64| (ns * TICKS_A_NS + 0.5) as Ticks;
        let moving = |[call, packet, segment, byte]: [f64; 4]| Moving {
            call: ticks(call),
            packet: ticks(packet),
            segment: ticks(segment),
            byte: byte * TICKS_A_NS,
        };
        let Costs { per_receive_ns, per_packet_ns, per_send_ns, per_byte_ns, .. } = *costs;
        Self {
            per_request: ticks(costs.per_request_ns),
            per_put: ticks(costs.per_put_ns),
            per_long_reply: ticks(costs.per_long_reply_ns),
            inbound: moving([per_receive_ns, per_packet_ns, costs.per_segment(), costs.per_byte_in()]),
            outbound: moving([per_send_ns, costs.per_packet_out(), costs.per_segment_out(), per_byte_ns]),
            lookup: ticks(costs.lookup_ns),
            hand_off: ticks(costs.hand_off_ns),
            poll: ticks(costs.poll_ns).max(1),
            ring_poll: ticks(costs.ring_poll()).max(1),
            wake: ticks(costs.wake_ns),
            profile: ticks(costs.profile_ns),
            network: ticks(costs.network_ns),
            link_byte: 8.0 / costs.link_gbps * TICKS_A_NS,
        }
    }

    /// To receive a burst, beside its packets.
    pub(super) fn receive_call(&self) -> Ticks {
        self.inbound.call
    }

    /// To send what was composed, beside its packets.
    pub(super) fn send_call(&self) -> Ticks {
        self.outbound.call
    }

    /// To receive a request.
    pub(super) fn receive(&self, request: &Request) -> Ticks {
        self.inbound.packets(packets(request.bytes_in()))
    }

    /// To execute a request whose item was found.
    pub(super) fn execute(&self, request: &Request) -> Ticks {
        let put = if request.is_get { 0 } else { self.per_put };
        let long = if packets(request.bytes_out()) > 1 { self.per_long_reply } else { 0 };
        self.per_request + put + long + self.inbound.copy(request.bytes_in())
    }

    /// To make and send packets with so many value bytes, beside the call.
    pub(super) fn send(&self, value_bytes: u64) -> Ticks {
        self.outbound.packets(packets(value_bytes)) + self.outbound.copy(value_bytes)
    }
}

impl Moving {
    fn packets(&self, packets: u64) -> Ticks {
        self.packet + self.segment * (packets - 1)
    }

    fn copy(&self, bytes: u64) -> Ticks {
        (bytes as f64 * self.byte + 0.5) as Ticks
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
    fn what_is_left_out_is_as_before() {
        let old = r#"
            source = "before there was anything optional"
            per_request_ns = 680
            per_packet_ns = 60
            per_byte_ns = 0.05
            lookup_ns = 200
            hand_off_ns = 100
            poll_ns = 30
            profile_ns = 15
            network_ns = 3500
            link_gbps = 40
        "#;
        let costs: Costs = toml::from_str(old).unwrap();
        assert_eq!(Costs { source: Costs::kernel_bypass().source, ..costs.clone() }, Costs::kernel_bypass());
        let ticks = TickCosts::new(&costs);
        assert_eq!((ticks.receive_call(), ticks.send_call(), ticks.wake), (0, 0, 0));
        assert_eq!((ticks.poll, ticks.ring_poll), (30_000, 30_000));
        assert_eq!(ticks.send(2 * PACKET_BYTES), 2 * 60_000 + 2 * 1448 * 50);
    }

    #[test]
    fn each_way_costs_what_is_said_of_it() {
        let measured = BTreeMap::from([("lookup_ns".to_owned(), 3.5)]);
        let costs = Costs {
            per_packet_ns: 10.0,
            per_packet_out_ns: Some(20.0),
            per_segment_out_ns: Some(3.0),
            per_byte_ns: 0.0,
            spread_percent: measured.clone(),
            also_measured: measured,
            ..Costs::sockets()
        };
        assert_eq!(costs.check(), Ok(()));
        let ticks = TickCosts::new(&costs);
        assert_eq!(ticks.send(1), 20_000);
        assert_eq!(ticks.send(3 * PACKET_BYTES), 26_000);
        assert_eq!(toml::from_str::<Costs>(&toml::to_string(&costs).unwrap()).unwrap(), costs);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let bad = Costs { poll_ns: 0.0, ..Costs::sockets() };
        assert!(bad.check().unwrap_err().to_string().starts_with("costs: poll_ns: 0 is not allowed"));
        let bad = Costs { ring_poll_ns: Some(0.0), ..Costs::sockets() };
        assert!(bad.check().unwrap_err().to_string().starts_with("costs: ring_poll_ns: 0 is not allowed"));
        let bad = Costs { per_segment_out_ns: Some(-1.0), ..Costs::sockets() };
        assert!(bad.check().unwrap_err().to_string().starts_with("costs: per_segment_out_ns: -1"));
        let bad = Costs { per_byte_ns: f64::NAN, ..Costs::sockets() };
        assert!(bad.check().is_err());
        assert!(Costs::read(Path::new("/nowhere")).unwrap_err().to_string().contains("/nowhere"));
    }
}
