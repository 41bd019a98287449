//! Bounds that protocol, engine and workers agree on.

use std::time::Duration;

/// Longest key, in bytes, as in memcached.
pub const KEY_BYTES_MAX: usize = 250;

/// Longest key of an item, in bytes. Only clients of Redis' protocol can name one of more than [`KEY_BYTES_MAX`].
pub const ITEM_KEY_BYTES_MAX: usize = 64 << 10;

/// Requests taken from one RX queue in one burst (Minos §5.2, B = 32).
pub const BURST_MAX: usize = 32;

/// Value bytes that one network packet carries: an Ethernet frame less IPv4 and TCP headers.
pub const PACKET_BYTES: u64 = 1448;

/// Bytes of a large transfer that are served between two polls of the RX queues: 45 full packets, which a
/// send over loopback, whose packets carry 65 483 bytes, takes in one piece. A few bytes more are a packet of
/// their own there, which waits for the next slice, or for the receiver.
pub const SLICE_BYTES: usize = 45 * PACKET_BYTES as usize;

/// Default for the largest value a client may store, in bytes.
pub const ITEM_BYTES_MAX_DEFAULT: u64 = 8 << 20;

/// Default bound on client connections of one server, as in memcached.
pub const CONNECTIONS_MAX_DEFAULT: usize = 1024;

/// Largest number of workers one server may have.
pub const WORKERS_MAX: usize = 128;

/// Bound on a turn of a worker's or a driver's loop, as bursts and slices are bounded: only preemption or a
/// single long request exceeds it. Longer turns are counted.
pub const LONG_TURN: Duration = Duration::from_millis(1);
