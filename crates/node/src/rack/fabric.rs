//! Memory that UCX has allocated, as the nodes of a unit pass it to each other.

// UCX trusts advertisements, so that who takes one has to say why.
#![allow(unsafe_code)]

use std::{
    io::{self, ErrorKind},
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::Arc,
    thread,
    time::Duration,
};

use minos_base::is_left_out;
use minos_engine::{Mode, ReadOnly};
use minos_fabric::ucx::{Ucx, UcxError, UcxMemory, UcxWindow};
use minos_net::{Address, Progress, Socket, Wait, check_user, wait_readable};
use minos_sealed::{Blocking, Ends, Purpose};

use super::{attach::Memory, config::RackConfig, frames, stream::ControlStream};
use crate::{server::Stop, tcp::connection::Proven};

/// Most bytes of an advertisement: an address of UCX for each transport, and keys.
const BYTES_MAX: u32 = 64 << 10;
/// Longest sleep of the thread that answers reads.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Pause after a wait that has failed.
const RETRY: Duration = Duration::from_millis(100);

/// What a node of the rack has said of its memory: nobody else's word is taken.
pub(super) struct Advertisement(Vec<u8>);

impl Advertisement {
    /// Takes that of the process at the other end of a Unix socket, and waits as long as the stream's timeout says.
    ///
    /// # Errors
    /// It is another user's, or says nothing in time.
    pub(super) fn take(mut stream: &UnixStream) -> io::Result<Self> {
        check_user(stream.as_fd())?;
        frames::receive_bytes(&mut stream, BYTES_MAX).map(Self)
    }

    /// Asks a node at an address, which must prove to be that node; returns also the stream, which ends with it. Each step gets
    /// so much time.
    ///
    /// # Errors
    /// It cannot be reached, does not prove it, or says nothing in time.
    pub(super) fn ask(config: &RackConfig, node: usize, max: Duration) -> io::Result<(Self, Proven)> {
        let address = config.nodes.get(node).map(|node| &node.address);
        let (Some(keys), Some(Address::Tcp(address))) = (config.keys(), address) else {
            return Err(ErrorKind::Unsupported.into());
        };
        let ends = Ends { purpose: Purpose::Memory, from: config.node as u16, to: node as u16 };
        let mut stream = Blocking::connect(Socket::connect_tcp(*address)?, &keys, ends, max)?;
        let said = frames::receive_bytes(&mut stream, BYTES_MAX)?;
        Ok((Self(said), stream.into_sealed()))
    }

    /// That memory, mapped if it can be.
    ///
    /// # Errors
    /// As [`Advertisement::table`].
    pub(super) fn memory<M: Mode>(self, own: &UcxMemory) -> io::Result<Memory<M>> {
        let table = self.table(own)?.filter(|_| !is_left_out("window"));
        Ok(match table {
            Some(table) => Memory::Mapped(Arc::new(table)),
            None => Memory::Afar(Arc::new(self)),
        })
    }

    /// The table in that memory; `None` if it cannot be mapped here over the transports of this node's memory.
    ///
    /// # Errors
    /// It is no table that this node could read, or no transport leads there.
    pub(super) fn table<M: Mode>(&self, own: &UcxMemory) -> io::Result<Option<ReadOnly<M>>> {
        // SAFETY: a process of this user has made it, or one that knows the secret; it keeps its memory as long as it lives.
        match unsafe { UcxWindow::open(own.transports(), &self.0) } {
            Ok(window) => {
                let image = window.image().map_err(io::Error::other)?;
                ReadOnly::from_image(image).map(Some).map_err(io::Error::other)
            }
            Err(UcxError::Unmapped) => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Connects a fabric to that memory; returns its number.
    ///
    /// # Errors
    /// No transport leads there.
    pub(super) fn connect(&self, fabric: &mut Ucx) -> Result<usize, UcxError> {
        // SAFETY: as above.
        unsafe { fabric.connect(&self.0) }
    }
}

/// Passes what other nodes must know of this node's memory to the process at the other end of a new Unix socket.
///
/// # Errors
/// It is gone, or another user's.
pub(super) fn pass(stream: &Socket, memory: &UcxMemory) -> io::Result<()> {
    check_user(stream.as_fd())?;
    let mut frame = Vec::new();
    frames::send_bytes(&mut frame, memory.advertisement())?;
    // There is room for so few bytes.
    let is_whole = stream.send(&frame) == Progress::Bytes(frame.len());
    if is_whole { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Says the same to a node that has proven to be one; returns the stream, which is to be kept.
///
/// # Errors
/// It is gone, or does not read.
pub(crate) fn tell(sealed: Proven, from: u16, memory: &UcxMemory) -> io::Result<ControlStream> {
    let mut stream = ControlStream::sealed(sealed, from)?;
    frames::send_bytes(&mut stream, memory.advertisement())?;
    Ok(stream)
}

/// This node's memory as other nodes read it.
///
/// # Errors
/// UCX cannot map it a second time.
pub(super) fn own_table<M: Mode>(own: &UcxMemory) -> io::Result<ReadOnly<M>> {
    let table = Advertisement(own.advertisement().to_vec()).table(own)?;
    table.ok_or_else(|| io::Error::other(UcxError::Unmapped))
}

/// Lets other nodes read this node's memory whose transports need this process for that, until the server is to stop.
pub(crate) fn answer_reads(memory: &UcxMemory, stop: &Stop) {
    while !stop.is_requested() {
        if memory.progress() || !memory.arm() {
            continue;
        }
        if wait_readable(&[memory.as_fd(), stop.descriptor()], Wait::For(SLEEP_MAX)).is_err() {
            thread::sleep(RETRY);
        }
    }
}
