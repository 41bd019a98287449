//! Sends the answers of a burst through a port.

use std::{io::IoSlice, net::SocketAddr, ops::Range};

use minos_engine::Mode;
use minos_net::{
    Port,
    udp::{BURST_MESSAGES, Sent, TransmitBurst},
};

use super::native::Egress;
use crate::{
    ops::counters::Counters,
    rack::Guard,
    worker::{metrics::Metrics, rings::WorkerShared},
};

/// Bytes of answers after which they are sent before the burst ends.
const COMPOSED_BYTES_MAX: usize = 512 << 10;

/// Composes and sends answers; its memory is kept from burst to burst.
#[derive(Default)]
pub(crate) struct Outbound(TransmitBurst);

/// Sends answers through one port and counts the trains. Code that composes in the buffer counts its bytes
/// itself.
pub(crate) struct PortEgress<'a, P> {
    burst: &'a mut TransmitBurst,
    port: &'a P,
    metrics: &'a Metrics,
    counters: &'a Counters,
    guard: Option<Guard<'a>>,
}

impl Outbound {
    /// The egress that sends answers of `worker` through `port`, or drops those that do not pass the guard.
    pub(crate) fn through<'a, M: Mode, P: Port>(
        &'a mut self,
        port: &'a P,
        worker: &'a WorkerShared<M>,
        guard: Option<Guard<'a>>,
    ) -> PortEgress<'a, P> {
        let (metrics, counters) = (&worker.metrics, &worker.counters);
        PortEgress { burst: &mut self.0, port, metrics, counters, guard }
    }
}

impl<P: Port> PortEgress<'_, P> {
    fn may_answer(&self) -> bool {
        self.guard.is_none_or(|guard| guard.may_answer())
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

impl<P: Port> Egress for PortEgress<'_, P> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        self.burst.buffer()
    }

    fn queue_train(&mut self, peer: SocketAddr, train: Range<usize>, segment_bytes: usize) {
        if !self.burst.queue(peer, train, segment_bytes) {
            self.metrics.native_trains_dropped.count();
        }
    }

    fn has_room(&mut self) -> bool {
        self.burst.len() + 2 <= BURST_MESSAGES && self.burst.buffer().len() < COMPOSED_BYTES_MAX
    }

    /// In one call.
    fn flush(&mut self) {
        if self.burst.is_empty() {
            return;
        }
        if !self.may_answer() {
            self.metrics.native_trains_dropped.add(self.burst.len() as u64);
            return self.burst.clear();
        }
        let sent = self.port.send(self.burst);
        self.count(sent);
    }

    fn send(&mut self, peer: SocketAddr, bytes: &[u8], segment_bytes: usize) {
        self.make_room();
        self.counters.bytes_written.add(bytes.len() as u64);
        if !self.burst.push(peer, bytes, segment_bytes) {
            self.metrics.native_trains_dropped.count();
        }
    }

    fn send_gather(&mut self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) {
        // The datagrams that announce these bytes must leave first.
        self.flush();
        // Nothing may have been queued, so that nothing was asked.
        if !self.may_answer() {
            return self.metrics.native_trains_dropped.count();
        }
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.counters.bytes_written.add(bytes as u64);
        let sent = self.port.send_gather(peer, pieces, segment_bytes);
        self.count(sent);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, time::Instant};

    use minos_engine::StoreMode;
    use minos_net::Kernel;

    use super::*;
    use crate::{
        datagram::ports::Ports,
        rack::{Rack, config::RackConfig},
        server::config::NativeConfig,
    };

    #[test]
    fn pieces_of_a_value_do_not_leave_after_the_lease_of_their_turn() {
        let rack = Rack::<StoreMode>::new(RackConfig::of_units(0, &[0, 0], 4), 1);
        rack.routes.hold(1, u64::MAX);
        let guard = Guard { routes: &rack.routes, term: rack.routes.term(Instant::now()) };
        let ports = Ports::open(&Kernel, &NativeConfig::new(([127, 0, 0, 1], 0).into()), 1).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_nonblocking(true).unwrap();
        let (metrics, counters, mut burst) =
            (Metrics::default(), Counters::default(), TransmitBurst::default());
        for (lease, dropped) in [(1, 0), (2, 1)] {
            rack.routes.hold(lease, u64::MAX);
            let mut egress = PortEgress {
                burst: &mut burst,
                port: ports.port(0),
                metrics: &metrics,
                counters: &counters,
                guard: Some(guard),
            };
            egress.send_gather(client.local_addr().unwrap(), &[IoSlice::new(b"value")], 5);
            assert_eq!(client.recv(&mut [0; 9]).is_ok(), dropped == 0);
            assert_eq!(metrics.native_trains_dropped.value(), dropped);
        }
    }
}
