//! Ports that ask a server at the other end of a memif.

use std::{io, net::Ipv4Addr};

use minos_net::{HostPort, MemifOptions, MemifPort, PortOptions, Side, Source};

use super::native::{ANSWER_WITHIN, RECEIVE_BUFFER_BYTES};
use crate::driver::target::MemifPlace;

/// The UDP port of the first link.
const FIRST_PORT: u16 = 40_000;

/// Opens ports to the server, which is there already.
///
/// # Errors
/// There is no such socket, the server sends this process away, or does not answer.
pub(in crate::driver) fn open_memif(place: &MemifPlace, count: usize) -> io::Result<Vec<HostPort>> {
    let server = *place.address.ip();
    let side = Side::Client { queues: place.queues.into() };
    let options = MemifOptions { path: place.path.clone(), side };
    let wanted = PortOptions {
        address: (beside(server), FIRST_PORT).into(),
        count,
        shares_address: false,
        receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
        source: Source::Memif(options.clone()),
    };
    let ports = MemifPort::open_all(&options, &wanted)?;
    ports.first().map_or(Ok(()), |port| port.reach(server, ANSWER_WITHIN))?;
    Ok(ports.into_iter().map(HostPort::Memif).collect())
}

/// Another address of the same network, which the two processes have for themselves.
fn beside(server: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, d] = server.octets();
    Ipv4Addr::new(a, b, c, if d == 1 { 2 } else { 1 })
}
