//! One file for each contestant.

mod fjall;
mod foyer;
mod minos;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use super::job::{Peer, Plan};
use anyhow::Result;

pub(super) type Key = [u8; 8];

/// Bytes after which who fills a cache waits until they are written: a cache drops what comes too fast.
const QUEUE_BYTES_MAX: usize = 4 << 20;

/// A store or cache on flash, for one thread.
pub(super) trait Store {
    /// Reads a vector of keys; `found` is called for each that has a value, with its number, in any order.
    fn get_many(&mut self, keys: &[Key], found: &mut dyn FnMut(usize, &[u8])) -> Result<()>;

    /// Stores a vector of items; waits if it cannot take more, rather than lose some.
    fn put_many(&mut self, items: &[(Key, Vec<u8>)]) -> Result<()>;

    /// Waits until all items are on the device, or where they stay, and until nothing is written any more.
    fn settle(&mut self) -> Result<()>;
}

/// Opens the contestant of a plan in its folder, which is empty.
pub(super) fn open(plan: &Plan) -> Result<Box<dyn Store>> {
    Ok(match plan.peer {
        Peer::MinosStore => Box::new(minos::Minos::open(plan, true)?),
        Peer::MinosCache => Box::new(minos::Minos::open(plan, false)?),
        Peer::Foyer => Box::new(foyer::Foyer::open(plan, false)?),
        Peer::FoyerUring => Box::new(foyer::Foyer::open(plan, true)?),
        Peer::Fjall => Box::new(fjall::Fjall::open(plan, false)?),
        Peer::FjallBlobs => Box::new(fjall::Fjall::open(plan, true)?),
        #[cfg(feature = "rocksdb")]
        Peer::Rocksdb => Box::new(rocksdb::Rocks::open(plan, false)?),
        #[cfg(feature = "rocksdb")]
        Peer::RocksdbBlobs => Box::new(rocksdb::Rocks::open(plan, true)?),
    })
}

/// Bytes of a file that holds all items in `item_bytes` each and is filled to 60 %, and of its segments.
fn file_and_segment_bytes(plan: &Plan, item_bytes: u64) -> (u64, u64) {
    let file_bytes = (plan.items * item_bytes * 100 / 60 + (64 << 20)).next_multiple_of(1 << 20);
    (file_bytes, (file_bytes / 64).next_power_of_two().clamp(1 << 20, 16 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::load_order;
    use clap::ValueEnum;

    /// Stores items in all contestants, finds them again, and nothing else.
    #[test]
    fn every_peer_returns_what_was_stored() {
        for &peer in Peer::value_variants() {
            let folder = tempfile::tempdir().expect("a folder");
            let plan = Plan {
                peer,
                folder: folder.path().join("peer"),
                items: 2000,
                value_bytes: 1024,
                memory_bytes: 32 << 20,
            };
            std::fs::create_dir(&plan.folder).expect("a folder");
            let mut store = open(&plan).unwrap_or_else(|error| panic!("{peer:?}: {error:#}"));
            let items: Vec<(Key, Vec<u8>)> =
                load_order(plan.items).map(|key: Key| (key, key.repeat(128))).collect();
            items.chunks(32).for_each(|items| store.put_many(items).expect("room"));
            store.settle().expect("a device");
            let mut keys: Vec<Key> = items.iter().map(|(key, _)| *key).collect();
            keys.push(*b"a strang");
            let mut found = 0;
            let mut check = |at: usize, value: &[u8]| {
                assert!(value == items[at].1, "{peer:?}");
                found += 1;
            };
            store.get_many(&keys[..1], &mut check).expect("a device");
            store.get_many(&keys[1..33], &mut |at, value| check(at + 1, value)).expect("a device");
            store.get_many(&keys[1990..], &mut |at, value| check(at + 1990, value)).expect("a device");
            assert_eq!(found, 43, "{peer:?}");
        }
    }
}
