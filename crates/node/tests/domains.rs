//! A server on a machine of two NUMA nodes, as a folder shows it that is like the kernel's.

mod common;

use std::{
    io::Read,
    thread,
    time::{Duration, Instant},
};

use common::{Client, TestServer};
use minos_base::StatsGroup;
use minos_engine::StoreMode;
use minos_net::{allowed_cpus, numa_nodes};
use minos_node::{
    ServerConfig,
    config::{Design, Placement},
};
use minos_testkit::numa_folder;

const WORKERS: usize = 4;
/// Long, because tests run on busy machines.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sizes below and above the threshold before the first plan, and above a slice.
const SIZES: [usize; 7] = [0, 1, 100, 4096, 65_536, 300_000, 3 << 20];

/// Two nodes with a processor each: the first two that this process may use, if it has two.
fn two_nodes() -> Placement {
    let mut cpus = allowed_cpus();
    cpus.truncate(2);
    if let [only] = cpus[..] {
        cpus.push(only + 1);
    }
    let lists: Vec<String> = cpus.iter().map(usize::to_string).collect();
    let folder = numa_folder(&lists).unwrap();
    let nodes = numa_nodes(folder.path()).unwrap();
    Placement::on(&nodes, &cpus, WORKERS)
}

fn server(placement: Placement, dispatch: Design) -> TestServer {
    let mut config = ServerConfig::new(WORKERS);
    config.dispatch = dispatch;
    config.place(placement);
    // One plan for the whole test: all large requests go to workers on standby.
    config.epoch = Duration::from_secs(3600);
    TestServer::with_memory::<StoreMode>(64 << 20, config)
}

/// Stores and reads values of all sizes.
fn exchange(client: &mut Client, name: usize) {
    for bytes in SIZES {
        let value: Vec<u8> = (0..bytes).map(|at| (at.wrapping_mul(31) ^ name) as u8).collect();
        client.send(&[format!("set {name} 0 0 {bytes}\r\n").as_bytes(), &value, b"\r\n"].concat());
        assert_eq!(client.line(), "STORED\r\n");
        client.send(format!("get {name}\r\n").as_bytes());
        assert_eq!(client.line(), format!("VALUE {name} 0 {bytes}\r\n"));
        assert!(received(client, bytes) == value, "other bytes in {bytes} of {name}");
        assert_eq!((client.line(), client.line()), ("\r\n".to_owned(), "END\r\n".to_owned()));
    }
}

fn received(client: &mut Client, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    client.reader.read_exact(&mut value).unwrap();
    value
}

/// The visits and large requests of each worker.
fn work(server: &TestServer) -> Vec<(u64, u64)> {
    let mut work = vec![(0, 0); WORKERS];
    server.server.operator().stats(StatsGroup::Minos, &mut |name, value| {
        let Some((index, name)) = name.strip_prefix("worker:").and_then(|rest| rest.split_once(':')) else {
            return;
        };
        let (index, number) = (index.parse::<usize>().unwrap(), || value.to_string().parse::<u64>().unwrap());
        match name {
            "visits" => work[index].0 = number(),
            "large_taken" => work[index].1 = number(),
            _ => {}
        }
    });
    work
}

/// The work of a server whose only clients are of the queues of the first two workers.
fn work_of_the_first_domain(placement: Placement, dispatch: Design) -> Vec<(u64, u64)> {
    let server = server(placement, dispatch);
    // Connections are dealt to the queues in turn.
    let mut clients: Vec<_> = (0..WORKERS).map(|_| server.connect()).collect();
    for round in 0..5 {
        clients[..2].iter_mut().enumerate().for_each(|(name, client)| exchange(client, 10 * round + name));
    }
    work(&server)
}

#[test]
fn a_domain_works_for_its_own_queues_alone() {
    let placement = two_nodes();
    let work = work_of_the_first_domain(placement.clone(), Design::SizeAware);
    assert!(work[0].0 > 0 && work[1].1 > 0, "{work:?}");
    assert_eq!(work[2..], [(0, 0); 2]);
    for design in [Design::HandOff, Design::Stealing, Design::WorkConserving] {
        let work = work_of_the_first_domain(placement.clone(), design);
        assert!(work[0].0 + work[1].0 > 0, "{design}: {work:?}");
        assert_eq!(work[2..], [(0, 0); 2], "{design}");
    }
    // The control: in one domain the last worker is on standby for all.
    let work = work_of_the_first_domain(Placement::default(), Design::SizeAware);
    assert!(work[3].1 > 0, "{work:?}");
}

#[test]
fn both_domains_serve_all_sizes_under_changing_plans() {
    let placement = two_nodes();
    for design in Design::SERVED {
        let mut config = ServerConfig::new(WORKERS);
        config.dispatch = design;
        config.place(placement.clone());
        config.epoch = Duration::from_millis(2);
        let server = TestServer::with_memory::<StoreMode>(256 << 20, config);
        thread::scope(|scope| {
            for name in 0..2 * WORKERS {
                let mut client = server.connect();
                scope.spawn(move || (0..10).for_each(|round| exchange(&mut client, 10 * name + round)));
            }
        });
        // The last value is unpinned once it is sent.
        let begun = Instant::now();
        while server.pinned() > 0 {
            assert!(begun.elapsed() < PATIENCE, "{design}: {} items are pinned", server.pinned());
            thread::sleep(Duration::from_millis(5));
        }
    }
}
