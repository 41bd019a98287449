//! Memory of a peer on the same machine, to be loaded from.

use super::{
    UcxError,
    worker::{Peer, Worker},
};
use minos_region::{Image, Lender, Lent, OpenError};
use std::{
    fmt,
    ptr::NonNull,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Memory of a peer that this process has mapped (`ucp_rkey_ptr`), for the reader of coherent memory, which
/// costs least: `ReadOnly::from_image(window.image()?)`.
pub struct UcxWindow {
    worker: Mutex<Worker>,
    peer: Peer,
    base: NonNull<u64>,
    is_lent: AtomicBool,
}

// SAFETY: the mapping belongs to no thread; worker and peer are used once more, when they are dropped.
unsafe impl Send for UcxWindow {}
// SAFETY: as above; what changes is atomic, or has a lock.
unsafe impl Sync for UcxWindow {}

impl UcxWindow {
    /// Maps the memory of the peer with an advertisement, over these transports: as in [`super::Ucx::open`].
    ///
    /// # Errors
    /// As [`super::Ucx::connect`], or [`UcxError::Unmapped`]: the memory is of another machine.
    ///
    /// # Safety
    /// As [`super::Ucx::connect`].
    pub unsafe fn open(transports: Option<&str>, advertisement: &[u8]) -> Result<Self, UcxError> {
        let mut worker = Worker::open(transports, false)?;
        // SAFETY: as the caller promises; the peer goes before the worker.
        let mut peer = unsafe { worker.connect(advertisement, false) }?;
        let Some(base) = peer.mapped else {
            // SAFETY: nobody uses the peer afterwards.
            unsafe { worker.disconnect(&mut peer) };
            return Err(UcxError::Unmapped);
        };
        Ok(Self { worker: Mutex::new(worker), peer, base, is_lent: AtomicBool::new(false) })
    }

    /// The region in the memory, which keeps the window open.
    ///
    /// # Errors
    /// There is none that this program can read.
    pub fn image(self) -> Result<Image, OpenError> {
        Image::lent(&Lent::by(Arc::new(self)))
    }
}

// SAFETY: UCX maps whole pages, so that the memory begins with one; it stays until the peer is left, and is lent once.
unsafe impl Lender for UcxWindow {
    fn lend_to_read(&self) -> Option<NonNull<[u8]>> {
        // Relaxed: nothing else is handed over.
        let is_first = !self.is_lent.swap(true, Relaxed);
        let bytes = usize::try_from(self.peer.bytes).ok()?;
        is_first.then(|| NonNull::slice_from_raw_parts(self.base.cast(), bytes))
    }
}

impl fmt::Debug for UcxWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UcxWindow").field("bytes", &self.peer.bytes).finish_non_exhaustive()
    }
}

impl Drop for UcxWindow {
    fn drop(&mut self) {
        let worker = self.worker.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: nobody uses the peer afterwards: who had borrowed the memory has let this be dropped.
        unsafe { worker.disconnect(&mut self.peer) };
    }
}
