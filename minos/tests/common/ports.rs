//! Ports in a row, for the nodes of a rack.

use std::{
    net::TcpListener,
    process,
    sync::atomic::{AtomicU16, Ordering::Relaxed},
};

/// The first of so many ports in a row that nobody uses.
pub(crate) fn free_ports(count: usize) -> u16 {
    // Tests that run at the same time take other ports. Those above 32,767 go to connections at any time.
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    const ROW: u16 = 8;
    assert!(count <= usize::from(ROW));
    let first = 10_000 + (process::id() % 1000) as u16 * ROW;
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let port = first + TAKEN.fetch_add(ROW, Relaxed);
        if (port..port + count as u16).all(is_free) {
            return port;
        }
    }
}
