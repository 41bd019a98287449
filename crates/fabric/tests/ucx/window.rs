//! The reader of coherent memory over memory that UCX has mapped.

use super::{
    memory,
    owner::{KEYS, KEYS_LASTING, Owner, turn_of},
};
use minos_engine::{
    Answer, ReadOnly, StoreMode,
    remote::rig::{MICRO_SHARD, NOW},
};
use minos_fabric::ucx::UcxWindow;

const READS: u64 = 300_000;

/// Values, and misses.
#[derive(Debug, Default)]
struct Counts {
    found: u64,
    missing: u64,
}

fn window(advertisement: &[u8]) -> UcxWindow {
    // SAFETY: it is of a test's own memory, which keeps its length.
    unsafe { UcxWindow::open(None, advertisement) }.unwrap()
}

fn read(table: &ReadOnly<StoreMode>, reads: u64) -> Counts {
    let (mut latest, mut counts, mut value) = (vec![0; KEYS as usize], Counts::default(), Vec::new());
    for key in (0..reads).map(|number| number % KEYS) {
        let (name, least) = (key.to_le_bytes(), latest[key as usize]);
        let answer = table.read_owned(MICRO_SHARD, table.hash(&name), &name, NOW, |item| {
            value.clear();
            item.copy_value_to(&mut value);
        });
        match answer {
            Answer::Found(()) => {
                let turn = turn_of(key, &value).filter(|&turn| turn >= least);
                latest[key as usize] =
                    turn.unwrap_or_else(|| panic!("{value:?} for key {key}, after {least}"));
                counts.found += 1;
            }
            Answer::Missing => {
                assert!(key < KEYS_LASTING, "key {key} is missing");
                counts.missing += 1;
            }
            Answer::AskOwner => {}
        }
    }
    counts
}

#[test]
fn answers_from_a_window_are_true() {
    let mut owner = Owner::start();
    let table = ReadOnly::<StoreMode>::from_image(window(&owner.advertisement).image().unwrap()).unwrap();
    let counts = read(&table, READS);
    println!("{counts:?}");
    assert!(counts.found > 1000 && counts.missing > 100, "{counts:?}");
    owner.kill();
    println!("killed: {:?}", read(&table, 1000));
}

#[test]
fn a_window_on_no_region_is_refused() {
    let (memory, _) = memory();
    assert!(window(memory.advertisement()).image().is_err());
}
