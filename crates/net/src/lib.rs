//! Transports: TCP and Unix stream sockets on epoll or io_uring, and datagrams in trains.
//!
//! Nothing here knows a protocol or a store. A [`Poller`] says which sockets have something to do
//! and carries bytes; whoever polls it owns the connections.

mod address;
mod affinity;
mod epoll;
mod listener;
mod poller;
mod socket;
pub mod timestamp;
pub mod udp;
mod uring;
mod wait;
mod waker;

pub use address::{Address, ParseAddressError};
pub use affinity::{allowed_cpus, pin_to, processor_time};
pub use epoll::Epoll;
pub use listener::{Accepted, Listener};
pub use poller::{Interest, Poller, Ready, Token, Wait};
pub use socket::{Progress, Socket};
pub use uring::Uring;
pub use wait::{Readable, WAIT_MAX, wait_readable, wait_which};
pub use waker::Waker;
