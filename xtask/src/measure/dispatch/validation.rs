//! Predicted beside measured latencies.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};

use super::{
    Extent, calibration,
    designs::{Contest, Design, KEYHASH, SIZE_AWARE},
    model::{Mix, Model, Prediction, costs_file},
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
/// Shares of what the simulator says that one worker can serve.
const LOADS: [f64; 3] = [0.3, 0.55, 0.8];
const DESIGNS: [Design; 2] = [KEYHASH, SIZE_AWARE];
/// Of the sizes; ten of a hundred requests are large in some mixes.
const PERCENTILE: &str = "85";
const ITEMS: [&str; 6] = ["--workload", "etc", "--keys", "20000", "--large-keys", "400"];
/// Of each measurement of a cost: the kernel does not always know in time what a thread has taken that nothing interrupts.
const CALIBRATION_ROUNDS_MIN: u32 = 3;
/// How far a prediction may be from what was measured.
const ERROR_MAX: f64 = 0.25;
/// Where the costs are that no server has to be measured for.
const COSTS_DEFAULT: &str = "docs/results/costs-sockets.toml";

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
    /// Of each of the designs.
    costs: Vec<toml::Table>,
}

/// Calibrates, measures and predicts; writes the costs to files that are called after the designs.
pub(super) fn measure(
    runner: &mut Runner<'_>,
    program: &Path,
    extent: &Extent,
    costs: Option<&Path>,
    out: &Path,
) -> anyhow::Result<Outcome> {
    let start = |design| Contest::start_spinning(program, design, PERCENTILE, extent.native);
    let contests = [start(KEYHASH)?, start(SIZE_AWARE)?];
    runner.prepare_spinning(&[&contests[0], &contests[1]])?;
    let base = costs.map_or_else(|| PathBuf::from(COSTS_DEFAULT), Path::to_owned);
    let mut costs = Vec::with_capacity(DESIGNS.len());
    for (design, spinning) in DESIGNS.into_iter().zip(&contests) {
        costs.push(if extent.native {
            toml::from_str(&fs::read_to_string(&base).with_context(|| base.display().to_string())?)?
        } else {
            let busy = Contest::start_sleeping(program, design)?;
            runner.prepare_spinning(&[&busy])?;
            calibration::over_tcp(runner, &busy, spinning, &base, extent.rounds.max(CALIBRATION_ROUNDS_MIN))?
        });
        let file = costs_file(out, design);
        fs::write(&file, toml::to_string(costs.last().unwrap_or(&toml::Table::new()))?)?;
    }
    let model = Model { program, costs: out, percentile: PERCENTILE };
    let mut rows = rows(&model)?;
    for round in 1..=extent.rounds {
        eprintln!("dispatch-model: round {round} of {}", extent.rounds);
        runner.look_at_machine();
        measure_round(runner, &contests, &mut rows, round)?;
    }
    drop(contests);
    for row in &mut rows {
        row.prediction = Some(model.predict(row.design, &row.mix, row.rate)?);
    }
    Ok(Outcome { rows, costs })
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
        row.series.0.push(runner.measure(contest, case, &[&items[..], &["--rate", &rate]].concat())?);
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
        self.points_of(Samples::min)
    }

    fn points_of(&self, figure: fn(&Samples) -> f64) -> Vec<Point> {
        let point = |(row, class): (&Row, Class)| {
            let (measured, predicted_us) = row.latency(class, |latency| latency.p99_us);
            Point { design: row.design.name, class, predicted_us, measured_us: figure(&measured) }
        };
        let rows = self.rows.iter();
        rows.flat_map(|row| [(row, Class::Small), (row, Class::Large)]).map(point).collect()
    }

    /// How many predictions are near enough.
    pub(super) fn verdict(&self) -> String {
        let mut text = "| 99th percentiles predicted | wanted | measured | |\n|---|---|---|---|\n".to_owned();
        let rounds =
            [("quietest round", self.points()), ("median of the rounds", self.points_of(Samples::median))];
        for (of_which, points) in &rounds {
            for class in [Class::Small, Class::Large] {
                for design in DESIGNS {
                    let what = format!("{} requests, {}, {of_which}", class.name(), design.name);
                    text += &near(&what, points, |point| point.class == class && point.design == design.name);
                }
            }
        }
        text
    }

    pub(super) fn reports(&self) -> [Report; 3] {
        let title = "Costs";
        let note = "What the simulator goes by, in nanoseconds unless the name says otherwise.";
        let mut costs = Report::new(title, note, &["cost"]);
        costs.columns.extend(DESIGNS.map(|design| design.name.to_owned()));
        for name in self.costs.first().into_iter().flat_map(toml::Table::keys) {
            let values = self.costs.iter().map(|costs| costs.get(name).and_then(toml::Value::as_float));
            let Some(values) = values.collect::<Option<Vec<f64>>>() else { continue };
            let values = values.iter().map(|value| format!("{value}"));
            costs.rows.push(std::iter::once(name.clone()).chain(values).collect());
        }
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
            let figures: [fn(&Latency) -> f64; 3] =
                [|latency| latency.p50_us, |latency| latency.p90_us, |latency| latency.p99_us];
            cells.extend(figures.into_iter().flat_map(|figure| row.cells(class, figure)));
            report.rows.push(cells);
        }
        report
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
