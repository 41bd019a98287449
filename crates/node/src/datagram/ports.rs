//! The sockets of the native protocol: one for each RX queue, and one for each worker's large transfers.

use std::{io, net::SocketAddr};

use minos_net::udp::{UdpOptions, UdpPort, steer_by_queue};

use crate::server::config::NativeConfig;

/// The sockets of the native protocol. The holder of an RX queue's lock receives from its port; only the
/// worker itself receives from its transfer port.
#[derive(Debug)]
pub(crate) struct Ports {
    queues: Vec<UdpPort>,
    transfers: Vec<UdpPort>,
}

impl Ports {
    /// Opens the ports of `workers` workers: consecutive ones, or all at one address.
    ///
    /// # Errors
    /// The kernel's error, or no free range of ports.
    pub(crate) fn bind(config: &NativeConfig, workers: usize) -> io::Result<Self> {
        let options =
            UdpOptions { receive_buffer_bytes: config.receive_buffer_bytes, ..UdpOptions::default() };
        let mut queues = if config.single_port {
            // A shared port could also be shared with another server, without an error. So look for a free
            // port first.
            let free = UdpPort::bind(config.address, &options)?.address();
            let ports = UdpPort::bind_shared(free, 2 * workers, &options)?;
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

    /// Messages that the kernel dropped because they were not received in time.
    pub(crate) fn overruns(&self) -> u64 {
        self.queues.iter().chain(&self.transfers).map(|port| u64::from(port.overruns())).sum()
    }

    /// Address of queue 0, which clients are told.
    pub(crate) fn address(&self) -> SocketAddr {
        self.queues[0].address()
    }

    /// The port of a queue; numbers from the number of RX queues on are the transfer queues.
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
            sealed = !config.secrets.is_empty(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_port_is_not_shared_with_another_server() {
        let mut config = NativeConfig { single_port: true, ..NativeConfig::new(([127, 0, 0, 1], 0).into()) };
        let ports = Ports::bind(&config, 3).unwrap();
        config.address = ports.address();
        let error = Ports::bind(&config, 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(ports);
        assert!(Ports::bind(&config, 3).is_ok());
    }

    #[test]
    fn ports_in_a_row_are_counted_through() {
        let ports = Ports::bind(&NativeConfig::new(([127, 0, 0, 1], 0).into()), 3).unwrap();
        let numbers: Vec<_> = (0..6).map(|queue| ports.port(queue).address().port()).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        assert_eq!(ports.address().port(), numbers[0]);
    }
}
