//! The answers of a simulated worker.

use std::{io::IoSlice, net::SocketAddr, ops::Range};

use minos_net::udp::BURST_MESSAGES;
use minos_node::native::Egress;
use minos_proto::native::{TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX};

/// Datagrams to be sent, split from trains.
#[derive(Default)]
pub(crate) struct Outbox {
    buffer: Vec<u8>,
    /// Trains in the buffer.
    queued: usize,
    pub(crate) datagrams: Vec<(SocketAddr, Vec<u8>)>,
}

impl Outbox {
    fn split(&mut self, peer: SocketAddr, train: &[u8], segment_bytes: usize) {
        assert!(segment_bytes > 0 && train.len() <= TRAIN_BYTES_MAX, "a train of {} bytes", train.len());
        assert!(train.len().div_ceil(segment_bytes) <= TRAIN_SEGMENTS_MAX, "too many segments");
        self.datagrams.extend(train.chunks(segment_bytes).map(|datagram| (peer, datagram.to_vec())));
    }
}

impl Egress for Outbox {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    fn queue_train(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize) {
        self.queued += 1;
        assert!(self.queued <= BURST_MESSAGES, "a port would drop it");
        let train = self.buffer[train].to_vec();
        self.split(peer, &train, segment_bytes);
    }

    fn has_room(&mut self) -> bool {
        self.queued + 2 <= BURST_MESSAGES
    }

    fn flush(&mut self) {
        self.queued = 0;
        self.buffer.clear();
    }

    fn send_gather(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) {
        self.flush();
        let train: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.split(peer, &train, segment_bytes);
    }
}
