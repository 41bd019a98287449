//! The dispatch designs, side by side on two processors (Minos §6).

mod designs;
mod loads;
mod noise;
mod runner;
mod saturation;
mod table;

use std::{fmt::Write as _, path::Path};

use super::save;
use designs::Contest;
use runner::Runner;

/// The extent and the subject of the measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) rounds: u32,
    /// Milliseconds of each measurement.
    pub(super) millis: u32,
    /// Over the native protocol instead of TCP.
    pub(super) native: bool,
    /// Share of large requests (Minos' p_L).
    pub(super) large_percent: f64,
    /// True if small workers steal from each other's queues.
    pub(super) steals: bool,
}

/// The share of large requests in the paper's default workload.
pub(super) const LARGE_PERCENT: f64 = 0.125;

impl Extent {
    fn protocol(&self) -> &'static str {
        if self.native { "the native protocol" } else { "memcached's protocol over TCP" }
    }

    /// The command that repeats the measurement.
    fn command(&self) -> String {
        let Self { rounds, millis, native, large_percent, steals } = self;
        let mut command = format!("`cargo xtask measure dispatch --rounds {rounds} --millis {millis}");
        if *native {
            command += " --native";
        }
        if *large_percent != LARGE_PERCENT {
            let _ = write!(command, " --large-percent {large_percent}");
        }
        if !steals {
            command += " --no-steal";
        }
        command + "`"
    }

    /// The name of the result files, without extension.
    pub(super) fn stem(&self) -> String {
        let native = if self.native { "-native" } else { "" };
        let is_usual = self.large_percent == LARGE_PERCENT;
        let percent = if is_usual { String::new() } else { format!("-{}", self.large_percent) };
        let steals = if self.steals { "" } else { "-no-steal" };
        format!("dispatch{native}{percent}{steals}")
    }

    fn stealing_in_words(&self) -> &'static str {
        if self.steals { "" } else { "Small workers do not take from each other's queues (`--steal off`). " }
    }
}

/// The paper's default workload: p_L = 0.125 %, s_L = 500 KB, 95:5, zipf 0.99 (Minos §5.3).
const PAPER: [&str; 6] = ["--workload", "etc", "--keys", "100000", "--large-keys", "500"];

/// Measures all designs; writes all samples to `dispatch.csv` and a picture to `dispatch.svg`. Returns the
/// text of `dispatch.md`.
pub(super) fn measure(program: &Path, extent: &Extent, out: &Path) -> anyhow::Result<String> {
    let mut runner = Runner::new(program, extent.millis);
    let percent = extent.large_percent.to_string();
    let workload = &[&PAPER[..], &["--large-percent", &percent]].concat();
    // Items of the two workloads have the same keys and different sizes.
    let contests = started(&runner, program, extent, workload)?;
    let noisy = started(&runner, program, extent, &noise::WORKLOAD)?;
    let most_per_s = saturation::keyhash_per_s(&mut runner, &contests, workload)?;
    let mut loads = loads::Loads::new(&contests, most_per_s);
    let (mut saturation, mut noise) = (saturation::table(&contests, workload), noise::table(&contests));
    for round in 1..=extent.rounds {
        eprintln!("dispatch: round {round} of {}", extent.rounds);
        saturation.round(&mut runner, &contests, round)?;
        loads.round(&mut runner, &contests, workload, round)?;
        noise.round(&mut runner, &noisy, round)?;
    }
    let stem = extent.stem();
    super::native::plot::draw(&loads.lines(), &out.join(format!("{stem}.svg")))?;
    save(&runner.csv, &out.join(format!("{stem}.csv")))?;
    loads.report().write_csv(&out.join(format!("{stem}-loads.csv")))?;
    let sections = [loads.small_p99(), saturation::report(&saturation), noise::report(&noise)];
    let targets = [loads.targets(), saturation::targets(&saturation), noise::targets(&noise)].concat();
    let &Extent { large_percent, rounds, millis, .. } = extent;
    let head = format!(
        "# Designs of dispatch on two processors\n\nMeasured over {}, {large_percent} % of the requests large, open loop with Poisson arrivals unless stated; {rounds} \
         interleaved rounds of {millis} ms, medians (smallest..largest). Two workers, one bound to each processor, sleep when \
         idle; the driver's two threads, bound likewise{}, and receive the answers, dated by the kernel, on these \
         occasions (`--pace due`). With one worker, on the first processor, the driver has one thread on the second. \
         {}{}; `{stem}.csv` has all samples, `{stem}-loads.csv` the percentiles by load \
         (a star: fewer than 97 % of the requests were answered in time).\n\n{}\n\n\
         ![Latency against throughput]({stem}.svg)\n\n\
         |target|wanted|measured||\n|---|---|---|---|\n{targets}",
        extent.protocol(),
        runner.driver_in_words(),
        extent.stealing_in_words(),
        extent.command(),
        runner.disturbance(),
    );
    // A section's title is one level below the page's.
    let sections = sections.map(|section| format!("\n#{section}"));
    Ok(head + &sections.concat())
}

/// Starts all servers, loaded with the items of a workload.
fn started(
    runner: &Runner<'_>,
    program: &Path,
    extent: &Extent,
    workload: &[&str],
) -> anyhow::Result<Vec<Contest>> {
    let contests = Contest::start_all(program, extent)?;
    contests.iter().try_for_each(|contest| runner.load(contest, workload))?;
    Ok(contests)
}

/// A row of a table of targets.
fn target(what: &str, wanted: &str, measured: &str, is_met: bool) -> String {
    let verdict = if is_met { "met" } else { "not met" };
    format!("|{what}|{wanted}|{measured}|{verdict}|\n")
}
