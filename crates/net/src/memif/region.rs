//! Memory that two processes share.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64},
};

use minos_sync::prefetch;
use rustix::fs::{
    FsWord, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create,
};

use crate::mapping::Mapping;

/// The kind of file system whose files are memory of usual pages.
const TMPFS: FsWord = 0x0102_1994;
/// Bytes of a cache line.
const LINE_BYTES: u32 = 64;

/// Numbers that the other process may change at any time.
pub(super) trait Number {}
impl Number for AtomicU16 {}
impl Number for AtomicU32 {}
impl Number for AtomicU64 {}

/// Memory in which the other process writes as it likes. It is only copied from and to, and looked at by atomic numbers.
#[derive(Debug)]
pub(super) struct Region(Mapping);

impl Region {
    /// New memory of zeros, and the file by which another process gets it. It cannot shrink.
    pub(super) fn create(bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("minos-memif", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        Ok((Self(Mapping::of_file(file.as_fd(), bytes)?), file))
    }

    /// The memory of another process. It must not be able to go away, or a look at it would end this process.
    ///
    /// # Errors
    /// Says why not.
    pub(super) fn of_peer(file: BorrowedFd<'_>, bytes: u64) -> Result<Self, &'static str> {
        // A huge page that was given back may be gone when it is looked at.
        if !fstatfs(file).is_ok_and(|system| system.f_type == TMPFS) {
            return Err("memory that is no memfd of usual pages: no huge pages, no zero copy");
        }
        if !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err("memory that may shrink: seal it");
        }
        if bytes == 0 || !fstat(file).is_ok_and(|found| found.st_size.cast_unsigned() >= bytes) {
            return Err("less memory than announced");
        }
        let mapping = Mapping::of_file(file, bytes as usize);
        mapping.map(Self).map_err(|_| "memory that cannot be mapped")
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// True if so many bytes from `offset` on are in it.
    #[inline]
    pub(super) fn holds(&self, offset: u32, bytes: usize) -> bool {
        offset as usize + bytes <= self.0.bytes()
    }

    /// A number, or the first of several.
    ///
    /// # Panics
    /// If they lie outside or are not aligned.
    pub(super) fn numbers<T: Number>(&self, offset: u32, count: usize) -> NonNull<T> {
        self.0.place(offset.into(), count)
    }

    /// Asks for the first two lines of a frame.
    #[inline]
    pub(super) fn prefetch(&self, offset: u32) {
        for offset in [offset, offset.saturating_add(LINE_BYTES)] {
            if self.holds(offset, 1) {
                // SAFETY: it lies in the mapping, and a byte that changes is an atomic one.
                prefetch(unsafe { self.0.place::<AtomicU8>(offset.into(), 1).as_ref() });
            }
        }
    }

    /// Copies bytes from `offset` on, which it holds. They may change meanwhile: `to` then has any.
    #[inline]
    pub(super) fn copy_to(&self, offset: u32, to: &mut [u8]) {
        let from: NonNull<u8> = self.0.place(offset.into(), to.len());
        // SAFETY: the place lies in the mapping, and no reference to it exists. The other process may store there meanwhile, and
        // may have this one's threads store there too, if it gives them one place: no atomic copy of bytes exists, and whatever
        // bytes come of it are checked as a stranger's.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) };
    }

    /// Copies `from` to `offset` and on, which it holds.
    #[inline]
    pub(super) fn copy_from(&self, offset: u32, from: &[u8]) {
        let to: NonNull<u8> = self.0.place(offset.into(), from.len());
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_reads() {
        let (here, file) = Region::create(8192).unwrap();
        let there = Region::of_peer(file.as_fd(), 8192).unwrap();
        here.copy_from(100, b"shared");
        let mut bytes = [0; 6];
        there.copy_to(100, &mut bytes);
        assert_eq!(&bytes, b"shared");
        assert!(
            there.holds(8186, 6) && !there.holds(8187, 6) && !there.holds(u32::MAX, usize::from(u16::MAX))
        );
        there.prefetch(8191);
    }

    #[test]
    fn memory_that_may_shrink_or_is_too_short_is_refused() {
        let (_, file) = Region::create(4096).unwrap();
        assert!(Region::of_peer(file.as_fd(), 4097).is_err());
        assert!(Region::of_peer(file.as_fd(), 0).is_err());
        assert!(Region::of_peer(file.as_fd(), u64::MAX).is_err());
        let unsealed = memfd_create("minos-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, 4096).unwrap();
        assert!(Region::of_peer(unsealed.as_fd(), 4096).is_err());
        let pipe = rustix::pipe::pipe().unwrap();
        assert!(Region::of_peer(pipe.0.as_fd(), 4096).is_err());
    }
}
