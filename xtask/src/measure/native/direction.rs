//! Requests sent straight to the worker that owns the key's partition, and requests that the server hands over to it
//! (MICA §4.2.1, table 1), in each access mode (MICA §5.5, figure 16).

use std::path::Path;

use super::runner::{Case, Runner};
use crate::measure::{
    Samples,
    contestants::NativeOnly,
    report::{Report, cell},
};

const ITEMS: [&str; 4] = ["--workload", "mica-tiny", "--keys", "1000000"];

/// Who accesses a partition; the first is the base of ratios.
const ACCESSES: [&str; 3] = ["erew", "crew", "crcw"];

/// Choices of the queue: the name, and the arguments. The first is where the access mode says.
const WAYS: [(&str, &[&str]); 2] =
    [("to the owner's queue", &[]), ("to the other queue", &["--queue-by", "wrong"])];

/// Popularity: the name, and the exponent.
const POPULARITIES: [(&str, &str); 2] = [("uniform", "0"), ("zipf 0.99", "0.99")];

/// The measurements of one access mode and one choice under one popularity.
struct Row {
    access: &'static str,
    popularity: (&'static str, &'static str),
    way: (&'static str, &'static [&'static str]),
    operations_per_s: Samples,
    operations_per_cpu_s: Samples,
    p50_us: Samples,
    p99_us: Samples,
}

impl Row {
    fn all() -> Vec<Self> {
        let row = |access, popularity, way| Self {
            access,
            popularity,
            way,
            operations_per_s: Samples::default(),
            operations_per_cpu_s: Samples::default(),
            p50_us: Samples::default(),
            p99_us: Samples::default(),
        };
        let accesses = |popularity| {
            // The cost of the other queue is that of a hand-over, which is the same in the other modes.
            let ways = |access: &str| if access == ACCESSES[0] { &WAYS[..] } else { &WAYS[..1] };
            ACCESSES
                .into_iter()
                .flat_map(move |access| ways(access).iter().map(move |&way| row(access, popularity, way)))
        };
        POPULARITIES.into_iter().flat_map(accesses).collect()
    }
}

/// Two workers on both processors, the second of which the driver shares. The server of each access mode is there all the
/// time, and only one is under load.
pub(super) fn measure(runner: &mut Runner<'_>, program: &Path, rounds: u32) -> anyhow::Result<Report> {
    let start = |access: &str| {
        let options = ["--workers", "2", "--access", access, "--dispatch", "keyhash", "--poll", "sleep"];
        let server = NativeOnly::start(program, "0,1", &options)?;
        runner.load(&server.target(), &ITEMS)?;
        Ok((access.to_owned(), server))
    };
    let servers = ACCESSES.into_iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let mut rows = Row::all();
    for round in 1..=rounds {
        eprintln!("native, direction: round {round} of {rounds}");
        for row in &mut rows {
            let Some((_, server)) = servers.iter().find(|(access, _)| access == row.access) else { continue };
            let name = format!("{} {} {}", row.access, row.way.0, row.popularity.0);
            let load =
                ["--zipf", row.popularity.1, "--get-ratio", "0.5", "--multiget", "32", "--pipeline", "1"];
            let case = Case { name: &name, target: &server.target(), pid: server.pid(), round };
            let sample = runner.measure(case, &[&ITEMS[..], &load, row.way.1].concat())?.checked(&name)?;
            row.operations_per_s.push(sample.operations_per_s / 1e3);
            row.operations_per_cpu_s.push(sample.operations_per_cpu_s / 1e3);
            row.p50_us.push(sample.p50_us);
            row.p99_us.push(sample.p99_us);
        }
    }
    Ok(report(&rows))
}

fn report(rows: &[Row]) -> Report {
    let mut report = Report::new(
        "Direction by the client, and by the server",
        "Half GETs, half PUTs of 8 + 8 bytes in vectors of 32, closed loop on 16 sockets; two workers, each with half of \
         the keys (`--dispatch keyhash`), on both processors, one shared with the driver. In EREW a request at the other \
         worker is handed over through a ring; in CREW GETs go anywhere, in CRCW only clients keep writes apart. The ratio \
         is of operations a CPU second, to EREW at the owner's queue.",
        &[
            "popularity",
            "access",
            "requests are sent",
            "thousand ops a second",
            "thousand ops a CPU second",
            "ratio",
            "p50 us",
            "p99 us",
        ],
    );
    for group in rows.chunk_by(|one, next| one.popularity == next.popularity) {
        for row in group {
            let ratio = row.operations_per_cpu_s.median() / group[0].operations_per_cpu_s.median();
            report.rows.push(vec![
                row.popularity.0.to_owned(),
                row.access.to_owned(),
                row.way.0.to_owned(),
                cell(&row.operations_per_s, 0),
                cell(&row.operations_per_cpu_s, 0),
                format!("{ratio:.2}"),
                cell(&row.p50_us, 0),
                cell(&row.p99_us, 0),
            ]);
        }
    }
    report
}
