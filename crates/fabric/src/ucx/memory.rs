//! Memory of an owner, which readers read without it.

use super::{UcxError, UcxWindow, advertisement::Advertisement, check, sys, worker::Worker};
use minos_region::{Backing, Lender, Lent};
use std::{
    fmt,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, RawFd},
    ptr::{self, NonNull},
    slice,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// The alignment that a region needs, in bytes.
const PAGE_BYTES: usize = 4096;

/// Memory that UCX has allocated and registered, for one table ([`UcxMemory::backing`]).
pub struct UcxMemory {
    transports: Option<String>,
    worker: Mutex<Worker>,
    raw: sys::Memory,
    descriptor: RawFd,
    is_lent: AtomicBool,
    advertisement: Vec<u8>,
}

// SAFETY: the memory and its handle belong to no thread; the worker has a lock.
unsafe impl Send for UcxMemory {}
// SAFETY: as above; the other fields do not change, or are atomic.
unsafe impl Sync for UcxMemory {}

impl UcxMemory {
    /// Allocates at least so many bytes, for readers over these transports: as in the variable `UCX_TLS`, which counts if
    /// there are none. All pages are touched.
    ///
    /// # Errors
    /// UCX refuses, or has no transport of that name.
    pub fn allocate(transports: Option<&str>, bytes: usize) -> Result<Self, UcxError> {
        let mut worker = Worker::open(transports, true)?;
        let descriptor = worker.descriptor()?;
        let mut raw = MaybeUninit::<sys::Memory>::zeroed();
        // SAFETY: the worker lives, and the result has a place.
        let status = unsafe { sys::minos_ucx_allocate(worker.raw(), bytes, raw.as_mut_ptr()) };
        check(status, "allocate memory")?;
        // SAFETY: without an error there is a result; until then it is of zeros, which are valid.
        let raw = unsafe { raw.assume_init() };
        let (transports, is_lent) = (transports.map(str::to_owned), AtomicBool::new(false));
        // From here on it is freed when dropped.
        let mut memory = Self {
            transports,
            worker: Mutex::new(worker),
            raw,
            descriptor,
            is_lent,
            advertisement: Vec::new(),
        };
        if memory.raw.base.is_null() || !memory.raw.base.addr().is_multiple_of(PAGE_BYTES) {
            let reason = "it does not begin with a page".to_owned();
            return Err(UcxError::Refused { action: "allocate memory", reason });
        }
        // SAFETY: UCX has allocated so many bytes, which nobody has seen yet. Some of its ways do not clear them.
        unsafe { ptr::write_bytes(memory.raw.base.cast::<u8>(), 0, memory.raw.bytes) };
        memory.advertisement = memory.advertise()?;
        Ok(memory)
    }

    /// What readers must know, for [`super::Ucx::connect`].
    pub fn advertisement(&self) -> &[u8] {
        &self.advertisement
    }

    /// The transports for which it was allocated.
    pub fn transports(&self) -> Option<&str> {
        self.transports.as_deref()
    }

    /// True if a process on this machine can map it over its transports.
    pub fn is_mappable(&self) -> bool {
        // SAFETY: the advertisement is this value's own.
        unsafe { UcxWindow::open(self.transports(), self.advertisement()) }.is_ok()
    }

    /// It as the memory of a table, which keeps it.
    pub fn backing(self: &Arc<Self>) -> Backing {
        Backing::Lent(Lent::by(Arc::<Self>::clone(self)))
    }

    /// Lets readers connect and read whose transports need the owner for that; those over shared memory do not. True if
    /// anything moved.
    pub fn progress(&self) -> bool {
        self.worker().progress()
    }

    /// Lets the descriptor become readable once there is something to [`progress`](Self::progress); false if there is
    /// already.
    pub fn arm(&self) -> bool {
        self.worker().arm()
    }

    fn worker(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advertise(&mut self) -> Result<Vec<u8>, UcxError> {
        let address = self.worker.get_mut().unwrap_or_else(PoisonError::into_inner).address()?;
        // SAFETY: UCX has packed so many bytes, which stay until the memory is freed.
        let key = unsafe { slice::from_raw_parts(self.raw.key.cast::<u8>(), self.raw.key_bytes) };
        let (base, bytes) = (self.raw.base.addr() as u64, self.raw.bytes as u64);
        Ok(Advertisement { base, bytes, address: &address, key }.to_vec())
    }
}

// SAFETY: the memory begins with a page, is zeroed, lent once, and mapped until this value is dropped. This process refers
// to it nowhere else; readers of other processes only read.
unsafe impl Lender for UcxMemory {
    fn lend(&self) -> Option<NonNull<[u8]>> {
        let base = NonNull::new(self.raw.base.cast::<u8>())?;
        // Relaxed: nothing else is handed over.
        let is_first = !self.is_lent.swap(true, Relaxed);
        is_first.then(|| NonNull::slice_from_raw_parts(base, self.raw.bytes))
    }
}

impl AsFd for UcxMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is open as long as the worker, which this value keeps.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

impl fmt::Debug for UcxMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UcxMemory").field("bytes", &self.raw.bytes).finish_non_exhaustive()
    }
}

impl Drop for UcxMemory {
    fn drop(&mut self) {
        let worker = self.worker.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it was allocated with this worker's context, which lives; whoever had borrowed it has let this be dropped.
        unsafe { sys::minos_ucx_free(worker.raw(), &raw mut self.raw) };
    }
}
