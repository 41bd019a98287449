//! Coordinators that etcd elects: one after another leads, whatever happens to them and to etcd.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use minos_testkit::{
    Server,
    history::{Event, Evictions, NEVER, Verdict, check_with},
};
use rand::{RngExt as _, rngs::StdRng};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    apart::Plan,
    kills::{KEYS, NODES, STATES_MAX, observe},
    up::Rack,
};

const LONG: Duration = Duration::from_secs(40);
/// What a coordinator answers that stands by.
const STANDS_BY: &str = "error: this coordinator does not lead";

/// A rack with two coordinators. A leader that waits for a processor for a few seconds leads on.
fn rack(etcd: &Server, lease: &str) -> Rack {
    let keep = format!("--etcd http://{} --etcd-ttl 5s", etcd.address());
    let common = format!("--rack-lease {lease}");
    let nodes = [0; NODES];
    let plan = Plan { nodes: &nodes, coordinators: 2, keep: &keep, common: &common, ..Plan::new("1s") };
    Rack::planned(tempfile::tempdir_in("/dev/shm").unwrap(), &plan)
}

/// The first of these that is something.
fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not in time");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The epoch of the directory at a coordinator that leads.
fn epoch(rack: &Rack, coordinator: usize) -> Option<u64> {
    let state = rack.processes().ask(coordinator, "status").ok()?;
    state.lines().next()?.strip_prefix("epoch ")?.parse().ok()
}

/// What `minos rack state` says to an operator who names these coordinators.
fn state(rack: &Rack, coordinators: &[usize]) -> String {
    let at = coordinators.iter().map(|number| rack.processes().at[*number].to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
    command.args(["rack", "state", "--coordinator", &at.collect::<Vec<_>>().join(",")]);
    command.args(["--rack", "local", "--rack-secret"]).arg(rack.folder.path().join("secret"));
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

fn leader(rack: &Rack) -> usize {
    wait(|| (0..2).find(|number| epoch(rack, *number).is_some()))
}

fn signal(rack: &Rack, coordinator: usize, signal: Signal) {
    let pid = rack.processes().coordinator(coordinator);
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Moves the micro-shards of the keys that clients use to random nodes.
fn begin_moves(rack: &Rack, coordinator: usize, random: &mut StdRng) {
    for key in 0..KEYS {
        let ask = |line: &str| rack.processes().ask(coordinator, line).unwrap();
        let place = ask(&format!("where kill{key}"));
        let micro_shard = place.split(' ').nth(1).unwrap();
        let said = ask(&format!("move {micro_shard} {}", random.random_range(0..NODES)));
        // A leader that has just been elected has not heard all nodes.
        let is_early = said.contains(" does not report ") || said.ends_with(" has no owner at the moment\n");
        assert!(said == "ok\n" || is_early, "{said}");
    }
}

/// Moves them, and waits until the directory has changed and nothing moves any more.
fn move_keys(rack: &Rack, coordinator: usize, random: &mut StdRng) {
    let first = epoch(rack, coordinator).unwrap();
    wait(|| {
        begin_moves(rack, coordinator, random);
        wait(|| {
            let state = rack.processes().ask(coordinator, "status").ok()?;
            state.contains("moves 0\nwaiting 0\n").then_some(())
        });
        (epoch(rack, coordinator)? > first + 1).then_some(())
    });
}

/// Whether each node executes a write.
fn writes(rack: &Rack) -> bool {
    let write =
        |node| rack.client(node).set(&format!("write{node}"), b"v").is_ok_and(|said| said == "STORED");
    (0..NODES).all(write)
}

fn check(history: &[Event]) {
    let unknown = history.iter().filter(|event| event.returned == NEVER).count();
    eprintln!("{} calls, {unknown} without a reply", history.len());
    assert_eq!(check_with(history, Evictions::Never, STATES_MAX), Verdict::Linearizable);
}

#[test]
fn another_coordinator_leads_when_one_ends() {
    let etcd = Server::etcd().unwrap();
    let mut rack = rack(&etcd, "20s");
    let mut last = 0;
    for how in [Signal::KILL, Signal::TERM] {
        let history = observe(&mut rack, how.as_raw() as u64, |rack, random| {
            let old = leader(rack);
            assert!(rack.processes().ask(1 - old, "status").unwrap().starts_with(STANDS_BY));
            begin_moves(rack, old, random);
            assert!(state(rack, &[1 - old, old]).starts_with("epoch "));
            assert!(state(rack, &[1 - old]).contains("this coordinator does not lead"));
            let known = epoch(rack, old).unwrap();
            assert!(known >= last);
            signal(rack, old, how);
            // Leases are longer than an election.
            wait(|| writes(rack).then_some(()));
            last = wait(|| epoch(rack, 1 - old));
            assert!(last >= known, "{last} after {known}");
            move_keys(rack, 1 - old, random);
            wait(|| writes(rack).then_some(()));
            rack.processes_mut().coordinate_again(old);
        });
        check(&history);
    }
}

#[test]
fn a_leader_that_was_stopped_leads_no_more() {
    let etcd = Server::etcd().unwrap();
    let mut rack = rack(&etcd, "1s");
    let history = observe(&mut rack, 1, |rack, random| {
        let old = leader(rack);
        begin_moves(rack, old, random);
        signal(rack, old, Signal::STOP);
        let new = 1 - old;
        wait(|| epoch(rack, new));
        // All that the old one has granted is over.
        wait(|| writes(rack).then_some(()));
        thread::sleep(Duration::from_millis(1500));
        let known = epoch(rack, new).unwrap();
        signal(rack, old, Signal::CONT);
        let said =
            wait(|| rack.processes().ask(old, "status").ok().filter(|said| said.starts_with(STANDS_BY)));
        assert!(
            said.contains(&format!("; {} does", rack.processes().at[new]))
                || said == format!("{STANDS_BY}\n")
        );
        move_keys(rack, new, random);
        let newest = epoch(rack, new).unwrap();
        assert!(newest > known);
        wait(|| writes(rack).then_some(()));
        // It leads again once it is elected, and knows what happened meanwhile.
        signal(rack, new, Signal::KILL);
        assert!(wait(|| epoch(rack, old)) >= newest);
        wait(|| writes(rack).then_some(()));
        move_keys(rack, old, random);
    });
    check(&history);
}

#[test]
fn without_etcd_nodes_serve_until_their_leases_end() {
    let mut etcd = Server::etcd().unwrap();
    let mut rack = rack(&etcd, "1s");
    let history = observe(&mut rack, 1, |rack, random| {
        let old = leader(rack);
        move_keys(rack, old, random);
        let known = epoch(rack, old).unwrap();
        etcd.kill().unwrap();
        wait(|| writes(rack).then_some(()));
        wait(|| (0..2).all(|number| epoch(rack, number).is_none()).then_some(()));
        wait(|| (!writes(rack)).then_some(()));
        etcd.start_again().unwrap();
        let new = leader(rack);
        assert!(epoch(rack, new).unwrap() >= known);
        wait(|| writes(rack).then_some(()));
        move_keys(rack, new, random);
    });
    check(&history);
}
