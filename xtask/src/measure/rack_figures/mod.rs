//! Figures 15 to 21 of RackOut with real nodes, beside the model (§6, §7).
//!
//! One node at a time gets its part of the rack's requests, while all others are there. Its processor time for an
//! operation bounds what it can do, and the node that is busiest for its part bounds the rack.

mod keys;
mod mixes;
mod runner;
mod tables;

use std::path::Path;

use anyhow::Context as _;
use minos_rackmodel::Fabric;

use self::{
    keys::{NODES, Part},
    mixes::{Mix, WRITES, Way},
    runner::{Protocol, Runner},
};
use super::{Samples, save, turn::Cost};

/// The first port of each rack, apart from those of other figures. Native nodes take two ports each.
const PORTS: [u16; 2] = [14_400, 14_440];
/// Nodes with less than this part of the greatest share of a mix are not measured: they would have to take so much
/// longer for an operation to be the busiest.
const SHARE_MIN: f64 = 0.8;
/// The percentage of writes of figures 15 and 17, for which all nodes are measured.
const WRITES_SHOWN: u32 = 5;
/// Nodes that follow each other in the rounds of the single costs: a step that leads to all.
const STEP: usize = 5;

/// Lengths of the measurement.
pub(super) struct Extent {
    pub(super) rounds: u32,
    pub(super) millis: u32,
}

/// Costs of a kind of operation over the rounds.
#[derive(Clone, Debug, Default)]
struct Costs {
    asked_us: Samples,
    others_us: Samples,
}

/// What is measured for a single kind of operation.
#[derive(Default)]
struct Single {
    local_read: Costs,
    remote_read: Costs,
    local_write: Costs,
    /// Over TCP.
    tcp_local: Costs,
    tcp_remote: Costs,
    tcp_forwarded: Costs,
}

/// A node under its part of a mix.
struct Seat {
    node: usize,
    parts: Vec<Part>,
    /// Microseconds of an operation, by round.
    us: Vec<f64>,
}

/// A mix and its measured nodes.
struct Case {
    mix: Mix,
    seats: Vec<Seat>,
    /// The costs of local reads, remote reads and local writes, each the mean of just before and just after, by round.
    /// A machine gets faster and slower by more than the model is off.
    costs: Vec<[f64; 3]>,
}

/// Everything that was measured.
struct Measured {
    /// The part of the rack's requests that are for keys of each node.
    shares: Vec<f64>,
    single: Single,
    cases: Vec<Case>,
}

/// Measures; writes `rack-figures.csv` and `rack-figures.svg`. Returns the text of `rack-figures.md`.
pub(super) fn measure(program: &Path, extent: &Extent, out: &Path) -> anyhow::Result<String> {
    let runner = Runner::start(program, extent.millis, PORTS)?;
    let shares = runner.keys.shares();
    let cases = cases(&shares)?;
    let mut measured = Measured { shares, single: Single::default(), cases };
    for round in 1..=extent.rounds {
        eprintln!("rack-figures: round {round} of {}", extent.rounds);
        let Measured { shares, single, cases } = &mut measured;
        let node = STEP * round as usize;
        single.round_over_tcp(&runner, shares, node % NODES)?;
        for (number, case) in cases.iter_mut().enumerate() {
            let node = (node + number) % NODES;
            let before = single.round(&runner, shares, node)?;
            case.round(&runner)?;
            let after = single.round(&runner, shares, node)?;
            case.costs.push([0, 1, 2].map(|kind| f64::midpoint(before[kind], after[kind])));
        }
    }
    let rows = measured.rows()?;
    save(&tables::csv(&rows, extent), &out.join("rack-figures.csv"))?;
    save(&tables::picture(&measured, &rows)?, &out.join("rack-figures.svg"))?;
    tables::page(program, &measured, &rows, extent)
}

/// All mixes, with the nodes that may be the busiest.
fn cases(shares: &[f64]) -> anyhow::Result<Vec<Case>> {
    let case = |mix: Mix| {
        let model = mix.model(shares, mixes::fabric(1.0, 1.0, 1.0))?;
        let most = (0..NODES).map(|node| model.busy_us(node)).fold(0.0, f64::max);
        let all = mix.writes == WRITES_SHOWN && mix.way != Way::Alone;
        let nodes = (0..NODES).filter(|&node| all || model.busy_us(node) >= SHARE_MIN * most);
        let seat = |node| Seat { node, parts: mix.parts(&model, shares, node), us: Vec::new() };
        Ok(Case { mix, seats: nodes.map(seat).collect(), costs: Vec::new() })
    };
    mixes::all().map(case).collect()
}

impl Costs {
    fn push(&mut self, cost: Cost) {
        self.asked_us.push(cost.asked_us);
        self.others_us.push(cost.others_us);
    }
}

impl Single {
    /// Measures local reads, remote reads and local writes at `node`. Returns their costs.
    fn round(&mut self, runner: &Runner<'_>, shares: &[f64], node: usize) -> anyhow::Result<[f64; 3]> {
        let (local, others) = parts_of_reads(shares, node);
        let written = [Part { owner: node, writes: true, weight: 1.0 }];
        let turn = |parts: &[Part]| runner.turn(&runner.united, node, Protocol::Native, parts);
        let costs = [turn(&local)?, turn(&others)?, turn(&written)?];
        self.local_read.push(costs[0]);
        self.remote_read.push(costs[1]);
        self.local_write.push(costs[2]);
        Ok(costs.map(|cost| cost.asked_us))
    }

    /// Measures local, remote and forwarded reads at `node` over memcached's protocol.
    fn round_over_tcp(&mut self, runner: &Runner<'_>, shares: &[f64], node: usize) -> anyhow::Result<()> {
        let (local, others) = parts_of_reads(shares, node);
        let Runner { united, apart, .. } = runner;
        self.tcp_local.push(runner.turn(united, node, Protocol::Memcached, &local)?);
        self.tcp_remote.push(runner.turn(united, node, Protocol::Memcached, &others)?);
        self.tcp_forwarded.push(runner.turn(apart, node, Protocol::Memcached, &others)?);
        Ok(())
    }
}

/// Reads of the node's own keys, and of all others', in proportion to their shares.
fn parts_of_reads(shares: &[f64], node: usize) -> ([Part; 1], Vec<Part>) {
    let read = |owner: usize| Part { owner, writes: false, weight: shares[owner] };
    ([read(node)], (0..NODES).filter(|&owner| owner != node).map(read).collect())
}

impl Case {
    fn round(&mut self, runner: &Runner<'_>) -> anyhow::Result<()> {
        let rack = if self.mix.way == Way::Alone { &runner.apart } else { &runner.united };
        for Seat { node, parts, us } in &mut self.seats {
            us.push(runner.turn(rack, *node, Protocol::Native, parts)?.asked_us);
        }
        Ok(())
    }

    /// The node that is busiest for its part in all rounds, or in all but one.
    fn busiest(&self, but: Option<usize>) -> Option<&Seat> {
        self.seats.iter().max_by(|one, other| one.busy_us(but).total_cmp(&other.busy_us(but)))
    }

    /// Operations a microsecond, by round. The busiest node is chosen by the other rounds: of nodes with equal parts, it
    /// would else be the one whose round was disturbed most.
    fn capacities(&self) -> anyhow::Result<Vec<f64>> {
        let of_round = |round: usize| {
            let seat = self.busiest(Some(round)).context("no node was measured")?;
            Ok(1.0 / (mixes::share(&seat.parts) * seat.us[round]))
        };
        (0..self.costs.len()).map(of_round).collect()
    }
}

impl Seat {
    /// Microseconds for each request of the rack, by all rounds, or by all but one.
    fn busy_us(&self, but: Option<usize>) -> f64 {
        let mut us = self.us.clone();
        if let Some(round) = but.filter(|_| us.len() > 1) {
            us.remove(round);
        }
        mixes::share(&self.parts) * samples(&us).median()
    }
}

fn samples(values: &[f64]) -> Samples {
    let mut samples = Samples::default();
    values.iter().for_each(|value| samples.push(*value));
    samples
}

/// What a rack carries in one way.
struct Row {
    mix: Mix,
    /// Its busiest node, by all rounds.
    node: usize,
    /// Million operations a second, if each node has one processor.
    measured: Samples,
    /// The same by the model with the costs of single operations in the same round.
    modelled: Samples,
    /// By how much the model exceeds what was measured in the same round, in percent.
    off_percent: Samples,
    /// The same under an objective of 1 ms for the 99th percentile, in virtual time.
    within_1_ms: f64,
    /// Over units of one.
    speedup: f64,
    modelled_speedup: f64,
    /// By the model with the costs of the paper's table 1.
    paper_costs_speedup: f64,
}

impl Measured {
    /// The rack under each mix; the first row of each percentage is that of units of one.
    fn rows(&self) -> anyhow::Result<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::new();
        for writes in WRITES {
            let mut alone: Option<[f64; 3]> = None;
            for case in self.cases.iter().filter(|case| case.mix.writes == writes) {
                let mut row = self.row(case)?;
                let base = *alone.get_or_insert([row.speedup, row.modelled_speedup, row.paper_costs_speedup]);
                row.speedup /= base[0];
                row.modelled_speedup /= base[1];
                row.paper_costs_speedup /= base[2];
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// Speed-ups are not divided by those of units of one yet.
    fn row(&self, case: &Case) -> anyhow::Result<Row> {
        let seat = case.busiest(None).context("no node was measured")?;
        let measured = case.capacities()?;
        let saturation = |[local_read, remote_read, local_write]: &[f64; 3]| {
            let fabric = mixes::fabric(*local_read, *remote_read, *local_write);
            Ok(case.mix.model(&self.shares, fabric)?.saturation())
        };
        let modelled = case.costs.iter().map(saturation).collect::<anyhow::Result<Vec<f64>>>()?;
        let off: Vec<f64> =
            modelled.iter().zip(&measured).map(|(model, found)| 100.0 * (model / found - 1.0)).collect();
        let model = case.mix.model(&self.shares, self.fabric())?;
        let paper = case.mix.model(&self.shares, Fabric::SONUMA)?;
        Ok(Row {
            mix: case.mix,
            node: seat.node,
            speedup: samples(&measured).median(),
            measured: samples(&measured),
            modelled: samples(&modelled),
            off_percent: samples(&off),
            within_1_ms: tables::within_1_ms(&model)?,
            modelled_speedup: model.saturation(),
            paper_costs_speedup: paper.saturation(),
        })
    }

    /// The model's fabric with the measured costs.
    fn fabric(&self) -> Fabric {
        let Single { local_read, remote_read, local_write, .. } = &self.single;
        let [local_read, remote_read, local_write] =
            [local_read, remote_read, local_write].map(|costs| costs.asked_us.median());
        mixes::fabric(local_read, remote_read, local_write)
    }
}
