//! A device of DPDK, and its frames.

use std::{
    ffi::{CStr, CString, c_int},
    io,
    mem::MaybeUninit,
    net::Ipv4Addr,
    slice,
    sync::{Mutex, PoisonError},
};

use arrayvec::ArrayVec;

use super::{
    eal::enter_thread,
    sys::{self, Found, RawFrame, Wanted},
};
use crate::{frame::Mac, udp::BURST_MESSAGES};

/// A packet's memory, which returns to its pool.
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct Frame(RawFrame);

// SAFETY: whoever has it is the only one to use the packet; any thread may free it.
unsafe impl Send for Frame {}

/// Frames that are received or sent with one call.
pub(super) type Frames = ArrayVec<Frame, BURST_MESSAGES>;

/// A device that works until the process ends: memif's driver frees what its own thread may still use when it closes one.
#[derive(Debug)]
pub(super) struct Device {
    found: Found,
    /// Whoever uses a queue holds its lock.
    receiving: Vec<Mutex<()>>,
    sending: Vec<Mutex<()>>,
}

// SAFETY: the pool belongs to all threads, and a lock guards each queue.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Frame {
    /// Lets the packet end behind so many bytes at most.
    pub(super) fn shorten(&mut self, bytes: usize) {
        self.0.length = self.0.length.min(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// The bytes of the packet; none if it was received in several pieces.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the shim promises so many bytes there, and the borrow keeps the packet.
        unsafe { slice::from_raw_parts_mut(self.0.bytes, self.0.length as usize) }
    }
}

/// Drops frames with one call.
pub(super) fn free(frames: &mut Frames) {
    let count = frames.len() as u16;
    // SAFETY: the frames are given away.
    unsafe {
        frames.set_len(0);
        sys::minos_dpdk_free(frames.as_ptr().cast(), count);
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: the packet is not used any more.
        unsafe { sys::minos_dpdk_free(&raw const self.0, 1) };
    }
}

impl Device {
    /// Makes the device of a virtual driver.
    ///
    /// # Errors
    /// The driver's error.
    pub(super) fn create(name: &str, arguments: &str) -> io::Result<()> {
        let (name, arguments) = (text(name)?, text(arguments)?);
        // SAFETY: both are texts that end with a zero, and the call copies them.
        check("make the device", unsafe { sys::minos_dpdk_create(name.as_ptr(), arguments.as_ptr()) })
    }

    /// Starts the device of this name with at most `wanted` queues.
    ///
    /// # Errors
    /// There is no such device, or no memory; or the driver's error.
    pub(super) fn open(name: &str, wanted: &Wanted) -> io::Result<Self> {
        let (name, mut found) = (text(name)?, MaybeUninit::<Found>::zeroed());
        // SAFETY: a text that ends with a zero, and room for the outcome.
        let status = unsafe { sys::minos_dpdk_open(name.as_ptr(), wanted, found.as_mut_ptr()) };
        check("open the device", status)?;
        // SAFETY: zeros are a value already, and the call has succeeded.
        let found = unsafe { found.assume_init() };
        let locks = |queues: u16| (0..queues).map(|_| Mutex::new(())).collect();
        Ok(Self { receiving: locks(found.receive_queues), sending: locks(found.send_queues), found })
    }

    /// Receives waiting frames of a queue behind `frames`, at most `count`; none while another thread does.
    #[inline]
    pub(super) fn receive(&self, queue: usize, frames: &mut Frames, count: usize) {
        let room = count.min(frames.remaining_capacity());
        let Ok(_queue) = self.receiving[queue].try_lock() else { return };
        if room == 0 {
            return;
        }
        enter_thread();
        let (had, port) = (frames.len(), self.found.port);
        // SAFETY: there is room for so many frames behind those, the queue exists and its lock is held. Each frame becomes
        // ours alone.
        unsafe {
            let to = frames.as_mut_ptr().add(had).cast();
            let received = sys::minos_dpdk_receive(port, queue as u16, to, room as u16);
            frames.set_len(had + usize::from(received));
        }
    }

    /// Adds `count` frames as long as they may be, with any bytes; false, and none, if memory is used up.
    #[inline]
    pub(super) fn allocate(&self, frames: &mut Frames, count: usize) -> bool {
        if count > frames.remaining_capacity() {
            return false;
        }
        enter_thread();
        let had = frames.len();
        // SAFETY: there is room for so many frames behind those, which become ours alone. The pool's memory was zeroed, and
        // so is initialized.
        unsafe {
            let to = frames.as_mut_ptr().add(had).cast();
            if sys::minos_dpdk_allocate(&raw const self.found, to, count as u16) != 0 {
                return false;
            }
            frames.set_len(had + count);
        }
        true
    }

    /// Sends all frames and returns the number of those that leave; those behind them are lost.
    #[inline]
    pub(super) fn send(&self, queue: usize, frames: &mut Frames) -> usize {
        let _queue = self.sending[queue].lock().unwrap_or_else(PoisonError::into_inner);
        let (port, count) = (self.found.port, frames.len() as u16);
        // SAFETY: the queue exists and its lock is held; the frames are given away.
        unsafe {
            frames.set_len(0);
            sys::minos_dpdk_send(port, queue as u16, frames.as_ptr().cast(), count).into()
        }
    }

    /// Steers datagrams to a queue; false if the device cannot.
    pub(super) fn steer(&self, ip: Ipv4Addr, udp_port: u16, queue: usize) -> bool {
        let (ip, udp_port) = (u32::from(ip).to_be(), udp_port.to_be());
        sys::minos_dpdk_steer(self.found.port, ip, udp_port, queue as u16) == 0
    }

    /// True if there is a link, or a peer.
    pub(super) fn is_up(&self) -> bool {
        sys::minos_dpdk_is_up(self.found.port) == 1
    }

    /// Frames that the device dropped: because a queue was full, and because no packet was left.
    pub(super) fn dropped(&self) -> [u64; 2] {
        let [mut queue_full, mut no_packet] = [0; 2];
        // SAFETY: both have room for a number.
        unsafe { sys::minos_dpdk_dropped(self.found.port, &raw mut queue_full, &raw mut no_packet) };
        [queue_full, no_packet]
    }

    pub(super) fn receive_queues(&self) -> usize {
        self.receiving.len()
    }

    pub(super) fn send_queues(&self) -> usize {
        self.sending.len()
    }

    pub(super) fn mac(&self) -> Mac {
        self.found.mac
    }

    /// Largest IP packet, in bytes.
    pub(super) fn mtu_bytes(&self) -> usize {
        self.found.mtu.into()
    }

    /// Bytes of memory for packets.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.found.pool_bytes
    }

    /// The name of the driver.
    pub(super) fn driver(&self) -> String {
        // SAFETY: the shim ends it with a zero.
        unsafe { CStr::from_ptr(self.found.driver.as_ptr()) }.to_string_lossy().into_owned()
    }
}

fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn check(action: &str, status: c_int) -> io::Result<()> {
    match status {
        0 => Ok(()),
        _ => Err(io::Error::other(format!("DPDK cannot {action}: {}", sys::text(status)))),
    }
}
