//! The page, the CSV file and the picture.

use std::{path::Path, process::Command};

use minos_plot::{BarPanel, Bars, Group, Scale};
use minos_rackmodel::{Model, Slo, search};

use super::{
    Costs, Extent, Measured, Row, Single, WRITES_SHOWN,
    keys::NODES,
    mixes::{self, Mix, WRITES, Way},
};
use crate::measure::{
    driver,
    report::{Report, cell},
};

/// The model's deviation that the paper reports (§6.3).
const OFF_MAX_PERCENT: f64 = 6.0;
/// The objective of the paper's figures, and requests of each simulation.
const SLO: Slo = Slo { percentile: 99.0, latency_us: 1_000.0 };
const ARRIVALS: u64 = 100_000;
const SEED: u64 = 1;
/// The node that is slow in figures 20 and 21, and how slow.
const SLOW: usize = 13;
const SLOWDOWNS: [f64; 2] = [1.43, 3.0];
/// The paper's speed-ups (§1, §6.3, §6.4).
const PAPER: [(Way, u32, &str); 6] = [
    (Way::Static, 0, "8.2"),
    (Way::Static, 5, "6"),
    (Way::Static, 20, "3.2"),
    (Way::Static, 50, "1.7"),
    (Way::Algorithm1, 5, "1.36 over static"),
    (Way::Algorithm1, 20, "1.30 over static"),
];

/// Requests a microsecond of which 99 % are answered within 1 ms, in virtual time.
pub(super) fn within_1_ms(model: &Model) -> anyhow::Result<f64> {
    Ok(search(model, &SLO, ARRIVALS, SEED)?.rate)
}

/// The rows in numbers, for `docs/reproduction`.
pub(super) fn csv(rows: &[Row], extent: &Extent) -> String {
    let Extent { rounds, millis } = extent;
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!(
        "# measured; minos {version}; rounds {rounds}; millis {millis}; the model and 1 ms are simulated\n\
         gf,algorithm,writes %,busiest node,Mops,least,most,model,off %,speed-up,model speed-up,table 1 speed-up,1 ms\n"
    );
    for row in rows {
        let (median, min, max) = (row.measured.median(), row.measured.min(), row.measured.max());
        let Mix { way, writes } = row.mix;
        text += &format!(
            "{},{},{writes},{},{median:.4},{min:.4},{max:.4},{:.4},{:.2},{:.4},{:.4},{:.4},{:.4}\n",
            way.gf(),
            u8::from(way == Way::Algorithm1),
            row.node,
            row.modelled.median(),
            row.off_percent.median(),
            row.speedup,
            row.modelled_speedup,
            row.paper_costs_speedup,
            row.within_1_ms,
        );
    }
    text
}

/// Bars of the nodes' load (figures 15 and 17) and of the speed-ups (figure 19).
pub(super) fn picture(measured: &Measured, rows: &[Row]) -> anyhow::Result<String> {
    let load = |node: usize| Group {
        name: node.to_string(),
        bars: measured.loads(node).into_iter().map(|(way, _, us)| (way.name(), us)).collect(),
    };
    let speedups = |writes: u32| {
        let rows = rows.iter().filter(|row| row.mix.writes == writes && row.mix.way != Way::Alone);
        let bars = rows.flat_map(|row| {
            let names = match row.mix.way {
                Way::Algorithm1 => ["algorithm 1", "algorithm 1, model"],
                _ => ["static", "static, model"],
            };
            names.into_iter().zip([row.speedup, row.modelled_speedup])
        });
        Group { name: format!("{writes} % writes"), bars: bars.collect() }
    };
    let panels = [
        BarPanel {
            title: format!(
                "Microseconds of each node for a request of the rack, {WRITES_SHOWN} % writes, measured"
            ),
            groups: (0..NODES).map(load).collect(),
        },
        BarPanel {
            title: "Speed-up of one unit over units of one, measured and by the model".to_owned(),
            groups: WRITES.into_iter().map(speedups).collect(),
        },
    ];
    Bars { scale: Scale::Linear, panels: &panels }.svg()
}

/// The whole page.
pub(super) fn page(
    program: &Path,
    measured: &Measured,
    rows: &[Row],
    extent: &Extent,
) -> anyhow::Result<String> {
    let sections = [
        costs(&measured.single),
        capacities(rows),
        loads(measured),
        interference(measured)?,
        forwarding(measured),
        multigets(program)?,
    ];
    let mut text = head(rows, extent);
    for section in sections {
        // A section's title is one level below the page's.
        text += &format!("\n#{section}");
    }
    Ok(text)
}

fn head(rows: &[Row], extent: &Extent) -> String {
    let worst = rows.iter().map(|row| row.off_percent.median().abs()).fold(0.0, f64::max);
    let holds = if worst <= OFF_MAX_PERCENT { "met" } else { "missed" };
    format!(
        "# The hottest rack of RackOut with real nodes\n\nSixteen nodes, each a process with one worker, hold the hottest \
         keys of the hottest 16 of 512 servers (`minos sim rackout --hottest-keys`) at the same nodes as there; values of \
         32 bytes. One node at a time gets its part of the rack's requests over the native protocol, one on each of 16 \
         sockets, on the first processor; the driver has the second. Its processor time for an operation bounds what it \
         can do; the busiest node for its part bounds the rack. Medians (smallest..largest) of {} interleaved rounds of {} \
         ms. The driver spreads reads by the model's weights. `rack-figures.csv` has the numbers. `cargo xtask measure \
         rack-figures`\n\n|target|wanted|found||\n|---|---|---|---|\n|model against measurement|within {OFF_MAX_PERCENT} \
         %|{worst:.1} %|{holds}|\n\n![Load of the nodes and speed-ups](rack-figures.svg)\n",
        extent.rounds, extent.millis
    )
}

fn costs(single: &Single) -> Report {
    let mut report = Report::new(
        "Costs of an operation",
        "Measured. Microseconds of processor time of the node that is asked, and of all others: owners wake up at most 200 \
         times a second to note what was read in their memory, and keep house then, as busy nodes do anyway. What follows \
         leaves that out, but not what an owner does for a forwarded read.",
        &["operation", "evidence", "us, asked", "us, others"],
    );
    let rows: [(&str, &Costs); 6] = [
        ("local read", &single.local_read),
        ("remote read", &single.remote_read),
        ("local write", &single.local_write),
        ("local read, memcached over TCP", &single.tcp_local),
        ("remote read, memcached over TCP", &single.tcp_remote),
        ("forwarded read, memcached over TCP", &single.tcp_forwarded),
    ];
    for (name, costs) in rows {
        let cells =
            [name.to_owned(), "measured".to_owned(), cell(&costs.asked_us, 3), cell(&costs.others_us, 3)];
        report.rows.push(cells.into());
    }
    report
}

fn capacities(rows: &[Row]) -> Report {
    let mut report = Report::new(
        "Throughput of the rack (figures 16, 18 and 19)",
        "Million operations a second with a processor for each node. Measured: the busiest node under its mix, chosen by the other rounds. Model: \
         `lab/rackmodel` with the costs of single operations measured just before and after, computed; how far it is off, by round. 1 ms: \
         with the costs above in virtual time, 99 % of the requests \
         within 1 ms, simulated. Speed-ups are over units of one with as many writes; of table 1: by the model with the \
         paper's costs for soNUMA.",
        &[
            "rack",
            "writes %",
            "busiest node",
            "measured Mops",
            "model",
            "off",
            "1 ms",
            "speed-up measured",
            "model",
            "table 1",
            "paper",
        ],
    );
    for row in rows {
        let Mix { way, writes } = row.mix;
        let paper = PAPER.iter().find(|(other, percent, _)| (*other, *percent) == (way, writes));
        report.rows.push(vec![
            way.name().to_owned(),
            writes.to_string(),
            row.node.to_string(),
            cell(&row.measured, 2),
            format!("{:.2}", row.modelled.median()),
            format!("{} %", cell(&row.off_percent, 1)),
            format!("{:.2}", row.within_1_ms),
            format!("{:.2}", row.speedup),
            format!("{:.2}", row.modelled_speedup),
            format!("{:.2}", row.paper_costs_speedup),
            paper.map_or("-", |(.., number)| number).to_owned(),
        ]);
    }
    report
}

fn loads(measured: &Measured) -> Report {
    let mut report = Report::new(
        "Load of each node (figures 15 and 17)",
        &format!(
            "{WRITES_SHOWN} % writes. The node's share of the rack's requests, computed, and its microseconds for each request of \
             the rack, measured. Static reads and algorithm 1."
        ),
        &["node", "static: requests %", "us", "algorithm 1: requests %", "us"],
    );
    for node in 0..NODES {
        let mut row = vec![node.to_string()];
        for (_, share, us) in measured.loads(node) {
            row.extend([format!("{:.2}", 100.0 * share), format!("{us:.3}")]);
        }
        report.rows.push(row);
    }
    report
}

fn interference(measured: &Measured) -> anyhow::Result<Report> {
    let mut report = Report::new(
        "A slow node (figures 20 and 21)",
        &format!(
            "Computed by the model with the measured costs, {WRITES_SHOWN} % writes: million operations a second at saturation, and \
             the reads that node {SLOW} gets, whose operations all take longer."
        ),
        &["reads", "evidence", "slowdown", "Mops", "reads of the slow node %"],
    );
    let plain = Mix { way: Way::Static, writes: WRITES_SHOWN }.model(&measured.shares, measured.fabric())?;
    for slowdown in SLOWDOWNS {
        let slow = plain.clone().with_interference(SLOW, slowdown)?;
        let ways = [
            ("static", slow.clone()),
            ("algorithm 1", slow.clone().with_algorithm_1()?),
            ("algorithms 1 and 2", slow.with_algorithms_1_and_2()?),
        ];
        for (name, model) in ways {
            let all: f64 = model.distribution().iter().map(|(reads, _)| reads).sum();
            let reads = 100.0 * model.distribution()[SLOW].0 / all;
            report.rows.push(vec![
                name.to_owned(),
                "computed".to_owned(),
                slowdown.to_string(),
                format!("{:.2}", model.saturation()),
                format!("{reads:.1}"),
            ]);
        }
    }
    Ok(report)
}

/// Reads only, spread evenly, over memcached's protocol: with the owner's time for what is forwarded to it.
fn forwarding(measured: &Measured) -> Report {
    let mut report = Report::new(
        "Messages instead of one-sided reads (§7)",
        "Reads only, each node as many, memcached's protocol over TCP. Computed from the measured costs above. The paper: \
         23.7 million RPCs a second, 38.3 million one-sided reads.",
        &["other nodes' keys", "evidence", "Mops", "over units of one"],
    );
    let Single { tcp_local, tcp_remote, tcp_forwarded, .. } = &measured.single;
    let local = tcp_local.asked_us.median();
    let alone = 1.0 / (measured.shares.iter().copied().fold(0.0, f64::max) * local);
    let forwarded = [tcp_forwarded.asked_us.median(), tcp_forwarded.others_us.median()];
    let united = |others| united_rate(&measured.shares, local, others);
    let rates = [
        ("read in their memory", united([tcp_remote.asked_us.median(), 0.0])),
        ("forwarded", united(forwarded)),
        ("not asked for: units of one", alone),
    ];
    for (name, rate) in rates {
        let cells =
            [name.to_owned(), "computed".to_owned(), format!("{rate:.2}"), format!("{:.2}", rate / alone)];
        report.rows.push(cells.into());
    }
    report
}

/// Requests a microsecond of one unit whose nodes read alike, until the first one is busy. A read of another node's
/// key takes `asked_us` of the node that is asked and `owner_us` of the owner.
fn united_rate(shares: &[f64], local_us: f64, [asked_us, owner_us]: [f64; 2]) -> f64 {
    let each = 1.0 / shares.len() as f64;
    let busy =
        |share: &f64| each * (share * local_us + (1.0 - share) * asked_us) + share * (1.0 - each) * owner_us;
    1.0 / shares.iter().map(busy).fold(0.0, f64::max)
}

fn multigets(program: &Path) -> anyhow::Result<Report> {
    let mut report = Report::new(
        "Multi-gets (§7)",
        "Simulated. Of 512 nodes, the fewest that must be asked for 32 random keys with 3 replicas: exactly, and \
         greedily. `minos sim multiget --nodes 512 --replicas 3 --exact`",
        &["nodes of a unit", "evidence", "fewest", "greedily"],
    );
    for gf in ["1", "16"] {
        let mut command = Command::new(program);
        command.args([
            "sim",
            "multiget",
            "--nodes",
            "512",
            "--replicas",
            "3",
            "--exact",
            "--json",
            "--gf",
            gf,
        ]);
        let said = driver::json(command)?;
        let number = |name: &str| said["runs"][0][name].as_f64().unwrap_or(f64::NAN);
        let cells = [format!("{:.2}", number("exact_nodes_asked")), format!("{:.2}", number("nodes_asked"))];
        report.rows.push([&[gf.to_owned(), "simulated".to_owned()], &cells[..]].concat());
    }
    Ok(report)
}

impl Measured {
    /// A node's share of the requests and its time for a request of the rack, for each way of one unit.
    fn loads(&self, node: usize) -> Vec<(Way, f64, f64)> {
        let of_unit = |mix: Mix| mix.writes == WRITES_SHOWN && mix.way != Way::Alone;
        let cases = self.cases.iter().filter(|case| of_unit(case.mix));
        let seat = |case: &super::Case| {
            let seat = case.seats.iter().find(|seat| seat.node == node)?;
            Some((case.mix.way, mixes::share(&seat.parts), seat.busy_us(None)))
        };
        cases.filter_map(seat).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_that_answer_for_others_are_the_limit() {
        let shares = [0.5, 0.25, 0.25, 0.0];
        // No owner is asked: the last node is the busiest, as all that it reads is remote.
        assert!((united_rate(&shares, 2.0, [4.0, 0.0]) - 1.0).abs() < 1e-9);
        // The first one answers for three of four reads of half of the keys.
        assert!((united_rate(&shares, 2.0, [4.0, 8.0]) - 1.0 / (0.75 + 3.0)).abs() < 1e-9);
    }
}
