//! Sending of answers.

use std::{io::IoSlice, net::SocketAddr, ops::Range};

/// Sends trains of datagrams, at the end of a burst or when enough are queued.
///
/// A train is sent to one peer as a whole: datagrams of `segment_bytes` each, of which only the last may be
/// shorter, at most [`TRAIN_SEGMENTS_MAX`](minos_proto::native::TRAIN_SEGMENTS_MAX) of them and at most
/// [`TRAIN_BYTES_MAX`](minos_proto::native::TRAIN_BYTES_MAX) bytes. Trains that cannot be sent are dropped:
/// this is a datagram protocol.
pub trait Egress {
    /// The bytes of the queued trains. The next train is composed at the end, so that a value is copied once,
    /// from its item to the memory that the kernel reads; the bytes before it stay unchanged.
    fn buffer(&mut self) -> &mut Vec<u8>;

    /// Queues the train in this part of [`Egress::buffer`], which stays unchanged.
    fn queue_train(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize);

    /// Called when no train is being composed. Queued trains may be sent and the buffer emptied, so that it
    /// does not grow with the number of trains.
    fn make_room(&mut self);

    /// Sends a train that consists of concatenated pieces; segments may begin anywhere in them. The pieces
    /// may change once the call returns. Called when no train is being composed.
    fn send_gather(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize);

    /// Queues a train from elsewhere. Called when no train is being composed.
    fn send(&mut self, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) {
        self.make_room();
        let buffer = self.buffer();
        let start = buffer.len();
        buffer.extend_from_slice(bytes);
        let train = start..buffer.len();
        self.queue_train(peer, train, segment_bytes);
    }
}
