//! The report: the costs for the simulator, and the measurements behind them.

use std::{collections::BTreeMap, fmt, fs, time::SystemTime};

use anyhow::Result;
use minos_sim::dispatch::{AfterIdle, ClientCosts, Costs, Speed};
use serde::Serialize;

use super::{
    CalibrateArgs, PacketPath, Poll,
    measured::{Kernel, Measured},
    sockets::PACKET_BYTES,
    stats::{Figure, Line},
    table::SMALL_BYTES,
};
use crate::lab::sim::{rounded, table};

/// A spread above this, in percent, causes a warning.
const SPREAD_PERCENT_MAX: f64 = 10.0;

/// The meaning of `kernel-bypass` where nothing bypasses the kernel.
const BYPASS: &str = "no kernel and no driver: per_packet_ns is what the server itself does with a packet (header, \
                      cookie, no seal, composing), values are copied once, and network_ns and link_gbps are those of \
                      the paper's platform unless said otherwise";

#[derive(Serialize)]
pub(super) struct Report {
    evidence: &'static str,
    path: &'static str,
    /// True if too little was measured for usable figures.
    quick: bool,
    rounds: usize,
    pub(super) costs: Costs,
    measurements: Vec<Row>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    unit: &'static str,
    value: f64,
    spread_percent: f64,
    /// For a slope: the fit of the line.
    r_squared: Option<f64>,
}

/// The costs of the simulator by their keys.
type Keys = BTreeMap<&'static str, Figure>;

impl Report {
    pub(super) fn of(args: &CalibrateArgs, measured: &Measured) -> Self {
        let mut keys = own_keys(args, measured);
        match &measured.kernel {
            Some(kernel) => kernel_keys(&mut keys, kernel, measured),
            None => bypass_keys(&mut keys, measured),
        }
        if let Some(gbps) = args.link_gbps {
            keys.insert("link_gbps", Figure::exact(gbps));
        }
        let measurements = rows(measured);
        let mut report = Self {
            evidence: "measured",
            path: args.packet_path.name(),
            quick: args.quick,
            rounds: measured.rounds,
            costs: costs(&keys, source(args, measured), also_measured(measured)),
            measurements,
            warnings: Vec::new(),
        };
        report.warn(measured);
        report
    }

    fn warn(&mut self, measured: &Measured) {
        let wide = self.costs.spread_percent.iter().filter(|(_, spread)| **spread > SPREAD_PERCENT_MAX);
        self.warnings.extend(wide.map(|(key, spread)| {
            format!("{key}: measurements lie {spread:.0} % apart; is something else running?")
        }));
        if !measured.had_two_cpus {
            self.warnings
                .push("one processor: hand-offs, wake-ups and the network wait for their turn".to_owned());
        }
        if self.quick {
            self.warnings
                .push("--quick: too little was measured for the figures to be worth anything".to_owned());
        }
    }

    /// The costs as a file.
    pub(super) fn toml(&self) -> Result<String> {
        let head = "# Measured by `minos calibrate`; read by `minos sim dispatch --costs FILE` (docs/simulation.md).\n";
        Ok(format!("{head}{}", toml::to_string(&self.costs)?))
    }
}

/// The costs that do not depend on the packet path.
fn own_keys(args: &CalibrateArgs, measured: &Measured) -> Keys {
    let Measured { lookup_in_burst, gets, puts, get_bytes, put_bytes, .. } = measured;
    let small = SMALL_BYTES as f64;
    let wake = match args.poll {
        Poll::Busy => Figure::exact(0.0),
        Poll::Sleep => measured.wake,
    };
    let put_more = puts.slope - put_bytes.slope * small - (gets.slope - get_bytes.slope * small);
    Keys::from([
        ("per_request_ns", (gets.slope - *lookup_in_burst - get_bytes.slope * small).at_least(0.0)),
        ("per_put_ns", put_more.at_least(0.0)),
        ("lookup_ns", *lookup_in_burst),
        // Half for the thread that pushes, half for the thread that pops.
        ("hand_off_ns", measured.hand_off * 0.5),
        // The simulator needs a poll to take time.
        ("ring_poll_ns", measured.ring_poll.at_least(1.0)),
        ("profile_ns", measured.profile),
        ("wake_ns", wake),
        // The worker's own part of a burst; the kernel's part is added.
        ("per_receive_ns", gets.intercept.at_least(0.0)),
        ("per_byte_ns", get_bytes.slope.at_least(0.0)),
        ("per_byte_in_ns", put_bytes.slope.at_least(0.0)),
    ])
}

/// Adds the kernel's costs.
fn kernel_keys(keys: &mut Keys, kernel: &Kernel, measured: &Measured) {
    let Kernel { datagrams, segments, bytes, single, poll, .. } = kernel;
    let (sent, received) =
        (Part::of(&segments.send, &bytes.send), Part::of(&segments.receive, &bytes.receive));
    let mut add = |key, figure: Figure| {
        let sum = keys.get(key).copied().unwrap_or_default() + figure.at_least(0.0);
        keys.insert(key, sum);
    };
    add("poll_ns", poll.at_least(1.0));
    add("per_receive_ns", datagrams.receive.intercept - *poll);
    add("per_send_ns", datagrams.send.intercept);
    add("per_packet_ns", datagrams.receive.slope);
    add("per_packet_out_ns", datagrams.send.slope);
    add("per_segment_ns", received.segment);
    add("per_segment_out_ns", sent.segment);
    add("per_byte_ns", sent.byte);
    add("per_byte_in_ns", received.byte);
    // The server's part of a round trip: a poll that finds nothing, a call that receives a datagram, one that
    // sends a datagram, and the request.
    let server = *poll + single.receive + single.send + measured.get_alone;
    add("network_ns", kernel.round_trip - server);
    add("link_gbps", kernel.link_gbps.at_least(0.001));
}

/// The cost of a segment of a train, in two parts.
struct Part {
    segment: Figure,
    byte: Figure,
}

impl Part {
    /// From the cost of one more segment, and of one more byte of an unsegmented datagram. The second may be
    /// too large, because a longer datagram also takes more memory: so bytes are limited to the cost of the
    /// whole segment.
    fn of(segments: &Line, bytes: &Line) -> Self {
        let packet = PACKET_BYTES as f64;
        let all = segments.slope.at_least(0.0);
        if bytes.slope.value * packet >= all.value {
            return Self { segment: Figure::exact(0.0), byte: all * (1.0 / packet) };
        }
        let byte = bytes.slope.at_least(0.0);
        Self { segment: all - byte * packet, byte }
    }
}

/// The costs of packets without a kernel: some measured, some assumed.
fn bypass_keys(keys: &mut Keys, measured: &Measured) {
    // One more datagram of a vector means one more received and one more sent.
    let packet = (measured.vectors.slope * 0.5).at_least(0.0);
    let request = keys.get("per_request_ns").copied().unwrap_or_default();
    let paper = Costs::kernel_bypass();
    let nothing = Figure::exact(0.0);
    keys.extend([
        ("per_request_ns", (request - packet * 2.0).at_least(0.0)),
        ("per_packet_ns", packet),
        ("per_packet_out_ns", packet),
        // The cost of a fragment is in the line over bytes.
        ("per_segment_ns", nothing),
        ("per_segment_out_ns", nothing),
        ("per_send_ns", nothing),
        ("poll_ns", measured.ring_poll.at_least(1.0)),
        ("network_ns", Figure::exact(paper.network_ns)),
        ("link_gbps", Figure::exact(paper.link_gbps)),
    ]);
}

fn costs(keys: &Keys, source: String, also_measured: BTreeMap<String, f64>) -> Costs {
    let value = |key| keys.get(key).map_or(0.0, |figure| four_digits(figure.value));
    let spread = keys.iter().filter(|(_, figure)| figure.deviation > 0.0 && figure.value > 0.0);
    Costs {
        source,
        per_request_ns: value("per_request_ns"),
        per_packet_ns: value("per_packet_ns"),
        per_byte_ns: value("per_byte_ns"),
        lookup_ns: value("lookup_ns"),
        hand_off_ns: value("hand_off_ns"),
        poll_ns: value("poll_ns"),
        profile_ns: value("profile_ns"),
        network_ns: value("network_ns"),
        link_gbps: value("link_gbps"),
        per_receive_ns: value("per_receive_ns"),
        per_send_ns: value("per_send_ns"),
        per_packet_out_ns: Some(value("per_packet_out_ns")),
        per_segment_ns: Some(value("per_segment_ns")),
        per_segment_out_ns: Some(value("per_segment_out_ns")),
        per_byte_in_ns: Some(value("per_byte_in_ns")),
        per_put_ns: value("per_put_ns"),
        // Calls, packets and bytes include all of it.
        per_long_reply_ns: 0.0,
        per_slice_ns: 0.0,
        ring_poll_ns: Some(value("ring_poll_ns")),
        wake_ns: value("wake_ns"),
        // `network_ns` includes the clients' time; differences between requests are not modelled.
        after_idle: AfterIdle::default(),
        client: ClientCosts::default(),
        speed: Speed::default(),
        pauses: Vec::new(),
        spread_percent: spread
            .map(|(key, figure)| ((*key).to_owned(), one_place(figure.spread_percent())))
            .collect(),
        also_measured,
    }
}

fn also_measured(measured: &Measured) -> BTreeMap<String, f64> {
    let round_trip = measured.kernel.as_ref().map(|kernel| ("round_trip_ns", kernel.round_trip));
    let all = [
        ("lookup_alone_ns", measured.lookup_alone),
        ("request_alone_ns", measured.get_alone),
        ("hand_off_one_way_ns", measured.hand_off),
        ("wake_up_ns", measured.wake),
        ("wake_up_call_ns", measured.wake_call),
    ];
    all.into_iter()
        .chain(round_trip)
        .map(|(name, figure)| (name.to_owned(), four_digits(figure.value)))
        .collect()
}

fn rows(measured: &Measured) -> Vec<Row> {
    let mut rows = vec![
        figure("look-up alone", measured.lookup_alone),
        figure("look-up in a burst of 32", measured.lookup_in_burst),
        figure("GET of 64 B alone, no sockets", measured.get_alone),
        slope("one more GET of a burst, no sockets", &measured.gets),
        slope("one more PUT of a burst, no sockets", &measured.puts),
        figure("a burst beside its GETs, no sockets", measured.gets.intercept),
        slope("one more datagram for the same GETs, no sockets", &measured.vectors),
        slope("a byte that is read, no sockets", &measured.get_bytes),
        slope("a byte that is stored, no sockets", &measured.put_bytes),
        figure("look at an empty ring", measured.ring_poll),
        figure("size counted", measured.profile),
        figure("hand-off one way, both polling", measured.hand_off),
        figure("hand-off to a thread that sleeps", measured.wake),
        figure("the call that wakes it", measured.wake_call),
    ];
    if let Some(kernel) = &measured.kernel {
        rows.extend(kernel_rows(kernel));
    }
    rows
}

fn kernel_rows(kernel: &Kernel) -> [Row; 11] {
    let Kernel { datagrams, segments, bytes, .. } = kernel;
    [
        figure("look at an empty socket", kernel.poll),
        figure("a call that receives, beside its datagrams", datagrams.receive.intercept),
        slope("one more datagram received", &datagrams.receive),
        slope("one more segment of 1448 B received", &segments.receive),
        slope("one more byte received", &bytes.receive),
        figure("a call that sends, beside its datagrams", datagrams.send.intercept),
        slope("one more datagram sent", &datagrams.send),
        slope("one more segment of 1448 B sent", &segments.send),
        slope("one more byte sent", &bytes.send),
        figure("round trip of a GET of 64 B", kernel.round_trip),
        row("stream, the fastest", "Gbit/s", kernel.link_gbps, None),
    ]
}

/// Nanoseconds.
fn figure(name: &'static str, figure: Figure) -> Row {
    row(name, "ns", figure, None)
}

/// Nanoseconds for one more unit of a line.
fn slope(name: &'static str, line: &Line) -> Row {
    row(name, "ns", line.slope, Some(line.r_squared))
}

fn row(name: &'static str, unit: &'static str, figure: Figure, r_squared: Option<f64>) -> Row {
    Row { name, unit, value: figure.value, spread_percent: figure.spread_percent(), r_squared }
}

/// The machine, the time and the subject of the measurement.
fn source(args: &CalibrateArgs, measured: &Measured) -> String {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned()))
        .unwrap_or_else(|| "unknown processor".to_owned());
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let path = match args.packet_path {
        PacketPath::Sockets => "UDP over loopback",
        PacketPath::KernelBypass => BYPASS,
    };
    let quick = if args.quick { "; --quick, worth nothing" } else { "" };
    format!(
        "measured by minos {} calibrate at {}: {model}, {cpus} processors, Linux {}; load average {} at the end; path \
         {}, {path}; {} items, {} rounds, seed {}{quick}",
        env!("CARGO_PKG_VERSION"),
        humantime::format_rfc3339_seconds(SystemTime::now()),
        kernel.trim(),
        load.split(' ').next().unwrap_or("unknown"),
        args.packet_path.name(),
        measured.small_items,
        measured.rounds,
        args.seed,
    )
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.costs.source)?;
        let rows = self.measurements.iter().map(|row| {
            vec![
                row.name.to_owned(),
                row.unit.to_owned(),
                rounded(row.value),
                rounded(row.spread_percent),
                row.r_squared.map_or_else(|| "-".to_owned(), |r_squared| format!("{r_squared:.3}")),
            ]
        });
        writeln!(f, "{}", table(&["measured", "unit", "median", "+/- %", "R^2"], 2, rows))?;
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        write!(f, "{}", toml::to_string(&self.costs).map_err(|_| fmt::Error)?)
    }
}

/// Rounded to four significant digits, more than the precision of the measurement.
fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Rounded to one decimal place.
fn one_place(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(slope: f64) -> Line {
        Line { slope: Figure::exact(slope), intercept: Figure::default(), r_squared: 1.0 }
    }

    #[test]
    fn a_segment_and_its_bytes_take_no_more_than_a_segment() {
        let packet = PACKET_BYTES as f64;
        for (segment_ns, byte_ns, byte_left_ns) in
            [(100.0, 0.05, 0.05), (30.0, 0.05, 30.0 / packet), (30.0, -0.01, 0.0), (-5.0, 0.05, 0.0)]
        {
            let part = Part::of(&line(segment_ns), &line(byte_ns));
            assert!((part.byte.value - byte_left_ns).abs() < 1e-12, "{segment_ns} {byte_ns}");
            let sum_ns = part.segment.value + part.byte.value * packet;
            assert!((sum_ns - f64::max(segment_ns, 0.0)).abs() < 1e-9, "{segment_ns} {byte_ns}");
        }
    }

    #[test]
    fn nothing_is_left_of_a_segment_when_its_bytes_take_all() {
        for tenths in 1..5000 {
            let all = f64::from(tenths) / 10.0;
            assert_eq!(Part::of(&line(all), &line(all)).segment, Figure::exact(0.0), "{all}");
        }
    }

    #[test]
    fn numbers_are_written_as_far_as_they_are_known() {
        for (value, written) in [(0.0, 0.0), (1234.567, 1235.0), (0.012_345_6, 0.01235), (1.0, 1.0)] {
            assert_eq!(four_digits(value), written);
        }
        assert_eq!(one_place(9.96), 10.0);
    }
}
