//! From loads to weights.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    sync::Arc,
};

use minos_rack::{BadParameter, ReadDistribution, ServerId, adaptive};

use super::{Load, PARTS, Weights};
use crate::{Node, Report};

/// Fewest requests of an interval that are believed, times the nodes of the unit: their counts vary by 6 %.
const REQUESTS_MIN: f64 = 256.0;
/// Change of a node's share, relative to an equal share, below which one interval leaves weights as they are: service times
/// vary by so much.
const STEP: f64 = 0.2;
/// The same for the mean of several intervals, which varies less: what an odd interval has left in the weights goes.
const MEAN_STEP: f64 = 0.06;
/// The part of the newest interval in that mean, once there are as many.
const NEWEST: f64 = 0.25;
/// Fewest intervals of which it is one: those before would vary as much as a single one.
const INTERVALS_MIN: u32 = 4;
/// Least part of an interval that a node's reports must span.
const SPANNED_MIN: u64 = 4;
/// Between two intervals in the paper, in microseconds (§5.2).
const INTERVAL_US: u64 = 10_000_000;

/// What the reads of a unit follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadPolicy {
    /// Nothing: all nodes that live get as many (RackOut_static).
    Static,
    /// The nodes' writes: algorithm 1.
    Writes,
    /// Their writes and mean service times: algorithms 1 and 2.
    #[default]
    ServiceTimes,
    /// The time that each node has left, so that all are equally busy.
    Load,
}

/// A name that no policy has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("reads follow static, writes, service-times or load")]
pub struct UnknownPolicy;

impl ReadPolicy {
    const NAMED: [(&str, Self); 4] = [
        ("static", Self::Static),
        ("writes", Self::Writes),
        ("service-times", Self::ServiceTimes),
        ("load", Self::Load),
    ];
}

impl FromStr for ReadPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::NAMED.iter().find(|(name, _)| *name == text);
        found.map(|(_, policy)| *policy).ok_or(UnknownPolicy)
    }
}

impl fmt::Display for ReadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = Self::NAMED.iter().find(|(_, policy)| policy == self);
        f.write_str(found.map_or("", |(name, _)| name))
    }
}

/// How a coordinator distributes reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balancing {
    /// What they follow.
    pub policy: ReadPolicy,
    /// Between two looks at the loads, in microseconds.
    pub interval_us: u64,
}

impl Default for Balancing {
    fn default() -> Self {
        Self { policy: ReadPolicy::default(), interval_us: INTERVAL_US }
    }
}

/// The loads that a process has reported: at the beginning of the interval, and last, each with the time by its clock.
#[derive(Debug)]
struct Seen {
    incarnation: u64,
    first: (u64, Load),
    last: (u64, Load),
}

/// What a node has done in an interval.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    reads: f64,
    writes: f64,
    busy_us: f64,
}

impl Done {
    fn requests(&self) -> f64 {
        self.reads + self.writes
    }
}

/// What a node does in an interval on average.
#[derive(Clone, Copy, Debug)]
struct Mean {
    done: Done,
    intervals: u32,
}

impl Mean {
    /// The mean of one interval.
    fn first(done: Done) -> Self {
        Self { done, intervals: 1 }
    }

    /// The mean once this interval is part of it.
    fn with(&self, newest: &Done) -> Self {
        let intervals = self.intervals.saturating_add(1);
        let newest_part = NEWEST.max(1.0 / f64::from(intervals));
        let part = |mean: f64, newest: f64| mean + newest_part * (newest - mean);
        let done = Done {
            reads: part(self.done.reads, newest.reads),
            writes: part(self.done.writes, newest.writes),
            busy_us: part(self.done.busy_us, newest.busy_us),
        };
        Self { done, intervals }
    }
}

/// Computes weights from reports.
#[derive(Debug)]
pub(crate) struct Balancer {
    balancing: Balancing,
    /// When the interval ends.
    until_us: u64,
    seen: BTreeMap<ServerId, Seen>,
    /// In the last interval.
    done: BTreeMap<ServerId, Done>,
    /// In the interval before that.
    before: BTreeMap<ServerId, Done>,
    /// On average, since the weights follow it.
    mean: BTreeMap<ServerId, Mean>,
    /// The nodes that lived when the weights were made.
    alive: BTreeSet<ServerId>,
    weights: Option<Arc<Weights>>,
    /// The highest version that a node has reported. An earlier coordinator may have made it.
    heard: u32,
}

impl Balancer {
    pub(crate) fn new(balancing: Balancing, now_us: u64) -> Self {
        Self {
            until_us: now_us.saturating_add(balancing.interval_us),
            balancing,
            seen: BTreeMap::new(),
            done: BTreeMap::new(),
            before: BTreeMap::new(),
            mean: BTreeMap::new(),
            alive: BTreeSet::new(),
            weights: None,
            heard: 0,
        }
    }

    pub(crate) fn weights(&self) -> Option<&Arc<Weights>> {
        self.weights.as_ref()
    }

    /// Takes a report that is newer than the node's last.
    pub(crate) fn note(&mut self, report: &Report) {
        self.heard = self.heard.max(report.weights);
        let Some(load) = report.load else { return };
        let now = (report.sent_us, load);
        let begins = Seen { incarnation: report.incarnation, first: now, last: now };
        let seen = self.seen.entry(report.node).or_insert(begins);
        if seen.incarnation == report.incarnation {
            seen.last = now;
        } else {
            *seen = Seen { incarnation: report.incarnation, first: now, last: now };
        }
    }

    /// Makes other weights at the end of an interval, and whenever a node dies or is back; true if they have changed.
    pub(crate) fn decide(
        &mut self,
        now_us: u64,
        nodes: &[Node],
        is_alive: impl Fn(ServerId) -> bool,
    ) -> bool {
        let is_due = now_us >= self.until_us;
        if is_due {
            self.until_us = now_us.saturating_add(self.balancing.interval_us);
            self.end_interval();
        }
        let alive: BTreeSet<_> = nodes.iter().map(|node| node.id).filter(|id| is_alive(*id)).collect();
        let known = self.weights.as_ref().map_or(0, |weights| weights.version);
        let is_news = known > 0 && (alive != self.alive || self.heard > known);
        if !is_due && !is_news {
            return false;
        }
        let parts = self.parts(nodes, &alive);
        self.alive = alive;
        let is_same = self.weights.as_ref().is_some_and(|weights| weights.parts == parts);
        let Some(version) = known.max(self.heard).checked_add(1) else { return false };
        if is_same && self.heard <= known {
            return false;
        }
        self.weights = Some(Arc::new(Weights { version, parts }));
        true
    }

    fn end_interval(&mut self) {
        self.before = std::mem::take(&mut self.done);
        for (id, seen) in &mut self.seen {
            let ((from_us, first), (to_us, last)) = (seen.first, seen.last);
            seen.first = seen.last;
            // The node's reports need not span the interval exactly. A short time tells little.
            let spanned_us = to_us.saturating_sub(from_us);
            if spanned_us > 0 && spanned_us >= self.balancing.interval_us / SPANNED_MIN {
                let scale = self.balancing.interval_us as f64 / spanned_us as f64;
                let grown = |first: u64, last: u64| last.saturating_sub(first) as f64 * scale;
                let done = Done {
                    reads: grown(first.reads, last.reads),
                    writes: grown(first.writes, last.writes),
                    busy_us: grown(first.busy_us, last.busy_us),
                };
                self.done.insert(*id, done);
            }
        }
        let mean = |(id, done): (&ServerId, &Done)| {
            (*id, self.mean.get(id).map_or(Mean::first(*done), |mean| mean.with(done)))
        };
        self.mean = self.done.iter().map(mean).collect();
    }

    /// The parts of all nodes, by number.
    fn parts(&mut self, nodes: &[Node], alive: &BTreeSet<ServerId>) -> Vec<(ServerId, u32)> {
        self.seen.retain(|id, _| nodes.iter().any(|node| node.id == *id));
        let units: BTreeSet<_> = nodes.iter().map(|node| node.unit).collect();
        let mut parts: BTreeMap<_, _> = nodes.iter().map(|node| (node.id, 0)).collect();
        for unit in units {
            let members = nodes.iter().filter(|node| node.unit == unit).map(|node| node.id);
            let members: Vec<_> = members.filter(|id| alive.contains(id)).collect();
            // Without a member there is nothing to distribute.
            if let Ok(shares) = self.shares(&members) {
                parts.extend(members.into_iter().zip(rounded(&shares)));
            }
        }
        parts.into_iter().collect()
    }

    /// The shares of the members of a unit, all of them alive: those in force unless the loads ask for others by far.
    fn shares(&mut self, members: &[ServerId]) -> Result<Vec<f64>, BadParameter> {
        let uniform = ReadDistribution::uniform(members.len())?;
        let of = |id| self.weights.as_ref().map_or(0, |weights| weights.of(id));
        let held = members.iter().map(|id| f64::from(of(*id))).collect();
        let held = ReadDistribution::new(held).unwrap_or_else(|_| uniform.clone());
        let returns = |id: &ServerId| !self.alive.contains(id);
        // Little is known. A node that is back gets as many as the others.
        let unknown = || members.iter().any(returns).then(|| uniform.clone());
        let asked = self.asked(members, |id| self.done.get(id), |slowness| self.lasting(members, slowness));
        let asked = asked?.or_else(unknown);
        let is_far = |asked: &ReadDistribution, step: f64| {
            let mut pairs = asked.probabilities().iter().zip(held.probabilities());
            pairs.any(|(asked, held)| (asked - held).abs() > step / members.len() as f64)
        };
        if let Some(asked) = asked.filter(|asked| is_far(asked, STEP)) {
            // What was before says nothing about the load from now on.
            let newest = self.done.iter().filter(|(id, _)| members.contains(id));
            self.mean.extend(newest.map(|(id, done)| (*id, Mean::first(*done))));
            return Ok(asked.probabilities().to_vec());
        }
        let steady = |id: &ServerId| {
            self.mean.get(id).filter(|mean| mean.intervals >= INTERVALS_MIN).map(|mean| &mean.done)
        };
        let mean = self.asked(members, steady, |slowness| slowness)?.filter(|asked| is_far(asked, MEAN_STEP));
        Ok(mean.unwrap_or(held).probabilities().to_vec())
    }

    /// What the policy makes of the work of a unit's members, and of how slow they were; none if it is too little.
    fn asked<'a>(
        &self,
        members: &[ServerId],
        work: impl Fn(&ServerId) -> Option<&'a Done>,
        believed: impl FnOnce(Vec<f64>) -> Vec<f64>,
    ) -> Result<Option<ReadDistribution>, BadParameter> {
        if self.balancing.policy == ReadPolicy::Static {
            return ReadDistribution::uniform(members.len()).map(Some);
        }
        let done: Option<Vec<Done>> = members.iter().map(|id| work(id).copied()).collect();
        let done = done.filter(|done| !is_too_little(done));
        done.map(|done| distribution(self.balancing.policy, &done, &believed(slowness(&done)))).transpose()
    }

    /// Of how slow members were in the newest interval, what was so in the one before as well: an odd one does not count.
    fn lasting(&self, members: &[ServerId], newest: Vec<f64>) -> Vec<f64> {
        let before: Vec<Done> =
            members.iter().map(|id| self.before.get(id).copied().unwrap_or_default()).collect();
        let agreed = |(newest, before): (f64, f64)| before.clamp(newest.min(1.0), newest.max(1.0));
        newest.into_iter().zip(slowness(&before)).map(agreed).collect()
    }
}

fn is_too_little(done: &[Done]) -> bool {
    done.iter().map(Done::requests).sum::<f64>() < REQUESTS_MIN * done.len() as f64
}

/// What a policy makes of the work of a unit's nodes, and of their [`slowness`].
fn distribution(policy: ReadPolicy, done: &[Done], times: &[f64]) -> Result<ReadDistribution, BadParameter> {
    let writes: Vec<u64> = done.iter().map(|done| done.writes.round() as u64).collect();
    let reads: f64 = done.iter().map(|done| done.reads).sum();
    match policy {
        ReadPolicy::Static => ReadDistribution::uniform(done.len()),
        ReadPolicy::ServiceTimes => {
            adaptive::by_service_times(times, &adaptive::by_writes(&writes, reads.round() as u64)?)
        }
        ReadPolicy::Load if times.iter().all(|time| *time > 0.0) => {
            let busy: Vec<f64> = done.iter().zip(times).map(|(done, time)| done.writes * time).collect();
            adaptive::by_load(&busy, times, reads)
        }
        ReadPolicy::Writes | ReadPolicy::Load => adaptive::by_writes(&writes, reads.round() as u64),
    }
}

/// The mean service time at each node over that of all, of reads and writes alike. A node with few requests counts as
/// average.
fn slowness(done: &[Done]) -> Vec<f64> {
    let (requests, busy_us) =
        done.iter().fold((0.0, 0.0), |sum, done| (sum.0 + done.requests(), sum.1 + done.busy_us));
    let is_known = |done: &&Done| busy_us > 0.0 && done.requests() >= REQUESTS_MIN;
    let of = |done: &Done| done.busy_us / done.requests() * requests / busy_us;
    done.iter().map(|done| Some(done).filter(is_known).map_or(1.0, of)).collect()
}

/// Shares in whole parts whose sum is [`PARTS`]: what rounding leaves goes to the largest remainders.
fn rounded(shares: &[f64]) -> Vec<u32> {
    let exact = |share: &f64| share * f64::from(PARTS);
    let mut parts: Vec<u32> = shares.iter().map(|share| exact(share).floor() as u32).collect();
    let left = PARTS.saturating_sub(parts.iter().sum()) as usize;
    let mut order: Vec<usize> = (0..shares.len()).filter(|&at| shares[at] > 0.0).collect();
    order.sort_by(|&a, &b| exact(&shares[b]).fract().total_cmp(&exact(&shares[a]).fract()));
    order.into_iter().cycle().take(left).for_each(|at| parts[at] += 1);
    parts
}
