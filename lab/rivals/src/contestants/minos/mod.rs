//! The Minos engine in all its modes, each used in several ways.

mod ways;

use crate::{
    contestant::{Contestant, Setup},
    workload::{Routing, load_order, value},
};
use anyhow::{Context, ensure};
use minos_base::Seconds;
use minos_engine::{Access, Crcw, Crew, Engine, Erew, ItemMeta, Mode, StoreConfig, StoreMode};
use std::sync::Arc;
use ways::{EngineWorker, Way};

/// The time never changes: nothing expires.
const NOW: Seconds = 2;

/// Beside key and value, in bytes: header, heap and index, rounded up so that there is room to replace.
const ITEM_OVERHEAD_BYTES: u64 = 112;

/// Loads a table in each mode of data access.
pub(super) fn contestants<M: Mode, const KEY: usize, const VALUE: usize>(
    setup: &Setup,
) -> anyhow::Result<Vec<Contestant<KEY>>> {
    let mut contestants = load::<M, Erew, KEY, VALUE>(setup)?;
    contestants.extend(load::<M, Crew, KEY, VALUE>(setup)?);
    contestants.extend(load::<M, Crcw, KEY, VALUE>(setup)?);
    Ok(contestants)
}

fn config<const KEY: usize, const VALUE: usize>(setup: &Setup) -> StoreConfig {
    let bytes = setup.items * ((KEY + VALUE) as u64 + ITEM_OVERHEAD_BYTES) + (64 << 20);
    StoreConfig { backing: setup.backing.clone(), owners: setup.threads as u32, ..StoreConfig::new(bytes) }
}

/// Loads all items, and makes a contestant of each way to use the table.
fn load<M: Mode, A: Access, const KEY: usize, const VALUE: usize>(
    setup: &Setup,
) -> anyhow::Result<Vec<Contestant<KEY>>> {
    let table = Arc::new(Engine::<M, A>::create(&config::<KEY, VALUE>(setup))?);
    ensure!(table.partitions() >= setup.threads, "too few items for so many threads");
    for key in load_order::<KEY>(setup.items) {
        let value: [u8; VALUE] = value(&key);
        let stored = table.entry(table.hash(&key), &key, NOW).insert(&[&value], ItemMeta::default());
        stored.context("the table is too small for the items")?;
    }
    // To the threads that run the operations.
    (0..setup.threads).for_each(|owner| table.give_up(owner));
    let name = format!("minos {} {}", M::NAME, A::NAME);
    eprintln!("{name}: {}, {:.0} bytes an item", table.backing_text(), table.stats().bytes_per_item());
    let contestant = |way: Way| Contestant {
        name: format!("{name}, {}", way.text(setup.batch)),
        routing: match (A::IS_BY_THREAD, A::IS_SHARED) {
            (false, _) => Routing::Any,
            (true, true) => Routing::OwnerWrites(table.partitions()),
            (true, false) => Routing::Owner(table.partitions()),
        },
        is_lossy: M::NAME != StoreMode::<Crcw>::NAME,
        workers: (0..setup.threads)
            .map(|owner| EngineWorker::<M, A, VALUE>::boxed(&table, owner, way, setup))
            .collect(),
    };
    Ok([Way::Many, Way::Staged, Way::Plain].map(contestant).into())
}
