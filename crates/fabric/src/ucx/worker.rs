//! A UCX worker with a context of its own.

use super::{UcxError, advertisement::Advertisement, check, sys};
use std::{
    ffi::CString,
    mem::MaybeUninit,
    os::fd::RawFd,
    ptr::{self, NonNull},
    slice,
};

/// Turns of a worker that wait for the end of what is under way, when it is closed.
pub(super) const CLOSE_TURNS_MAX: u32 = 100_000;

/// Destroyed when dropped.
#[derive(Debug)]
pub(super) struct Worker(NonNull<sys::Context>);

/// Memory of a peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) raw: sys::Peer,
    /// Where it begins in its owner's process.
    pub(super) base: u64,
    /// Its length in bytes.
    pub(super) bytes: u64,
    /// Where this process has mapped it.
    pub(super) mapped: Option<NonNull<u64>>,
}

// SAFETY: it is "serialized": any thread may use it, one at a time, as `&mut` ensures.
unsafe impl Send for Worker {}

impl Worker {
    /// `transports` as in the variable `UCX_TLS`, which counts if there are none. One that `wakes` has a descriptor.
    pub(super) fn open(transports: Option<&str>, wakes: bool) -> Result<Self, UcxError> {
        let refused =
            |_| UcxError::Refused { action: "be opened", reason: "a name has a zero byte".to_owned() };
        let transports = transports.map(CString::new).transpose().map_err(refused)?;
        let names = transports.as_ref().map_or(ptr::null(), |names| names.as_ptr());
        let mut opened = ptr::null_mut();
        // SAFETY: the names are terminated or missing, and the result has a place.
        check(unsafe { sys::minos_ucx_open(names, wakes.into(), &raw mut opened) }, "be opened")?;
        // SAFETY: without an error there is a result.
        Ok(Self(unsafe { NonNull::new_unchecked(opened) }))
    }

    /// For functions of the shim, while `self` lives.
    pub(super) fn raw(&mut self) -> *mut sys::Context {
        self.0.as_ptr()
    }

    /// Moves on what is under way; true if anything moved. It does not block.
    pub(super) fn progress(&mut self) -> bool {
        // SAFETY: the worker lives, and no other thread uses it.
        unsafe { sys::minos_ucx_progress(self.raw()) > 0 }
    }

    /// The descriptor of one that wakes. It is open as long as the worker.
    pub(super) fn descriptor(&mut self) -> Result<RawFd, UcxError> {
        let mut descriptor = -1;
        // SAFETY: the worker lives, and the result has a place.
        check(unsafe { sys::minos_ucx_descriptor(self.raw(), &raw mut descriptor) }, "wake threads")?;
        Ok(descriptor)
    }

    /// Lets the descriptor become readable once there is something to progress; false if there is already.
    pub(super) fn arm(&mut self) -> bool {
        // SAFETY: the worker lives, and no other thread uses it.
        unsafe { sys::minos_ucx_arm(self.raw()) != 0 }
    }

    /// Where peers find it.
    pub(super) fn address(&mut self) -> Result<Vec<u8>, UcxError> {
        let (mut address, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: the worker lives, and the results have places.
        let status = unsafe { sys::minos_ucx_address(self.raw(), &raw mut address, &raw mut bytes) };
        check(status, "name the address of a worker")?;
        // SAFETY: UCX has put so many bytes there, which stay until they are released.
        let copy = unsafe { slice::from_raw_parts(address.cast::<u8>(), bytes) }.to_vec();
        // SAFETY: they are of this worker, and nobody refers to them.
        unsafe { sys::minos_ucx_release_address(self.raw(), address) };
        Ok(copy)
    }

    /// Connects to the memory of an advertisement. If `watches`, its reads end when its owner does, unless this process
    /// maps the memory, where they need no owner.
    ///
    /// # Safety
    /// As [`super::Ucx::connect`]. The peer is disconnected before this worker is dropped.
    pub(super) unsafe fn connect(&mut self, advertisement: &[u8], watches: bool) -> Result<Peer, UcxError> {
        let advertisement = Advertisement::of(advertisement)?;
        // SAFETY: as the caller promises.
        let mut peer = unsafe { self.connect_once(advertisement, false) }?;
        if peer.mapped.is_some() || !watches {
            return Ok(peer);
        }
        // SAFETY: nobody uses the peer afterwards.
        unsafe { self.disconnect(&mut peer) };
        // SAFETY: as the caller promises.
        unsafe { self.connect_once(advertisement, true) }
    }

    /// # Safety
    /// As [`Worker::connect`].
    unsafe fn connect_once(
        &mut self,
        Advertisement { base, bytes, address, key }: Advertisement<'_>,
        watches: bool,
    ) -> Result<Peer, UcxError> {
        let (mut raw, worker) = (MaybeUninit::uninit(), self.raw());
        let (address, key) = (address.as_ptr(), key.as_ptr());
        // SAFETY: the worker lives, address and key are UCX's own, and the result has a place.
        let status =
            unsafe { sys::minos_ucx_connect(worker, address, key, watches.into(), raw.as_mut_ptr()) };
        check(status, "connect to memory")?;
        // SAFETY: without an error there is a result.
        let raw = unsafe { raw.assume_init() };
        // SAFETY: the peer lives.
        let mapped = unsafe { sys::minos_ucx_pointer(&raw const raw, base) };
        let mapped = NonNull::new(mapped.cast::<u64>().cast_mut()).filter(|place| place.is_aligned());
        Ok(Peer { raw, base, bytes, mapped })
    }

    /// Leaves a peer.
    ///
    /// # Safety
    /// It is a peer of this worker, and is not used afterwards.
    pub(super) unsafe fn disconnect(&mut self, peer: &mut Peer) {
        // SAFETY: worker and peer live.
        unsafe { sys::minos_ucx_disconnect(self.raw(), &raw mut peer.raw, CLOSE_TURNS_MAX) };
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: everything that was made with it is gone before, see its owners.
        unsafe { sys::minos_ucx_close(self.raw()) };
    }
}
