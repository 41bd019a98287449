//! Datagrams in bursts and trains.
//!
//! A system call a datagram is the cost to beat (MICA §4.1.1 polls bursts from the card for the same
//! reason). A [`UdpPort`] carries up to [`BURST_MESSAGES`] messages a call, and each message may be a
//! *train*: segments of equal size for one peer, of which only the last may be shorter, that walk
//! through the kernel as one (UDP_SEGMENT on the way out, UDP_GRO on the way in). Where the kernel or a
//! device knows no trains, the segments go as messages of their own, and the sender sees no difference.
//!
//! Datagrams may be lost at every step, so nothing here waits or fails for one: datagrams that the kernel
//! refuses are dropped and counted ([`Sent`]).

mod gather;
mod name;
mod open;
mod options;
mod port;
mod receive;
mod submit;
mod transmit;

pub use open::steer_by_queue;
pub use port::{UdpOptions, UdpPort};
pub use receive::{Message, ReceiveBurst, Received};
pub use submit::Sent;
pub use transmit::TransmitBurst;

use std::net::SocketAddr;

/// Messages that one call receives at most, and trains that one call sends.
pub const BURST_MESSAGES: usize = 32;
/// Maximum of segments in a train: kernels from 4.18 on accept as many.
pub const TRAIN_SEGMENTS_MAX: usize = 64;
/// Bytes of a train at most, which leaves room for all headers in an IP packet of 64 KiB.
pub const TRAIN_BYTES_MAX: usize = 65_000;
/// Room for one received message: no UDP payload and no train is longer.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of IP and UDP headers before each datagram to `peer`; a path's MTU includes them.
pub const fn header_bytes(peer: &SocketAddr) -> usize {
    if peer.is_ipv4() { 20 + 8 } else { 40 + 8 }
}

/// The most bytes that may travel as one message cut into segments of `segment_bytes`.
const fn train_bytes(segment_bytes: usize) -> usize {
    let fitting = TRAIN_BYTES_MAX / segment_bytes;
    let segments = if fitting > TRAIN_SEGMENTS_MAX { TRAIN_SEGMENTS_MAX } else { fitting };
    if segments > 1 { segments * segment_bytes } else { segment_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_holds_whole_segments_within_both_bounds() {
        assert_eq!(train_bytes(1), 64);
        assert_eq!(train_bytes(1000), 64_000);
        assert_eq!(train_bytes(1448), 44 * 1448);
        assert_eq!(train_bytes(8952), 7 * 8952);
        assert_eq!(train_bytes(40_000), 40_000);
        assert_eq!(train_bytes(70_000), 70_000);
    }

    #[test]
    fn an_mtu_holds_the_headers_of_its_family() {
        assert_eq!(1500 - header_bytes(&"127.0.0.1:1".parse().unwrap()), 1472);
        assert_eq!(1500 - header_bytes(&"[::1]:1".parse().unwrap()), 1452);
    }
}
