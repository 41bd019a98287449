//! Requests sent straight to the queue that executes them, and requests that the server hands over (MICA
//! §4.2.1, table 1).

use std::path::Path;

use super::runner::{Case, Runner};
use crate::measure::{
    Samples,
    contestants::NativeOnly,
    report::{Report, cell},
};

const ITEMS: [&str; 4] = ["--workload", "mica-tiny", "--keys", "1000000"];

/// Choices of the queue: the name, and the arguments.
const WAYS: [(&str, &[&str]); 2] =
    [("to the key's queue", &[]), ("to the other queue", &["--queue-by", "wrong"])];

/// Popularity: the name, and the exponent.
const POPULARITIES: [(&str, &str); 2] = [("uniform", "0"), ("zipf 0.99", "0.99")];

/// The measurements of one choice under one popularity.
struct Row {
    popularity: (&'static str, &'static str),
    way: (&'static str, &'static [&'static str]),
    operations_per_s: Samples,
    operations_per_cpu_s: Samples,
}

/// Two workers on both processors, the second of which the driver shares; each key belongs to one worker.
pub(super) fn measure(runner: &mut Runner<'_>, program: &Path, rounds: u32) -> anyhow::Result<Report> {
    let options = ["--workers", "2", "--access", "erew", "--poll", "sleep"];
    let server = NativeOnly::start(program, "0,1", &options)?;
    runner.load(&server.target(), &ITEMS)?;
    let row = |(popularity, way)| {
        let (operations_per_s, operations_per_cpu_s) = <(Samples, Samples)>::default();
        Row { popularity, way, operations_per_s, operations_per_cpu_s }
    };
    let pairs = POPULARITIES.into_iter().flat_map(|popularity| WAYS.map(|way| (popularity, way)));
    let mut rows: Vec<Row> = pairs.map(row).collect();
    for round in 1..=rounds {
        eprintln!("native, direction: round {round} of {rounds}");
        for row in &mut rows {
            let name = format!("{} {}", row.way.0, row.popularity.0);
            let load =
                ["--zipf", row.popularity.1, "--get-ratio", "0.5", "--multiget", "32", "--pipeline", "1"];
            let case = Case { name: &name, target: &server.target(), pid: server.pid(), round };
            let sample = runner.measure(case, &[&ITEMS[..], &load, row.way.1].concat())?.checked(&name)?;
            row.operations_per_s.push(sample.operations_per_s / 1e3);
            row.operations_per_cpu_s.push(sample.operations_per_cpu_s / 1e3);
        }
    }
    Ok(report(&rows))
}

fn report(rows: &[Row]) -> Report {
    let mut report = Report::new(
        "Direction by the client, and by the server",
        "Half GETs, half PUTs of 8 + 8 bytes in vectors of 32, closed loop on 16 sockets; two workers, each with half of \
         the keys (`--access erew`), on both processors, one shared with the driver. A request at the other worker is \
         handed over through a ring. The ratio is of operations a CPU second.",
        &["popularity", "requests are sent", "thousand ops a second", "thousand ops a CPU second", "ratio"],
    );
    for pair in rows.chunks(WAYS.len()) {
        for row in pair {
            let ratio = row.operations_per_cpu_s.median() / pair[0].operations_per_cpu_s.median();
            report.rows.push(vec![
                row.popularity.0.to_owned(),
                row.way.0.to_owned(),
                cell(&row.operations_per_s, 0),
                cell(&row.operations_per_cpu_s, 0),
                format!("{ratio:.2}"),
            ]);
        }
    }
    report
}
