//! Relieves the busiest node: moves a hot micro-shard to the least busy one, or has it copied there (RackOut §4.7).

use std::collections::{BTreeMap, BTreeSet};

use minos_rack::{MicroShard, ServerId, UnitId};

use super::Coordinator;
use crate::{Directory, Load, Report, Standing};

/// Part of its time from which on a node is relieved.
const BUSY_MIN: f64 = 0.3;
/// By how much the busiest node must exceed the mean, and the node that relieves it must be below it.
const MARGIN: f64 = 1.2;
/// Part of the time for a micro-shard that must be spent on reads for another copy to help.
const READS_MIN: f64 = 0.5;
/// Part of the busiest node's time that a micro-shard must take for another copy to help.
const DEMAND_MIN: f64 = 0.1;
/// Part of the time when it was copied below which a micro-shard is hot no longer.
const COOL: f64 = 0.25;

/// One step of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Move(MicroShard, ServerId),
    Copy(MicroShard, ServerId),
}

/// What relieves nodes, one step an interval.
#[derive(Debug)]
pub(super) struct Relief {
    interval_us: u64,
    until_us: u64,
    /// What each process had executed when the interval began, by its clock.
    began: BTreeMap<ServerId, (u64, u64, Load)>,
    moved: BTreeSet<MicroShard>,
    /// Further copies, and the busy part that the micro-shard took when it got them.
    pub(super) copies: BTreeMap<(MicroShard, ServerId), f64>,
}

/// The busy part of all nodes' time that a micro-shard takes.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    reads: f64,
    changes: f64,
}

impl Relief {
    pub(super) fn new(interval_us: u64, now_us: u64) -> Self {
        let until_us = now_us.saturating_add(interval_us);
        let (began, moved, copies) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { interval_us, until_us, began, moved, copies }
    }

    /// The nodes that are to have a further copy of a micro-shard.
    pub(super) fn copies(&self, micro_shard: MicroShard) -> impl Iterator<Item = ServerId> + '_ {
        let nodes = (micro_shard, ServerId(0))..=(micro_shard, ServerId(u32::MAX));
        self.copies.range(nodes).map(|((_, node), _)| *node)
    }

    pub(super) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.until_us
    }

    /// At the end of an interval, what to do next by the newest reports of the nodes that are alive.
    pub(super) fn decide(&mut self, now_us: u64, directory: &Directory, reports: &[&Report]) -> Option<Step> {
        if !self.is_due(now_us) {
            return None;
        }
        self.until_us = now_us.saturating_add(self.interval_us);
        let busy: BTreeMap<_, _> = reports.iter().filter_map(|it| Some((it.node, self.busy(it)?))).collect();
        self.began =
            reports.iter().filter_map(|it| Some((it.node, (it.incarnation, it.sent_us, it.load?)))).collect();
        let demands = demands(reports, &busy);
        let is_hot = |(micro_shard, node): &(MicroShard, ServerId), then: &mut f64| {
            let is_hot = demands.get(micro_shard).is_some_and(|it| it.reads + it.changes >= COOL * *then);
            is_hot && stays(directory, *node)
        };
        self.copies.retain(is_hot);
        let step = self.step(directory, &busy, &demands)?;
        match step {
            Step::Move(micro_shard, _) => drop(self.moved.insert(micro_shard)),
            Step::Copy(micro_shard, to) => {
                let Demand { reads, changes } = demands[&micro_shard];
                self.copies.insert((micro_shard, to), reads + changes);
            }
        }
        Some(step)
    }

    /// The part of its time that a process was busy in the interval.
    fn busy(&self, report: &Report) -> Option<f64> {
        let (incarnation, from_us, from) = self.began.get(&report.node)?;
        let spanned_us = report.sent_us.saturating_sub(*from_us);
        let load = report.load.filter(|_| *incarnation == report.incarnation && spanned_us > 0)?;
        Some(load.busy_us.saturating_sub(from.busy_us) as f64 / spanned_us as f64)
    }

    fn step(
        &self,
        directory: &Directory,
        busy: &BTreeMap<ServerId, f64>,
        demands: &BTreeMap<MicroShard, Demand>,
    ) -> Option<Step> {
        let (hottest, most) = busy.iter().max_by(|a, b| a.1.total_cmp(b.1))?;
        let mean = busy.values().sum::<f64>() / busy.len() as f64;
        if *most < BUSY_MIN || *most < MARGIN * mean {
            return None;
        }
        let mut hot: Vec<_> = demands.iter().collect();
        hot.sort_by(|(_, a), (_, b)| (b.reads + b.changes).total_cmp(&(a.reads + a.changes)));
        let of = |micro_shard: &MicroShard| directory.place(*micro_shard).filter(|place| place.is_serving);
        hot.into_iter().find_map(|(micro_shard, demand)| {
            let owner = of(micro_shard)?.node;
            let unit = |id| directory.node(id).map(|node| node.unit);
            let is_own = unit(owner) == unit(*hottest);
            // It takes its requests along: one that is all that keeps a node busy would only do so elsewhere.
            let is_lighter = |to: &ServerId| busy[to] + demand.reads + demand.changes < *most;
            let to = least(directory, busy, |node| node != owner).filter(is_lighter);
            if let Some(to) = to.filter(|_| is_own && !self.moved.contains(micro_shard)) {
                return Some(Step::Move(*micro_shard, to));
            }
            let taken: BTreeSet<Option<UnitId>> = std::iter::once(owner)
                .chain(directory.followers(*micro_shard).iter().map(|it| it.node))
                .chain(self.copies(*micro_shard))
                .map(unit)
                .collect();
            // What it forwards, it may as well read itself.
            let is_fit = |node| !taken.contains(&unit(node)) && (is_own || node == *hottest);
            let to = least(directory, busy, is_fit)?;
            let is_lighter = to == *hottest || busy[&to] * MARGIN < *most;
            let is_read = demand.reads >= READS_MIN * (demand.reads + demand.changes);
            let is_much = demand.reads + demand.changes >= DEMAND_MIN * *most;
            (is_lighter && is_read && is_much).then_some(Step::Copy(*micro_shard, to))
        })
    }
}

fn stays(directory: &Directory, id: ServerId) -> bool {
    directory.node(id).is_some_and(|node| node.standing == Standing::Member)
}

/// The least busy of the nodes that stay.
fn least(
    directory: &Directory,
    busy: &BTreeMap<ServerId, f64>,
    may: impl Fn(ServerId) -> bool,
) -> Option<ServerId> {
    let nodes = busy.iter().filter(|(node, _)| stays(directory, **node) && may(**node));
    nodes.min_by(|a, b| a.1.total_cmp(b.1)).map(|(node, _)| *node)
}

/// What the hot micro-shards take of all nodes' time: of each node's busy part, as much as of its requests.
fn demands(reports: &[&Report], busy: &BTreeMap<ServerId, f64>) -> BTreeMap<MicroShard, Demand> {
    let mut demands: BTreeMap<MicroShard, Demand> = BTreeMap::new();
    for report in reports.iter().filter(|report| report.sampled > 0) {
        let part = busy.get(&report.node).map_or(0.0, |busy| busy / f64::from(report.sampled));
        for heat in &report.heat {
            let demand = demands.entry(heat.micro_shard).or_default();
            demand.reads += f64::from(heat.reads) * part;
            demand.changes += f64::from(heat.changes) * part;
        }
    }
    demands
}

impl Coordinator {
    /// Takes a step to relieve the busiest node, if it is time for one.
    pub(super) fn relieve(&mut self, now_us: u64) {
        let Some(mut relief) = self.relief.take() else { return };
        // Copies may end with the interval.
        self.has_news |= relief.is_due(now_us);
        let alive = self.peers.iter().filter(|(id, _)| self.is_alive(now_us, **id));
        let reports: Vec<_> = alive.map(|(_, peer)| &peer.report).collect();
        let step = relief.decide(now_us, &self.directory, &reports);
        if let Some(Step::Move(micro_shard, to)) = step {
            self.wished.push_back((micro_shard, to));
        }
        self.relieved += u64::from(step.is_some());
        self.relief = Some(relief);
    }

    /// The nodes that are to follow a micro-shard, each once. A node that is to go has no further copy: it could not be
    /// removed while the micro-shard is hot.
    pub(super) fn wanted(&self, micro_shard: MicroShard) -> impl Iterator<Item = ServerId> + '_ {
        let further = self.relief.iter().flat_map(move |relief| relief.copies(micro_shard));
        let owner = self.directory.place(micro_shard).map(|place| place.node);
        let unit = |id: Option<ServerId>| id.and_then(|id| self.directory.node(id)).map(|node| node.unit);
        let is_further = move |node: &ServerId| {
            let is_elsewhere = unit(Some(*node)) != unit(owner);
            is_elsewhere
                && stays(&self.directory, *node)
                && self.directory.wanted(micro_shard).all(|wanted| wanted != *node)
        };
        self.directory.wanted(micro_shard).chain(further.filter(is_further))
    }
}
