//! `minos serve --port dpdk` and `minos bench` in two processes, over memif.

#![cfg(all(feature = "lab", feature = "dpdk"))]

use std::{
    path::Path,
    process::{Command, Output},
};

use minos_testkit::Server;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_minos");
const ADDRESS: &str = "10.0.0.1:11311";

/// Workers that share processors with the driver, spinning: patience instead of speed.
fn serve(options: &[&str]) -> Server {
    let server = Server::start(Path::new(PROGRAM), |port, folder| {
        let device = format!("--dpdk-device=memif:{}", folder.join("memif").display());
        let memcached = format!("--memcached=127.0.0.1:{port}");
        let fixed =
            ["serve", "--memory=256m", "--engine=store", "--pin=off", "--native", ADDRESS, "--allow-public"];
        let dpdk = ["--port=dpdk", "--poll=busy", &device, &memcached];
        [&fixed[..], &dpdk, options].concat().into_iter().map(str::to_owned).collect()
    });
    server.unwrap_or_else(|error| panic!("{error}"))
}

fn bench(server: &Server, queues: u32, arguments: &[&str]) -> Output {
    let path = server.folder().join("memif");
    let target = format!("minos+memif://{ADDRESS}{}?queues={queues}", path.display());
    let mut command = Command::new(PROGRAM);
    // Every byte is compared, and some values are large.
    command.args(["bench", "--json", "--load", "--verify", "--target", &target]);
    command.args([
        "--keys=200",
        "--large-keys=4",
        "--large-percent=3",
        "--large-max=200k",
        "--get-ratio=0.7",
    ]);
    command.args(["--duration=1s", "--warmup=100ms", "--drain=20s", "--timeout=15s"]);
    command.args(arguments).output().unwrap()
}

fn report(server: &Server, queues: u32, arguments: &[&str]) -> Value {
    let output = bench(server, queues, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}\nthe server said:\n{}", server.log());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["errors", "lost", "misses"] {
        assert_eq!(report[name], 0, "{arguments:?}: {report}");
    }
    assert!(report["completed"].as_u64() > Some(0), "{report}");
    report
}

fn has_large(report: &Value) -> bool {
    report["latency_us"]["large"]["count"].as_u64() > Some(0)
}

/// Requests one by one and as vectors, one client after another.
#[test]
fn one_worker_serves_every_width() {
    for options in [&["--workers=1"][..], &["--workers=1", "--dpdk-large-queues"]] {
        let server = serve(options);
        for width in ["1", "32"] {
            let load = ["--rate=300", "--multiget", width, "--connections=2"];
            let report = report(&server, 2, &load);
            assert!(has_large(&report), "{report}");
        }
        report(&server, 2, &["--pipeline=4", "--connections=1", "--workload=ycsb-a"]);
    }
}

#[test]
fn vectors_arrive_at_their_workers_whichever_queue_they_go_to() {
    for options in [&["--workers=2"][..], &["--workers=2", "--native-single-port"]] {
        let server = serve(options);
        for queue_by in ["random", "key"] {
            report(
                &server,
                4,
                &["--rate=200", "--multiget=8", "--connections=3", "--threads=2", "--queue-by", queue_by],
            );
        }
    }
}

#[test]
fn what_cannot_be_reached_is_said() {
    let server = serve(&["--workers=1"]);
    // Another address than the server's.
    let path = server.folder().join("memif");
    for (target, reason) in [
        (format!("minos+memif://10.0.0.9:11311{}", path.display()), "nobody has this address"),
        ("minos+memif://10.0.0.1:11311/nowhere/memif".to_owned(), "DPDK cannot"),
    ] {
        let output = Command::new(PROGRAM).args(["bench", "--target", &target]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{target}: {said}");
    }
    let output = Command::new(PROGRAM).args(["serve", "--native", ADDRESS, "--port=dpdk"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("--poll busy"));
}
