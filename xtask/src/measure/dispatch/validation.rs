//! Predicted beside measured latencies.

use std::{fs, path::Path};

use anyhow::{Context, ensure};

use super::{
    CONNECTIONS, Extent,
    calibration::Calibration,
    designs::{Contest, Design, KEYHASH, SIZE_AWARE},
    model::{Mix, Model, Prediction},
    runner::{Case, Latency, Runner, Sample, Series},
    scatter::{Class, Point},
    target,
};
use crate::measure::{
    Samples,
    driver::Pace,
    report::{Report, cell},
};

/// Where queues and not the machine make the 99th percentile.
const MIXES: [Mix; 4] = [
    Mix { large_percent: "2", large_max: "500000" },
    Mix { large_percent: "5", large_max: "250000" },
    Mix { large_percent: "10", large_max: "100000" },
    Mix { large_percent: "10", large_max: "500000" },
];
/// Shares of what the simulator says that one worker can serve. The driver takes about as long for a request: where both have
/// little to spare, how fast the machine is changes by more from second to second than that.
const LOADS: [f64; 3] = [0.2, 0.4, 0.6];
const DESIGNS: [Design; 2] = [KEYHASH, SIZE_AWARE];
/// Up to which a worker alone serves all requests when they come.
const THRESHOLD: &str = "16k";
const ITEMS: [&str; 8] =
    ["--workload", "etc", "--keys", "20000", "--large-keys", "400", "--connections", CONNECTIONS];
/// How far a prediction may be from what was measured.
const ERROR_MAX: f64 = 0.25;
/// Where the costs are that no server has to be measured for.
const COSTS_DEFAULT: &str = "docs/results/costs-sockets.toml";

const P50: fn(&Latency) -> f64 = |latency| latency.p50_us;
const P90: fn(&Latency) -> f64 = |latency| latency.p90_us;
const P99: fn(&Latency) -> f64 = |latency| latency.p99_us;

/// What was measured of a design under a mix and a load, and what is predicted.
struct Row {
    mix: Mix,
    load: f64,
    rate: f64,
    design: Design,
    series: Series,
    prediction: Option<Prediction>,
}

/// What was measured and predicted.
pub(super) struct Outcome {
    rows: Vec<Row>,
    costs: toml::Table,
}

/// Calibrates, measures and predicts; writes the costs to a file in the folder `out`. Costs are measured anew in each round,
/// because the machine is not always equally fast.
pub(super) fn measure(
    runner: &mut Runner<'_>,
    program: &Path,
    extent: &Extent,
    given: Option<&Path>,
    out: &Path,
) -> anyhow::Result<Outcome> {
    let start = |design| Contest::start_spinning(program, design, THRESHOLD, extent.native);
    let contests = [start(KEYHASH)?, start(SIZE_AWARE)?];
    runner.prepare_spinning(&[&contests[0], &contests[1]])?;
    let base = given.unwrap_or(Path::new(COSTS_DEFAULT));
    let file = out.join("dispatch-costs.toml");
    let model = Model { program, costs: &file, threshold: THRESHOLD };
    let mut calibration = (!extent.native).then(Calibration::default);
    let mut costs = read(base)?;
    let mut rows = Vec::new();
    for round in 1..=extent.rounds {
        eprintln!("dispatch-model: round {round} of {}", extent.rounds);
        runner.look_at_machine();
        if let Some(calibration) = &mut calibration {
            calibration.round(runner, contests.each_ref(), round)?;
            costs = calibration.costs(read(base)?);
        }
        fs::write(&file, toml::to_string(&costs)?)?;
        if rows.is_empty() {
            rows = self::rows(&model)?;
        }
        measure_round(runner, &contests, &mut rows, round)?;
    }
    drop(contests);
    for row in &mut rows {
        row.prediction = Some(model.predict(row.design, &row.mix, row.rate)?);
    }
    Ok(Outcome { rows, costs })
}

fn read(costs: &Path) -> anyhow::Result<toml::Table> {
    let text = fs::read_to_string(costs).with_context(|| costs.display().to_string())?;
    toml::from_str(&text).with_context(|| costs.display().to_string())
}

fn rows(model: &Model<'_>) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for mix in MIXES {
        let capacity_per_s = model.capacity_per_s(&mix)?;
        ensure!(capacity_per_s > 0.0, "the simulator has no capacity for {mix:?}");
        for load in LOADS {
            let rate = (load * capacity_per_s / 1e3).round() * 1e3;
            let row = |design| Row { mix, load, rate, design, series: Series::default(), prediction: None };
            rows.extend(DESIGNS.map(row));
        }
    }
    Ok(rows)
}

/// Measures each row once. Large items have other sizes in each mix, so that they are stored anew.
fn measure_round(
    runner: &mut Runner<'_>,
    contests: &[Contest],
    rows: &mut [Row],
    round: u32,
) -> anyhow::Result<()> {
    let mut stored = None;
    for row in rows {
        let items = [&ITEMS[..], &row.mix.arguments()].concat();
        if stored != Some(row.mix) {
            for contest in contests {
                runner.load(contest, &items)?;
            }
            stored = Some(row.mix);
        }
        let Some(contest) = contests.iter().find(|contest| contest.design == row.design) else { continue };
        let name = format!("load {}", row.load);
        let rate = format!("{:.0}", row.rate);
        let case = Case { name: &name, round, pace: Pace::Spin };
        let arguments = [&items[..], &["--rate", &rate]].concat();
        row.series.0.push(runner.measure_undisturbed(contest, case, &arguments)?);
    }
    Ok(())
}

impl Row {
    /// What was measured and what is predicted of a class of requests.
    fn latency(&self, class: Class, figure: fn(&Latency) -> f64) -> (Samples, f64) {
        let of_sample = move |sample: &Sample| match class {
            Class::Small => sample.small,
            Class::Large => sample.large,
        };
        let predicted = self.prediction.map_or(f64::NAN, |prediction| match class {
            Class::Small => figure(&prediction.small),
            Class::Large => figure(&prediction.large),
        });
        (self.series.samples(|sample| figure(&of_sample(sample))), predicted)
    }

    fn cells(&self, class: Class, figure: fn(&Latency) -> f64) -> [String; 2] {
        let (measured, predicted) = self.latency(class, figure);
        let error = 100.0 * (predicted / measured.median() - 1.0);
        [cell(&measured, 0), format!("{predicted:.0} ({error:+.0} %)")]
    }
}

impl Outcome {
    /// The 99th percentiles of all rows, predicted and measured in the round in which they were lowest: what the
    /// machine takes only ever adds to them.
    pub(super) fn points(&self) -> Vec<Point> {
        self.points_of(P99, Samples::min)
    }

    fn points_of(&self, latency: fn(&Latency) -> f64, figure: fn(&Samples) -> f64) -> Vec<Point> {
        let point = |(row, class): (&Row, Class)| {
            let (measured, predicted_us) = row.latency(class, latency);
            Point { design: row.design.name, class, predicted_us, measured_us: figure(&measured) }
        };
        let rows = self.rows.iter();
        rows.flat_map(|row| [(row, Class::Small), (row, Class::Large)]).map(point).collect()
    }

    /// How many predictions are near enough.
    pub(super) fn verdict(&self) -> String {
        let mut text = "| predicted | wanted | measured | |\n|---|---|---|---|\n".to_owned();
        for (of_which, points) in [
            ("99th percentiles, quietest round", self.points()),
            ("99th percentiles, median of the rounds", self.points_of(P99, Samples::median)),
            ("90th percentiles, median of the rounds", self.points_of(P90, Samples::median)),
            ("medians, median of the rounds", self.points_of(P50, Samples::median)),
        ] {
            for class in [Class::Small, Class::Large] {
                for design in DESIGNS {
                    let what = format!("{of_which}: {} requests, {}", class.name(), design.name);
                    text +=
                        &near(&what, &points, |point| point.class == class && point.design == design.name);
                }
            }
            text += &near(&format!("{of_which}: all"), &points, |_| true);
        }
        text += &self.control();
        text
    }

    /// How well the machine repeats itself: no prediction can be nearer.
    fn control(&self) -> String {
        let mut points = self.points();
        for (point, again) in points.iter_mut().zip(self.points_of(P99, second_lowest)) {
            point.predicted_us = again.measured_us;
        }
        near("control, 99th percentiles: second quietest round against the quietest", &points, |_| true)
    }

    pub(super) fn reports(&self) -> [Report; 3] {
        let note = "What the simulator goes by, in nanoseconds unless the name says otherwise.";
        let mut costs = Report::new("Costs", note, &["cost", "value"]);
        flatten("", &toml::Value::Table(self.costs.clone()), &mut costs.rows);
        [self.report(Class::Small), self.report(Class::Large), costs]
    }

    fn report(&self, class: Class) -> Report {
        let mut report = Report::new(
            &format!("Latency of {} requests, measured and predicted", class.name()),
            "Microseconds. Loads are shares of what the simulator says that one worker can serve. The 99th percentiles of \
             large requests are of a few hundred requests a round.",
            &[
                "p_L, %",
                "s_L, bytes",
                "load",
                "requests a second",
                "design",
                "p50",
                "predicted",
                "p90",
                "predicted",
                "p99",
                "predicted",
            ],
        );
        for row in &self.rows {
            let mut cells = [row.mix.large_percent, row.mix.large_max].map(str::to_owned).to_vec();
            cells.extend([row.load.to_string(), format!("{:.0}", row.rate), row.design.name.to_owned()]);
            cells.extend([P50, P90, P99].into_iter().flat_map(|figure| row.cells(class, figure)));
            report.rows.push(cells);
        }
        report
    }
}

/// The lowest but one; the only one, if there is no other.
fn second_lowest(samples: &Samples) -> f64 {
    samples.all().take(2).last().unwrap_or(f64::NAN)
}

/// The numbers in a value of that name, with the names of those within it.
fn flatten(name: &str, value: &toml::Value, rows: &mut Vec<Vec<String>>) {
    let within = |inner: &str| if name.is_empty() { inner.to_owned() } else { format!("{name}.{inner}") };
    match value {
        toml::Value::Table(table) => {
            table.iter().for_each(|(inner, value)| flatten(&within(inner), value, rows));
        }
        toml::Value::Array(values) => values.iter().enumerate().for_each(|(index, value)| {
            flatten(&within(&index.to_string()), value, rows);
        }),
        toml::Value::Float(number) => rows.push(vec![name.to_owned(), number.to_string()]),
        _ => {}
    }
}

/// A line that says how many of the points that are `wanted` are near enough.
fn near(what: &str, points: &[Point], wanted: impl Fn(&Point) -> bool) -> String {
    let mut errors = Samples::default();
    points.iter().filter(|point| wanted(point)).for_each(|point| errors.push(100.0 * point.error()));
    let (all, near) = (errors.count(|_| true), errors.count(|error| error.abs() <= 100.0 * ERROR_MAX));
    let measured = format!("{near} of {all}; errors in % {}", cell(&errors, 0));
    target(what, "all within 25 %", &measured, near == all)
}
