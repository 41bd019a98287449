//! A server that has given up rights: root's, and system calls.

mod common;

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use common::{Wanted, connect, start};
use minos_testkit::{Server, skip};

/// The values of a field in the status of each thread.
fn of_threads(server: &Server, field: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let value = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    tasks.map(|task| value(fs::read_to_string(task.unwrap().path().join("status")).unwrap())).collect()
}

fn sandboxed(options: &[&str]) -> Server {
    confined(&[&["--sandbox"], options].concat())
}

/// A server that has said that it serves: connections are accepted by the kernel before.
fn confined(options: &[&str]) -> Server {
    let server = start(Wanted { memory: "64m", minos_only: options, ..Wanted::default() });
    let deadline = Instant::now() + Duration::from_secs(60);
    while !server.log().contains("listening on memcached") {
        assert!(Instant::now() < deadline, "{}", server.log());
        thread::sleep(Duration::from_millis(5));
    }
    server
}

/// Small and large values, statistics, and a stop.
fn serves(server: Server) {
    let mut client = connect(&server);
    let large = vec![b'l'; 1_500_000];
    for round in 0..3 {
        assert_eq!(client.set("small", b"s").unwrap(), "STORED");
        assert_eq!(client.set("large", &large).unwrap(), "STORED");
        assert!(client.get("large").unwrap().unwrap().value == large, "{round}");
        assert_eq!(client.get("small").unwrap().unwrap().value, b"s");
        // The second buffers grow and connections come and go.
        let mut others: Vec<_> = (0..50).map(|_| connect(&server)).collect();
        others.iter_mut().for_each(|other| assert_eq!(other.set("other", b"o").unwrap(), "STORED"));
    }
    // More than the memory: a cache evicts, and what lies above flash is read from there.
    for at in 0..100 {
        assert_eq!(client.set(&format!("large{at}"), &large).unwrap(), "STORED");
    }
    let found = (0..100).filter(|at| client.get(&format!("large{at}")).unwrap().is_some()).count();
    assert!(found > 10, "{found}");
    assert!(client.stats("").unwrap().len() > 20 && !client.stats("conns").unwrap().is_empty());
    assert_eq!(client.ask("flush_all").unwrap(), "OK");
    common::stop(server);
}

#[test]
fn every_thread_is_confined() {
    if common::is_memcached() {
        return;
    }
    let server = sandboxed(&["--admin=127.0.0.1:0"]);
    assert!(of_threads(&server, "Seccomp").iter().all(|mode| mode == "2"));
    assert!(of_threads(&server, "NoNewPrivs").iter().all(|is_so| is_so == "1"));
    let plain = confined(&[]);
    assert!(of_threads(&plain, "Seccomp").iter().all(|mode| mode == "0"), "the control");
    serves(server);
}

#[test]
fn a_confined_server_serves_in_every_mode() {
    if common::is_memcached() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (flash, region) = (format!("--flash={}:256m", at("flash")), format!("--region={}", at("region")));
    let modes: [&[&str]; 4] =
        [&["--native=127.0.0.1:0"], &["--poll=sleep", "--dispatch=stealing"], &[&region], &[&flash]];
    for options in modes {
        serves(sandboxed(options));
    }
    assert!(common::refusal(&["--sandbox", "--rack=r", "--peers=/a", "--node=0"]).contains("--sandbox"));
}

#[test]
fn a_confined_server_answers_its_operator() {
    if common::is_memcached() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin");
    let server = sandboxed(&[&format!("--admin={}", socket.display())]);
    let ctl = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_minos"));
        let output = command.args(["ctl", "--admin"]).arg(&socket).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    ctl(&["dispatch", "keyhash"]);
    ctl(&["stats", "minos"]);
    common::stop(server);
}

#[test]
fn root_becomes_the_user_that_is_named() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if common::is_memcached() {
        return;
    }
    if !is_root || !Path::new("/etc/passwd").exists() {
        return skip("only root can become another user, who is in /etc/passwd");
    }
    let server = confined(&["--user=nobody", "--sandbox"]);
    for field in ["Uid", "Gid"] {
        let all = of_threads(&server, field);
        assert!(all.iter().all(|ids| ids.split(' ').all(|id| id == "65534")), "{field}: {all:?}");
    }
    assert!(of_threads(&server, "CapEff").iter().all(|rights| rights.trim_start_matches('0').is_empty()));
    serves(server);
    assert!(common::refusal(&["--user=root"]).contains("is root"));
    assert!(common::refusal(&["--user=no-such-user-here"]).contains("no such user"));
}
