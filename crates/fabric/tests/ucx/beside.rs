//! The tests of every fabric, over UCX.

use super::{BYTES, fabric};
use minos_engine::{
    CacheMode, Mode, StoreMode,
    remote::rig::{Beside, run},
};
use minos_fabric::ucx::{Ucx, UcxMemory, Way};
use std::sync::Arc;

fn beside<M: Mode>(seed: u64, way: Way) -> Beside<M, Ucx> {
    let memory = Arc::new(UcxMemory::allocate(None, BYTES as usize).unwrap());
    Beside::new(seed, memory.backing(), |_| fabric(memory.advertisement(), way))
}

#[test]
fn answers_beside_the_engine_were_true() {
    for way in [Way::Get, Way::Load] {
        let counts = run(|seed| beside::<StoreMode>(seed, way), (8, 5000)).unwrap();
        println!("{way:?} {counts:?}");
        counts.are_at_least(100);
        let counts = run(|seed| beside::<CacheMode>(seed, way), (3, 3000)).unwrap();
        println!("{way:?} {counts:?}");
        counts.are_at_least(100);
    }
}
