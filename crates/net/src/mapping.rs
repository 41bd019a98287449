//! Memory shared with the kernel or with another process.

use std::{ffi::c_void, io, os::fd::BorrowedFd, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A mapping, which ends when this is dropped. Nobody has a reference to its bytes by this alone.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is an address and a length, whichever thread has them; who reads and writes there keeps his own rules.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of its own, filled with zeros.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        // SAFETY: a place that the kernel chooses is nobody's.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, READ_WRITE, MapFlags::PRIVATE) }?;
        Self::of(base, bytes)
    }

    /// The first `bytes` bytes from `offset` on of what the socket shares.
    pub(crate) fn of_socket(socket: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: as above.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, READ_WRITE, flags, socket, offset) }?;
        Self::of(base, bytes)
    }

    /// The first `bytes` bytes of a file. Whoever maps it sees to it that the file stays as long.
    pub(crate) fn of_file(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        // SAFETY: as above.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, READ_WRITE, MapFlags::SHARED, file, 0) }?;
        Self::of(base, bytes)
    }

    fn of(base: *mut c_void, bytes: usize) -> io::Result<Self> {
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of `count` elements of `T` from `offset` on.
    ///
    /// # Panics
    /// If they lie outside or are not aligned.
    pub(crate) fn place<T>(&self, offset: u64, count: usize) -> NonNull<T> {
        let (begin, bytes) = (offset as usize, count * size_of::<T>());
        let is_inside = begin.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(is_inside && begin.is_multiple_of(align_of::<T>()), "a place outside of its mapping");
        // SAFETY: it lies inside, as was just checked.
        unsafe { self.base.add(begin) }.cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and whoever uses its places has it, too.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
