//! The options of the native datagram protocol.

use std::{net::SocketAddr, time::Duration};

use minos_net::Source;
use minos_proto::native::{DATAGRAM_BYTES_DEFAULT, Secret};

use super::{InvalidOption, bound};

options! {
    /// The options of the native datagram protocol.
    NativeConfig, from address: SocketAddr, "The defaults at an address.":
    /// Address and first port. RX queue i of n is at port +i and the transfer queue of worker i at +n+i; port
    /// 0 takes the first free range.
    address: SocketAddr = address,
    /// True if all queues share one port and the kernel picks the socket by the queue in the header.
    single_port: bool = false,
    /// Where datagrams come from.
    source: Source = Source::Sockets,
    /// Largest datagram, in bytes of UDP payload.
    datagram_bytes: usize = DATAGRAM_BYTES_DEFAULT,
    /// Fragments of a large value in flight at once.
    window: u16 = 32,
    /// Large stores that one source address may have in progress.
    transfers_per_source: usize = 8,
    /// Memory in bytes for values that are still arriving; `None` means a sixteenth of the store's. There is
    /// always room for one value.
    transfer_memory_bytes: Option<u64> = None,
    /// Part of that memory for one source address; `None` means a quarter. There is always room for one
    /// value.
    source_memory_bytes: Option<u64> = None,
    /// Memory in bytes for operations that wait for flash, half of it for one address; `None` means a sixteenth of
    /// the store's.
    waiting_memory_bytes: Option<u64> = None,
    /// Bytes of large values that a worker sends in one burst.
    send_burst_bytes: u64 = 4 << 20,
    /// Bytes of such a burst for one client.
    send_client_bytes: u64 = 1 << 20,
    /// Time for one window of a large store, after which the store is given up.
    transfer_timeout: Duration = Duration::from_secs(5),
    /// Most sessions at a time, for exactly-once operations and sealed datagrams.
    sessions: usize = 4096,
    /// Most of them of one source address.
    sessions_per_source: usize = 256,
    /// Secrets that seal datagrams; a client must know one of them. If empty, datagrams are not sealed.
    secrets: Vec<Secret> = Vec::new(),
    /// Bytes of datagrams that the kernel may hold for each socket.
    receive_buffer_bytes: usize = 4 << 20,
}

/// Large stores that one worker may have in progress.
pub const TRANSFERS_PER_WORKER: usize = 64;

impl NativeConfig {
    /// Checks that all values are within their bounds.
    pub(super) fn check(&self) -> Result<(), InvalidOption> {
        // At least a record with the longest key and a few fragment ranges; at most a train of one datagram.
        bound("--native-datagram", self.datagram_bytes as u64, 512, 65_000)?;
        bound("--native-window", u64::from(self.window), 1, 64)?;
        bound("--native-transfers", self.transfers_per_source as u64, 1, TRANSFERS_PER_WORKER as u64)?;
        bound("--native-send-burst", self.send_burst_bytes, 65_000, u64::MAX)?;
        bound("--native-send-client", self.send_client_bytes, 65_000, u64::MAX)?;
        bound("--native-transfer-timeout", self.transfer_timeout.as_millis() as u64, 10, 3_600_000)?;
        bound("--native-sessions", self.sessions as u64, 1, 1 << 16)?;
        bound("--native-sessions-per-address", self.sessions_per_source as u64, 1, 1 << 16)?;
        bound("--native-receive-buffer", self.receive_buffer_bytes as u64, 64 << 10, 1 << 30)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_bounds_are_named() {
        let sound = NativeConfig::new(([127, 0, 0, 1], 0).into());
        assert_eq!(sound.check(), Ok(()));
        let error = NativeConfig { datagram_bytes: 511, ..sound.clone() }.check().unwrap_err();
        assert!(error.to_string().starts_with("--native-datagram: 511"), "{error}");
        assert!(NativeConfig { window: 65, ..sound.clone() }.check().is_err());
        assert!(NativeConfig { transfers_per_source: 0, ..sound.clone() }.check().is_err());
        assert!(NativeConfig { send_client_bytes: 64_999, ..sound }.check().is_err());
    }
}
