//! Where answers leave to.

use std::{io::IoSlice, net::SocketAddr, ops::Range};

/// Takes trains of datagrams and sends them, at the end of a burst or whenever it has enough.
///
/// A train is what goes to one peer as a whole: datagrams of `segment_bytes` each, of which only the last may be
/// shorter, at most [`TRAIN_SEGMENTS_MAX`](minos_proto::native::TRAIN_SEGMENTS_MAX) of them and at most
/// [`TRAIN_BYTES_MAX`](minos_proto::native::TRAIN_BYTES_MAX) bytes. What cannot be sent is dropped: this is a protocol
/// of datagrams.
pub trait Egress {
    /// The bytes of the trains that are queued. The next one is composed at the end, so that a value is copied once
    /// from its item to where the kernel takes it from; what is there before stays as it is.
    fn buffer(&mut self) -> &mut Vec<u8>;

    /// Queues a train that lies in this part of [`Egress::buffer`], which stays as it is.
    fn queue_train(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize);

    /// Called when nothing is being composed: whatever is queued may be sent, and the buffer emptied, so that it
    /// does not grow with the number of trains.
    fn make_room(&mut self);

    /// Sends a train that lies in pieces, one after the other; segments may begin anywhere in them. They are not
    /// needed afterwards. Called when nothing is being composed.
    fn send_gather(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize);

    /// Queues a train that lies elsewhere. Called when nothing is being composed.
    fn send(&mut self, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) {
        self.make_room();
        let buffer = self.buffer();
        let start = buffer.len();
        buffer.extend_from_slice(bytes);
        let train = start..buffer.len();
        self.queue_train(peer, train, segment_bytes);
    }
}
