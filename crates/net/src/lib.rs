//! Transports: TCP and Unix stream sockets on epoll, and datagrams in trains.
//!
//! Nothing here knows a protocol or a store. A [`Poller`] reports which sockets are
//! ready; its caller owns the connections.

mod address;
mod affinity;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod epoll;
#[cfg(test)]
mod exchange;
pub mod frame;
mod host_port;
mod inherited;
mod io;
mod kernel_port;
mod listener;
mod mapping;
mod memif;
mod neighbours;
mod paired;
mod pass;
mod pieces;
mod poller;
mod port;
mod resolver;
mod row;
mod senders;
mod socket;
mod socket_file;
pub mod timestamp;
mod topology;
pub mod udp;
mod wait;
mod waker;
mod xdp;

pub use address::{Address, ParseAddressError};
pub use affinity::{allowed_cpus, bind_to, pin_to, processor_time};
pub use epoll::Epoll;
pub use host_port::{HostBurst, HostPort};
pub use inherited::{
    close_unused_sockets, has_unused_sockets, is_upgrade, keep_listeners, release_listeners, replace_process,
};
pub use io::{Io, Kernel};
pub use kernel_port::{KernelBurst, KernelPort};
pub use listener::{Accepted, Listener};
pub use memif::{MemifBurst, MemifFacts, MemifOptions, MemifPort};
pub use paired::Side;
pub use pass::{check_user, pass_file, take_file};
pub use poller::{Interest, Poller, Ready, Token, Wait};
pub use port::{DpdkFacts, Port, PortFacts, PortOptions, Source, Way};
pub use socket::{Progress, SILENCE_MAX, Socket, Wire};
pub use topology::{NODES, NumaNode, numa_nodes};
pub use wait::{Readable, WAIT_MAX, WaitSet, wait_readable, wait_ready};
pub use waker::Waker;
pub use xdp::{CardCounts, CardFacts};
