use minos_rack::MicroShards;

use super::{relief::Step, *};
use crate::{Heat, Load, Place};

const POLICY: Policy = Policy { loss: Loss::Never, moves_max: 100, move_us_max: 10_000_000, copies: 1 };
const REPORT_US: u64 = 100_000;

fn terms() -> Terms {
    Terms::new(1_000_000, 500, 100_000).unwrap()
}

/// A coordinator whose disk and nodes do at once what it says.
struct Rack {
    coordinator: Coordinator,
    now_us: u64,
    /// The directory that each node has enacted. Those without one are silent.
    enacted: BTreeMap<ServerId, Epoch>,
    /// Reported beside it.
    moves: BTreeMap<ServerId, Vec<(MoveId, Progress)>>,
    orders: BTreeMap<ServerId, Orders>,
    /// The nodes that orders were sent to, in turn.
    told: Vec<ServerId>,
    /// The nodes that know a later directory, with its epoch.
    later: Vec<(ServerId, Epoch)>,
    stale: Vec<(ServerId, Epoch)>,
    /// A micro-shard of which all ask, while the lower half of the nodes is busier.
    hot: Option<MicroShard>,
}

fn node(id: u32) -> Node {
    Node { id: ServerId(id), unit: UnitId(0), standing: Standing::Member, address: String::new() }
}

impl Rack {
    fn new(nodes: u32, policy: Policy) -> Self {
        Self::of((0..nodes).map(node).collect(), policy)
    }

    fn of(nodes: Vec<Node>, policy: Policy) -> Self {
        let micro_shards = MicroShards::new(32).unwrap();
        let enacted = nodes.iter().map(|node| (node.id, 0)).collect();
        let directory = Directory::new(micro_shards, 1, nodes).unwrap();
        Self {
            coordinator: Coordinator::new(directory, terms(), policy, 0),
            now_us: 0,
            enacted,
            moves: BTreeMap::new(),
            orders: BTreeMap::new(),
            told: Vec::new(),
            later: Vec::new(),
            stale: Vec::new(),
            hot: None,
        }
    }

    fn handle(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut effects = Vec::new();
            self.coordinator.handle(self.now_us, input, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Persist(directory) => inputs.push(Input::Persisted(directory.epoch())),
                    Effect::Send(id, orders) => {
                        self.told.push(id);
                        self.orders.insert(id, orders);
                    }
                    Effect::Outdated(id, epoch) => self.later.push((id, epoch)),
                    Effect::Stale(id, epoch) => self.stale.push((id, epoch)),
                }
            }
        }
    }

    /// A report of one node with one move.
    fn say(&mut self, node: u32, incarnation: u64, progress: (MoveId, Progress)) {
        let report = self.said(node, incarnation, progress);
        self.handle(Input::Report(report));
    }

    fn said(&mut self, node: u32, incarnation: u64, progress: (MoveId, Progress)) -> Report {
        self.now_us += 1;
        Report {
            node: ServerId(node),
            incarnation,
            sent_us: self.now_us,
            epoch: self.coordinator.directory().epoch(),
            kept: 0,
            withdrawn: Vec::new(),
            lacking: Vec::new(),
            moves: vec![progress],
            load: None,
            weights: 0,
            heat: Vec::new(),
            sampled: 0,
        }
    }

    /// A round of reports. Nodes have all that they are told to copy.
    fn report(&mut self) {
        self.now_us += REPORT_US;
        let enacted = self.enacted.clone();
        for (id, epoch) in enacted {
            self.handle(Input::Report(Report {
                node: id,
                incarnation: 1,
                sent_us: self.now_us,
                epoch,
                kept: 0,
                withdrawn: self.begun(id, epoch),
                lacking: Vec::new(),
                moves: self.moves.get(&id).cloned().unwrap_or_default(),
                load: self.hot.map(|_| self.load(id)),
                weights: 0,
                heat: self
                    .hot
                    .map(|micro_shard| Heat { micro_shard, reads: 30, changes: 5 })
                    .into_iter()
                    .collect(),
                sampled: 100,
            }));
        }
        for (id, orders) in &self.orders {
            if let Some(epoch) = self.enacted.get_mut(id) {
                *epoch = orders.epoch;
            }
            let progress = |pull: &Pull| if pull.is_follow { Progress::Safe } else { Progress::Drained };
            let copied = orders.pulls.iter().map(|pull| (pull.id, progress(pull)));
            let moves = self.moves.entry(*id).or_default();
            moves.retain(|(it, _)| !orders.cancelled.contains(it));
            moves.extend(copied);
        }
    }

    /// Node 0 is the busiest.
    fn load(&self, id: ServerId) -> Load {
        let part = [90, 10, 20, 30][id.0 as usize % 4];
        Load { reads: 0, writes: 0, busy_us: self.now_us * part / 100 }
    }

    /// The micro-shards that a node has emptied, and that wait for a higher epoch.
    fn begun(&self, id: ServerId, epoch: Epoch) -> Vec<MicroShard> {
        let is_begun = |place: Place| place.node == id && place.since == place.epoch && place.epoch <= epoch;
        let places = self.coordinator.directory().places();
        places.filter(|(_, place)| is_begun(*place)).map(|(it, _)| it).collect()
    }

    fn reports(&mut self, rounds: u32) {
        (0..rounds).for_each(|_| self.report());
    }

    fn held(&self, id: u32) -> usize {
        self.places().filter(|place| place.node == ServerId(id) && place.is_serving).count()
    }

    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.coordinator.directory().places().map(|(_, place)| place)
    }

    fn command(&mut self, command: Command) -> Result<(), Refused> {
        self.coordinator.command(self.now_us, command).map(drop)
    }

    /// Adds a node that runs.
    fn add(&mut self, id: ServerId, address: &str) {
        let report = self.said(id.0, 0, (MoveId { micro_shard: MicroShard(0), number: 0 }, Progress::Failed));
        self.handle(Input::Report(report));
        self.command(Command::Add(id, UnitId(0), address.to_owned())).unwrap();
    }
}

#[test]
fn a_rack_at_rest_changes_nothing() {
    let mut rack = Rack::new(3, POLICY);
    rack.reports(5);
    // Once, when all have begun.
    let epoch = rack.coordinator.directory().epoch();
    assert!(rack.places().all(|place| place.since < place.epoch));
    rack.reports(20);
    assert_eq!(rack.coordinator.directory().epoch(), epoch);
}

#[test]
fn a_node_joins_is_drained_and_goes() {
    let mut rack = Rack::new(3, POLICY);
    rack.reports(5);
    let new = ServerId(9);
    rack.add(new, "host:1");
    rack.enacted.insert(new, 0);
    rack.reports(10);
    let directory = rack.coordinator.directory().clone();
    let share = directory.micro_shards().iter().filter(|it| directory.target(*it) == Some(new)).count();
    assert!(share > 0 && rack.held(9) == share);
    assert_eq!(directory.node(new).unwrap().standing, Standing::Member);
    assert_eq!(rack.command(Command::Remove(new)), Err(Refused::InUse(new)));
    rack.command(Command::Drain(new)).unwrap();
    rack.reports(10);
    assert_eq!(rack.held(9), 0);
    rack.command(Command::Remove(new)).unwrap();
    rack.reports(2);
    assert_eq!(rack.coordinator.directory().nodes().len(), 3);
    assert_eq!(rack.held(0) + rack.held(1) + rack.held(2), 32);
}

#[test]
fn nothing_goes_to_a_node_that_one_with_a_lease_does_not_know() {
    let mut rack = Rack::new(3, POLICY);
    rack.reports(15);
    let (new, deaf) = (ServerId(9), rack.enacted[&ServerId(1)]);
    rack.add(new, "");
    rack.enacted.insert(new, 0);
    for _ in 0..10 {
        rack.report();
        rack.enacted.insert(ServerId(1), deaf);
    }
    assert_eq!((rack.held(9), rack.coordinator.moves()), (0, (0, 0)));
    // Its lease ends.
    rack.enacted.remove(&ServerId(1));
    rack.reports(terms().honoured_us().div_ceil(REPORT_US) as u32 + 4);
    assert!(rack.held(9) > 0);
}

#[test]
fn wishes_that_cannot_be_fulfilled_are_refused() {
    let mut rack = Rack::new(1, POLICY);
    let unknown = ServerId(5);
    assert_eq!(rack.command(Command::Drain(unknown)), Err(Refused::UnknownNode(unknown)));
    assert_eq!(rack.command(Command::Move(MicroShard(0), unknown)), Err(Refused::UnknownNode(unknown)));
    let beyond = Command::Move(MicroShard(32), ServerId(0));
    assert_eq!(rack.command(beyond), Err(Refused::UnknownMicroShard(MicroShard(32))));
    assert!(matches!(rack.command(Command::Drain(ServerId(0))), Err(Refused::Nodes(_))));
    let twice = Command::Add(ServerId(0), UnitId(0), String::new());
    assert_eq!(rack.command(twice), Err(Refused::Known(ServerId(0))));
}

/// Before, they were noted and forgotten.
#[test]
fn moves_that_cannot_begin_are_refused() {
    let mut rack = Rack::new(3, POLICY);
    let (owner, target, leaving) = (ServerId(0), ServerId(1), ServerId(2));
    rack.reports(5);
    let owned =
        |rack: &Rack| rack.coordinator.directory().places().find(|(_, it)| it.node == owner).unwrap().0;
    let micro_shard = owned(&rack);
    rack.command(Command::Drain(leaving)).unwrap();
    assert_eq!(rack.command(Command::Move(micro_shard, leaving)), Err(Refused::Leaving(leaving)));
    rack.reports(10);
    assert_eq!(rack.command(Command::Move(micro_shard, leaving)), Err(Refused::Leaving(leaving)));
    let lease = terms().honoured_us().div_ceil(REPORT_US) as u32;
    let epoch = rack.enacted.remove(&target).unwrap();
    rack.reports(lease);
    assert_eq!(rack.command(Command::Move(owned(&rack), target)), Err(Refused::Silent(target)));
    rack.enacted.insert(target, epoch);
    rack.enacted.remove(&owner);
    rack.reports(lease);
    assert_eq!(rack.command(Command::Move(owned(&rack), target)), Err(Refused::Silent(owner)));
}

#[test]
fn only_a_node_that_reports_is_added() {
    let mut rack = Rack::new(3, POLICY);
    rack.reports(5);
    let new = ServerId(9);
    let add = Command::Add(new, UnitId(0), String::new());
    assert_eq!(rack.command(add.clone()), Err(Refused::Silent(new)));
    rack.enacted.insert(new, 0);
    rack.report();
    rack.enacted.remove(&new);
    rack.reports(terms().honoured_us().div_ceil(REPORT_US) as u32);
    assert_eq!(rack.command(add.clone()), Err(Refused::Silent(new)));
    rack.enacted.insert(new, 0);
    rack.report();
    assert_eq!(rack.command(add), Ok(()));
    rack.reports(20);
    assert!(rack.held(9) > 0);
}

#[test]
fn a_change_of_nodes_is_in_the_directory_whose_epoch_is_said() {
    let mut rack = Rack::new(3, POLICY);
    rack.reports(5);
    let now_us = rack.now_us;
    let drain = |rack: &mut Rack, id| {
        let said = rack.coordinator.command(now_us, Command::Drain(ServerId(id)));
        let mut effects = Vec::new();
        rack.coordinator.handle(now_us, Input::Tick, &mut effects);
        (said.unwrap(), effects)
    };
    let (first, effects) = drain(&mut rack, 0);
    let [Effect::Persist(directory)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(first, Some(directory.epoch()));
    // The first one is not kept yet.
    let (second, effects) = drain(&mut rack, 1);
    assert!(effects.is_empty());
    assert_eq!(second, first.map(|epoch| epoch + 1));
    rack.handle(Input::Persisted(directory.epoch()));
    let standing = |id| rack.coordinator.directory().node(ServerId(id)).unwrap().standing;
    assert_eq!((standing(0), standing(1)), (Standing::Leaving, Standing::Leaving));
    assert_eq!(rack.coordinator.command(now_us, Command::Balance), Ok(None));
}

#[test]
fn a_node_that_is_drained_may_stay() {
    let mut rack = Rack::new(3, POLICY);
    rack.reports(5);
    let (node, held) = (ServerId(1), rack.held(1));
    rack.command(Command::Drain(node)).unwrap();
    rack.reports(2);
    assert!(rack.coordinator.directory().node(node).unwrap().standing == Standing::Leaving);
    let add = |unit| Command::Add(node, UnitId(unit), String::new());
    assert_eq!(rack.command(add(7)), Err(Refused::OtherUnit(node, UnitId(0))));
    rack.command(add(0)).unwrap();
    rack.reports(20);
    assert_eq!(rack.held(1), held);
    assert_eq!(rack.coordinator.directory().node(node).unwrap().standing, Standing::Member);
    assert_eq!(rack.command(add(0)), Err(Refused::Known(node)));
}

#[test]
fn a_stores_dead_node_is_waited_for_unless_it_is_given_up() {
    let mut rack = Rack::new(3, POLICY);
    rack.reports(20);
    assert_eq!(rack.command(Command::GiveUp(ServerId(0))), Err(Refused::Whole(ServerId(0))));
    rack.enacted.remove(&ServerId(0));
    let held = rack.held(0);
    rack.reports(50);
    assert_eq!(rack.held(0), held);
    rack.command(Command::GiveUp(ServerId(0))).unwrap();
    rack.reports(10);
    assert_eq!((rack.held(0), rack.held(1) + rack.held(2)), (0, 32));
    // They begin without items.
    assert!(rack.places().all(|place| place.since > 1 || place.node != ServerId(0)));
}

#[test]
fn a_dead_nodes_micro_shards_wait_for_its_readers() {
    let mut rack = Rack::new(3, Policy { loss: Loss::Allowed, ..POLICY });
    rack.reports(20);
    rack.enacted.remove(&ServerId(0));
    let died_us = rack.now_us;
    // One that lives, but does not hear of changes.
    let deaf = rack.enacted[&ServerId(1)];
    while rack.now_us < died_us + 3 * terms().honoured_us() {
        rack.report();
        rack.enacted.insert(ServerId(1), deaf);
        let is_early = rack.now_us < died_us + terms().honoured_us();
        assert_eq!(rack.held(0) > 0, is_early, "{}", rack.now_us - died_us);
        assert!(rack.held(1) + rack.held(2) < 32);
    }
    rack.enacted.remove(&ServerId(1));
    rack.reports(terms().honoured_us().div_ceil(REPORT_US) as u32 + 4);
    assert_eq!(rack.held(2), 32);
}

#[test]
fn a_new_coordinator_waits_for_the_leases_of_the_old_one() {
    let mut rack = Rack::new(3, Policy { loss: Loss::Allowed, ..POLICY });
    rack.enacted.remove(&ServerId(0));
    while rack.now_us + REPORT_US < terms().honoured_us() {
        rack.report();
        assert!(rack.held(0) > 0);
    }
    rack.reports(5);
    assert_eq!(rack.held(1) + rack.held(2), 32);
}

/// A report of node 0, which has nothing to tell.
fn plain_report(incarnation: u64, sent_us: u64, epoch: Epoch) -> Report {
    Report {
        node: ServerId(0),
        incarnation,
        sent_us,
        epoch,
        kept: 0,
        withdrawn: Vec::new(),
        lacking: Vec::new(),
        moves: Vec::new(),
        load: None,
        weights: 0,
        heat: Vec::new(),
        sampled: 0,
    }
}

/// Before, it got a lease, and two nodes owned what the later directory has given to one.
#[test]
fn a_node_that_knows_a_later_directory_gets_no_lease_and_is_told_of() {
    let mut rack = Rack::new(2, POLICY);
    rack.reports(5);
    let epoch = rack.coordinator.directory().epoch();
    rack.orders.clear();
    // It goes by one, its memory is of one, and it is in that one alone.
    let later = [
        plain_report(2, 1, epoch + 1),
        Report { kept: epoch + 2, ..plain_report(3, 1, 0) },
        Report { node: ServerId(9), ..plain_report(4, 1, epoch + 3) },
    ];
    later.into_iter().for_each(|report| rack.handle(Input::Report(report)));
    assert_eq!(rack.later, [(ServerId(0), epoch + 1), (ServerId(0), epoch + 2), (ServerId(9), epoch + 3)]);
    assert!(rack.orders.is_empty());
    rack.handle(Input::Report(Report { kept: epoch, ..plain_report(4, 1, epoch) }));
    assert_eq!((rack.later.len(), rack.orders[&ServerId(0)].lease), (3, Some(1)));
}

#[test]
fn a_node_with_memory_of_another_rack_ends_none_that_runs() {
    let mut rack = Rack::new(2, POLICY);
    rack.now_us = terms().honoured_us();
    let stale = |epoch| Report { node: ServerId(1), kept: epoch, ..plain_report(1, 1, 0) };
    rack.handle(Input::Report(stale(7)));
    assert_eq!((rack.later.len(), rack.stale.len()), (1, 0), "nobody goes by the directory");
    rack.handle(Input::Report(plain_report(1, 1, 0)));
    rack.orders.clear();
    rack.handle(Input::Report(stale(8)));
    assert_eq!((rack.later.len(), &rack.stale[..]), (1, &[(ServerId(1), 8)][..]));
    assert!(rack.orders.is_empty());
}

/// One that has not reported may say that the rack is older than its directory.
#[test]
fn nodes_of_a_new_rack_get_leases_once_all_have_reported_or_a_lease_is_over() {
    let mut rack = Rack::new(2, POLICY);
    let lease = |rack: &Rack| rack.orders[&ServerId(0)].lease;
    rack.handle(Input::Report(plain_report(1, 1, 0)));
    assert_eq!(lease(&rack), None);
    rack.handle(Input::Report(Report { node: ServerId(1), ..plain_report(1, 1, 0) }));
    rack.handle(Input::Report(plain_report(1, 2, 0)));
    assert_eq!(lease(&rack), Some(2));
    let mut rack = Rack::new(2, POLICY);
    rack.now_us = terms().honoured_us();
    rack.handle(Input::Report(plain_report(1, 1, 0)));
    assert_eq!(lease(&rack), Some(1));
}

#[test]
fn an_old_report_grants_nothing() {
    let mut rack = Rack::new(2, POLICY);
    rack.reports(3);
    rack.orders.clear();
    let report = |incarnation, sent_us| plain_report(incarnation, sent_us, 0);
    rack.handle(Input::Report(report(1, rack.now_us)));
    rack.handle(Input::Report(report(0, rack.now_us + 5)));
    assert!(rack.orders.is_empty());
    rack.handle(Input::Report(report(2, 3)));
    assert_eq!(rack.orders[&ServerId(0)].lease, Some(3));
}

#[test]
fn what_a_node_lacks_is_taken_from_it_in_whatever_order_it_is_told() {
    let mut rack = Rack::new(2, Policy { loss: Loss::Allowed, ..POLICY });
    rack.reports(20);
    let places = rack.coordinator.directory().places();
    let lacking: Vec<_> = places.filter(|(_, place)| place.node == ServerId(0)).map(|(it, _)| it).collect();
    let (owned, epoch) = (lacking.len(), rack.coordinator.directory().epoch());
    let lacking = lacking.into_iter().rev().take(owned - 2).collect();
    let report = plain_report(2, rack.now_us + 1, epoch);
    rack.handle(Input::Report(Report { lacking, ..report }));
    assert!(owned > 4 && rack.held(0) == 2, "{} of {owned}", rack.held(0));
}

#[test]
fn a_withdrawn_word_gives_one_micro_shard_a_higher_epoch() {
    let mut rack = Rack::new(2, POLICY);
    rack.reports(20);
    let before = rack.coordinator.directory().clone();
    let (withdrawn, _) = before.places().filter(|(_, place)| place.node == ServerId(0)).last().unwrap();
    rack.now_us += 1;
    let report = plain_report(1, rack.now_us, before.epoch());
    rack.handle(Input::Report(Report { withdrawn: vec![withdrawn], ..report }));
    let changed = rack.coordinator.directory().places_since(&before);
    assert_eq!(changed.map(|(it, _)| it).collect::<Vec<_>>(), [withdrawn]);
}

/// Reports of nodes that have been busy for so long, with one hot micro-shard.
fn warm(busy_us: &[u64], micro_shard: MicroShard, sent_us: u64) -> Vec<Report> {
    let report = |(node, busy_us): (u32, &u64)| Report {
        node: ServerId(node),
        incarnation: 1,
        sent_us,
        epoch: 1,
        kept: 0,
        withdrawn: Vec::new(),
        lacking: Vec::new(),
        moves: Vec::new(),
        load: Some(Load { reads: 0, writes: 0, busy_us: *busy_us }),
        weights: 0,
        heat: vec![Heat { micro_shard, reads: 30, changes: 5 }],
        sampled: 100,
    };
    (0..).zip(busy_us).map(report).collect()
}

#[test]
fn a_hot_micro_shard_moves_and_is_copied_until_it_cools() {
    const INTERVAL_US: u64 = 1_000_000;
    let nodes = (0..4).map(|id| Node { unit: UnitId(id / 2), ..node(id) }).collect();
    let directory = Directory::new(MicroShards::new(32).unwrap(), 1, nodes).unwrap();
    let owned = |id: u32| directory.places().find(|(_, place)| place.node == ServerId(id)).unwrap().0;
    let (hot, far) = (owned(0), owned(3));
    let mut relief = Relief::new(INTERVAL_US, 0);
    let (mut turn, mut busy_us) = (0, [0; 4]);
    // After an interval in which the nodes were busy for so many hundredths of the time.
    let mut decide = |busy: [u64; 4], micro_shard| {
        turn += 1;
        busy_us = std::array::from_fn(|node| busy_us[node] + busy[node] * INTERVAL_US / 100);
        let reports = warm(&busy_us, micro_shard, turn * INTERVAL_US);
        let reports: Vec<_> = reports.iter().collect();
        let step = relief.decide(turn * INTERVAL_US, &directory, &reports);
        (step, relief.copies(hot).collect::<Vec<_>>())
    };
    // Nothing is known of the first interval; equal nodes, and nodes at rest, are left alone.
    assert_eq!(decide([90, 10, 20, 30], hot), (None, vec![]));
    assert_eq!(decide([50, 50, 50, 50], hot), (None, vec![]));
    assert_eq!(decide([20, 5, 5, 5], hot), (None, vec![]));
    assert_eq!(decide([90, 10, 20, 30], hot), (Some(Step::Move(hot, ServerId(1))), vec![]));
    // It has moved once: now a node of another unit gets a copy, and keeps it while it is hot.
    let copied = vec![ServerId(2)];
    assert_eq!(decide([90, 10, 20, 30], hot), (Some(Step::Copy(hot, ServerId(2))), copied.clone()));
    assert_eq!(decide([50, 50, 50, 50], hot), (None, copied));
    assert_eq!(decide([50, 50, 50, 50], far), (None, vec![]));
    // What the busiest node forwards to the other unit, it gets a copy of.
    assert_eq!(decide([90, 10, 20, 30], far), (Some(Step::Copy(far, ServerId(0))), vec![]));
}

/// A move from node 0 to node 1.
fn moving(rack: &mut Rack) -> MoveId {
    rack.reports(5);
    let number = rack.places().position(|place| place.node == ServerId(0)).unwrap();
    rack.command(Command::Move(MicroShard(number as u32), ServerId(1))).unwrap();
    rack.handle(Input::Tick);
    rack.orders[&ServerId(1)].pulls[0].id
}

#[test]
fn what_its_owner_has_given_away_goes_to_the_other_with_one_change() {
    let mut rack = Rack::new(3, POLICY);
    let id = moving(&mut rack);
    let epoch = rack.coordinator.directory().epoch();
    rack.say(0, 1, (id, Progress::Given));
    let place = rack.coordinator.directory().place(id.micro_shard).unwrap();
    assert_eq!((place.node, place.epoch, place.since), (ServerId(1), epoch + 1, id.number));
    assert!(place.is_serving && rack.coordinator.moves() == (0, 0));
}

#[test]
fn new_owners_hear_of_it_first() {
    let mut rack = Rack::new(3, POLICY);
    let id = moving(&mut rack);
    rack.told.clear();
    rack.say(0, 1, (id, Progress::Given));
    // The answer to the report comes before.
    assert_eq!(rack.told, [0, 1, 0, 2].map(ServerId));
}

#[test]
fn nothing_is_given_to_a_process_that_began_later() {
    let mut rack = Rack::new(2, POLICY);
    let id = moving(&mut rack);
    let owner = |rack: &Rack| rack.coordinator.directory().place(id.micro_shard).unwrap().node;
    rack.say(1, 2, (id, Progress::Pulling));
    rack.say(0, 1, (id, Progress::Given));
    assert_eq!(owner(&rack), ServerId(0));
    // Unless it has the items of the one before.
    rack.say(1, 2, (id, Progress::Drained));
    assert_eq!(owner(&rack), ServerId(1));
}

/// Two nodes of different units, each of which follows the other.
fn followed() -> Rack {
    let nodes = (0..2).map(|id| Node { unit: UnitId(id), ..node(id) }).collect();
    let mut rack = Rack::of(nodes, Policy { copies: 2, ..POLICY });
    rack.reports(20);
    let directory = rack.coordinator.directory();
    let is_safe = |it| directory.followers(it).iter().any(|follower| follower.is_safe);
    assert!(directory.micro_shards().iter().all(is_safe));
    rack
}

/// Reports until the micro-shards of node 0, which is silent, are taken from it.
fn take_from_the_silent(rack: &mut Rack) -> usize {
    rack.enacted.remove(&ServerId(0));
    let (held, died_us) = (rack.held(1), rack.now_us);
    while rack.held(0) > 0 {
        assert!(rack.now_us < died_us + 2 * terms().honoured_us());
        rack.report();
    }
    held
}

#[test]
fn a_copy_that_is_wanted_no_more_goes_after_another_is_complete() {
    let nodes = (0..3).map(|id| Node { unit: UnitId(id), ..node(id) }).collect();
    let mut rack = Rack::of(nodes, Policy { copies: 2, ..POLICY });
    rack.reports(20);
    let leaving = ServerId(0);
    let before = Arc::clone(rack.coordinator.directory());
    let is_followed = |it: &MicroShard| before.follower(*it, leaving).is_some();
    let followed: Vec<_> = before.micro_shards().iter().filter(is_followed).collect();
    assert!(!followed.is_empty());
    rack.command(Command::Drain(leaving)).unwrap();
    for _ in 0..20 {
        rack.report();
        let directory = rack.coordinator.directory();
        let has_copy = |it: &MicroShard| directory.followers(*it).iter().any(|follower| follower.is_safe);
        assert!(followed.iter().all(has_copy));
    }
    assert!(!followed.iter().any(|it| rack.coordinator.directory().follower(*it, leaving).is_some()));
}

#[test]
fn what_went_wrong_at_a_node_is_counted() {
    let mut rack = followed();
    let mishaps = |rack: &Rack| rack.coordinator.nodes(rack.now_us).next().unwrap().mishaps;
    assert_eq!((mishaps(&rack), rack.coordinator.safe_copies()), (Mishaps::default(), 32));
    let failed_copies = take_from_the_silent(&mut rack) as u64;
    rack.reports(2);
    // The copies that it should have are gone with it; what it owned has no copy yet.
    assert_eq!(mishaps(&rack), Mishaps { lapses: 0, restarts: 0, failed_copies });
    assert_eq!(rack.coordinator.safe_copies(), 0);
    rack.enacted.insert(ServerId(0), 0);
    rack.reports(1);
    assert_eq!(mishaps(&rack), Mishaps { lapses: 1, restarts: 0, failed_copies });
    rack.reports(9);
    assert_eq!((mishaps(&rack).restarts, rack.coordinator.safe_copies()), (0, 32));
    rack.say(0, 2, (MoveId { micro_shard: MicroShard(0), number: 0 }, Progress::Failed));
    assert_eq!(mishaps(&rack).restarts, 1);
}

#[test]
fn a_follower_inherits_once_it_has_said_that_its_items_are_still_there() {
    let mut rack = followed();
    let held = take_from_the_silent(&mut rack);
    assert_eq!(rack.held(1), held);
    rack.reports(2);
    assert_eq!((rack.held(0), rack.held(1)), (0, 32));
}

#[test]
fn a_follower_that_has_lost_its_items_inherits_nothing() {
    let mut rack = followed();
    let held = take_from_the_silent(&mut rack);
    // Its last report said that it had them.
    for _ in 0..50 {
        let id = MoveId { micro_shard: MicroShard(0), number: 0 };
        let report = Report { moves: Vec::new(), ..rack.said(1, 2, (id, Progress::Failed)) };
        rack.handle(Input::Report(report));
    }
    assert_eq!((rack.held(0), rack.held(1)), (0, held));
    rack.enacted.insert(ServerId(0), 0);
    rack.reports(2);
    assert_eq!((rack.held(0), rack.held(1)), (32 - held, held));
}

#[test]
fn a_follower_keeps_its_items_while_the_directory_names_it() {
    let mut rack = followed();
    let number = rack.places().position(|place| place.node == ServerId(0)).unwrap();
    let micro_shard = MicroShard(number as u32);
    let id = MoveId { micro_shard, number: rack.coordinator.directory().followers(micro_shard)[0].number };
    let mut effects = Vec::new();
    // The coordinator writes to its disk meanwhile that node 1 follows it no more.
    for _ in 0..2 {
        let report = rack.said(1, 1, (id, Progress::Failed));
        rack.coordinator.handle(rack.now_us, Input::Report(report), &mut effects);
    }
    let is_cancelled = |it: &Effect| matches!(it, Effect::Send(_, orders) if orders.cancelled.contains(&id));
    assert!(!effects.iter().any(is_cancelled));
    let next = rack.coordinator.directory().epoch() + 1;
    rack.handle(Input::Persisted(next));
    rack.say(1, 1, (id, Progress::Failed));
    // The owner may have lost its items since it reported.
    assert_eq!(rack.coordinator.directory().followers(micro_shard).len(), 1);
    let of_owner = Report { moves: Vec::new(), ..rack.said(0, 1, (id, Progress::Failed)) };
    rack.handle(Input::Report(of_owner));
    assert!(rack.coordinator.directory().followers(micro_shard).is_empty());
    // The first of them may change the directory.
    (0..2).for_each(|_| rack.say(1, 1, (id, Progress::Failed)));
    assert_eq!(rack.orders[&ServerId(1)].cancelled, [id]);
}

/// Before, the second command undid the first.
#[test]
fn commands_count_while_the_directory_is_written() {
    let mut rack = Rack::new(3, POLICY);
    rack.report();
    let mut effects = Vec::new();
    assert_eq!(rack.command(Command::Drain(ServerId(0))), Ok(()));
    rack.coordinator.handle(rack.now_us, Input::Tick, &mut effects);
    assert!(matches!(effects[..], [Effect::Persist(_)]), "{effects:?}");
    assert_eq!(rack.command(Command::Drain(ServerId(1))), Ok(()));
    let next = rack.coordinator.directory().epoch() + 1;
    rack.handle(Input::Persisted(next));
    let standing = rack.coordinator.directory().nodes().iter().map(|node| node.standing);
    assert_eq!(standing.collect::<Vec<_>>(), [Standing::Leaving, Standing::Leaving, Standing::Member]);
}

/// Moves that an operator wishes for are under way while the directory is written that has them.
#[test]
fn moves_count_while_the_directory_is_written() {
    let mut rack = Rack::new(2, POLICY);
    rack.report();
    let from = rack.coordinator.directory().place(MicroShard(0)).unwrap().node;
    let to = ServerId(1 - from.0);
    assert_eq!(rack.command(Command::Move(MicroShard(0), to)), Ok(()));
    assert_eq!(rack.coordinator.moves(), (0, 1));
    rack.coordinator.handle(rack.now_us, Input::Tick, &mut Vec::new());
    assert_eq!(rack.coordinator.moves(), (1, 0));
}

/// A node that has joined, and fails to copy whatever it is told to.
fn fail_to_join(rack: &mut Rack, new: ServerId) {
    rack.report();
    let pulls = rack.orders.get(&new).map_or_else(Vec::new, |orders| orders.pulls.clone());
    let failed = pulls.iter().map(|pull| (pull.id, Progress::Failed)).collect();
    let none = (MoveId { micro_shard: MicroShard(0), number: 0 }, Progress::Failed);
    let report = Report { moves: failed, ..rack.said(new.0, 1, none) };
    rack.handle(Input::Report(report));
}

#[test]
fn a_node_that_fails_to_copy_rests_but_for_what_an_operator_wishes() {
    const SECONDS: u64 = 5;
    let mut rack = Rack::new(3, POLICY);
    rack.reports(5);
    let new = ServerId(9);
    rack.add(new, "");
    fail_to_join(&mut rack, new);
    let began = rack.coordinator.directory().epoch();
    for _ in 0..SECONDS * 1_000_000 / REPORT_US {
        fail_to_join(&mut rack, new);
    }
    let changes = u64::from(rack.coordinator.directory().epoch() - began);
    assert!((SECONDS - 1..=SECONDS + 1).contains(&changes), "{changes}");
    while rack.coordinator.moves().0 > 0 {
        fail_to_join(&mut rack, new);
    }
    rack.command(Command::Move(MicroShard(0), new)).unwrap();
    rack.handle(Input::Tick);
    assert_eq!(rack.coordinator.moves(), (1, 0));
    // It recovers.
    rack.enacted.insert(new, 0);
    rack.reports(15);
    assert!(rack.held(9) > 1 && rack.coordinator.moves() == (0, 0));
}

#[test]
fn nothing_is_moved_to_a_node_that_goes() {
    let mut rack = Rack::new(3, POLICY);
    rack.reports(5);
    let new = ServerId(9);
    rack.add(new, "");
    rack.handle(Input::Tick);
    // It has a lease, and nothing yet.
    let directory = rack.coordinator.directory();
    assert!(directory.micro_shards().iter().any(|it| directory.target(it) == Some(new)));
    let none = (MoveId { micro_shard: MicroShard(0), number: 0 }, Progress::Failed);
    let report = rack.said(9, 1, none);
    rack.coordinator.hear(rack.now_us, report, &mut Vec::new());
    rack.command(Command::Remove(new)).unwrap();
    rack.command(Command::Balance).unwrap();
    rack.handle(Input::Tick);
    rack.handle(Input::Tick);
    assert_eq!((rack.coordinator.directory().node(new), rack.coordinator.moves()), (None, (0, 0)));
}

#[test]
fn a_hot_micro_shard_keeps_no_node_that_leaves() {
    let nodes = (0..4).map(|id| Node { unit: UnitId(id / 2), ..node(id) }).collect();
    let mut rack = Rack::of(nodes, POLICY);
    rack.coordinator.relief = Some(Relief::new(1_000_000, 0));
    let number = rack.places().position(|place| place.node == ServerId(0)).unwrap();
    let hot = MicroShard(number as u32);
    rack.hot = Some(hot);
    let has_copy = |rack: &Rack, id| rack.coordinator.directory().follower(hot, ServerId(id)).is_some();
    rack.reports(60);
    assert!(has_copy(&rack, 2));
    let leaving = ServerId(2);
    rack.command(Command::Drain(leaving)).unwrap();
    rack.reports(20);
    assert_eq!(rack.command(Command::Remove(leaving)), Ok(()));
    // Another node of its unit has the copy instead.
    rack.reports(20);
    assert!(has_copy(&rack, 3));
}

#[test]
fn a_further_copy_at_a_node_that_is_to_have_one_anyway_counts_once() {
    let mut rack = followed();
    let micro_shard = MicroShard(0);
    let wanted: Vec<_> = rack.coordinator.directory().wanted(micro_shard).collect();
    let mut relief = Relief::new(1_000_000, 0);
    relief.copies.extend(wanted.iter().map(|node| ((micro_shard, *node), 1.0)));
    rack.coordinator.relief = Some(relief);
    assert_eq!((wanted.len(), rack.coordinator.wanted(micro_shard).collect()), (1, wanted));
}
