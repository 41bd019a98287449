//! The interface shared by all ways of receiving and sending datagrams.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    os::fd::BorrowedFd,
};

use crate::{
    CardCounts, CardFacts, MemifFacts, MemifOptions,
    udp::{Message, Sent, TransmitBurst},
};

/// The ports of a server to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// Address of the first port; port 0 takes free ones.
    pub address: SocketAddr,
    /// Number of ports.
    pub count: usize,
    /// True for ports that share the address: bytes 6 and 7 of a datagram name its port. False for ports in a
    /// row.
    pub shares_address: bool,
    /// Bytes requested for each receive buffer.
    pub receive_buffer_bytes: usize,
    /// Where datagrams come from.
    pub source: Source,
}

/// Where the datagrams of a server come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// UDP sockets.
    #[default]
    Sockets,
    /// The queues of the card that has the address (AF_XDP), where that can be.
    Card,
    /// A process that shares memory with this one.
    Memif(MemifOptions),
}

/// The way of most datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// UDP sockets.
    #[default]
    Sockets,
    /// The card's queues (AF_XDP).
    Card(CardFacts),
    /// UDP sockets, although the card's queues were asked for; the reason.
    Refused(String),
    /// Memory that another process shares.
    Memif(MemifFacts),
    /// A device of DPDK.
    Dpdk(DpdkFacts),
}

/// The properties of ports at a device of DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkFacts {
    /// The device.
    pub device: String,
    /// The name of its driver.
    pub driver: String,
    /// Queues to receive from.
    pub receive_queues: usize,
    /// Queues to send by.
    pub send_queues: usize,
    /// True if each port's datagrams arrive at its own queue. Otherwise ports pass them on.
    pub is_steered: bool,
    /// Bytes of memory for packets.
    pub memory_bytes: u64,
}

/// The properties of an open port, for the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortFacts {
    /// The way of most datagrams.
    pub way: Way,
    /// True if trains leave as one message.
    pub gso: bool,
    /// True if trains arrive as one message.
    pub gro: bool,
    /// Bytes of the receive buffer; 0 if unknown.
    pub receive_buffer_bytes: usize,
    /// Bytes of the send buffer; 0 if unknown.
    pub send_buffer_bytes: usize,
    /// Longest datagram that leaves, in bytes of payload, if the port cuts none into fragments.
    pub datagram_bytes_max: Option<usize>,
}

/// A socket or a queue of a card that receives and sends bursts of datagrams.
///
/// One thread receives at a time; any number may send. No call waits, and none fails for a datagram that is
/// lost: see [`Sent`].
///
/// AF_XDP and DPDK copy no more than UDP: the ports share one pool of frames. The `Burst` lists frames,
/// [`messages`](Self::messages) borrows payloads where the card wrote them, and the next receive returns the frames
/// to the pool. [`send`](Self::send) copies each segment from the burst's buffer into a free frame behind its
/// headers, as the kernel does for UDP.
pub trait Port: Send + Sync + Sized + 'static {
    /// Room for received messages. It belongs to a worker, which uses it with each of the server's ports.
    type Burst: Send;

    /// Room for a burst, for this port and all opened with it.
    fn burst(&self) -> Self::Burst;

    /// Receives at most `messages_max` waiting messages into `burst`, in place of its old contents, and returns
    /// their number.
    ///
    /// # Errors
    /// Only errors that make the port unusable. An empty queue is no error.
    fn receive_at_most(&self, burst: &mut Self::Burst, messages_max: usize) -> io::Result<usize>;

    /// The messages of the last receive.
    fn messages(burst: &mut Self::Burst) -> impl Iterator<Item = Message<'_>>;

    /// Sends all queued trains; `trains` is empty afterwards.
    fn send(&self, trains: &mut TransmitBurst) -> Sent;

    /// Sends the joined bytes of `pieces`, at most 256 of them, to `peer` as one train of segments of
    /// `segment_bytes`. The pieces may change once the call returns.
    fn send_gather(&self, peer: SocketAddr, pieces: &[IoSlice<'_>], segment_bytes: usize) -> Sent;

    /// The address in use, with the port that was taken.
    fn address(&self) -> SocketAddr;

    /// Messages dropped since the port was opened because they were not received in time.
    fn overruns(&self) -> u64;

    /// Counts of datagrams from and to a card's queues.
    fn card_counts(&self) -> CardCounts {
        CardCounts::default()
    }

    /// A descriptor that is readable while messages wait.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The port's properties.
    fn facts(&self) -> PortFacts;
}
