//! `--numa`, on a machine of two nodes that a folder shows as the kernel does.

mod common;

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use common::{Wanted, connect, start, stop};
use minos_net::allowed_cpus;
use minos_testkit::{Server, numa_folder};

/// Long, because tests run on busy machines.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that has said that it serves.
fn serving(root: &Path, options: &[&str]) -> Server {
    let root = format!("--numa-root={}", root.display());
    let options = [&[&root[..]], options].concat();
    let server = start(Wanted { memory: "64m", minos_only: &options, ..Wanted::default() });
    until(|| server.log().contains("listening on memcached"), &server);
    server
}

fn until(is_so: impl Fn() -> bool, server: &Server) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{}", server.log());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Stores and reads small and large values over several connections, and shows a setting.
fn setting(server: &Server, name: &str) -> Option<String> {
    for _ in 0..4 {
        let mut client = connect(server);
        for bytes in [1, 1000, 100_000, 1_000_000] {
            let value = vec![b'v'; bytes];
            assert_eq!(client.set("key", &value).unwrap(), "STORED");
            assert!(client.get("key").unwrap().unwrap().value == value, "{bytes}");
        }
    }
    let settings = connect(server).stats("settings").unwrap();
    settings.into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// The processors that each worker may run on.
fn workers_cpus(server: &Server) -> Vec<String> {
    let mut found = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap() {
        let task = task.unwrap().path();
        let [name, status] =
            ["comm", "status"].map(|file| fs::read_to_string(task.join(file)).unwrap_or_default());
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        if let (Some(worker), Some(cpus)) = (name.trim().strip_prefix("minos-worker-"), cpus) {
            found.push((worker.to_owned(), cpus.trim().to_owned()));
        }
    }
    found.sort();
    found.into_iter().map(|(_, cpus)| cpus).collect()
}

/// True if some of the memory of a server comes from nodes in turn.
fn is_interleaved(server: &Server) -> bool {
    let maps = fs::read_to_string(format!("/proc/{}/numa_maps", server.pid()));
    maps.is_ok_and(|maps| maps.contains("interleave:"))
}

#[test]
fn each_node_has_workers_and_memory_of_its_own() {
    let mut cpus = allowed_cpus();
    cpus.truncate(2);
    // A machine with one processor has one node in any case.
    let is_whole = cpus.len() == 2;
    if !is_whole {
        cpus.push(cpus[0] + 1);
    }
    let lists: Vec<_> = cpus.iter().map(ToString::to_string).collect();
    let folder = numa_folder(&lists).unwrap();
    let server = serving(folder.path(), &[]);
    assert_eq!(setting(&server, "numa_nodes").as_deref(), Some(if is_whole { "2" } else { "1" }));
    if is_whole {
        let log = server.log();
        let found = "NUMA: node 0 has workers 0 to 0, 1 of the processors; node 1 has workers 1 to 1, 1 of the processors";
        assert!(log.contains(found), "{log}");
        // A worker binds itself once its thread runs.
        until(|| workers_cpus(&server) == lists, &server);
        assert!(is_interleaved(&server) || log.contains("is not interleaved over NUMA nodes"), "{log}");
    }
    stop(server);

    // Owners take the pages of their own partitions from their own nodes.
    let server = serving(folder.path(), &["--access=crew"]);
    assert!(setting(&server, "numa").is_some() && !is_interleaved(&server), "{}", server.log());
    stop(server);

    // The control: without the option nothing is placed, whatever the folder shows.
    let server = serving(folder.path(), &["--numa=off"]);
    assert_eq!(setting(&server, "numa").as_deref(), Some("off"));
    assert_eq!(setting(&server, "numa_nodes").as_deref(), Some("1"));
    assert!(!server.log().contains("NUMA") && !is_interleaved(&server), "{}", server.log());
    stop(server);
}

#[test]
fn one_node_or_none_places_nothing() {
    let all = allowed_cpus().iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let folder = numa_folder(&[all, String::new(), "1023-".to_owned()]).unwrap();
    for (root, found) in [
        (folder.path().to_owned(), "NUMA: one node"),
        (folder.path().join("absent"), "NUMA nodes are not known"),
    ] {
        let server = serving(&root, &[]);
        assert_eq!(setting(&server, "numa").as_deref(), Some("auto"));
        assert!(server.log().contains(found) && !is_interleaved(&server), "{}", server.log());
        stop(server);
    }
}
