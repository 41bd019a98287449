//! Answers of a burst on their way to a socket.

use std::{io::IoSlice, net::SocketAddr, ops::Range};

use arrayvec::ArrayVec;
use minos_engine::Mode;
use minos_net::udp::{BURST_MESSAGES, Sent, TransmitBurst, UdpPort};

use crate::{counters::Counters, metrics::Metrics, native::Egress, shared::WorkerShared};

/// Bytes of answers after which they are sent, though the burst has not ended.
const COMPOSED_BYTES_MAX: usize = 512 << 10;

/// Where answers are composed, in memory that is kept from burst to burst.
#[derive(Default)]
pub(crate) struct Outbound {
    buffer: Vec<u8>,
    trains: ArrayVec<Train, BURST_MESSAGES>,
    burst: TransmitBurst,
}

struct Train {
    peer: SocketAddr,
    bytes: Range<usize>,
    segment_bytes: usize,
}

/// Answers leave through one port, and what became of them is counted.
pub(crate) struct PortEgress<'a> {
    outbound: &'a mut Outbound,
    port: &'a UdpPort,
    metrics: &'a Metrics,
    counters: &'a Counters,
}

impl Outbound {
    /// Lets answers of `worker` leave through `port`.
    pub(crate) fn through<'a, M: Mode>(
        &'a mut self,
        port: &'a UdpPort,
        worker: &'a WorkerShared<M>,
    ) -> PortEgress<'a> {
        PortEgress { outbound: self, port, metrics: &worker.metrics, counters: &worker.counters }
    }
}

impl PortEgress<'_> {
    /// Sends whatever is queued, in one call.
    pub(crate) fn flush(&mut self) {
        let Outbound { buffer, trains, burst } = &mut *self.outbound;
        if trains.is_empty() {
            return;
        }
        self.counters.bytes_written.add(buffer.len() as u64);
        for train in trains.drain(..) {
            // There is room for as many trains as were queued.
            let _ = burst.push(train.peer, &buffer[train.bytes], train.segment_bytes);
        }
        buffer.clear();
        let sent = burst.send(self.port);
        self.count(sent);
    }

    fn count(&self, sent: Sent) {
        if sent.trains > 0 {
            self.metrics.native_trains_sent.add(sent.trains);
        }
        if sent.dropped + sent.too_long + sent.refused > 0 {
            self.metrics.native_trains_dropped.add(sent.dropped);
            self.metrics.native_trains_too_long.add(sent.too_long);
            self.metrics.native_trains_refused.add(sent.refused);
        }
    }
}

impl Egress for PortEgress<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.outbound.buffer
    }

    fn queue_train(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize) {
        let train = Train { peer, bytes: train, segment_bytes };
        if self.outbound.trains.try_push(train).is_err() {
            self.metrics.native_trains_dropped.count();
        }
    }

    fn make_room(&mut self) {
        let Outbound { buffer, trains, .. } = &*self.outbound;
        // One train may be queued before there is the next chance.
        if trains.len() + 1 >= BURST_MESSAGES || buffer.len() >= COMPOSED_BYTES_MAX {
            self.flush();
        }
    }

    fn send_gather(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) {
        // What announces these bytes goes before them.
        self.flush();
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.counters.bytes_written.add(bytes as u64);
        let sent = self.port.send_gather(peer, pieces, segment_bytes);
        self.count(sent);
    }
}
