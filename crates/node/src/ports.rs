//! The sockets of the native protocol: one for each RX queue, and one for each worker's large transfers.

use std::{io, net::SocketAddr};

use minos_net::udp::{UdpOptions, UdpPort, steer_by_queue};

use crate::config::NativeConfig;

/// The sockets of the native protocol. Whoever holds the lock of an RX queue receives from its port; a worker receives
/// from its own transfer port alone.
#[derive(Debug)]
pub(crate) struct Ports {
    queues: Vec<UdpPort>,
    transfers: Vec<UdpPort>,
}

impl Ports {
    /// Opens the ports of `workers` workers: in a row, or all at one address.
    ///
    /// # Errors
    /// What the kernel says; no free row of ports was found.
    pub(crate) fn bind(config: &NativeConfig, workers: usize) -> io::Result<Self> {
        let options =
            UdpOptions { receive_buffer_bytes: config.receive_buffer_bytes, ..UdpOptions::default() };
        let mut queues = if config.single_port {
            let ports = UdpPort::bind_shared(config.address, 2 * workers, &options)?;
            steer_by_queue(&ports)?;
            ports
        } else {
            UdpPort::bind_row(config.address, 2 * workers, &options)?
        };
        let transfers = queues.split_off(workers);
        let ports = Self { queues, transfers };
        ports.log(config);
        Ok(ports)
    }

    /// Messages that the kernel dropped because nobody received them in time.
    pub(crate) fn overruns(&self) -> u64 {
        self.queues.iter().chain(&self.transfers).map(|port| u64::from(port.overruns())).sum()
    }

    /// Where queue 0 is: what clients are told.
    pub(crate) fn address(&self) -> SocketAddr {
        self.queues[0].address()
    }

    /// The port of a queue: from the number of RX queues on, these are the transfer queues.
    #[inline]
    pub(crate) fn port(&self, queue: usize) -> &UdpPort {
        match queue.checked_sub(self.queues.len()) {
            None => &self.queues[queue],
            Some(worker) => &self.transfers[worker],
        }
    }

    fn log(&self, config: &NativeConfig) {
        let port = &self.queues[0];
        let last = self.transfers.last().unwrap_or(port).address().port();
        tracing::info!(
            address = %self.address(),
            ports = %format_args!("{}-{last}", port.address().port()),
            single_port = config.single_port,
            gso = port.gso(),
            gro = port.gro(),
            receive_buffer = port.receive_buffer_bytes(),
            send_buffer = port.send_buffer_bytes(),
            datagram = config.datagram_bytes,
            sealed = config.secret.is_some(),
            "native protocol"
        );
        if port.receive_buffer_bytes() < config.receive_buffer_bytes / 2 {
            tracing::warn!(
                wanted = config.receive_buffer_bytes,
                given = port.receive_buffer_bytes(),
                "--native-receive-buffer: the kernel gave less; raise net.core.rmem_max, or datagrams are lost sooner"
            );
        }
    }
}
