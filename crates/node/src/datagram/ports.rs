//! The ports of the native protocol: one for each RX queue, and one for each worker's large transfers.

use std::{io, net::SocketAddr};

use minos_net::{CardCounts, Io, Port, PortOptions, Way};

use crate::server::config::NativeConfig;

/// The ports of the native protocol. The holder of an RX queue's lock receives from its port; only the
/// worker itself receives from its transfer port.
#[derive(Debug)]
pub(crate) struct Ports<P> {
    queues: Vec<P>,
    transfers: Vec<P>,
}

impl<P: Port> Ports<P> {
    /// Opens the ports of `workers` workers: consecutive ones, or all at one address.
    ///
    /// # Errors
    /// The kernel's error, or no free range of ports.
    pub(crate) fn open(io: &impl Io<Port = P>, config: &NativeConfig, workers: usize) -> io::Result<Self> {
        let mut queues = io.ports(&PortOptions {
            address: config.address,
            count: 2 * workers,
            shares_address: config.single_port,
            receive_buffer_bytes: config.receive_buffer_bytes,
            source: config.source.clone(),
        })?;
        let transfers = queues.split_off(workers);
        let ports = Self { queues, transfers };
        ports.log(config);
        Ok(ports)
    }

    /// Messages that the kernel dropped because they were not received in time.
    pub(crate) fn overruns(&self) -> u64 {
        self.queues.iter().chain(&self.transfers).map(P::overruns).sum()
    }

    /// Counts of datagrams from and to the card's queues, of all ports.
    pub(crate) fn card_counts(&self) -> CardCounts {
        let mut counts = CardCounts::default();
        self.queues.iter().chain(&self.transfers).for_each(|port| counts += port.card_counts());
        counts
    }

    /// The way of most datagrams.
    pub(crate) fn way(&self) -> Way {
        self.queues[0].facts().way
    }

    /// Bytes of the longest datagram: as configured, or as long as a port can send.
    pub(crate) fn datagram_bytes(&self, config: &NativeConfig) -> usize {
        let longest = self.queues[0].facts().datagram_bytes_max.unwrap_or(usize::MAX);
        config.datagram_bytes.min(longest)
    }

    /// Address of queue 0, which clients are told.
    pub(crate) fn address(&self) -> SocketAddr {
        self.queues[0].address()
    }

    /// The port of a queue; numbers from the number of RX queues on are the transfer queues.
    #[inline]
    pub(crate) fn port(&self, queue: usize) -> &P {
        match queue.checked_sub(self.queues.len()) {
            None => &self.queues[queue],
            Some(worker) => &self.transfers[worker],
        }
    }

    fn log(&self, config: &NativeConfig) {
        let first = &self.queues[0];
        let last = self.transfers.last().unwrap_or(first).address().port();
        let facts = first.facts();
        tracing::info!(
            address = %self.address(),
            ports = %format_args!("{}-{last}", first.address().port()),
            single_port = config.single_port,
            gso = facts.gso,
            gro = facts.gro,
            receive_buffer = facts.receive_buffer_bytes,
            send_buffer = facts.send_buffer_bytes,
            datagram = self.datagram_bytes(config),
            sealed = !config.secrets.is_empty(),
            "native protocol"
        );
        match facts.way {
            Way::Sockets => {}
            Way::Card(card) => tracing::info!(
                interface = card.interface,
                queues = card.queues,
                zero_copy = card.is_zero_copy,
                memory = card.memory_bytes,
                "--port xdp: datagrams come from the card's queues"
            ),
            Way::Memif(memif) => tracing::info!(
                path = %memif.path.display(),
                queues = memif.queues,
                "--port memif: datagrams come by shared memory"
            ),
            Way::Dpdk(dpdk) => tracing::info!(
                device = dpdk.device,
                driver = dpdk.driver,
                receive_queues = dpdk.receive_queues,
                send_queues = dpdk.send_queues,
                steered = dpdk.is_steered,
                memory = dpdk.memory_bytes,
                "--port dpdk: datagrams come from a device of DPDK"
            ),
            Way::Refused(reason) => tracing::warn!(reason, "--port xdp: UDP sockets are used instead"),
        }
        if facts.receive_buffer_bytes < config.receive_buffer_bytes / 2 {
            tracing::warn!(
                wanted = config.receive_buffer_bytes,
                given = facts.receive_buffer_bytes,
                "--native-receive-buffer: the kernel gave less; raise net.core.rmem_max, or datagrams are lost sooner"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use minos_net::Kernel;

    use super::*;

    #[test]
    fn a_single_port_is_not_shared_with_another_server() {
        let mut config = NativeConfig { single_port: true, ..NativeConfig::new(([127, 0, 0, 1], 0).into()) };
        let ports = Ports::open(&Kernel, &config, 3).unwrap();
        config.address = ports.address();
        let error = Ports::open(&Kernel, &config, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(ports);
        assert!(Ports::open(&Kernel, &config, 3).is_ok());
    }

    #[test]
    fn ports_in_a_row_are_counted_through() {
        let ports = Ports::open(&Kernel, &NativeConfig::new(([127, 0, 0, 1], 0).into()), 3).unwrap();
        let numbers: Vec<_> = (0..6).map(|queue| ports.port(queue).address().port()).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        assert_eq!(ports.address().port(), numbers[0]);
    }
}
