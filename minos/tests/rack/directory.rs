//! A directory that is lost: the coordinator must not begin another one for nodes that know the last.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use minos_testkit::{Client, Over};
use rustix::process::Signal;

use crate::up::{Rack, SHORT_LEASE, insist};

const KEYS: usize = 8;

fn key(number: usize) -> String {
    format!("key{number}")
}

/// Reads at a node until it is over; returns how many keys were said to be gone. Errors are no answers.
fn misses(at: SocketAddr, is_over: &AtomicBool) -> usize {
    let (mut count, mut number) = (0, 0);
    while !is_over.load(Relaxed) {
        let Ok(mut client) = Client::connect(at) else { continue };
        while !is_over.load(Relaxed) {
            number += 1;
            let Ok(found) = client.get(&key(number % KEYS)) else { break };
            count += usize::from(found.is_none());
        }
    }
    count
}

/// A coordinator without its directory ends, whichever node it hears first, and no node takes its word.
fn is_refused(rack: &mut Rack) {
    let is_over = AtomicBool::new(false);
    let nodes: Vec<_> = rack.nodes.iter().map(|(at, _)| *at).collect();
    thread::scope(|scope| {
        let readers: Vec<_> = nodes.iter().map(|at| scope.spawn(|| misses(*at, &is_over))).collect();
        let over = Over(&is_over);
        let said = rack.processes_mut().coordinate_in_vain();
        assert!(said.contains("directory has epoch 1, and node 0 knows epoch "), "{said}");
        drop(over);
        let misses: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        assert_eq!(misses, [0, 0]);
    });
}

/// Before, the coordinator began a new directory: two nodes answered for the same keys.
#[test]
fn a_coordinator_that_has_lost_its_directory_ends() {
    let mut rack = Rack::apart_with(2, "300ms", SHORT_LEASE);
    let [directory, kept] = ["directory", "kept"].map(|name| rack.folder.path().join(name));
    assert_eq!(rack.operate("drain 1"), "ok\n");
    let is_drained = |state: &String| {
        state.lines().any(|line| line.starts_with("node 1 ") && line.contains(" micro-shards 0 "))
    };
    insist(|| Ok(rack.operate("status")), is_drained);
    for number in 0..KEYS {
        insist(|| rack.client(0).set(&key(number), b"value"), |said| said == "STORED");
    }
    rack.processes_mut().kill_coordinator(0);
    std::fs::rename(&directory, &kept).unwrap();
    // A node that has nothing, beside one that goes by the last directory.
    rack.signal(1, Signal::KILL);
    rack.wait_for_restart(1);
    is_refused(&mut rack);
    // Both have begun anew: what they know is in their memory.
    for node in 0..2 {
        rack.signal(node, Signal::KILL);
        rack.wait_for_restart(node);
    }
    is_refused(&mut rack);
    std::fs::rename(&kept, &directory).unwrap();
    rack.processes_mut().coordinate_again(0);
    for number in 0..2 * KEYS {
        let found = insist(|| rack.client(number % 2).get(&key(number / 2)), |_| true);
        assert_eq!(found.map(|found| found.value).as_deref(), Some(&b"value"[..]));
    }
}
