//! `minos serve --port memif` and `minos bench` in two processes; the same with DPDK's memif at the server.

#![cfg(feature = "lab")]

use std::{
    path::Path,
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
};

use minos_testkit::Server;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_minos");
const ADDRESS: &str = "10.0.0.1:11311";

/// Servers and drivers spin: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Servers whose other end a client of ours can be.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Ours,
    #[cfg(feature = "dpdk")]
    Dpdk,
}

impl Kind {
    const ALL: &[Self] = &[
        Self::Ours,
        #[cfg(feature = "dpdk")]
        Self::Dpdk,
    ];

    fn options(self, path: &Path) -> [String; 2] {
        match self {
            Self::Ours => ["--port=memif".to_owned(), format!("--memif={}", path.display())],
            #[cfg(feature = "dpdk")]
            Self::Dpdk => ["--port=dpdk".to_owned(), format!("--dpdk-device=memif:{}", path.display())],
        }
    }

    fn large_queues(self) -> &'static str {
        match self {
            Self::Ours => "--memif-large-queues",
            #[cfg(feature = "dpdk")]
            Self::Dpdk => "--dpdk-large-queues",
        }
    }
}

/// Workers that share processors with the driver, spinning: patience instead of speed.
fn serve(kind: Kind, options: &[&str]) -> Server {
    let server = Server::start(Path::new(PROGRAM), |port, folder| {
        let [kind, path] = kind.options(&folder.join("memif"));
        let memcached = format!("--memcached=127.0.0.1:{port}");
        let fixed =
            ["serve", "--memory=256m", "--engine=store", "--pin=off", "--native", ADDRESS, "--allow-public"];
        let chosen = [&kind[..], "--poll=busy", &path, &memcached];
        [&fixed[..], &chosen, options].concat().into_iter().map(str::to_owned).collect()
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
    let _alone = alone();
    for (kind, separates_large) in Kind::ALL.iter().flat_map(|kind| [(*kind, false), (*kind, true)]) {
        let options = ["--workers=1", kind.large_queues()];
        let server = serve(kind, &options[..if separates_large { 2 } else { 1 }]);
        for width in ["1", "32"] {
            let load = ["--rate=100", "--multiget", width, "--connections=2"];
            let report = report(&server, 2, &load);
            assert!(has_large(&report), "{report}");
        }
        report(&server, 2, &["--pipeline=4", "--connections=1", "--workload=ycsb-a"]);
    }
}

#[test]
fn vectors_arrive_at_their_workers_whichever_queue_they_go_to() {
    let _alone = alone();
    let options = [&["--workers=2"][..], &["--workers=2", "--native-single-port"]];
    for (kind, options) in Kind::ALL.iter().flat_map(|kind| options.map(|options| (*kind, options))) {
        let server = serve(kind, options);
        for queue_by in ["random", "key"] {
            report(
                &server,
                4,
                &["--rate=100", "--multiget=8", "--connections=3", "--threads=2", "--queue-by", queue_by],
            );
        }
    }
}

#[test]
fn what_cannot_be_reached_is_said() {
    let _alone = alone();
    let server = serve(Kind::Ours, &["--workers=1", "--sandbox"]);
    // Another address than the server's.
    let path = server.folder().join("memif");
    for (target, reason) in [
        (format!("minos+memif://10.0.0.9:11311{}", path.display()), "nobody has this address"),
        ("minos+memif://10.0.0.1:11311/nowhere/memif".to_owned(), "No such file"),
        (format!("minos+memif://{ADDRESS}{}?queues=4", path.display()), "fewer queues"),
    ] {
        let output = Command::new(PROGRAM).args(["bench", "--target", &target]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{target}: {said}");
    }
    let arguments = ["serve", "--native", ADDRESS, "--port=memif", "--memif=/run/memif"];
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("--poll busy"));
}
