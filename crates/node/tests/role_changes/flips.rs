//! Changes roles and designs, and checks that they change.

use minos_testkit::Over;
use std::{
    collections::HashMap,
    ops::RangeInclusive,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use minos_node::{
    SwitchError,
    config::{Design, DispatchChoice},
};
use minos_sched::HANDOFF_WORKERS_MAX;
use rand::{RngExt, rngs::StdRng};

use crate::{
    PATIENCE, WORKERS,
    common::{Client, TestServer},
};

/// Shortest and longest time for which a design is in force.
const PERIOD_US: RangeInclusive<u64> = 500..=5000;
/// Time between two checks of held resources.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Changes in the course of a run.
#[derive(Debug, Default)]
pub(crate) struct Flips {
    /// Times that a worker took up another role.
    pub(crate) roles: u64,
    /// Times that all workers took up another design.
    pub(crate) switches: u64,
}

impl Flips {
    /// Puts one design after the other in force while `run` runs, and counts the changes of roles and
    /// designs.
    pub(crate) fn during<T>(server: &TestServer, random: StdRng, run: impl FnOnce() -> T) -> (T, Self) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let switching = scope.spawn(|| switch_over(server, random, &is_over));
            let result = {
                // Also where `run` panics.
                let _over = Over(&is_over);
                run()
            };
            let switches = switching.join().unwrap();
            let stats = stats(&mut server.connect(), " minos");
            let changes = (0..WORKERS).map(|worker| &stats[&format!("worker:{worker}:role_changes")]);
            (result, Self { roles: changes.map(|changes| changes.parse::<u64>().unwrap()).sum(), switches })
        })
    }
}

/// Switches to random designs until `is_over`; returns the number of switches.
fn switch_over(server: &TestServer, mut random: StdRng, is_over: &AtomicBool) -> u64 {
    let operator = server.server.operator();
    let mut switches = 0;
    while !is_over.load(Ordering::Relaxed) {
        let dispatch = Design::SERVED[random.random_range(0..Design::SERVED.len())];
        let handoff_workers = random.random_range(1..=HANDOFF_WORKERS_MAX);
        let choice = DispatchChoice { dispatch, handoff_workers };
        match operator.switch(choice) {
            // It will be: a worker has got no processor.
            Ok(()) | Err(SwitchError::Slow) => {
                assert_eq!(operator.dispatch(), choice);
                switches += 1;
            }
            Err(error) => panic!("{choice:?}: {error}"),
        }
        thread::sleep(Duration::from_micros(random.random_range(PERIOD_US)));
    }
    switches
}

/// One of the numbers in `stats minos`.
pub(crate) fn statistic(server: &TestServer, name: &str) -> u64 {
    stats(&mut server.connect(), " minos")[name].parse().unwrap()
}

/// A group of statistics, named behind a space.
pub(crate) fn stats(client: &mut Client, group: &str) -> HashMap<String, String> {
    client.send(format!("stats{group}\r\n").as_bytes());
    let mut stats = HashMap::new();
    loop {
        let line = client.line();
        let Some(stat) = line.strip_prefix("STAT ") else {
            assert_eq!(line, "END\r\n");
            return stats;
        };
        let (name, value) = stat.trim_end().split_once(' ').unwrap();
        stats.insert(name.to_owned(), value.to_owned());
    }
}

/// Checks that a server without clients has no connections, no pins and nothing in a ring.
pub(crate) fn assert_nothing_is_held(server: &TestServer) {
    let mut client = server.connect();
    let end = Instant::now() + PATIENCE;
    loop {
        let rest = held(server, &mut client);
        if rest.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "still held: {rest:?}");
        thread::sleep(LOOK_EVERY);
    }
}

/// The resources that are held, by name.
fn held(server: &TestServer, client: &mut Client) -> Vec<(String, u64)> {
    let (minos, general) = (stats(client, " minos"), stats(client, ""));
    let rings = minos.iter().filter(|(name, _)| name.ends_with(":ring"));
    let mut held: Vec<_> = rings.map(|(name, items)| (name.clone(), items.parse().unwrap())).collect();
    held.push(("pins".into(), server.pinned()));
    // Without the connection that asks.
    held.push(("connections".into(), general["curr_connections"].parse::<u64>().unwrap() - 1));
    held.retain(|&(_, count)| count > 0);
    held
}
