//! Whoever makes roles change, and sees that they do.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    PATIENCE, WORKERS,
    common::{Client, TestServer},
};

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(2);

/// What changed while a run lasted.
#[derive(Debug, Default)]
pub(crate) struct Flips {
    /// Looks at which workers had other roles than at the look before.
    pub(crate) roles: u64,
    /// What the roles were.
    seen: HashMap<Vec<String>, u64>,
}

impl Flips {
    /// Looks after the roles while `run` runs.
    pub(crate) fn during<T>(server: &TestServer, run: impl FnOnce() -> T) -> (T, Self) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let looking = scope.spawn(|| Self::look(server, &is_over));
            let result = {
                // Also where `run` panics.
                let _over = Over(&is_over);
                run()
            };
            (result, looking.join().unwrap())
        })
    }

    fn look(server: &TestServer, is_over: &AtomicBool) -> Self {
        let mut client = server.connect_for(PATIENCE);
        let (mut flips, mut last) = (Self::default(), Vec::new());
        while !is_over.load(Ordering::Relaxed) {
            let stats = stats(&mut client, " minos");
            let roles: Vec<_> =
                (0..WORKERS).map(|worker| stats[&format!("worker:{worker}:role")].clone()).collect();
            if roles != last {
                flips.roles += 1;
                last.clone_from(&roles);
            }
            *flips.seen.entry(roles).or_default() += 1;
            thread::sleep(PERIOD);
        }
        flips
    }
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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

/// Once its clients are gone, a server has neither connections nor pins nor anything in a ring.
pub(crate) fn assert_nothing_is_held(server: &TestServer) {
    let mut client = server.connect_for(PATIENCE);
    let end = Instant::now() + PATIENCE;
    loop {
        let rest = held(server, &mut client);
        if rest.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "still held: {rest:?}");
        thread::sleep(PERIOD);
    }
}

/// What is held, by its names.
fn held(server: &TestServer, client: &mut Client) -> Vec<(String, u64)> {
    let (minos, general) = (stats(client, " minos"), stats(client, ""));
    let rings = minos.iter().filter(|(name, _)| name.ends_with(":ring"));
    let mut held: Vec<_> = rings.map(|(name, items)| (name.clone(), items.parse().unwrap())).collect();
    held.push(("pins".into(), server.pinned()));
    // Less the one that asks.
    held.push(("connections".into(), general["curr_connections"].parse::<u64>().unwrap() - 1));
    held.retain(|&(_, count)| count > 0);
    held
}
