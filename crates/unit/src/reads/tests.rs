use minos_rack::UnitId;
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{Node, Report, Standing};

const INTERVAL_US: u64 = 10_000_000;
const US: u64 = 1_000_000;

fn node(id: u32, unit: u32) -> Node {
    Node { id: ServerId(id), unit: UnitId(unit), standing: Standing::Member, address: String::new() }
}

/// Nodes of some units that report once a second.
struct Rack {
    balancer: Balancer,
    nodes: Vec<Node>,
    dead: Vec<ServerId>,
    loads: Vec<Load>,
    now_us: u64,
}

impl Rack {
    fn new(policy: ReadPolicy, units: &[u32]) -> Self {
        let balancing = Balancing { policy, interval_us: INTERVAL_US };
        Self {
            balancer: Balancer::new(balancing, 0),
            nodes: (0..).zip(units).map(|(id, unit)| node(id, *unit)).collect(),
            dead: Vec::new(),
            loads: vec![Load::default(); units.len()],
            now_us: 0,
        }
    }

    fn report(&self, id: u32) -> Report {
        Report {
            node: ServerId(id),
            incarnation: 1,
            sent_us: self.now_us,
            epoch: 1,
            kept: 0,
            withdrawn: Vec::new(),
            lacking: Vec::new(),
            moves: Vec::new(),
            load: Some(self.loads[id as usize]),
            weights: self.version(),
            heat: Vec::new(),
            sampled: 0,
        }
    }

    /// A second, in which each node does so much: reads, writes, and the service time of one, in microseconds.
    fn second(&mut self, each: &[(u64, u64, u64)]) {
        self.now_us += US;
        for (id, &(reads, writes, time_us)) in each.iter().enumerate() {
            let load = &mut self.loads[id];
            load.reads += reads;
            load.writes += writes;
            load.busy_us += (reads + writes) * time_us;
            let id = id as u32;
            if !self.dead.contains(&ServerId(id)) {
                self.balancer.note(&self.report(id));
            }
        }
        self.balancer.decide(self.now_us, &self.nodes, |id| !self.dead.contains(&id));
    }

    fn seconds(&mut self, count: u64, each: &[(u64, u64, u64)]) {
        (0..count).for_each(|_| self.second(each));
    }

    fn version(&self) -> u32 {
        self.balancer.weights().map_or(0, |weights| weights.version())
    }

    fn of(&self, id: u32) -> u32 {
        self.balancer.weights().map_or(0, |weights| weights.of(ServerId(id)))
    }

    fn all(&self) -> Vec<u32> {
        (0..self.nodes.len() as u32).map(|id| self.of(id)).collect()
    }
}

/// The part of the busiest node, over an equal one.
fn busiest(rack: &Rack) -> f64 {
    f64::from(rack.all().into_iter().max().unwrap_or(0)) * rack.nodes.len() as f64 / f64::from(PARTS)
}

const POLICIES: [ReadPolicy; 3] = [ReadPolicy::Writes, ReadPolicy::ServiceTimes, ReadPolicy::Load];

#[test]
fn the_hot_owner_gets_fewer_reads() {
    // 1000 requests a second, of which 200 write at node 0: each node can have 250.
    let each = [(200, 200, 5), (200, 0, 5), (200, 0, 5), (200, 0, 5)];
    for policy in POLICIES {
        let mut rack = Rack::new(policy, &[0; 4]);
        rack.seconds(9, &each);
        assert_eq!(rack.version(), 0);
        rack.seconds(2, &each);
        assert_eq!(rack.all(), [62_500, 312_500, 312_500, 312_500], "{policy}");
    }
    // Control: without a policy it does not.
    let mut rack = Rack::new(ReadPolicy::Static, &[0; 4]);
    rack.seconds(11, &each);
    assert_eq!(rack.all(), [250_000; 4]);
}

#[test]
fn several_hot_owners_get_fewer_reads() {
    let each = [(75, 300, 5), (75, 300, 5), (75, 100, 5), (75, 0, 5)];
    let mut rack = Rack::new(ReadPolicy::Writes, &[0; 4]);
    rack.seconds(11, &each);
    assert_eq!(rack.all(), [0, 0, 333_333, 666_667]);
}

#[test]
fn a_slow_node_gets_fewer_reads() {
    // Twice as slow: 2/5 of all times, 0.15 above the average; or half as many reads.
    let each = [(500, 0, 10), (500, 0, 5), (500, 0, 5), (500, 0, 5)];
    for (policy, part) in
        [(ReadPolicy::Writes, 250_000), (ReadPolicy::ServiceTimes, 100_000), (ReadPolicy::Load, 142_857)]
    {
        let mut rack = Rack::new(policy, &[0; 4]);
        rack.seconds(11, &each);
        // It may have been an odd interval.
        assert_eq!(rack.of(0), 250_000);
        rack.seconds(10, &each);
        assert!(rack.of(0).abs_diff(part) <= 1, "{policy}: {}", rack.of(0));
    }
}

#[test]
fn the_dead_get_none_and_the_back_get_some() {
    let each = [(200, 200, 5), (200, 0, 5), (200, 0, 5)];
    for policy in POLICIES {
        let mut rack = Rack::new(policy, &[0, 0, 0]);
        rack.seconds(11, &each);
        let version = rack.version();
        rack.dead = vec![ServerId(1)];
        // At once, not at the end of the interval.
        rack.second(&each);
        assert!(rack.version() == version + 1 && rack.of(1) == 0, "{:?}", rack.all());
        rack.seconds(10, &each);
        assert_eq!(rack.of(0) + rack.of(2), PARTS);
        rack.dead.clear();
        rack.second(&each);
        assert!(rack.of(1) > 200_000, "{:?}", rack.all());
        rack.dead = (0..3).map(ServerId).collect();
        rack.second(&each);
        assert_eq!(rack.all(), [0; 3]);
    }
}

#[test]
fn an_idle_unit_keeps_its_weights() {
    let mut rack = Rack::new(ReadPolicy::Writes, &[0, 0]);
    rack.seconds(11, &[(400, 200, 5), (400, 0, 5)]);
    let all = rack.all();
    rack.seconds(50, &[(0, 3, 5), (10, 0, 5)]);
    assert_eq!((rack.all(), rack.version()), (all, 1));
}

#[test]
fn odd_intervals_do_not_stay_in_the_weights() {
    // Stores alone, while fresh memory makes some nodes slower: up to 25 % more or fewer reads.
    let start: Vec<_> =
        [75, 92, 100, 125].into_iter().cycle().take(8).map(|time_us| (0, 1000, time_us)).collect();
    let mut rack = Rack::new(ReadPolicy::ServiceTimes, &[0; 8]);
    rack.seconds(20, &start);
    assert!(busiest(&rack) > 1.2, "{}", busiest(&rack));
    rack.seconds(120, &[(1000, 0, 100); 8]);
    assert!(busiest(&rack) <= 1.1, "{}", busiest(&rack));
    // It takes a few changes.
    assert!(rack.version() < 6, "{}", rack.version());
}

#[test]
fn what_is_so_in_one_interval_alone_moves_few_reads() {
    let slow = |nodes: &[usize], time_us| -> Vec<_> {
        (0..8).map(|node| (1000, 0, if nodes.contains(&node) { time_us } else { 100 })).collect()
    };
    let mut rack = Rack::new(ReadPolicy::ServiceTimes, &[0; 8]);
    let least = |rack: &Rack| rack.all().into_iter().min().unwrap_or(0);
    // The first one, and others in turn: half as slow again, as nodes that share a processor are at times.
    for node in [0, 1, 2] {
        rack.seconds(10, &slow(&[node], 150));
        assert_eq!((least(&rack), rack.version()), (125_000, 1));
    }
    // On average over some it is a little.
    for node in [3, 4, 5, 6, 7, 0, 1, 2] {
        rack.seconds(10, &slow(&[node], 150));
        assert!(least(&rack) > 110_000, "{:?}", rack.all());
    }
    // Control: in two intervals it counts.
    rack.seconds(10, &slow(&[2], 150));
    assert!(least(&rack) < 80_000, "{:?}", rack.all());
}

#[test]
fn lost_and_old_reports_change_nothing() {
    let each = [(200, 200, 5), (200, 0, 5)];
    let (mut whole, mut lossy) =
        (Rack::new(ReadPolicy::Writes, &[0, 0]), Rack::new(ReadPolicy::Writes, &[0, 0]));
    for second in 0..20 {
        whole.second(&each);
        // Node 0 is heard every third time; the coordinator takes it for alive.
        let kept = if second % 3 == 0 { 0 } else { 1 };
        lossy.now_us += US;
        for id in 0..2 {
            let (reads, writes, time_us) = each[id as usize];
            let load = &mut lossy.loads[id as usize];
            load.reads += reads;
            load.writes += writes;
            load.busy_us += (reads + writes) * time_us;
            if id >= kept {
                lossy.balancer.note(&lossy.report(id));
            }
        }
        lossy.balancer.decide(lossy.now_us, &lossy.nodes, |_| true);
    }
    assert_eq!(whole.all(), lossy.all());
    // A process that begins anew counts anew.
    let mut report = whole.report(0);
    (report.incarnation, report.load) = (2, Some(Load::default()));
    whole.now_us += US;
    report.sent_us = whole.now_us;
    whole.balancer.note(&report);
    let before = whole.all();
    whole.balancer.decide(whole.now_us + INTERVAL_US, &whole.nodes, |_| true);
    assert_eq!(whole.all(), before);
}

#[test]
fn a_new_coordinator_goes_on_from_the_version_that_nodes_have() {
    let mut rack = Rack::new(ReadPolicy::Static, &[0, 0]);
    let older = Report { weights: 41, ..rack.report(0) };
    rack.balancer.note(&older);
    rack.seconds(11, &[(1, 1, 1), (1, 1, 1)]);
    assert_eq!(rack.version(), 42);
    // One that was silent until now has seen more.
    rack.balancer.note(&Report { weights: 50, ..rack.report(1) });
    rack.second(&[(1, 1, 1), (1, 1, 1)]);
    assert_eq!(rack.version(), 51);
}

#[test]
fn policies_are_named() {
    for policy in [ReadPolicy::Static, ReadPolicy::Writes, ReadPolicy::ServiceTimes, ReadPolicy::Load] {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert_eq!("".parse::<ReadPolicy>(), Err(UnknownPolicy));
}

proptest! {
    /// Whatever nodes report, the parts of a unit with a live node sum to the whole, and the dead get none.
    #[test]
    fn parts_are_whole(
        policy in prop::sample::select(vec![
            ReadPolicy::Static, ReadPolicy::Writes, ReadPolicy::ServiceTimes, ReadPolicy::Load,
        ]),
        units in vec(0u32..3, 1..9),
        seconds in vec(vec((0u64..2000, 0u64..2000, 0u64..50), 9), 1..40),
        deaths in vec((0usize..40, 0u32..9, any::<bool>()), 0..8),
        odd in (any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()),
    ) {
        let mut rack = Rack::new(policy, &units);
        for (second, each) in seconds.iter().enumerate() {
            for (_, id, dies) in deaths.iter().filter(|(at, ..)| *at == second) {
                rack.dead.retain(|dead| dead.0 != *id);
                rack.dead.extend(dies.then_some(ServerId(*id)));
            }
            if odd.3 && second == 5 {
                rack.loads[0] = Load { reads: odd.0, writes: odd.1, busy_us: odd.2 >> 8 };
                let report = rack.report(0);
                rack.balancer.note(&report);
                rack.loads[0] = Load::default();
            }
            let before = rack.version();
            rack.second(&each[..units.len()]);
            prop_assert!(rack.version() >= before);
            if rack.version() == 0 {
                continue;
            }
            for unit in 0..3 {
                let members = rack.nodes.iter().filter(|node| node.unit.0 == unit);
                let sum: u64 = members.clone().map(|node| u64::from(rack.of(node.id.0))).sum();
                let lives = members.clone().any(|node| !rack.dead.contains(&node.id));
                prop_assert_eq!(sum, if lives { u64::from(PARTS) } else { 0 });
            }
            for dead in &rack.dead {
                prop_assert_eq!(rack.of(dead.0), 0);
            }
        }
    }

    /// Noise of five per cent does not move what was settled.
    #[test]
    fn noise_moves_nothing(
        policy in prop::sample::select(POLICIES.to_vec()),
        // The same, or so different that the weights follow.
        writes in vec(prop::sample::select(vec![0u64, 200, 400]), 4),
        noise in vec(vec((0.95f64..1.05, 0.95f64..1.05, 0.95f64..1.05), 4), 30),
    ) {
        let mut rack = Rack::new(policy, &[0; 4]);
        let each: Vec<_> = writes.iter().map(|writes| (1000, *writes, 1000)).collect();
        // By then the mean counts.
        rack.seconds(41, &each);
        let (all, version) = (rack.all(), rack.version());
        for noise in noise {
            let noisy = |count: u64, factor: f64| (count as f64 * factor).round() as u64;
            let each: Vec<_> = each.iter().zip(noise).map(|(each, noise)| {
                (noisy(each.0, noise.0), noisy(each.1, noise.1), noisy(each.2, noise.2))
            }).collect();
            // Ten seconds of the same: noise that does not cancel out.
            rack.seconds(10, &each);
            prop_assert_eq!((rack.all(), rack.version()), (all.clone(), version));
        }
    }
}
