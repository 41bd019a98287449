//! Operations a second by the width of vectors, closed loop.

use super::{
    ITEMS, Servers,
    runner::{Case, Runner, Sample},
};
use crate::measure::{
    Samples,
    report::{Report, cell},
};

const WIDTHS: [&str; 7] = ["1", "2", "4", "8", "16", "32", "64"];

/// 16 connections or sockets, each with one request at a time.
const SINGLE: &[&str] = &["--connections", "16", "--pipeline", "1"];

/// 4 of them, each with 32 requests at a time.
const PIPELINED: &[&str] = &["--connections", "4", "--pipeline", "32"];

/// Lower bound for the operations for each second of processor time with width 32, in millions.
const MOPS_PER_CPU_S_MIN: f64 = 4.0;
/// Lower bound for that rate as a multiple of the rate with width 1.
const GAIN_MIN: f64 = 14.0;
/// Lower bound for our single requests as a multiple of memcached's over UDP.
const LEAD_MIN: f64 = 1.5;

/// A kind of requests to a server.
struct Way {
    server: &'static str,
    /// The protocol and the transport.
    scheme: &'static str,
    width: &'static str,
    how: &'static str,
    arguments: &'static [&'static str],
}

const fn way(server: &'static str, scheme: &'static str, width: &'static str) -> Way {
    Way { server, scheme, width, how: "one at a time", arguments: SINGLE }
}

/// The other kinds, beside native vectors.
const OTHERS: [Way; 10] = [
    Way { how: "32 in a train", arguments: PIPELINED, ..way("Minos", "minos", "1") },
    way("Minos", "memcached", "1"),
    way("Minos", "memcached", "32"),
    Way { how: "32 pipelined", arguments: PIPELINED, ..way("Minos", "memcached", "1") },
    way("memcached", "memcached", "1"),
    way("memcached", "memcached", "32"),
    Way { how: "32 pipelined", arguments: PIPELINED, ..way("memcached", "memcached", "1") },
    way("memcached", "memcached+udp", "1"),
    way("memcached", "memcached+udp", "32"),
    Way { how: "32 in a train", arguments: PIPELINED, ..way("memcached", "memcached+udp", "1") },
];

struct Row {
    way: Way,
    samples: Vec<Sample>,
}

pub(super) struct Widths {
    rows: Vec<Row>,
}

/// Measures every kind in each round.
pub(super) fn measure(runner: &mut Runner<'_>, servers: &Servers, rounds: u32) -> anyhow::Result<Widths> {
    let native = WIDTHS.into_iter().map(|width| way("Minos", "minos", width));
    let mut rows: Vec<Row> = native.chain(OTHERS).map(|way| Row { way, samples: Vec::new() }).collect();
    for round in 1..=rounds {
        eprintln!("native, widths: round {round} of {rounds}");
        for Row { way, samples } in &mut rows {
            let server = if way.server == "memcached" { &servers.memcached } else { &servers.minos };
            let target = server.target_in(way.scheme);
            let name = format!("{} {} width {} {}", way.server, way.scheme, way.width, way.how);
            let arguments = [&ITEMS[..], &["1", "--multiget", way.width], way.arguments].concat();
            let case = Case { name: &name, target: &target, pid: server.pid(), round };
            samples.push(runner.measure(case, &arguments)?.checked(&name)?);
        }
    }
    Ok(Widths { rows })
}

impl Way {
    fn protocol(&self) -> &'static str {
        match self.scheme {
            "minos" => "native",
            "memcached+udp" => "memcached, UDP",
            _ => "memcached, TCP",
        }
    }
}

impl Row {
    fn samples(&self, figure: fn(&Sample) -> f64) -> Samples {
        let mut samples = Samples::default();
        self.samples.iter().for_each(|sample| samples.push(figure(sample)));
        samples
    }
}

impl Widths {
    /// Medians of operations a second, and for each second of processor time.
    fn medians(&self, server: &str, scheme: &str, width: &str, arguments: &[&str]) -> (f64, f64) {
        let wanted = (server, scheme, width, arguments);
        let is_it = |row: &&Row| (row.way.server, row.way.scheme, row.way.width, row.way.arguments) == wanted;
        let row = self.rows.iter().find(is_it);
        let median = |figure| row.map_or(f64::NAN, |row| row.samples(figure).median());
        (median(|sample| sample.operations_per_s), median(|sample| sample.operations_per_cpu_s))
    }

    /// Requests of a width that a server answers in a second, one at a time.
    pub(super) fn requests_per_s(&self, server: &str, scheme: &str, width: u32) -> f64 {
        self.medians(server, scheme, &width.to_string(), SINGLE).0 / f64::from(width)
    }

    /// The targets, and whether they were met.
    pub(super) fn targets(&self) -> String {
        let line = |what: &str, is: f64, least: f64| {
            let verdict = if is >= least { "met" } else { "not met" };
            format!("|{what}|{least}|{is:.2}|{verdict}|\n")
        };
        let mut text = "|target|at least|measured||\n|---|---|---|---|\n".to_owned();
        let (_, single) = self.medians("Minos", "minos", "1", SINGLE);
        let (_, wide) = self.medians("Minos", "minos", "32", SINGLE);
        text += &line("width 32 to width 1, operations a CPU second", wide / single, GAIN_MIN);
        text += &line("width 32, million operations a CPU second", wide / 1e6, MOPS_PER_CPU_S_MIN);
        for (how, arguments) in [("one at a time", SINGLE), ("32 in a train", PIPELINED)] {
            let (ours, ours_cpu) = self.medians("Minos", "minos", "1", arguments);
            let (theirs, theirs_cpu) = self.medians("memcached", "memcached+udp", "1", arguments);
            let what = format!("single requests, {how}, to memcached's over UDP");
            text += &line(&format!("{what}, a second"), ours / theirs, LEAD_MIN);
            text += &line(&format!("{what}, a CPU second"), ours_cpu / theirs_cpu, LEAD_MIN);
        }
        text
    }

    pub(super) fn report(&self) -> Report {
        let mut report = Report::new(
            "Operations a second by width",
            "GETs of 8 + 8 bytes, a million items, uniform; closed loop, 16 sockets or connections with one request at a \
             time, or 4 with 32. A CPU second is one of the server's processor time; idle workers sleep (`--poll sleep`). \
             Where the driver is slower than the server, only the figure for a CPU second describes the server.",
            &[
                "server",
                "protocol",
                "width",
                "requests",
                "thousand ops a second",
                "thousand ops a CPU second",
                "p50 us",
                "lost",
            ],
        );
        for row in &self.rows {
            let Way { server, width, how, .. } = row.way;
            let lost: u64 = row.samples.iter().map(|sample| sample.lost).sum();
            report.rows.push(vec![
                server.to_owned(),
                row.way.protocol().to_owned(),
                width.to_owned(),
                how.to_owned(),
                cell(&row.samples(|sample| sample.operations_per_s / 1e3), 0),
                cell(&row.samples(|sample| sample.operations_per_cpu_s / 1e3), 0),
                cell(&row.samples(|sample| sample.p50_us), 1),
                lost.to_string(),
            ]);
        }
        report
    }
}
