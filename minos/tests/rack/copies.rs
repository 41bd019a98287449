//! Nodes that are lost while other units have copies of what they own.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use minos_testkit::Client;
use rustix::process::Signal;

use crate::up::{Rack, stat};

const KEYS: usize = 300;
const PATIENCE: Duration = Duration::from_secs(20);

/// A rack of two units, each with copies of the other.
fn rack(acknowledge: &str) -> Rack {
    let rack = Rack::up(4, &["--unit-size", "2", "--copies", "2", "--", "--acknowledge", acknowledge]);
    rack.wait_until_copied();
    rack
}

fn value(key: usize, turn: usize) -> Vec<u8> {
    let bytes = [0, 8, 100, 3000, 70_000, 400_000][key % 6];
    (0..bytes).map(|at| (key * 31 + turn * 7 + at) as u8).collect()
}

/// Repeats what fails because a node is lost and not yet replaced.
fn insist<T>(mut ask: impl FnMut() -> std::io::Result<T>, is_so: impl Fn(&T) -> bool) -> T {
    let begin = Instant::now();
    loop {
        match ask() {
            Ok(answer) if is_so(&answer) => return answer,
            _ if begin.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(2)),
            _ => panic!("no answer"),
        }
    }
}

fn store(client: &mut Client, key: usize, turn: usize) {
    insist(|| client.set(&format!("c{key}"), &value(key, turn)), |said| said == "STORED");
}

fn find(client: &mut Client, key: usize, turn: usize) {
    // An error about a node ends in another way than a miss, which counts.
    let found = insist(|| client.ask(&format!("mg c{key} s")), |said| !said.starts_with("SERVER_ERROR"));
    assert_eq!(found, format!("HD s{}", value(key, turn).len()), "c{key}");
    let found = insist(|| client.get(&format!("c{key}")), |_| true);
    assert!(found.unwrap().value == value(key, turn), "c{key} in turn {turn}");
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
    assert_eq!(rack.operate("balance"), "ok\n");
    insist(|| Ok(rack.operate("status")), |state| !state.contains("node 1 unit 0 member alive epoch 0"));
    insist(
        || back.stats("rack"),
        |stats| {
            stats
                .iter()
                .any(|(name, count)| name == "node:1:micro_shards" && count.parse::<u32>().unwrap() > 800)
        },
    );
    (0..KEYS).for_each(|key| find(&mut back, key, 1));
}

#[test]
fn a_node_without_its_memory_is_replaced() {
    let mut rack = rack("copies");
    let mut clients: Vec<Client> = [0, 2, 3].map(|node| rack.client(node)).into();
    (0..KEYS).for_each(|key| store(&mut clients[key % 3], key, 0));
    rack.lose(1, false);
    (0..KEYS).for_each(|key| find(&mut clients[key % 3], key, 0));
    rack.wait_until_copied();
    // The copies that were at it are complete again.
    rack.lose(2, false);
    let mut clients: Vec<Client> = [0, 1, 3].map(|node| rack.client(node)).into();
    (0..KEYS).for_each(|key| find(&mut clients[key % 3], key, 0));
}

#[test]
fn a_copy_that_is_not_waited_for_says_how_far_it_is_behind() {
    let rack = rack("owner");
    let mut client = rack.client(0);
    (0..KEYS).for_each(|key| store(&mut client, key, 0));
    for node in [2, 3] {
        assert!(stat(&mut client, &format!("follower:{node}:follows")) > 0);
        rack.signal(node, Signal::STOP);
    }
    // No write waits.
    let key = rack_key(&rack, &mut client);
    assert_eq!(client.set(&key, b"later").unwrap(), "STORED");
    insist(
        || Ok([2, 3].map(|node| stat(&mut client, &format!("follower:{node}:behind_keys")))),
        |it| it.iter().sum::<u64>() > 0,
    );
    [2, 3].into_iter().for_each(|node| rack.signal(node, Signal::CONT));
    rack.wait_until_copied();
    insist(
        || Ok([2, 3].map(|node| stat(&mut client, &format!("follower:{node}:behind_keys")))),
        |it| it.iter().sum::<u64>() == 0,
    );
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
    const TURNS: u64 = 200;
    const OLD: Duration = Duration::from_millis(300);
    let options = ["--unit-size", "2", "--copies", "2", "--", "--read-copies", "300ms"];
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
        assert_eq!(owner.set(&key, turn.to_string().as_bytes()).unwrap(), "STORED");
        written.push((Instant::now(), turn));
        let asked = Instant::now();
        let found = other
            .get(&key)
            .unwrap()
            .map_or(0, |item| String::from_utf8(item.value).unwrap().parse::<u64>().unwrap());
        let due = written.iter().rev().find(|(at, _)| *at + OLD < asked).map_or(0, |(_, turn)| *turn);
        assert!((due..=turn).contains(&found), "{found} in turn {turn}, at least {due}");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(copied(&mut other) > TURNS / 2, "{}", copied(&mut other));
    // An owner that says nothing lets it become too old: the question goes to the owner, which is late.
    rack.signal(0, Signal::STOP);
    let said = insist(|| other.ask(&format!("mg {key} s")), |said| !said.starts_with("HD"));
    assert!(said.starts_with("SERVER_ERROR node 0 of the rack is late"), "{said}");
    rack.signal(0, Signal::CONT);
}

/// A key that is read all the time gets a copy in the other unit.
#[test]
fn a_hot_key_is_copied() {
    let options = ["--unit-size", "2", "--relieve", "1500ms", "--", "--read-copies", "300ms"];
    let rack = Rack::up(4, &options);
    let mut clients: Vec<Client> = (0..4).map(|node| rack.client(node)).collect();
    let key = rack_key(&rack, &mut clients[0]);
    assert_eq!(clients[0].set(&key, b"hot").unwrap(), "STORED");
    let (begin, is_over) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        // They keep node 0 busy.
        for mut client in [0; 3].map(|node| rack.client(node)) {
            let (keys, is_over) = (vec![key.clone(); 500], &is_over);
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    assert!(client.get_many(&keys).unwrap().iter().all(Option::is_some));
                }
            });
        }
        let mut is_copied = false;
        while !is_copied && begin.elapsed() < PATIENCE {
            for client in &mut clients {
                assert_eq!(client.get(&key).unwrap().unwrap().value, b"hot");
                is_copied |= stat(client, "copy_reads") > 0;
            }
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Relaxed);
        assert!(is_copied, "{}", rack.operate("status"));
    });
    assert!(rack.operate("status").contains("relieved "));
}
