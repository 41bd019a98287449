//! The same clients at servers whose partitions belong to workers (EREW and CREW, MICA §4.1.2): requests come anywhere, and
//! only the owner of a partition touches it. A worker that touches another's panics, and the server ends with an error.
//!
//! In the control `owner` requests are not handed to owners.

use minos_engine::{Access, Crew, Erew, StoreMode};
use minos_node::{StatsGroup, config::Design};

use crate::{
    NATIVE, SERVER_STREAM, STATES_MAX, VECTORS, address, call_all,
    common::TestServer,
    dialogue::Setting,
    flips,
    ground::{self, Ground},
    hold_all,
    progress::Progress,
    seeds,
};
use minos_base::seeded_stream;
use minos_testkit::history::{Ticks, Verdict, check};

/// The sum of a counter over all workers, or the counter itself if there is one for all.
fn total(server: &TestServer, name: &str) -> u64 {
    let mut total = 0;
    server.server.operator().stats(StatsGroup::Minos, &mut |counter, value| {
        if counter.rsplit(':').next() == Some(name) {
            total += value.to_string().parse::<u64>().unwrap();
        }
    });
    total
}

/// Runs `run` at such a server with each seed; `handed` counts what it must have handed over.
fn each_seed<W: Access + Copy + Eq>(handed: &str, run: impl Fn(Setting<'_>, &TestServer)) {
    let ground = Ground::Memory;
    for seed in seeds(ground) {
        eprintln!("MINOS_ROLE_CHANGES_SEED={seed}");
        let mut config = ground::config(&mut seeded_stream(seed, SERVER_STREAM));
        config.dispatch = Design::KeyHash;
        config.value_bytes_max = ground.shape().value_bytes_max as u64;
        let server = TestServer::with_memory::<StoreMode<W>>(ground::MEMORY_BYTES, config);
        let (ticks, progress, shape) = (Ticks::default(), Progress::default(), ground.shape());
        run(Setting { server: address(&server), seed, shape, ticks: &ticks, progress: &progress }, &server);
        assert!(total(&server, handed) > 100, "hardly anything was handed over");
        flips::assert_nothing_is_held(&server);
        server.server.stop().request();
        server.server.join().expect("no worker has touched the partition of another");
    }
}

fn answers<W: Access + Copy + Eq>() {
    each_seed::<W>("to_owner", |setting, _| {
        assert_eq!(check(&hold_all(setting), STATES_MAX), Verdict::Linearizable);
    });
    each_seed::<W>("native_to_owner", |setting, server| {
        let mut tickets = call_all(setting, server.server.native_address().unwrap());
        tickets.sort_unstable();
        assert!(tickets.iter().copied().eq(0..(NATIVE.len() * VECTORS) as u64), "{tickets:?}");
    });
}

#[test]
fn only_owners_touch_partitions() {
    answers::<Erew>();
}

#[test]
fn only_owners_write_to_partitions() {
    answers::<Crew>();
}
