//! Predicted beside measured latencies.

use std::{fs, path::Path, thread};

use anyhow::{Context, bail, ensure};
use minos_base::limits::LONG_TURN;

use super::{
    CONNECTIONS, Extent, RECEIVE_BUFFER,
    calibration::Calibration,
    designs::{Contest, Design, KEYHASH, SIZE_AWARE},
    model::{self, Busy, Mix, Model, Prediction},
    runner::{Case, Latency, Runner, Sample, Series},
    scatter::{Class, Point},
    target,
};
use crate::measure::{
    Samples,
    driver::Pace,
    pauses::Pauses,
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
/// So that there is a thread for each processor.
const ROWS_A_THREAD: usize = MIXES.len() * LOADS.len() * DESIGNS.len() / 2;
const DESIGNS: [Design; 2] = [KEYHASH, SIZE_AWARE];
const CLASSES: [Class; 2] = [Class::Small, Class::Large];
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

/// What was measured of a design under a mix and a load, and what is predicted, in each round.
struct Row {
    case: model::Case,
    load: f64,
    /// Of the rounds in which it was measured without being disturbed.
    series: Series,
    pauses: Vec<Pauses>,
    predictions: Vec<Prediction>,
}

/// What was measured and predicted.
pub(super) struct Outcome {
    rows: Vec<Row>,
}

/// Calibrates, measures and predicts; writes the costs to a file in the folder `out`.
///
/// The machine is not always equally fast: what things cost beside each other is measured in each round, of which the medians
/// are taken, how fast the machine was in the very run, by the time that worker and driver were busy for a request.
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
    let model = Model { program, threshold: THRESHOLD };
    let mut calibration = (!extent.native).then(Calibration::default);
    let mut costs = read(base)?;
    let mut rows = Vec::new();
    let room = if extent.native { &[] } else { RECEIVE_BUFFER };
    for round in 1..=extent.rounds {
        eprintln!("dispatch-model: round {round} of {}", extent.rounds);
        if let Some(calibration) = &mut calibration {
            calibration.round(runner, contests.each_ref(), round)?;
            costs = calibration.costs(read(base)?);
        }
        if rows.is_empty() {
            rows = self::rows(&model, &costs)?;
        }
        measure_round(runner, &contests, &mut rows, room, round)?;
    }
    drop(contests);
    eprintln!("dispatch-model: predictions");
    thread::scope(|scope| {
        let predict = |rows: &mut [Row]| rows.iter_mut().try_for_each(|row| row.predict(&model, &costs));
        let threads: Vec<_> =
            rows.chunks_mut(ROWS_A_THREAD).map(|rows| scope.spawn(move || predict(rows))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| bail!("a thread has panicked")))
    })?;
    costs.insert("pauses".to_owned(), runner.pauses().costs(LONG_TURN));
    let file = out.join("dispatch-costs.toml");
    fs::write(&file, toml::to_string(&costs)?).with_context(|| file.display().to_string())?;
    Ok(Outcome { rows })
}

fn read(costs: &Path) -> anyhow::Result<toml::Table> {
    let text = fs::read_to_string(costs).with_context(|| costs.display().to_string())?;
    toml::from_str(&text).with_context(|| costs.display().to_string())
}

fn rows(model: &Model<'_>, costs: &toml::Table) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for mix in MIXES {
        let capacity_per_s = model.capacity_per_s(costs, &mix)?;
        ensure!(capacity_per_s > 0.0, "the simulator has no capacity for {mix:?}");
        for load in LOADS {
            let rate = (load * capacity_per_s / 1e3).round() * 1e3;
            let row = |design| Row {
                case: model::Case { design, mix, rate },
                load,
                series: Series::default(),
                pauses: Vec::new(),
                predictions: Vec::new(),
            };
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
    room: &[&str],
    round: u32,
) -> anyhow::Result<()> {
    let mut stored = None;
    for row in rows {
        let model::Case { design, mix, rate } = row.case;
        let items = [&ITEMS[..], &mix.arguments()].concat();
        if stored != Some(mix) {
            for contest in contests {
                runner.load(contest, &items)?;
            }
            stored = Some(mix);
        }
        let Some(contest) = contests.iter().find(|contest| contest.design == design) else { continue };
        let name = format!("load {}", row.load);
        let rate = format!("{rate:.0}");
        let case = Case { name: &name, round, pace: Pace::Spin };
        let arguments = [&items[..], &["--rate", &rate], room].concat();
        let (sample, pauses) = runner.measure_undisturbed(contest, case, &arguments)?;
        if sample.is_undisturbed() {
            row.series.0.push(sample);
            row.pauses.push(pauses);
        }
    }
    Ok(())
}

impl Row {
    /// Predicts what was measured in each round, with the pauses about that time.
    fn predict(&mut self, model: &Model<'_>, costs: &toml::Table) -> anyhow::Result<()> {
        for (sample, pauses) in self.series.0.iter().zip(&self.pauses) {
            let mut costs = costs.clone();
            // Runs with longer ones are left out.
            costs.insert("pauses".to_owned(), pauses.costs(LONG_TURN));
            costs.insert("speed".to_owned(), pauses.speed());
            let worker_ns = sample.work.rest_ns();
            let busy = Busy {
                worker_ns,
                moving_ns: sample.work.busy_ns() - worker_ns,
                sending_ns: sample.driver_sending_ns(),
                receiving_ns: sample.driver_receiving_ns(),
            };
            self.predictions.push(model.predict(&costs, &self.case, busy)?);
        }
        Ok(())
    }

    /// What was predicted and measured of a class of requests, in each round.
    fn points(&self, class: Class, figure: fn(&Latency) -> f64) -> impl Iterator<Item = Point> {
        let measured = move |sample: &Sample| match class {
            Class::Small => figure(&sample.small),
            Class::Large => figure(&sample.large),
        };
        let predicted = move |prediction: &Prediction| match class {
            Class::Small => figure(&prediction.small),
            Class::Large => figure(&prediction.large),
        };
        let design = self.case.design.name;
        self.series.0.iter().zip(&self.predictions).map(move |(sample, prediction)| Point {
            design,
            class,
            predicted_us: predicted(prediction),
            measured_us: measured(sample),
        })
    }

    fn cells(&self, class: Class, figure: fn(&Latency) -> f64) -> [String; 2] {
        let (mut measured, mut predicted) = (Samples::default(), Samples::default());
        for point in self.points(class, figure) {
            measured.push(point.measured_us);
            predicted.push(point.predicted_us);
        }
        let error = 100.0 * median_error(self.points(class, figure));
        [cell(&measured, 0), format!("{:.0} ({error:+.0} %)", predicted.median())]
    }
}

/// The median over the rounds of how far predictions are from what was measured in the same round.
fn median_error(points: impl Iterator<Item = Point>) -> f64 {
    let mut errors = Samples::default();
    points.for_each(|point| errors.push(point.error()));
    errors.median()
}

impl Outcome {
    /// The 99th percentiles of all rows, predicted and measured, of all rounds.
    pub(super) fn points(&self) -> Vec<Point> {
        self.series().flat_map(|(row, class)| row.points(class, P99)).collect()
    }

    fn series(&self) -> impl Iterator<Item = (&Row, Class)> {
        self.rows.iter().flat_map(|row| CLASSES.map(|class| (row, class)))
    }

    /// How many predictions are near enough.
    pub(super) fn verdict(&self) -> String {
        let mut text = "|predicted|wanted|measured||\n|---|---|---|---|\n".to_owned();
        for (name, figure) in [("99th percentiles", P99), ("90th percentiles", P90), ("medians", P50)] {
            for class in CLASSES {
                for design in DESIGNS {
                    let own = self.series().filter(|&(row, of)| of == class && row.case.design == design);
                    let errors = own.map(|(row, class)| median_error(row.points(class, figure)));
                    text += &near(&format!("{name}: {} requests, {}", class.name(), design.name), errors);
                }
            }
            let errors = self.series().map(|(row, class)| median_error(row.points(class, figure)));
            text += &near(&format!("{name}: all"), errors);
        }
        text += &near("99th percentiles, each round by itself: all", self.points().iter().map(Point::error));
        text += &self.repetition();
        text
    }

    /// How well the machine repeats itself. Predictions know more: the counters of their very run.
    fn repetition(&self) -> String {
        let mut errors = Vec::new();
        for (row, class) in self.series() {
            let measured: Vec<f64> = row.points(class, P99).map(|point| point.measured_us).collect();
            errors.extend(measured.windows(2).map(|pair| pair[1] / pair[0] - 1.0));
        }
        near("beside them, measured 99th percentiles: each round against the one before", errors)
    }

    /// Measured and predicted latencies of each row, in microseconds.
    pub(super) fn report(&self) -> Report {
        let mut report = Report::new(
            "Latency, measured and predicted",
            "",
            &[
                "requests",
                "p_L, %",
                "s_L, bytes",
                "load",
                "requests a second",
                "design",
                "p50",
                "p50 predicted",
                "p90",
                "p90 predicted",
                "p99",
                "p99 predicted",
            ],
        );
        for class in CLASSES {
            for row in &self.rows {
                let model::Case { design, mix, rate } = row.case;
                let mut cells = [class.name(), mix.large_percent, mix.large_max].map(str::to_owned).to_vec();
                cells.extend([row.load.to_string(), format!("{rate:.0}"), design.name.to_owned()]);
                cells.extend([P50, P90, P99].into_iter().flat_map(|figure| row.cells(class, figure)));
                report.rows.push(cells);
            }
        }
        report
    }
}

/// A line that says how many predictions are near enough.
fn near(what: &str, errors: impl IntoIterator<Item = f64>) -> String {
    let mut percent = Samples::default();
    errors.into_iter().for_each(|error| percent.push(100.0 * error));
    let (all, near) = (percent.count(|_| true), percent.count(|error| error.abs() <= 100.0 * ERROR_MAX));
    let measured = format!("{near} of {all}; errors in % {}", cell(&percent, 0));
    target(what, "all within 25 %", &measured, near == all)
}
