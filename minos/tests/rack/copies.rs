//! Nodes that are lost while other units have copies of what they own.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use minos_testkit::{Client, Over};
use rustix::process::Signal;

use crate::{
    kills::{is_copied_again, with_mishaps},
    up::{PATIENCE, Rack, SHORT_LEASE, insist, stat, within},
};

const KEYS: usize = 300;
/// Nodes are late on purpose in these tests.
const TIMEOUT: &str = "--rack-timeout=1s";
/// Times that a test is tried in which more nodes may be lost than it wants, on a machine that lets them wait.
const TRIES: usize = 5;

/// A rack of two units, each with copies of the other.
fn rack(acknowledge: &str) -> Rack {
    let copies = ["--unit-size", "2", "--copies", "2", SHORT_LEASE];
    let options = [&copies[..], &["--", "--acknowledge", acknowledge, TIMEOUT]].concat();
    let rack = Rack::up(4, &options);
    rack.wait_until_copied();
    rack
}

fn value(key: usize, turn: usize) -> Vec<u8> {
    let bytes = [0, 8, 100, 3000, 70_000, 400_000][key % 6];
    (0..bytes).map(|at| (key * 31 + turn * 7 + at) as u8).collect()
}

fn store(client: &mut Client, key: usize, turn: usize) {
    insist(|| client.set(&format!("c{key}"), &value(key, turn)), |said| said == "STORED");
}

fn find(client: &mut Client, key: usize, turn: usize) {
    look(client, key, turn).unwrap();
}

/// Why a key has not this turn's value.
fn look(client: &mut Client, key: usize, turn: usize) -> Result<(), String> {
    let no_answer = || format!("c{key}: no answer");
    // An error about a node ends in another way than a miss, which counts.
    let is_told = |said: &String| !said.starts_with("SERVER_ERROR");
    let said = within(PATIENCE / 2, || client.ask(&format!("mg c{key} s")), is_told).ok_or_else(no_answer)?;
    if said != format!("HD s{}", value(key, turn).len()) {
        return Err(format!("c{key}: {said}"));
    }
    let found = within(PATIENCE / 2, || client.get(&format!("c{key}")), |_| true).ok_or_else(no_answer)?;
    let is_it = found.is_some_and(|found| found.value == value(key, turn));
    is_it.then_some(()).ok_or_else(|| format!("c{key} in turn {turn}"))
}

#[test]
fn a_stopped_node_is_replaced_and_finds_its_keys_elsewhere() {
    let rack = rack("copies");
    let mut clients: Vec<Client> = [0, 2, 3].map(|node| rack.client(node)).into();
    (0..KEYS).for_each(|key| store(&mut clients[key % 3], key, 0));
    rack.signal(1, Signal::STOP);
    // At most the write that waits for its copy at the stopped node, or for that node, comes late.
    (0..KEYS).for_each(|key| find(&mut clients[key % 3], key, 0));
    (0..KEYS).for_each(|key| store(&mut clients[key % 3], key, 1));
    assert!(rack.operate("status").contains("node 1 unit 0 member silent epoch "));
    rack.signal(1, Signal::CONT);
    let mut back = rack.client(1);
    (0..KEYS).for_each(|key| find(&mut back, key, 1));
    rack.wait_until_copied();
    insist(|| Ok(rack.operate("status")), |state| !state.contains("node 1 unit 0 member alive epoch 0"));
    let balanced = || {
        // Again, if a move was given up.
        if rack.operate("status").contains("moves 0\nwaiting 0\n") {
            assert_eq!(rack.operate("balance"), "ok\n");
        }
        back.stats("rack")
    };
    insist(balanced, |stats| {
        stats.iter().any(|(name, count)| name == "node:1:micro_shards" && count.parse::<u32>().unwrap() > 800)
    });
    (0..KEYS).for_each(|key| find(&mut back, key, 1));
}

#[test]
fn a_node_without_its_memory_is_replaced() {
    assert!((0..TRIES).any(|_| is_replaced_without_its_memory()));
}

/// False if a busy machine has let another node lose its lease, beside that which is lost on purpose: there is one copy.
fn is_replaced_without_its_memory() -> bool {
    let mut rack = rack("copies");
    let coordinators = rack.coordinators();
    let mut clients: Vec<Client> = [0, 2, 3].map(|node| rack.client(node)).into();
    (0..KEYS).for_each(|key| store(&mut clients[key % 3], key, 0));
    // When node 2 is lost, the copies that were at node 1 are complete again.
    [(1, [0, 2, 3]), (2, [0, 1, 3])].into_iter().all(|(lost, others)| {
        let (looked, mishaps) = with_mishaps(&coordinators, || {
            rack.lose(lost, false);
            let mut clients = others.map(|node| rack.client(node));
            let looked = (0..KEYS).try_for_each(|key| look(&mut clients[key % 3], key, 0));
            looked.and_then(|()| is_copied_again(&rack).then_some(()).ok_or_else(|| rack.operate("status")))
        });
        eprintln!("something went wrong at {mishaps:?}: {looked:?}");
        assert!(looked.is_ok() || mishaps.len() > 1, "{looked:?}");
        looked.is_ok()
    })
}

/// An owner is killed while its followers have yet to fetch what has changed there. It begins anew without its items before
/// they give up.
#[test]
fn a_copy_outlives_an_owner_that_begins_anew() {
    assert!((0..TRIES).any(|_| outlives_its_owner()));
}

/// As [`is_replaced_without_its_memory`].
fn outlives_its_owner() -> bool {
    let mut rack = rack("copies");
    let coordinators = rack.coordinators();
    let (mut client, mut owner) = (rack.client(0), rack.client(1));
    let is_owned = |key: &String| rack.operate(&format!("where {key}")).ends_with("node 1\n");
    let keys: Vec<String> = (0..).map(|number| format!("own{number}")).filter(is_owned).take(50).collect();
    for key in &keys {
        insist(|| client.set(key, b"before"), |said| said == "STORED");
    }
    let ((is_copied, gone), mishaps) = with_mishaps(&coordinators, || {
        [2, 3].into_iter().for_each(|node| rack.signal(node, Signal::STOP));
        // Nobody waits for replies to these.
        let changes: String = keys.iter().map(|key| format!("set {key} 0 0 5\r\nafter\r\n")).collect();
        owner.send(changes).unwrap();
        // The followers are told of the changes, but hear of them later.
        thread::sleep(Duration::from_millis(50));
        std::fs::remove_file(rack.folder.path().join("node-1.region")).unwrap();
        rack.signal(1, Signal::KILL);
        [2, 3].into_iter().for_each(|node| rack.signal(node, Signal::CONT));
        rack.wait_for_restart(1);
        let is_copied = is_copied_again(&rack);
        // A node that has lost its lease for a moment closes connections.
        let look = |key: &&String| within(PATIENCE / 4, || rack.client(0).get(key), |_| true).flatten();
        let gone = if is_copied { keys.iter().filter(|key| look(key).is_none()).count() } else { keys.len() };
        (is_copied, gone)
    });
    eprintln!("something went wrong at {mishaps:?}: {gone} of {} keys are gone", keys.len());
    // Followers that were given up before the kill have nothing to replace the items with, which are waited for.
    assert!(gone == 0 || !is_copied || mishaps.len() > 1, "{gone} gone: {}", rack.operate("status"));
    is_copied && gone == 0
}

#[test]
fn a_copy_that_is_not_waited_for_says_how_far_it_is_behind() {
    let rack = rack("owner");
    let mut client = rack.client(0);
    (0..KEYS).for_each(|key| store(&mut client, key, 0));
    // A node may lose its lease before the test has looked at it.
    assert!((0..TRIES).any(|_| is_told_to_be_behind(&rack, &mut client)));
}

/// True if a write waits for no stopped node, and these are said to be behind until they go on.
fn is_told_to_be_behind(rack: &Rack, client: &mut Client) -> bool {
    let of_followers =
        |client: &mut Client, what| [2, 3].map(|node| stat(client, &format!("follower:{node}:{what}")));
    insist(|| Ok(of_followers(client, "follows")), |follows| follows.iter().all(|&count| count > 0));
    let key = rack_key(rack, client);
    [2, 3].into_iter().for_each(|node| rack.signal(node, Signal::STOP));
    let is_stored = client.set(&key, b"later").unwrap() == "STORED";
    let is_behind = (0..50).any(|_| {
        thread::sleep(Duration::from_millis(2));
        of_followers(client, "behind_keys").iter().sum::<u64>() > 0
    });
    [2, 3].into_iter().for_each(|node| rack.signal(node, Signal::CONT));
    rack.wait_until_copied();
    insist(|| Ok(of_followers(client, "behind_keys")), |behind| behind.iter().sum::<u64>() == 0);
    is_stored && is_behind
}

/// A key that node 0 owns.
fn rack_key(rack: &Rack, client: &mut Client) -> String {
    let is_own =
        |key: &String| rack.operate(&format!("where {key}")).ends_with("node 0\n") && client.get(key).is_ok();
    (0..).map(|number| format!("own{number}")).find(is_own).expect("node 0 owns some")
}

/// What another unit owns is read here, and is no older than was asked for.
#[test]
fn a_copy_is_read_while_it_is_fresh() {
    assert!((0..TRIES).any(|_| is_read_while_it_is_fresh()), "no copy was read");
}

/// True if most reads went to the copy, and none once its owner was stopped: unless a node was lost meanwhile.
fn is_read_while_it_is_fresh() -> bool {
    const TURNS: u64 = 200;
    const OLD: Duration = Duration::from_millis(300);
    let options = ["--unit-size", "2", "--copies", "2", "--", "--read-copies", "300ms", TIMEOUT];
    let rack = Rack::up(4, &options);
    rack.wait_until_copied();
    let (mut owner, mut other) = (rack.client(0), rack.client(2));
    let key = rack_key(&rack, &mut owner);
    let copied = |client: &mut Client| stat(client, "copy_reads");
    // Node 2 or 3 has the copy.
    let before = copied(&mut other);
    insist(|| other.get(&key), |_| true);
    if copied(&mut other) == before {
        other = rack.client(3);
    }
    let mut written: Vec<(Instant, u64)> = Vec::new();
    for turn in 0..TURNS {
        insist(|| owner.set(&key, turn.to_string().as_bytes()), |said| said == "STORED");
        written.push((Instant::now(), turn));
        let asked = Instant::now();
        let found = insist(|| other.get(&key), |_| true)
            .map_or(0, |item| String::from_utf8(item.value).unwrap().parse::<u64>().unwrap());
        let due = written.iter().rev().find(|(at, _)| *at + OLD < asked).map_or(0, |(_, turn)| *turn);
        assert!((due..=turn).contains(&found), "{found} in turn {turn}, at least {due}");
        thread::sleep(Duration::from_millis(5));
    }
    let copy_reads = copied(&mut other);
    eprintln!("{copy_reads} of {TURNS} reads at the copy");
    // An owner that says nothing lets it become too old: the question goes to the owner, which is late.
    rack.signal(0, Signal::STOP);
    let mut said = std::iter::repeat_with(|| other.ask(&format!("mg {key} s")).unwrap()).take(10_000);
    let is_late = said.any(|said| said.starts_with("SERVER_ERROR node 0 of the rack is late"));
    rack.signal(0, Signal::CONT);
    copy_reads > TURNS / 2 && is_late
}

/// A key that is read all the time gets a copy in the other unit.
#[test]
fn a_hot_key_is_copied() {
    let options = ["--unit-size", "2", "--relieve", "1500ms", "--", "--read-copies", "300ms", TIMEOUT];
    let rack = Rack::up(4, &options);
    let mut clients: Vec<Client> = (0..4).map(|node| rack.client(node)).collect();
    let key = rack_key(&rack, &mut clients[0]);
    insist(|| clients[0].set(&key, b"hot"), |said| said == "STORED");
    let (begin, is_over) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        // They keep node 0 busy.
        for _ in 0..3 {
            let (keys, is_over, rack) = (vec![key.clone(); 500], &is_over, &rack);
            scope.spawn(move || {
                let mut client = rack.client(0);
                while !is_over.load(Relaxed) {
                    match client.get_many(&keys) {
                        Ok(found) => assert!(found.iter().all(Option::is_some)),
                        // A node that waits for its lease is late.
                        Err(_) => client = rack.client(0),
                    }
                }
            });
        }
        let over = Over(&is_over);
        let mut is_copied = false;
        while !is_copied && begin.elapsed() < PATIENCE {
            for client in &mut clients {
                assert_eq!(insist(|| client.get(&key), |_| true).unwrap().value, b"hot");
                is_copied |= stat(client, "copy_reads") > 0;
            }
            thread::sleep(Duration::from_millis(20));
        }
        drop(over);
        assert!(is_copied, "{}", rack.operate("status"));
    });
    assert!(rack.operate("status").contains("relieved "));
}
