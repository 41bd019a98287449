//! Tests of the driver against datagram servers in the test's process.

use std::{collections::HashMap, thread, time::Duration};

use minos_workload::{
    Arrivals, DatagramOptions, Pace, QueueBy, Report, RunConfig, Shape, Target, Workload, load, run,
};

mod fake_native;
use fake_native::{FakeNative, blocking_socket};

fn config(target: &str) -> RunConfig {
    RunConfig {
        target: target.parse::<Target>().unwrap(),
        arrivals: Arrivals::Open { rate: 1000.0 },
        pace: Pace::Sleep,
        duration: Duration::from_millis(400),
        warmup: Duration::from_millis(100),
        // The drain ends with the last answer, so a long limit costs nothing.
        drain: Duration::from_secs(10),
        threads: 1,
        connections: 3,
        keys_per_get: 1,
        check_contents: true,
        cpus: Vec::new(),
        server_pid: None,
        // Long, because nothing may be lost on a busy machine.
        receive_buffer: None,
        datagrams: DatagramOptions { timeout: Duration::from_secs(8), ..DatagramOptions::default() },
    }
}

fn native(server: &FakeNative) -> RunConfig {
    config(&format!("minos://{}", server.address))
}

fn workload(name: &str) -> Workload {
    let shape = Shape {
        keys: Some(300),
        large_keys: Some(5),
        large_percent: Some(2.0),
        get_ratio: Some(0.8),
        large_max: Some(200_000),
        ..Shape::default()
    };
    Workload::open(name, &shape, 1).unwrap()
}

/// A run with an answer in its window, which a process that stands still for a moment may sleep through.
fn run_answered(config: &RunConfig, workload: &Workload) -> Report {
    let mut reports = std::iter::repeat_with(|| run(config, workload, |_| {}).unwrap()).take(20);
    reports.find(|report| report.achieved_rps > 0.0).expect("no window had an answer")
}

/// Every request is accounted for, and none failed.
fn assert_clean(report: &Report) {
    assert_eq!((report.errors, report.lost, report.misses), (0, 0, 0), "{report:?}");
    assert!(report.completed > 0 && report.completed == report.latency_us.all.count);
}

#[test]
fn vectors_of_any_width_go_both_ways_with_large_values() {
    let server = FakeNative::start(0);
    let workload = workload("etc");
    let loaded = load(&native(&server), &workload, |_| {}).unwrap();
    assert_eq!((loaded.stored, loaded.errors), (workload.item_count(), 0), "{loaded:?}");
    assert_eq!(server.item_count() as u64, workload.item_count());
    for width in [1, 4, 32] {
        // As many operations a second with each width: on a busy machine the server keeps up.
        let arrivals = Arrivals::Open { rate: 2000.0 / f64::from(width) };
        let config = RunConfig { arrivals, keys_per_get: width, ..native(&server) };
        let report = run_answered(&config, &workload);
        assert_clean(&report);
        assert!(report.latency_us.large.count > 0);
        let factor = report.operations_per_s / report.achieved_rps;
        assert!((factor - f64::from(width)).abs() < 1e-9, "{factor}");
    }
}

#[test]
fn workloads_that_change_and_insert_run_in_closed_loop() {
    let server = FakeNative::start(0);
    for name in ["ycsb-a", "ycsb-d", "ycsb-f", "mica-large"] {
        let workload = workload(name);
        let arrivals = Arrivals::Closed { pipeline: 3 };
        let config = RunConfig { arrivals, keys_per_get: 5, threads: 2, ..native(&server) };
        load(&config, &workload, |_| {}).unwrap();
        assert_clean(&run_answered(&config, &workload));
    }
}

#[test]
fn what_is_lost_is_counted_and_transfers_go_on() {
    let server = FakeNative::start(50);
    let workload = workload("etc");
    let options = DatagramOptions { timeout: Duration::from_millis(200), queue_by: QueueBy::Key };
    let config = RunConfig { datagrams: options, ..native(&server) };
    let loaded = load(&native(&server), &workload, |_| {}).unwrap();
    assert_eq!((loaded.stored, loaded.errors), (workload.item_count(), 0), "a load repeats what is lost");
    // A process that stands still for as long as the time-out may lose them all.
    let goes_on = |_| {
        let report = run_answered(&config, &workload);
        assert_eq!(report.errors, 0, "{report:?}");
        // Values of 200 fragments; each value loses some of them.
        report.lost > 0 && report.latency_us.large.count > 0
    };
    assert!((0..20).any(goes_on), "no value came through, or nothing was lost");
}

#[test]
fn a_wrong_queue_needs_ports_to_choose_from() {
    let server = FakeNative::start(0);
    let datagrams = DatagramOptions { queue_by: QueueBy::Wrong, ..DatagramOptions::default() };
    let error = run(&RunConfig { datagrams, ..native(&server) }, &workload("etc"), |_| {}).unwrap_err();
    assert!(error.to_string().contains("no queue is wrong"), "{error}");
}

/// A server of memcached's text protocol over UDP. Replies are datagrams of at most 100 bytes: with `numbers`
/// in reverse order, else in order without indexes, as memcached sends them. Every `wrong_one_in`th value is
/// wrong.
fn memcached(wrong_one_in: u32, numbers: bool) -> String {
    let socket = blocking_socket();
    let target = format!("memcached+udp://{}", socket.local_addr().unwrap());
    thread::spawn(move || {
        let (mut datagram, mut items, mut gets) = (vec![0; 1 << 16], HashMap::new(), 0u32);
        while let Ok((bytes, peer)) = socket.recv_from(&mut datagram) {
            let (frame, text) = datagram[..bytes].split_at(8);
            assert_eq!(frame[2..], [0, 0, 0, 1, 0, 0]);
            let end = text.windows(2).position(|pair| pair == b"\r\n").unwrap();
            let line = String::from_utf8(text[..end].to_vec()).unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            let mut reply = Vec::new();
            if words[0] == "set" {
                items.insert(words[1].to_owned(), text[end + 2..text.len() - 2].to_vec());
                reply.extend_from_slice(b"STORED\r\n");
            } else {
                for key in &words[1..] {
                    let Some(value) = items.get(*key) else { continue };
                    gets += 1;
                    reply.extend_from_slice(format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes());
                    reply.extend_from_slice(value);
                    let last = reply.len() - 1;
                    reply[last] ^= u8::from(gets.is_multiple_of(wrong_one_in));
                    reply.extend_from_slice(b"\r\n");
                }
                reply.extend_from_slice(b"END\r\n");
            }
            let parts: Vec<&[u8]> = reply.chunks(100).collect();
            for place in 0..parts.len() {
                let (index, count) = if numbers { (parts.len() - 1 - place, parts.len()) } else { (0, 1) };
                let part = parts[if numbers { index } else { place }];
                let mut out = frame[..2].to_vec();
                out.extend_from_slice(&(index as u16).to_be_bytes());
                out.extend_from_slice(&(count as u16).to_be_bytes());
                out.extend_from_slice(&[0, 0]);
                out.extend_from_slice(part);
                socket.send_to(&out, peer).unwrap();
            }
        }
    });
    target
}

#[test]
fn memcached_is_spoken_to_in_its_own_frames() {
    let workload = workload("mica-small");
    for (keys_per_get, wrong_one_in, numbers) in
        [(1, u32::MAX, true), (6, u32::MAX, true), (6, 100, true), (6, u32::MAX, false), (6, 100, false)]
    {
        let target = memcached(wrong_one_in, numbers);
        let config = RunConfig { keys_per_get, ..config(&target) };
        let loaded = load(&config, &workload, |_| {}).unwrap();
        assert_eq!((loaded.stored, loaded.errors), (workload.item_count(), 0), "{loaded:?}");
        let report = run_answered(&config, &workload);
        if wrong_one_in == u32::MAX {
            assert_clean(&report);
        } else {
            assert!(report.errors_by_kind["mismatch"] > 0, "{report:?}");
        }
    }
}

#[test]
fn what_fits_no_datagram_is_an_error_of_its_own() {
    let workload = workload("etc");
    let loaded = load(&config(&memcached(u32::MAX, true)), &workload, |_| {}).unwrap();
    assert_eq!(loaded.errors_by_kind.get("too_large"), Some(&loaded.errors), "{loaded:?}");
    assert!(loaded.errors >= 5);
}
