//! Reads over UCX: beside an engine of this process, beside one of another process that writes meanwhile, and of lines
//! that are written meanwhile. `cargo xtask ucx` runs these.

mod beside;
mod ends;
mod lines;
mod owner;
mod reader;
mod refusals;
mod window;

use minos_fabric::ucx::{Ucx, UcxMemory, Way};
use minos_region::Backing;
use std::sync::Arc;

const BYTES: u64 = 2 << 20;

/// Memory for a table.
fn memory() -> (Arc<UcxMemory>, Backing) {
    let memory = Arc::new(UcxMemory::allocate(None, BYTES as usize).unwrap());
    let backing = memory.backing();
    (memory, backing)
}

/// A fabric whose peer 0 has this advertisement.
fn fabric(advertisement: &[u8], way: Way) -> Ucx {
    let mut fabric = Ucx::open(None, way).unwrap();
    // SAFETY: it is of a test's own memory, which keeps its length.
    assert_eq!(unsafe { fabric.connect(advertisement) }.unwrap(), 0);
    fabric
}
