//! The Minos engine in all its modes, each used in several ways.

mod handle;
mod ways;

use crate::{
    contestant::{Contestant, Setup, Worker},
    workload::{Routing, load_order, owner, value},
};
use anyhow::{Context, ensure};
use handle::{Handle, Own, Owned, Shared, Writer};
use minos_base::{Seconds, hash_key};
use minos_engine::{Access, Crcw, Crew, Engine, Erew, ItemMeta, Mode, StoreConfig, StoreMode};
use std::sync::{Arc, Mutex};
use ways::{EngineWorker, Way};

/// The time never changes: nothing expires.
const NOW: Seconds = 2;

/// Beside key and value, in bytes: header, heap and index, rounded up so that there is room to replace.
const ITEM_OVERHEAD_BYTES: u64 = 112;

/// The handles of a table (or of one table for each thread), before it is loaded.
struct Table<H> {
    handles: Vec<H>,
    routing: Routing,
    backing_text: String,
}

/// Loads a table in each mode of data access.
pub(super) fn contestants<M: Mode, const KEY: usize, const VALUE: usize>(
    setup: &Setup,
) -> anyhow::Result<Vec<Contestant<KEY>>>
where
    Engine<M, Crew>: Send + Sync,
    Engine<M, Crcw>: Send + Sync,
{
    let mut contestants = load::<_, KEY, VALUE>(erew::<M, KEY, VALUE>(setup)?, setup)?;
    contestants.extend(load::<_, KEY, VALUE>(crew::<M, KEY, VALUE>(setup)?, setup)?);
    contestants.extend(load::<_, KEY, VALUE>(crcw::<M, KEY, VALUE>(setup)?, setup)?);
    Ok(contestants)
}

/// A private table for each thread.
fn erew<M: Mode, const KEY: usize, const VALUE: usize>(setup: &Setup) -> anyhow::Result<Table<Own<M>>> {
    let tables = setup.threads as u64;
    let shard_bits = setup.threads.ilog2();
    let config = StoreConfig { shard_bits, ..config::<KEY, VALUE>(setup, setup.items / tables) };
    let handles = (0..tables).map(|_| Engine::<M, Erew>::create(&config).map(Own));
    let handles = handles.collect::<Result<Vec<_>, _>>()?;
    let backing_text = handles[0].0.backing_text().to_owned();
    Ok(Table { handles, routing: Routing::Owner, backing_text })
}

/// One table; each thread owns some of its partitions.
fn crew<M: Mode, const KEY: usize, const VALUE: usize>(setup: &Setup) -> anyhow::Result<Table<Owned<M>>> {
    let config = config::<KEY, VALUE>(setup, setup.items);
    let (engine, owners) = Engine::<M, Crew>::create_owned(&config, setup.threads)?;
    ensure!(engine.partitions() >= setup.threads, "too few items for so many threads");
    let handles = owners.into_iter().map(|owner| Owned { engine: Arc::clone(&engine), owner });
    let backing_text = engine.backing_text().to_owned();
    Ok(Table { handles: handles.collect(), routing: Routing::OwnerWrites, backing_text })
}

/// One table for all threads.
fn crcw<M: Mode, const KEY: usize, const VALUE: usize>(setup: &Setup) -> anyhow::Result<Table<Shared<M>>> {
    let engine = Arc::new(Engine::<M, Crcw>::create(&config::<KEY, VALUE>(setup, setup.items))?);
    let backing_text = engine.backing_text().to_owned();
    let handles = (0..setup.threads).map(|_| Shared(Arc::clone(&engine))).collect();
    Ok(Table { handles, routing: Routing::Any, backing_text })
}

fn config<const KEY: usize, const VALUE: usize>(setup: &Setup, items: u64) -> StoreConfig {
    let bytes = items * ((KEY + VALUE) as u64 + ITEM_OVERHEAD_BYTES) + (64 << 20);
    StoreConfig { backing: setup.backing.clone(), ..StoreConfig::new(bytes) }
}

/// Loads all items, and makes a contestant of each way to use the table.
fn load<H: Handle, const KEY: usize, const VALUE: usize>(
    table: Table<H>,
    setup: &Setup,
) -> anyhow::Result<Vec<Contestant<KEY>>> {
    let Table { mut handles, routing, backing_text } = table;
    for key in load_order::<KEY>(setup.items) {
        let hash = hash_key(&key, 0);
        let (_, mut writer) = handles[owner(hash, setup.threads)].split();
        let value: [u8; VALUE] = value(&key);
        let stored = writer.entry(hash, &key).insert(&[&value], ItemMeta::default());
        stored.context("the table is too small for the items")?;
    }
    let name = format!("minos {} {}", H::Mode::NAME, H::Access::NAME);
    eprintln!("{name}: {backing_text}, {:.0} bytes an item", bytes_per_item(&mut handles));
    let handles: Vec<_> = handles.into_iter().map(|handle| Arc::new(Mutex::new(handle))).collect();
    let contestant = |way: Way| Contestant {
        name: format!("{name}, {}", way.text(setup.batch)),
        routing,
        is_lossy: H::Mode::NAME != StoreMode::NAME,
        workers: handles.iter().map(|handle| worker::<H, KEY, VALUE>(handle, way, setup)).collect(),
    };
    Ok([Way::Many, Way::Staged, Way::Plain].map(contestant).into())
}

fn worker<H: Handle, const KEY: usize, const VALUE: usize>(
    handle: &Arc<Mutex<H>>,
    way: Way,
    setup: &Setup,
) -> Box<dyn Worker<KEY>> {
    Box::new(EngineWorker::<H, VALUE>::new(Arc::clone(handle), way, setup))
}

fn bytes_per_item<H: Handle>(handles: &mut [H]) -> f64 {
    handles.first_mut().map_or(0.0, |handle| handle.split().0.stats().bytes_per_item())
}
