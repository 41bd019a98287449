//! A socket for frames of one receive queue of a card.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with, sockopt,
        xdp::{
            SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
            XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
            XdpMmapOffsets, XdpOptionsFlags, XdpStatistics, XdpUmemReg, XdpUmemRegFlags,
        },
    },
};

use super::{
    frames::Frames,
    ring::{Consumer, Producer},
};

/// A socket of the family AF_XDP. Its memory is that of the rings that are mapped from it.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    pub(super) fn open() -> io::Result<Self> {
        let family = AddressFamily::from_raw(libc::AF_XDP as _);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self(socket_with(family, SocketType::RAW, flags, None)?))
    }

    /// Tells the kernel of the frames. One socket does so for all that share them.
    pub(super) fn register(&self, frames: &Frames) -> io::Result<()> {
        let (addr, len, chunk_size) = frames.registration();
        let flags = XdpUmemRegFlags::empty();
        let wanted = XdpUmemReg { addr, len, chunk_size, headroom: 0, flags, tx_metadata_len: 0 };
        Ok(sockopt::set_xdp_umem_reg(&self.0, wanted)?)
    }

    /// The rings of a receive queue: of frames to fill, and of frames that were sent. The first socket of the queue has
    /// them, for all of the queue.
    pub(super) fn map_queue(&self, fill: u32, sent: u32) -> io::Result<(Producer<u64>, Consumer<u64>)> {
        sockopt::set_xdp_umem_fill_ring_size(&self.0, fill)?;
        sockopt::set_xdp_umem_completion_ring_size(&self.0, sent)?;
        let places = self.places()?;
        Ok((
            Producer::map(self.as_fd(), XDP_UMEM_PGOFF_FILL_RING, places.fr, fill)?,
            Consumer::map(self.as_fd(), XDP_UMEM_PGOFF_COMPLETION_RING, places.cr, sent)?,
        ))
    }

    pub(super) fn map_receiving(&self, entries: u32) -> io::Result<Consumer<XdpDesc>> {
        sockopt::set_xdp_rx_ring_size(&self.0, entries)?;
        Consumer::map(self.as_fd(), XDP_PGOFF_RX_RING, self.places()?.rx, entries)
    }

    pub(super) fn map_sending(&self, entries: u32) -> io::Result<Producer<XdpDesc>> {
        sockopt::set_xdp_tx_ring_size(&self.0, entries)?;
        Producer::map(self.as_fd(), XDP_PGOFF_TX_RING, self.places()?.tx, entries)
    }

    /// Binds the socket that has registered the frames. The kernel lets the card write to them itself if the driver can.
    pub(super) fn bind(&self, interface: u32, queue: u32) -> io::Result<()> {
        let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        Ok(bind(&self.0, &SocketAddrXdp::new(flags, interface, queue))?)
    }

    /// Binds a socket that shares the frames of `other`, and the rings of a queue that `other` is bound to.
    pub(super) fn bind_beside(&self, other: &Self, interface: u32, queue: u32) -> io::Result<()> {
        let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, interface, queue);
        Ok(bind(&self.0, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: other.as_fd() })?)
    }

    /// True if the card reads and writes the frames itself.
    pub(super) fn is_zero_copy(&self) -> bool {
        sockopt::xdp_options(&self.0).is_ok_and(|it| it.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// The kernel's counts; `None` if it does not say.
    pub(super) fn statistics(&self) -> Option<XdpStatistics> {
        sockopt::xdp_statistics(&self.0).ok()
    }

    /// Lets the kernel take the frames to fill.
    pub(super) fn wake_receiving(&self) {
        // It is woken again with the next frames, so that a failure costs time only.
        let _ = recv(&self.0, &mut [0; 0], RecvFlags::DONTWAIT);
    }

    /// Lets the kernel send frames.
    ///
    /// # Errors
    /// [`Errno::AGAIN`] if it has sent some, and more are left.
    pub(super) fn wake_sending(&self) -> Result<(), Errno> {
        send(&self.0, &[], SendFlags::DONTWAIT).map(|_| ())
    }

    fn places(&self) -> io::Result<XdpMmapOffsets> {
        Ok(sockopt::xdp_mmap_offsets(&self.0)?)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
