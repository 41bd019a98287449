//! The native protocol over UDP: ports, bursts of datagrams, and the protocol itself in [`native`], which
//! does no I/O.

pub(crate) mod datagrams;
pub mod native;
mod outbound;
pub(crate) mod ports;
mod serve;
