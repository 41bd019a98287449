//! Latency against throughput: open loop at growing rates (vector interfaces figures 9 and 11).

use super::{
    ITEMS, Servers,
    plot::Line,
    runner::{Case, Runner},
    widths::Widths,
};
use crate::measure::{
    Samples,
    report::{Report, cell},
};

/// Shares of the closed-loop throughput.
const LOADS: [f64; 8] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0];

/// A server does not keep up if its throughput is below the offered rate by more than this share; its latency
/// then only reflects the length of the run.
const BEHIND_MAX: f64 = 0.03;

/// Standard deviations by which random arrivals may stay below their expected number.
const DEVIATIONS: f64 = 4.0;

/// The kind of requests of a curve.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    server: &'static str,
    scheme: &'static str,
    width: u32,
}

const WAYS: [Way; 6] = [
    Way { name: "native, width 1", server: "Minos", scheme: "minos", width: 1 },
    Way { name: "native, width 4", server: "Minos", scheme: "minos", width: 4 },
    Way { name: "native, width 16", server: "Minos", scheme: "minos", width: 16 },
    Way { name: "native, width 64", server: "Minos", scheme: "minos", width: 64 },
    Way { name: "Minos, TCP, GET", server: "Minos", scheme: "memcached", width: 1 },
    Way { name: "memcached, UDP, GET", server: "memcached", scheme: "memcached+udp", width: 1 },
];

struct Point {
    /// Requests that are to be sent.
    offered_per_s: f64,
    operations_per_s_min: f64,
    operations_per_s: Samples,
    p50_us: Samples,
    p99_us: Samples,
}

struct Curve {
    way: Way,
    points: Vec<Point>,
}

pub(super) struct Curves(Vec<Curve>);

/// Measures every point of every curve in each round; the last point of a curve follows from `widths`.
pub(super) fn measure(
    runner: &mut Runner<'_>,
    servers: &Servers,
    rounds: u32,
    widths: &Widths,
) -> anyhow::Result<Curves> {
    let seconds = runner.seconds();
    let mut curves: Vec<Curve> = WAYS.into_iter().map(|way| Curve::of(way, widths, seconds)).collect();
    for round in 1..=rounds {
        eprintln!("native, curves: round {round} of {rounds}");
        for Curve { way, points } in &mut curves {
            let server = if way.server == "memcached" { &servers.memcached } else { &servers.spinning };
            let (target, width) = (server.target_in(way.scheme), way.width.to_string());
            for point in points {
                let rate = format!("{:.0}", point.offered_per_s);
                let case = Case { name: way.name, target: &target, pid: server.pid(), round };
                let arguments = ["1", "--connections", "16", "--rate", &rate, "--multiget", &width];
                let sample = runner.measure(case, &[&ITEMS[..], &arguments].concat())?;
                point.operations_per_s.push(sample.operations_per_s);
                point.p50_us.push(sample.p50_us);
                point.p99_us.push(sample.p99_us);
            }
        }
    }
    Ok(Curves(curves))
}

impl Curve {
    fn of(way: Way, widths: &Widths, seconds: f64) -> Self {
        let most = widths.requests_per_s(way.server, way.scheme, way.width);
        let point = |load: f64| {
            let offered_per_s = (load * most).max(1.0);
            let kept_up_min = 1.0 - BEHIND_MAX - DEVIATIONS / (offered_per_s * seconds).sqrt();
            Point {
                offered_per_s,
                operations_per_s_min: kept_up_min * offered_per_s * f64::from(way.width),
                operations_per_s: Samples::default(),
                p50_us: Samples::default(),
                p99_us: Samples::default(),
            }
        };
        Self { way, points: LOADS.into_iter().map(point).collect() }
    }

    /// Points before the first one at which the server did not keep up.
    fn kept_up(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().take_while(|point| point.operations_per_s.median() >= point.operations_per_s_min)
    }
}

impl Curves {
    /// The median and the 99th percentile of each curve.
    pub(super) fn lines(&self) -> Vec<Line> {
        let line = |curve: &Curve| {
            let throughput = |point: &Point| point.operations_per_s.median();
            Line {
                name: curve.way.name,
                p50: curve.kept_up().map(|point| (throughput(point), point.p50_us.median())).collect(),
                p99: curve.kept_up().map(|point| (throughput(point), point.p99_us.median())).collect(),
            }
        };
        self.0.iter().map(line).collect()
    }

    pub(super) fn report(&self) -> Report {
        let mut report = Report::new(
            "Latency against throughput",
            "GETs of 8 + 8 bytes, open loop with Poisson arrivals on 16 sockets or connections, at shares of the closed \
             loop's rate, microseconds from a request's intended send time to its last answer, `--poll adaptive` (the \
             default); a dash where server or driver did not keep up.",
            &["requests", "offered a second", "thousand ops a second", "p50 us", "p99 us"],
        );
        for curve in &self.0 {
            let kept_up = curve.kept_up().count();
            for (number, point) in curve.points.iter().enumerate() {
                let has_latency = number < kept_up;
                let latency = |samples: &Samples| if has_latency { cell(samples, 1) } else { "-".to_owned() };
                report.rows.push(vec![
                    curve.way.name.to_owned(),
                    format!("{:.0}", point.offered_per_s),
                    format!("{:.0}", point.operations_per_s.median() / 1e3),
                    latency(&point.p50_us),
                    latency(&point.p99_us),
                ]);
            }
        }
        report
    }
}
