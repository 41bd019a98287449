//! Memory that two processes share.

use std::{
    io,
    marker::PhantomData,
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
const LINE_BYTES: usize = 64;
const SHORT: &str = "a span is shorter than what is copied";

/// Numbers that the other process may change at any time.
pub(super) trait Number {}
impl Number for AtomicU16 {}
impl Number for AtomicU32 {}
impl Number for AtomicU64 {}

/// Memory in which the other process writes as it likes. It is only copied from and to, and looked at by atomic numbers.
#[derive(Debug)]
pub(super) struct Region(Mapping);

/// Bytes that a region holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    at: NonNull<u8>,
    bytes: usize,
    region: PhantomData<&'a Region>,
}

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

    /// So many bytes from `offset` on; `None` if it does not hold them.
    #[inline]
    pub(super) fn span(&self, offset: u32, bytes: usize) -> Option<Span<'_>> {
        let at = self.holds(offset, bytes).then(|| self.0.place(offset.into(), bytes))?;
        Some(Span { at, bytes, region: PhantomData })
    }
}

impl Span<'_> {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asks for its first two lines.
    #[inline]
    pub(super) fn prefetch(&self) {
        for line in [0, LINE_BYTES] {
            if line < self.bytes {
                // SAFETY: it lies in the mapping, and a byte that changes is an atomic one.
                prefetch(unsafe { self.at.add(line).cast::<AtomicU8>().as_ref() });
            }
        }
    }

    /// Copies the first bytes, as many as there are in `to`. They may change meanwhile: `to` then has any.
    ///
    /// # Panics
    /// If it has not so many.
    #[inline]
    pub(super) fn copy_to(&self, to: &mut [u8]) {
        assert!(to.len() <= self.bytes, "{SHORT}");
        // SAFETY: they lie in the mapping, and no reference to them exists. The other process may store there meanwhile, and
        // may have this one's threads store there too, if it gives them one place: no atomic copy of bytes exists, and whatever
        // bytes come of it are checked as a stranger's.
        unsafe { std::ptr::copy_nonoverlapping(self.at.as_ptr(), to.as_mut_ptr(), to.len()) };
    }

    /// Copies `parts` to its beginning, one behind the other.
    ///
    /// # Panics
    /// If it has not so many bytes.
    #[inline]
    pub(super) fn copy_from(&self, parts: [&[u8]; 2]) {
        let [first, second] = parts;
        assert!(first.len() + second.len() <= self.bytes, "{SHORT}");
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(first.as_ptr(), self.at.as_ptr(), first.len());
            std::ptr::copy_nonoverlapping(second.as_ptr(), self.at.add(first.len()).as_ptr(), second.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_writes_the_other_reads() {
        let (here, file) = Region::create(8192).unwrap();
        let there = Region::of_peer(file.as_fd(), 8192).unwrap();
        here.span(100, 7).unwrap().copy_from([b"sha", b"red"]);
        let mut bytes = [0; 6];
        there.span(100, 6).unwrap().copy_to(&mut bytes);
        assert_eq!(&bytes, b"shared");
        assert!(
            there.holds(8186, 6) && !there.holds(8187, 6) && !there.holds(u32::MAX, usize::from(u16::MAX))
        );
        assert!(there.span(8187, 6).is_none());
        for offset in [8192, 8191, 8128, 8127] {
            there.span(offset, 8192 - offset as usize).unwrap().prefetch();
        }
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
