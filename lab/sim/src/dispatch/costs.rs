//! The costs of a machine: the file that a calibration writes.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};

use super::link::packets;

/// The largest item of the paper's figure 1, in bytes, and how many times as long it takes as a small one.
const FIGURE_1_BYTES: u64 = 1_000_000;
const FIGURE_1_TIMES: f64 = 1e4;

/// Largest share of time for pauses: a processor that always pauses ends nothing.
const PAUSES_SHARE_MAX: f64 = 0.9;

/// Costs, in nanoseconds of one worker's time unless the name says otherwise.
///
/// As a file, TOML with these names as keys. Keys with a default may be left out: by default, a packet
/// costs the same in both directions, and batches save nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The source of the costs.
    pub source: String,
    /// To parse and execute a request and to compose the reply, without the costs below.
    pub per_request_ns: f64,
    /// To receive or send a packet.
    pub per_packet_ns: f64,
    /// To copy a byte of a value.
    pub per_byte_ns: f64,
    /// To find an item, or its size.
    pub lookup_ns: f64,
    /// To put a request in another worker's ring and take it out: a cache line moves between cores. For a
    /// worker's own ring, a look is all it costs.
    pub hand_off_ns: f64,
    /// To look at an RX queue or a ring, empty or not.
    pub poll_ns: f64,
    /// To count the size of a request.
    pub profile_ns: f64,
    /// Time that the network and the client add to a request, there and back. Negative if it overlaps with
    /// the other costs.
    pub network_ns: f64,
    /// Bandwidth of the server's link, each way.
    pub link_gbps: f64,
    /// To receive a burst from an RX queue, without the look and the packets. 0 by default.
    #[serde(default)]
    pub per_receive_ns: f64,
    /// To send composed replies, without the packets: once for a burst, and once for each slice of a value
    /// that takes several packets. 0 by default.
    #[serde(default)]
    pub per_send_ns: f64,
    /// To send a packet; by default as `per_packet_ns`. If given, `per_packet_ns` applies to receiving only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_packet_out_ns: Option<f64>,
    /// To receive a further packet of the same value, the segment of a train; by default as `per_packet_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_segment_ns: Option<f64>,
    /// To send one; by default as any packet that is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_segment_out_ns: Option<f64>,
    /// To copy a byte of a value that is stored; by default as `per_byte_ns`. If given, `per_byte_ns` applies
    /// to GETs only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_byte_in_ns: Option<f64>,
    /// Additional cost of a PUT beside `per_request_ns`. 0 by default.
    #[serde(default)]
    pub per_put_ns: f64,
    /// Additional cost of each reply of several packets, beside packets and bytes. 0 by default.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub per_long_reply_ns: f64,
    /// Additional cost of each slice, if a reply is made in slices between looks at RX queues. 0 by default.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub per_slice_ns: f64,
    /// To look at a ring; by default as `poll_ns`. If given, `poll_ns` applies to RX queues only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_poll_ns: Option<f64>,
    /// To wake an idle worker when a request arrives, without the look: it sleeps and takes no processor time
    /// meanwhile. 0 by default, for workers that poll all the time.
    #[serde(default)]
    pub wake_ns: f64,
    /// The spread of each cost's measurements, by key: median absolute deviation in percent. Not simulated.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread_percent: BTreeMap<String, f64>,
    /// Additional costs after a worker was idle. None by default.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub after_idle: AfterIdle,
    /// Costs of clients. None by default: clients are then never the bottleneck.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub client: ClientCosts,
    /// Speed of processors over time. Constant by default.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub speed: Speed,
    /// Pauses of each processor, of workers and, where they take time, of clients. None by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    /// Other measurements, which are not simulated.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub also_measured: BTreeMap<String, f64>,
}

/// Additional cost, in nanoseconds, of the first request that a worker serves after it was idle: caches are
/// cold, and the receiver works on the same reply at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AfterIdle {
    /// If the reply is one packet.
    pub request_ns: f64,
    /// If it is longer, without its bytes.
    pub long_reply_ns: f64,
    /// For each byte of such a reply.
    pub long_byte_ns: f64,
}

/// Costs of a client's processor, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientCosts {
    /// To send a request.
    pub send_ns: f64,
    /// For each byte of a value in it.
    pub sent_byte_ns: f64,
    /// To receive a reply, or a part of a long one.
    pub receive_ns: f64,
    /// For each byte of a value in it.
    pub received_byte_ns: f64,
    /// True if a latency ends when the reply arrives, not when the client receives it: the kernel stamps
    /// arrivals.
    pub dates_arrivals: bool,
}

/// Speed of processors in successive spans of time, repeated from the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Speed {
    /// Length of a span, in microseconds.
    pub span_us: f64,
    /// Factor on a worker's costs in each span.
    pub worker: Vec<f64>,
    /// Factor on a client's costs in each span.
    pub client: Vec<f64>,
}

/// Pauses of one length, which come at random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// How many a second.
    pub per_s: f64,
    /// How long each takes, in nanoseconds.
    pub ns: f64,
}

/// True if a cost is its default and is not written, so that older files of figures stay the same.
pub(super) fn is_nothing<T: Default + PartialEq>(cost: &T) -> bool {
    *cost == T::default()
}

/// Why costs are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CostsError {
    /// A file that cannot be read.
    #[error("costs: {path}: {error}")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the system or the parser.
        error: String,
    },
    /// A cost below zero, or no number.
    #[error("costs: {name}: {value} is not allowed; allowed is {allowed}")]
    Value {
        /// Which.
        name: &'static str,
        /// The value.
        value: f64,
        /// The allowed values.
        allowed: &'static str,
    },
}

impl Costs {
    /// A kernel-bypass path like that of the paper's platform: DPDK, 40 Gbit/s (Minos §5.1).
    ///
    /// `per_request_ns` and `network_ns` are fitted ([`fit`](super::fit)) to the throughput within 100 us
    /// where the processor is the limit (p_L = 0.0625) and to the mean response without load. The cost of a
    /// copied byte was measured; the others are typical of such processors.
    pub fn kernel_bypass() -> Self {
        Self {
            source: "fitted to the platform of Minos §5.1".to_owned(),
            per_request_ns: 620.0,
            per_packet_ns: 60.0,
            per_byte_ns: 0.136,
            lookup_ns: 200.0,
            hand_off_ns: 100.0,
            poll_ns: 30.0,
            profile_ns: 15.0,
            network_ns: 3750.0,
            link_gbps: 40.0,
            ..Self::default()
        }
    }

    /// The same with the service times of the paper's figure 1: a GET of 1 MB takes 10^4 times as long as a
    /// small one.
    pub fn figure_1() -> Self {
        let base = Self { per_byte_ns: 0.0, ..Self::kernel_bypass() };
        let per_byte_ns =
            (FIGURE_1_TIMES * base.get_ns(1) - base.get_ns(FIGURE_1_BYTES)) / FIGURE_1_BYTES as f64;
        let source = "Minos §5.1, with the service times of its figure 1".to_owned();
        Self { source, per_byte_ns, ..base }
    }

    /// Time of a GET at a worker that has found it in its RX queue, without additional costs after idling.
    pub fn get_ns(&self, value_bytes: u64) -> f64 {
        let packets = packets(value_bytes);
        let long = if packets > 1 { self.per_long_reply_ns + self.per_send_ns } else { 0.0 };
        self.per_receive_ns
            + self.per_packet_ns
            + self.per_request_ns
            + self.lookup_ns
            + self.per_send_ns
            + long
            + self.per_packet_out()
            + (packets - 1) as f64 * self.per_segment_out()
            + value_bytes as f64 * self.per_byte_ns
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

    /// Those of that name, `kernel-bypass`, `figure-1` or `sockets`, or of the file with that path.
    pub fn named(name: &str) -> Result<Self, CostsError> {
        match name {
            "kernel-bypass" => Ok(Self::kernel_bypass()),
            "figure-1" => Ok(Self::figure_1()),
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

    /// Checks all costs.
    pub fn check(&self) -> Result<(), CostsError> {
        for (name, value) in self.times() {
            allow(name, value, (0.0..=1e9).contains(&value), "0 to 1e9")?;
        }
        let network_ns = self.network_ns;
        allow("network_ns", network_ns, (-1e9..=1e9).contains(&network_ns), "-1e9 to 1e9")?;
        self.check_pauses()?;
        self.check_speed()?;
        // A worker that polls in no time would poll forever without time passing.
        for (name, value) in [("poll_ns", self.poll_ns), ("ring_poll_ns", self.ring_poll())] {
            allow(name, value, (1.0..=1e9).contains(&value), "1 to 1e9")?;
        }
        let link_gbps = self.link_gbps;
        allow("link_gbps", link_gbps, (0.001..=1e5).contains(&link_gbps), "0.001 to 1e5")
    }

    fn check_speed(&self) -> Result<(), CostsError> {
        let Speed { span_us, worker, client } = &self.speed;
        let mut times = worker.iter().chain(client).copied().peekable();
        let is_span = times.peek().is_none() || (0.001..=1e9).contains(span_us);
        allow("speed.span_us", *span_us, is_span, "0.001 to 1e9")?;
        times.try_for_each(|times| allow("speed", times, (0.01..=100.0).contains(&times), "0.01 to 100"))
    }

    fn check_pauses(&self) -> Result<(), CostsError> {
        let mut share = 0.0;
        for &Pause { per_s, ns } in &self.pauses {
            allow("pauses.per_s", per_s, per_s > 0.0 && per_s <= 1e6, "above 0, at most 1e6")?;
            allow("pauses.ns", ns, (0.0..=1e9).contains(&ns), "0 to 1e9")?;
            share += per_s * ns / 1e9;
        }
        allow("pauses", share, share <= PAUSES_SHARE_MAX, "0 to 0.9 of the time, all together")
    }

    /// Costs that may be 0.
    fn times(&self) -> [(&'static str, f64); 23] {
        [
            ("per_request_ns", self.per_request_ns),
            ("per_packet_ns", self.per_packet_ns),
            ("per_byte_ns", self.per_byte_ns),
            ("lookup_ns", self.lookup_ns),
            ("hand_off_ns", self.hand_off_ns),
            ("profile_ns", self.profile_ns),
            ("per_receive_ns", self.per_receive_ns),
            ("per_send_ns", self.per_send_ns),
            ("per_packet_out_ns", self.per_packet_out()),
            ("per_segment_ns", self.per_segment()),
            ("per_segment_out_ns", self.per_segment_out()),
            ("per_byte_in_ns", self.per_byte_in()),
            ("per_put_ns", self.per_put_ns),
            ("per_long_reply_ns", self.per_long_reply_ns),
            ("per_slice_ns", self.per_slice_ns),
            ("wake_ns", self.wake_ns),
            ("after_idle.request_ns", self.after_idle.request_ns),
            ("after_idle.long_reply_ns", self.after_idle.long_reply_ns),
            ("after_idle.long_byte_ns", self.after_idle.long_byte_ns),
            ("client.send_ns", self.client.send_ns),
            ("client.sent_byte_ns", self.client.sent_byte_ns),
            ("client.receive_ns", self.client.receive_ns),
            ("client.received_byte_ns", self.client.received_byte_ns),
        ]
    }

    pub(super) fn per_packet_out(&self) -> f64 {
        self.per_packet_out_ns.unwrap_or(self.per_packet_ns)
    }

    pub(super) fn per_segment(&self) -> f64 {
        self.per_segment_ns.unwrap_or(self.per_packet_ns)
    }

    pub(super) fn per_segment_out(&self) -> f64 {
        self.per_segment_out_ns.unwrap_or_else(|| self.per_packet_out())
    }

    pub(super) fn per_byte_in(&self) -> f64 {
        self.per_byte_in_ns.unwrap_or(self.per_byte_ns)
    }

    pub(super) fn ring_poll(&self) -> f64 {
        self.ring_poll_ns.unwrap_or(self.poll_ns)
    }
}

/// Checks a time that may be negative.
fn allow(name: &'static str, value: f64, is_allowed: bool, allowed: &'static str) -> Result<(), CostsError> {
    if is_allowed { Ok(()) } else { Err(CostsError::Value { name, value, allowed }) }
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
            per_request_ns = 620
            per_packet_ns = 60
            per_byte_ns = 0.136
            lookup_ns = 200
            hand_off_ns = 100
            poll_ns = 30
            profile_ns = 15
            network_ns = 3750
            link_gbps = 40
        "#;
        let costs: Costs = toml::from_str(old).unwrap();
        assert_eq!(Costs { source: Costs::kernel_bypass().source, ..costs.clone() }, Costs::kernel_bypass());
    }

    #[test]
    fn what_is_left_out_of_a_part_is_nothing() {
        let client: ClientCosts = toml::from_str("send_ns = 2").unwrap();
        assert_eq!(client, ClientCosts { send_ns: 2.0, ..ClientCosts::default() });
        assert!(toml::from_str::<AfterIdle>("send_ns = 2").is_err());
    }

    #[test]
    fn a_large_value_takes_as_long_as_in_figure_1() {
        let costs = Costs::figure_1();
        assert!((costs.get_ns(1_000_000) / costs.get_ns(1) / 1e4 - 1.0).abs() < 0.02);
        assert_eq!(Costs::named("figure-1"), Ok(costs));
    }

    #[test]
    fn everything_reads_back() {
        let measured = BTreeMap::from([("lookup_ns".to_owned(), 3.5)]);
        let costs = Costs {
            per_segment_out_ns: Some(3.0),
            per_slice_ns: 4.0,
            network_ns: -1.0,
            after_idle: AfterIdle { request_ns: 1.0, ..AfterIdle::default() },
            client: ClientCosts { send_ns: 2.0, ..ClientCosts::default() },
            speed: Speed { span_us: 1e3, worker: vec![0.9, 1.1], client: vec![1.0] },
            pauses: vec![Pause { per_s: 250.0, ns: 30e3 }],
            spread_percent: measured.clone(),
            also_measured: measured,
            ..Costs::sockets()
        };
        assert_eq!(costs.check(), Ok(()));
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
        let client = ClientCosts { sent_byte_ns: -1.0, ..ClientCosts::default() };
        let bad = Costs { client, ..Costs::sockets() };
        assert!(bad.check().unwrap_err().to_string().starts_with("costs: client.sent_byte_ns: -1"));
        let pause = |per_s, ns| Pause { per_s, ns };
        for (pauses, name) in [
            (vec![pause(0.0, 1.0)], "pauses.per_s: 0"),
            (vec![pause(1.0, 1.0), pause(1.0, -1.0)], "pauses.ns: -1"),
            (vec![pause(500.0, 1e6), pause(500.0, 1e6)], "pauses: 1 is not allowed; allowed is 0 to 0.9"),
        ] {
            let bad = Costs { pauses, ..Costs::sockets() };
            assert!(bad.check().unwrap_err().to_string().starts_with(&format!("costs: {name}")));
        }
        for (span_us, times, name) in [(0.0, 1.0, "speed.span_us: 0"), (1.0, f64::NAN, "speed: NaN")] {
            let speed = Speed { span_us, worker: vec![1.0], client: vec![times] };
            let bad = Costs { speed, ..Costs::sockets() };
            assert!(bad.check().unwrap_err().to_string().starts_with(&format!("costs: {name}")));
        }
        assert!(Costs::read(Path::new("/nowhere")).unwrap_err().to_string().contains("/nowhere"));
    }
}
