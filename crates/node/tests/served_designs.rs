//! The differences between the designs, as a server's counters show them.

mod common;

use std::{
    io::{BufRead, Read},
    thread,
    time::{Duration, Instant},
};

use common::{Client, TestServer};
use minos_engine::StoreMode;
use minos_node::{
    ServerConfig, StatsGroup, SwitchError,
    config::{Design, DispatchChoice, InvalidOption},
};
use minos_sched::Threshold;

/// Turns of a dialogue with the server.
const TURNS: usize = 500;
/// Receive calls after which a visit to a connection ends.
const RECEIPTS_A_VISIT_MAX: usize = 8;

fn server(dispatch: Design, workers: usize) -> TestServer {
    let mut config = ServerConfig::new(workers);
    config.dispatch = dispatch;
    config.epoch = Duration::from_millis(5);
    config.control.threshold = Threshold::Static(1000);
    TestServer::with_memory::<StoreMode>(64 << 20, config)
}

fn choice(dispatch: Design) -> DispatchChoice {
    DispatchChoice { dispatch, handoff_workers: 1 }
}

impl TestServer {
    fn count(&self, worker: usize, name: &str) -> u64 {
        let wanted = format!("worker:{worker}:{name}");
        let mut found = None;
        self.server.operator().stats(StatsGroup::Minos, &mut |name, value| {
            if name == wanted {
                found = value.to_string().parse().ok();
            }
        });
        found.unwrap_or_else(|| panic!("no counter {wanted}"))
    }
}

/// Stores and reads back a value of `bytes` bytes, again and again.
fn talk(mut client: Client, key: &str, bytes: usize, turns: usize) {
    let value = vec![b'v'; bytes];
    for _ in 0..turns {
        let set = [format!("set {key} 0 0 {bytes}\r\n").as_bytes(), &value, b"\r\n"].concat();
        client.send(&set);
        assert_eq!(client.line(), "STORED\r\n");
        client.send(format!("get {key}\r\n").as_bytes());
        assert_eq!(client.line(), format!("VALUE {key} 0 {bytes}\r\n"));
        let mut body = vec![0; bytes + 2];
        client.reader.read_exact(&mut body).unwrap();
        assert_eq!(body[..bytes], value);
        assert_eq!(client.line(), "END\r\n");
    }
}

/// Repeats until it is so, for a while.
fn repeat_until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() && begin.elapsed() < Duration::from_secs(60) {}
}

/// Clients that talk at the same time.
fn crowd(server: &TestServer, clients: usize, bytes: usize) {
    thread::scope(|scope| {
        for number in 0..clients {
            let client = server.connect();
            scope.spawn(move || talk(client, &format!("key{number}"), bytes, TURNS / clients));
        }
    });
}

/// The time in which a worker works is counted; the time in which it waits is not.
#[test]
fn workers_count_the_time_that_they_work() {
    let workers = 3;
    for dispatch in Design::SERVED {
        let begun = Instant::now();
        let server = server(dispatch, workers);
        let time = |what| (0..workers).map(|worker| server.count(worker, what)).sum::<u64>();
        talk(server.connect(), "large", 1 << 20, 10);
        // The last turn is counted when the next one begins.
        let is_counted = |_| {
            thread::sleep(Duration::from_millis(2));
            let (busy_ns, large_ns) = (time("busy_ns"), time("large_ns"));
            large_ns > 0 && busy_ns > large_ns
        };
        assert!((0..500).any(is_counted), "{dispatch}: {} ns, {} ns", time("busy_ns"), time("large_ns"));
        let (busy_ns, all_ns) = (time("busy_ns"), begun.elapsed().as_nanos() as u64);
        assert!(busy_ns < all_ns * workers as u64, "{dispatch}: {busy_ns} of {all_ns} ns");
    }
}

#[test]
fn one_who_hands_off_serves_nothing() {
    let server = server(Design::HandOff, 3);
    let clients = 6;
    let taken = |worker| server.count(worker, "queued_taken");
    // A worker may get no processor while the others serve a whole crowd.
    repeat_until(|| {
        crowd(&server, clients, 100);
        taken(1) > 0 && taken(2) > 0
    });
    // Each turn has two requests, each of which takes a receive call, and a visit has a limited number of
    // these.
    let visits_min = (2 * (TURNS / clients) * clients / RECEIPTS_A_VISIT_MAX) as u64;
    let (queued, taken) = (server.count(0, "queued"), server.count(0, "queued_taken"));
    assert!(queued >= visits_min && taken == 0, "{queued} {taken}");
    let others = [1, 2].map(|worker| (server.count(worker, "queued"), server.count(worker, "queued_taken")));
    assert!(others.iter().all(|&(queued, taken)| queued == 0 && taken > 0), "{others:?}");
    assert!(others.iter().map(|(_, taken)| taken).sum::<u64>() >= visits_min, "{others:?}");
}

/// Lets clients talk whose connections are all in the first of two workers' RX queues.
fn crowd_at_the_first(server: &TestServer) {
    // Connections are dealt in turn; those of the second worker are closed again.
    let clients: Vec<_> = (0..16).map(|_| server.connect()).collect();
    let clients = clients.into_iter().step_by(2);
    thread::scope(|scope| {
        for (number, client) in clients.enumerate() {
            scope.spawn(move || talk(client, &format!("key{number}"), 100, TURNS));
        }
    });
}

#[test]
fn nobody_is_idle_while_others_have_more_than_they_can_do() {
    let server = server(Design::Stealing, 2);
    let stolen = || server.count(1, "queued_taken_elsewhere") + server.count(1, "helped");
    let taken = || server.count(0, "queued_taken");
    // A worker may get no processor while the other serves a whole crowd.
    repeat_until(|| {
        crowd_at_the_first(&server);
        stolen() > 0 && taken() > 0
    });
    assert!(stolen() > 0);
    assert!(taken() > 0);
}

#[test]
fn small_workers_help_each_other_if_they_may() {
    for may in [true, false] {
        let mut config = ServerConfig::new(2);
        config.steal = may;
        let server = TestServer::with_memory::<StoreMode>(64 << 20, config);
        let has_helped = || server.count(1, "helped") > 0 && server.count(1, "lent_taken") > 0;
        for _ in 0..if may { 200 } else { 1 } {
            crowd_at_the_first(&server);
            if has_helped() {
                break;
            }
        }
        assert_eq!(has_helped(), may);
        assert!(may || server.count(1, "helped") == 0);
    }
}

#[test]
fn large_workers_help_with_small_requests() {
    let server = server(Design::WorkConserving, 2);
    let helped = || server.count(1, "helped");
    // Until the first plan with roles is in force and a large worker has found work.
    repeat_until(|| {
        crowd(&server, 8, 100);
        helped() > 0
    });
    assert!(helped() > 0);
}

#[test]
fn nobody_is_idle_while_large_requests_wait() {
    let server = server(Design::WorkConserving, 3);
    let relieved = || (0..3).map(|worker| server.count(worker, "relieved")).sum::<u64>();
    for _ in 0..200 {
        crowd(&server, 8, 300_000);
        if relieved() > 0 {
            break;
        }
    }
    assert!(relieved() > 0);
}

#[test]
fn designs_that_cannot_run_are_refused() {
    let server = server(Design::SizeAware, 1);
    let lone = server.server.operator();
    let refusal = |dispatch| lone.switch(choice(dispatch)).unwrap_err().to_string();
    assert!(refusal(Design::HandOff).contains("hand"), "{}", refusal(Design::HandOff));
    assert!(matches!(
        lone.switch(choice(Design::HandOff)),
        Err(SwitchError::Option(InvalidOption::Control(_)))
    ));
    for dispatch in Design::ALL.into_iter().filter(|design| !design.is_served()) {
        let refused = lone.switch(choice(dispatch)).unwrap_err();
        assert_eq!(refused, SwitchError::Option(InvalidOption::OnlySimulated(dispatch)));
        for part in [dispatch.name(), "minos sim dispatch", "work-conserving"] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
    }
}

/// Every worker that finds a large request, helpers included, serves it in slices.
#[test]
fn size_aware_designs_serve_no_large_request_in_one_go() {
    for dispatch in [Design::SizeAware, Design::WorkConserving] {
        let server = server(dispatch, 3);
        thread::scope(|scope| {
            for number in 0..8 {
                let (client, bytes) = (server.connect(), if number % 2 == 0 { 100_000 } else { 100 });
                scope.spawn(move || talk(client, &format!("key{number}"), bytes, TURNS / 5));
            }
        });
        let sum = |name| (0..3).map(|worker| server.count(worker, name)).sum::<u64>();
        assert!(sum("large_completed") > 0, "{dispatch}");
        assert_eq!(sum("large_inline"), 0, "{dispatch}");
        // Values lent for sending are released.
        assert!((0..6000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            server.pinned() == 0
        }));
    }
}

#[test]
fn a_switch_is_seen_by_who_asks_and_by_no_connection() {
    let server = server(Design::SizeAware, 3);
    let operator = server.server.operator();
    let mut client = server.connect();
    // The first design is in force at the start, and again at the end.
    for &dispatch in Design::SERVED[1..].iter().chain(&Design::SERVED[..1]) {
        operator.switch(choice(dispatch)).unwrap();
        assert_eq!(operator.dispatch(), choice(dispatch));
        client.send(b"stats settings\r\n");
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            client.reader.read_line(&mut line).unwrap();
            if line == "END\r\n" {
                break;
            }
            lines.push(line);
        }
        assert!(lines.contains(&format!("STAT dispatch {dispatch}\r\n")), "{dispatch}: {lines:?}");
    }
}

#[test]
fn a_server_that_stops_lets_nobody_wait() {
    let server = server(Design::SizeAware, 2);
    let operator = server.server.operator();
    drop(server);
    assert_eq!(operator.switch(choice(Design::KeyHash)), Err(SwitchError::Stopping));
}
