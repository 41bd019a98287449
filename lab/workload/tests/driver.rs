//! Tests of the driver against a server in the test's process.

use std::time::Duration;

use minos_workload::{
    Arrivals, DatagramOptions, DriverShare, Pace, RATE_MAX, Report, RunConfig, RunError, Shape, Workload,
    load, run,
};

mod fake;
use fake::{FakeServer, Fault};

fn config(server: &FakeServer) -> RunConfig {
    RunConfig {
        target: format!("memcached://{}", server.address).parse().unwrap(),
        arrivals: Arrivals::Open { rate: 2000.0 },
        pace: Pace::Sleep,
        duration: Duration::from_millis(400),
        warmup: Duration::from_millis(100),
        // The drain ends with the last answer, so a long limit costs nothing.
        drain: Duration::from_secs(10),
        threads: 1,
        connections: 4,
        keys_per_get: 1,
        check_contents: true,
        cpus: Vec::new(),
        server_pid: None,
        receive_buffer: Some(64 << 10),
        datagrams: DatagramOptions::default(),
    }
}

fn workload(name: &str) -> Workload {
    let shape = Shape { keys: Some(500), large_keys: Some(5), large_percent: Some(2.0), ..Shape::default() };
    Workload::open(name, &shape, 1).unwrap()
}

/// Loads the data set, runs the workload, and returns the report.
fn measured(server: &FakeServer, workload: &Workload, config: &RunConfig) -> Report {
    let loaded = load(config, workload, |_| {}).unwrap();
    assert_eq!((loaded.stored, loaded.errors), (workload.item_count(), 0));
    assert_eq!(server.item_count() as u64, workload.item_count());
    run_answered(config, workload)
}

/// A run with an answer in its window, which a process that stands still for a moment may sleep through.
fn run_answered(config: &RunConfig, workload: &Workload) -> Report {
    let mut reports = std::iter::repeat_with(|| run(config, workload, |_| {}).unwrap()).take(20);
    reports.find(|report| report.achieved_rps > 0.0 || report.errors > 0).expect("no window had an answer")
}

/// Every operation is accounted for, and none failed.
fn assert_clean(report: &Report) {
    assert_eq!((report.errors, report.lost, report.misses), (0, 0, 0), "{report:?}");
    assert!(report.completed > 0);
    assert_eq!(report.completed, report.latency_us.all.count);
    assert_eq!(report.completed, report.latency_us.small.count + report.latency_us.large.count);
}

#[test]
fn an_honest_server_makes_no_errors() {
    let server = FakeServer::start(Fault::None, 1);
    let report = measured(&server, &workload("etc"), &config(&server));
    assert_clean(&report);
    assert!(report.latency_us.large.count > 0);
    // Poisson with a mean of 800: five standard deviations.
    assert!((report.completed as f64 - 800.0).abs() < 142.0, "{}", report.completed);
    assert_eq!(report.offered_rps, 2000.0);
    assert!(report.server_cpu_us_per_op.is_some());
    assert!(report.driver.kernel_stamped > 0.5, "{:?}", report.driver);
}

/// Before, the driver never came to the end of the requests that it had not sent: there were no gaps between them.
#[test]
fn an_open_loop_without_gaps_is_refused() {
    let server = FakeServer::start(Fault::None, 1);
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2.0 * RATE_MAX] {
        let config = RunConfig { arrivals: Arrivals::Open { rate }, ..config(&server) };
        let refused = run(&config, &workload("etc"), |_| {});
        assert!(matches!(refused, Err(RunError::Rate(_))), "{rate}: {refused:?}");
    }
}

/// The share of time that the driver is busy rises with the load.
#[test]
fn a_driver_that_spins_says_how_busy_it_is() {
    let server = FakeServer::start(Fault::None, 1);
    let workload = workload("etc");
    let at = |rate| {
        let config = RunConfig { pace: Pace::Spin, arrivals: Arrivals::Open { rate }, ..config(&server) };
        let report = measured(&server, &workload, &config);
        let share = report.driver;
        let (busy, sending) = (share.busy?, share.sending?);
        assert!(busy <= 1.0, "{share:?}");
        // A long turn takes more than a millisecond, which bounds their number.
        let most = report.duration_s * 1e3 + 1e3;
        assert!(share.long_turns.is_some_and(|turns| (turns as f64) < most), "{share:?}");
        // A turn that stood still until the window was over counts as sending only, or not at all.
        (0.0 < sending && sending < busy).then_some(busy)
    };
    // Nothing stricter holds: on a busy machine a preempted driver counts as busy.
    let mut shares = std::iter::repeat_with(|| (at(500.0), at(8000.0))).take(20);
    let is_busier = |shares| matches!(shares, (Some(little), Some(much)) if much > little);
    assert!(shares.any(is_busier), "as busy at 500 as at 8000 requests a second");
    let sleeping = measured(&server, &workload, &RunConfig { pace: Pace::Sleep, ..config(&server) });
    let DriverShare { busy, sending, long_turns, .. } = sleeping.driver;
    assert_eq!((busy, sending, long_turns), (None, None, None));
}

/// A driver that wakes only to send reads answers late, but does not count the delay as the server's time.
#[test]
fn answers_that_are_left_with_the_kernel_are_timed_by_it() {
    let server = FakeServer::start(Fault::None, 1);
    let config = RunConfig { pace: Pace::Due, ..config(&server) };
    // Requests are half a millisecond apart, and an answer takes less, so it waits in the kernel until the
    // next request. If that wait counted, every latency would include it. On a busy machine the server's own
    // time may be longer than that in some runs.
    let is_timed_by_kernel = |_| {
        let report = measured(&server, &workload("etc"), &config);
        assert_clean(&report);
        let share = report.driver;
        share.kernel_stamped > 0.99 && report.latency_us.small.p50 < share.receive_lag_us.p90
    };
    assert!((0..20).any(is_timed_by_kernel), "every latency includes the wait");
}

#[test]
fn every_workload_runs_with_checked_replies() {
    for name in ["noise", "ycsb-a", "ycsb-d", "ycsb-f", "mica-large"] {
        let server = FakeServer::start(Fault::None, 1);
        let report = measured(&server, &workload(name), &config(&server));
        assert_clean(&report);
    }
}

#[test]
fn closed_loop_multigets_and_threads() {
    let server = FakeServer::start(Fault::None, 1);
    let arrivals = Arrivals::Closed { pipeline: 8 };
    let config = RunConfig { arrivals, keys_per_get: 5, threads: 2, ..config(&server) };
    let report = measured(&server, &workload("etc"), &config);
    assert_clean(&report);
    assert_eq!(report.offered_rps, report.achieved_rps);
}

#[test]
fn files_are_stored_and_come_back_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..20 {
        std::fs::write(folder.path().join(format!("file {number}")), vec![number; number as usize * 5000])
            .unwrap();
    }
    let server = FakeServer::start(Fault::None, 1);
    let name = format!("files:{}", folder.path().display());
    let report = measured(&server, &workload(&name), &config(&server));
    assert_clean(&report);
    assert!(report.latency_us.large.count > 0 && report.latency_us.small.count > 0);
}

#[test]
fn a_trace_is_replayed_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    let lines: Vec<String> = (0..300)
        .map(|at| format!("{},{},key{},{}", at as f64 / 1e3, ["get", "set"][at % 2], at % 7, at))
        .collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    let server = FakeServer::start(Fault::None, 1);
    let config = RunConfig { warmup: Duration::ZERO, ..config(&server) };
    let report = measured(&server, &workload(path.to_str().unwrap()), &config);
    assert_clean(&report);
    assert_eq!(report.completed, 300);
}

#[test]
fn what_goes_wrong_is_counted_by_kind() {
    for (fault, kind) in [
        (Fault::Altered, "mismatch"),
        (Fault::Refused, "server_error"),
        (Fault::Closed, "closed"),
        (Fault::Nonsense, "protocol"),
    ] {
        let server = FakeServer::start(fault, 100);
        let report = measured(&server, &workload("etc"), &config(&server));
        assert!(report.errors > 0, "{fault:?}");
        assert!(report.errors_by_kind.contains_key(kind), "{fault:?}: {:?}", report.errors_by_kind);
    }
}

#[test]
fn an_altered_value_passes_unseen_only_without_the_check() {
    let server = FakeServer::start(Fault::Altered, 10);
    let workload = workload("etc");
    let config = config(&server);
    assert!(measured(&server, &workload, &config).errors_by_kind.contains_key("mismatch"));
    let careless = RunConfig { check_contents: false, ..config };
    assert_eq!(run_answered(&careless, &workload).errors, 0);
}

#[test]
fn requests_without_an_answer_are_lost() {
    let server = FakeServer::start(Fault::Silent, 200);
    let config = RunConfig { drain: Duration::from_millis(500), ..config(&server) };
    let report = measured(&server, &workload("etc"), &config);
    assert!(report.lost > 0 && report.errors == 0, "{report:?}");
}

#[test]
fn keys_that_are_not_there_are_misses() {
    let server = FakeServer::start(Fault::None, 1);
    let report = run(&config(&server), &workload("ycsb-c"), |_| {}).unwrap();
    assert!(report.misses > 0 && report.misses == report.completed);
    assert_eq!(report.errors, 0);
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let server = FakeServer::start(Fault::None, 1);
    // Port 1 is reserved: no process listens there.
    let config = RunConfig { target: "memcached://127.0.0.1:1".parse().unwrap(), ..config(&server) };
    let error = run(&config, &workload("etc"), |_| {}).unwrap_err();
    assert!(error.to_string().starts_with("cannot connect to memcached://127.0.0.1:1:"), "{error}");
}

/// The latency that the driver itself adds to small requests under noise.
#[derive(Debug)]
struct OwnShare {
    /// Relative to the median.
    of_p50: f64,
    /// Relative to the 99th percentile.
    of_p99: f64,
    /// Its median, in microseconds.
    lag_us: f64,
}

/// Returns the best of at most `runs`, because other processes can delay any one of them.
fn own_share(config: &RunConfig, workload: &Workload, runs: u32) -> OwnShare {
    let mut best = OwnShare { of_p50: f64::MAX, of_p99: f64::MAX, lag_us: f64::MAX };
    for _ in 0..runs {
        let report = run(config, workload, |_| {}).unwrap();
        assert_clean(&report);
        // The kernel begins to stamp some time after it was asked to.
        if report.driver.kernel_stamped < 0.9 {
            continue;
        }
        let (lag, small) = (report.driver.send_lag_us, report.latency_us.small);
        best.of_p50 = best.of_p50.min(lag.p50 / small.p50);
        best.of_p99 = best.of_p99.min(lag.p99 / small.p99);
        best.lag_us = best.lag_us.min(lag.p50);
        if best.of_p50 < 0.1 && best.of_p99 < 0.5 && best.lag_us < 1.0 {
            break;
        }
    }
    best
}

/// Small requests wait for the server and not for the driver, even while ten megabytes arrive: requests are
/// sent on time, and late reads of replies do not count. The control is the same driver with sleeps, which
/// wakes late.
#[test]
fn the_drivers_own_share_is_small() {
    let server = FakeServer::start(Fault::None, 1);
    let workload = workload("noise");
    let spinning = RunConfig {
        pace: Pace::Spin,
        arrivals: Arrivals::Open { rate: 4000.0 },
        check_contents: false,
        ..config(&server)
    };
    load(&spinning, &workload, |_| {}).unwrap();
    let share = own_share(&spinning, &workload, 400);
    assert!(share.of_p50 < 0.1 && share.of_p99 < 0.5, "{share:?}");
    let control = own_share(&RunConfig { pace: Pace::Sleep, ..spinning }, &workload, 20);
    assert!(control.lag_us > 3.0 * share.lag_us, "the control must be seen: {control:?}, {share:?}");
}
