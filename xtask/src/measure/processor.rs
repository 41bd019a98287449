//! Processor time of the server for an operation, by pipeline depth.

use super::{
    Bench, Samples,
    contestants::{self, Contestant},
    report::{Report, cell},
};

const WORKLOAD: &str = "xtask/workloads/get32.toml";
const PIPELINES: [&str; 3] = ["1", "16", "64"];

/// GETs of 32 bytes on 16 connections, closed loop.
pub(super) fn measure(bench: &Bench) -> anyhow::Result<Report> {
    let contestants = [
        contestants::minos("Minos", &bench.program, "0", &["--workers", "1", "--poll", "sleep"])?,
        contestants::minos_resp(&bench.program, "0", &["--workers", "1", "--poll", "sleep"])?,
        contestants::memcached("0", 1)?,
        contestants::redis("0")?,
    ];
    for contestant in &contestants {
        bench.load(contestant, &["--workload", WORKLOAD])?;
    }
    let mut report = Report::new(
        "Server processor time a GET",
        "Measured. Microseconds of user and system time of the server's process, GETs of 32 bytes on 16 \
         connections, closed loop, server alone on one processor; median (smallest..largest) of interleaved \
         rounds. The ratio is to Minos at the same depth. `cargo xtask measure processor`",
        &["server", "pipeline", "us a GET", "ratio to Minos"],
    );
    for pipeline in PIPELINES {
        let samples = rounds(bench, &contestants, pipeline)?;
        let ours = samples[0].median();
        for (contestant, samples) in contestants.iter().zip(&samples) {
            let ratio = format!("{:.2}", samples.median() / ours);
            report.rows.push(vec![contestant.name.to_owned(), pipeline.to_owned(), cell(samples, 3), ratio]);
        }
    }
    Ok(report)
}

fn rounds(bench: &Bench, contestants: &[Contestant], pipeline: &str) -> anyhow::Result<Vec<Samples>> {
    let mut samples = vec![Samples::default(); contestants.len()];
    for _ in 0..bench.rounds {
        for (contestant, samples) in contestants.iter().zip(&mut samples) {
            let result = bench.measure(contestant, &["--workload", WORKLOAD, "--pipeline", pipeline])?;
            samples.push(result["server_cpu_us_per_op"].as_f64().unwrap_or(f64::NAN));
        }
    }
    Ok(samples)
}
