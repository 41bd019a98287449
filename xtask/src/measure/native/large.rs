//! Values of 500 KB, over datagrams and over TCP, from the same server.

use super::{
    Servers,
    runner::{Case, Runner},
};
use crate::measure::{
    Samples,
    report::{Report, cell},
};

const VALUE_BYTES: f64 = 500_000.0;
const WORKLOADS: [(&str, &str); 2] =
    [("GET", "xtask/workloads/get500k.toml"), ("PUT", "xtask/workloads/put500k.toml")];
const SCHEMES: [(&str, &str); 2] = [("native", "minos"), ("memcached, TCP", "memcached")];
const CONNECTIONS: [&str; 2] = ["1", "4"];

/// The measurements of one operation over one protocol.
struct Row {
    operation: (&'static str, &'static str),
    scheme: (&'static str, &'static str),
    connections: &'static str,
    mb_per_s: Samples,
    mb_per_cpu_s: Samples,
    p50_us: Samples,
    lost: u64,
}

pub(super) fn measure(runner: &mut Runner<'_>, servers: &Servers, rounds: u32) -> anyhow::Result<Report> {
    let server = &servers.minos;
    runner.load(&server.target(), &["--workload", WORKLOADS[0].1])?;
    let mut rows = rows();
    for round in 1..=rounds {
        eprintln!("native, large values: round {round} of {rounds}");
        for row in &mut rows {
            let name = format!("{} of 500 KB {} {}", row.operation.0, row.scheme.0, row.connections);
            let arguments =
                ["--workload", row.operation.1, "--connections", row.connections, "--pipeline", "1"];
            let target = server.target_in(row.scheme.1);
            let case = Case { name: &name, target: &target, pid: server.pid(), round };
            let sample = runner.measure(case, &arguments)?.checked(&name)?;
            row.mb_per_s.push(sample.operations_per_s * VALUE_BYTES / 1e6);
            row.mb_per_cpu_s.push(sample.operations_per_cpu_s * VALUE_BYTES / 1e6);
            row.p50_us.push(sample.p50_us);
            row.lost += sample.lost;
        }
    }
    Ok(report(&rows))
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for operation in WORKLOADS {
        for connections in CONNECTIONS {
            for scheme in SCHEMES {
                let (mb_per_s, mb_per_cpu_s, p50_us) = <(Samples, Samples, Samples)>::default();
                rows.push(Row { operation, scheme, connections, mb_per_s, mb_per_cpu_s, p50_us, lost: 0 });
            }
        }
    }
    rows
}

fn report(rows: &[Row]) -> Report {
    let mut report = Report::new(
        "Values of 500 KB",
        "200 values; closed loop, one at a time for each socket or connection. MB are of values. The driver discards TCP \
         values in the kernel, and reads and acknowledges every fragment of a datagram.",
        &["operation", "sockets", "protocol", "MB a second", "MB a CPU second", "p50 us", "lost"],
    );
    for row in rows {
        report.rows.push(vec![
            row.operation.0.to_owned(),
            row.connections.to_owned(),
            row.scheme.0.to_owned(),
            cell(&row.mb_per_s, 0),
            cell(&row.mb_per_cpu_s, 0),
            cell(&row.p50_us, 0),
            row.lost.to_string(),
        ]);
    }
    report
}
