//! Ports in a row, for the nodes of a rack.

use std::{
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use minos_testkit::is_free;

/// Ports of a row.
const ROW: u16 = 8;
/// The first row, and how many there are: below the ports of single servers, which begin at 18,000.
const FIRST: u16 = 10_000;
const ROWS: u32 = 1000;

/// The first of so many ports in a row that nobody uses, for connections or datagrams.
pub(crate) fn free_ports(count: usize) -> u16 {
    // Tests that run at the same time take other rows.
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    assert!(count <= usize::from(ROW));
    let first = process::id().wrapping_mul(101);
    for _ in 0..ROWS {
        let row = first.wrapping_add(TAKEN.fetch_add(1, Relaxed)) % ROWS;
        let port = FIRST + row as u16 * ROW;
        if (port..port + count as u16).all(|port| is_free(port).unwrap()) {
            return port;
        }
    }
    panic!("all {ROWS} rows of ports are in use");
}
