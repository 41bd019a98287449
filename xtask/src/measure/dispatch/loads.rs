//! Latency by load.

use super::{
    designs::Contest,
    runner::{Case, LOOK, Latency, Runner, Sample, Series},
    target,
};
use crate::measure::{
    native::plot::Line,
    pauses::Pauses,
    plan,
    report::{Report, cell},
};

/// Shares of the closed-loop throughput of keyhash with two workers.
const LOADS: [f64; 5] = [0.2, 0.4, 0.6, 0.75, 0.9];
/// With one worker, which does not use the driver's processor, the highest loads are left out.
const LOADS_ALONE: usize = 3;
/// A server does not keep up if its throughput is below the offered rate by more than this share.
const BEHIND_MAX: f64 = 0.03;

/// The measurements of a design at one load.
struct Point {
    rate: f64,
    series: Series,
}

struct Row {
    name: &'static str,
    is_rival: bool,
    is_alone: bool,
    points: Vec<Point>,
}

pub(super) struct Loads(Vec<Row>);

impl Loads {
    pub(super) fn new(contests: &[Contest], most_per_s: f64) -> Self {
        let row = |contest: &Contest| {
            let is_alone = contest.workers == 1;
            let loads = if is_alone { &LOADS[..LOADS_ALONE] } else { &LOADS[..] };
            // Round rates.
            let rate = |load: &f64| (load * most_per_s / 1e3).round() * 1e3;
            let point = |load| Point { rate: rate(load), series: Series::default() };
            let points = loads.iter().map(point).collect();
            Row { name: contest.name, is_rival: contest.design.is_rival, is_alone, points }
        };
        Self(contests.iter().map(row).collect())
    }

    pub(super) fn round(
        &mut self,
        runner: &mut Runner<'_>,
        contests: &[Contest],
        workload: &[&str],
        round: u32,
    ) -> anyhow::Result<()> {
        // When nothing else runs.
        runner.pauses.add(&Pauses::watch(LOOK)?);
        for (number, load) in LOADS.iter().enumerate() {
            let name = format!("load {load}");
            for (contest, row) in contests.iter().zip(&mut self.0) {
                let Some(point) = row.points.get_mut(number) else { continue };
                let rate = format!("{:.0}", point.rate);
                let case = Case { name: &name, round };
                let arguments = [workload, &["--rate", &rate]].concat();
                point.series.0.push(runner.measure(contest, case, &arguments)?);
            }
        }
        Ok(())
    }

    fn two_workers(&self) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(|row| !row.is_alone)
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.0.iter().find(|row| row.name == name)
    }

    /// At each load, the rival with the lowest median of small requests' 99th percentiles, and size-aware.
    fn duels(&self) -> impl Iterator<Item = (f64, &Row, &Point, &Point)> {
        let ours = self.row("size-aware").map_or(&[][..], |row| &row.points[..]);
        ours.iter().enumerate().filter_map(|(number, point)| {
            let rivals = self.two_workers().filter(|row| row.is_rival);
            let best = rivals.min_by(|one, other| {
                let p99 = |row: &Row| row.points[number].series.median(small_p99);
                p99(one).total_cmp(&p99(other))
            })?;
            Some((LOADS[number], best, &best.points[number], point))
        })
    }

    pub(super) fn targets(&self) -> String {
        let mut text = String::new();
        for (load, rival, theirs, ours) in self.duels() {
            let ratio = ours.series.ratio(&theirs.series, small_p99);
            let what = format!("small p99 at load {load}, size-aware to the best rival ({})", rival.name);
            text += &target(&what, "at most 1", &cell(&ratio, 2), ratio.median() <= 1.0);
        }
        text
    }

    /// Small requests' 99th percentiles, a column for each load.
    pub(super) fn small_p99(&self) -> Report {
        let mut report = Report::new(
            "99th percentile of small requests",
            &format!(
                "Microseconds, by load: a share of the {:.0} requests a second of keyhash with two workers in closed \
                 loop. The last line is the ratio of size-aware to the rival (keyhash, handoff, stealing) with the \
                 lowest median, in the same rounds.",
                self.0.first().and_then(|row| row.points.last()).map_or(0.0, |point| point.rate)
                    / LOADS[LOADS.len() - 1]
            ),
            &["design"],
        );
        report.columns.extend(LOADS.map(|load| format!("load {load}")));
        for row in &self.0 {
            let cells = row.points.iter().map(|point| cell(&point.series.samples(small_p99), 0));
            let mut cells: Vec<_> = std::iter::once(row.name.to_owned()).chain(cells).collect();
            cells.resize(LOADS.len() + 1, "-".to_owned());
            report.rows.push(cells);
        }
        let ratios = self.duels().map(|(_, rival, theirs, ours)| {
            format!("{}: {}", rival.name, cell(&ours.series.ratio(&theirs.series, small_p99), 2))
        });
        report.rows.push(std::iter::once("size-aware to the best rival".to_owned()).chain(ratios).collect());
        report
    }

    pub(super) fn report(&self) -> Report {
        let mut report = Report::new(
            "Latency by load",
            "",
            &[
                "load",
                "design",
                "requests a second",
                "small p50",
                "p90",
                "p99",
                "p99.9",
                "large p50",
                "large p99",
                "lost",
                "plans in force",
            ],
        );
        for (number, load) in LOADS.iter().enumerate() {
            for row in &self.0 {
                let Some(point) = row.points.get(number) else { continue };
                report.rows.push(cells(*load, row.name, point));
            }
        }
        report
    }

    /// The median and the 99th percentile of each design with two workers.
    pub(super) fn lines(&self) -> Vec<Line> {
        let line = |row: &Row| {
            let of = |figure: fn(&Sample) -> f64| {
                row.points.iter().map(|point| (point.rate, point.series.median(figure))).collect()
            };
            Line { name: row.name, p50: of(|sample| sample.small.p50_us), p99: of(small_p99) }
        };
        self.two_workers().map(line).collect()
    }
}

fn small_p99(sample: &Sample) -> f64 {
    sample.small.p99_us
}

fn cells(load: f64, name: &str, point: &Point) -> Vec<String> {
    let achieved = point.series.samples(|sample| sample.achieved_per_s);
    let star = if achieved.median() < (1.0 - BEHIND_MAX) * point.rate { " *" } else { "" };
    let latency = |figure: fn(&Latency) -> f64, class: fn(&Sample) -> Latency| {
        cell(&point.series.samples(|sample| figure(&class(sample))), 0)
    };
    let small = |figure| latency(figure, |sample| sample.small);
    let large = |figure| latency(figure, |sample| sample.large);
    vec![
        load.to_string(),
        name.to_owned(),
        format!("{:.0}{star}", achieved.median()),
        small(|latency| latency.p50_us),
        small(|latency| latency.p90_us),
        small(|latency| latency.p99_us),
        small(|latency| latency.p999_us),
        large(|latency| latency.p50_us),
        large(|latency| latency.p99_us),
        point.series.lost().to_string(),
        plan::in_words(point.series.0.iter().map(|sample| sample.plan)),
    ]
}
