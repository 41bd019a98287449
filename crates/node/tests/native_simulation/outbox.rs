//! The answers of a simulated worker.

use std::{io::IoSlice, net::SocketAddr, ops::Range};

use minos_node::native::Egress;
use minos_proto::native::{TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX};

/// Datagrams to be sent, split from trains.
#[derive(Default)]
pub(crate) struct Outbox {
    buffer: Vec<u8>,
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
        let train = self.buffer[train].to_vec();
        self.split(peer, &train, segment_bytes);
    }

    fn make_room(&mut self) {
        self.buffer.clear();
    }

    fn send_gather(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) {
        let train: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.split(peer, &train, segment_bytes);
    }
}
