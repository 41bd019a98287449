//! Where the memory of a region comes from, and what pages it got.

use rustix::{
    fd::OwnedFd,
    fs::{self, MemfdFlags, Mode, OFlags},
    io::Errno,
    mm::{self, Advice, MapFlags, ProtFlags},
};
use std::{ffi::c_void, fmt, path::PathBuf, ptr, ptr::NonNull};

/// Bytes of a huge page on every platform that Minos knows.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Where a region's memory comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// Reserved huge pages if there are enough, else private memory.
    #[default]
    Auto,
    /// Reserved 2 MiB pages (`/proc/sys/vm/nr_hugepages`), or failure.
    Hugetlb,
    /// Private anonymous memory with `MADV_HUGEPAGE`, which gets 2 MiB pages on a stock system.
    Private,
    /// A memfd, which another process can map.
    Memfd,
    /// A file, which is kept when the process ends.
    File(PathBuf),
}

/// Why a region could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The size is too small to hold anything, or too large for the layout.
    #[error("a region of {bytes} bytes is not possible: it must have {min} to {max} bytes")]
    Size {
        /// What was asked for, in bytes.
        bytes: u64,
        /// The least that is possible, in bytes.
        min: u64,
        /// The most that is possible, in bytes.
        max: u64,
    },
    /// The operating system refused.
    #[error("cannot {action} for a region of {bytes} bytes ({backing}): {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Where the memory should have come from.
        backing: Backing,
        /// Size of the region in bytes.
        bytes: usize,
        /// The operating system's reason.
        source: Errno,
    },
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Hugetlb => f.write_str("hugetlb"),
            Self::Private => f.write_str("private"),
            Self::Memfd => f.write_str("memfd"),
            Self::File(path) => write!(f, "file {}", path.display()),
        }
    }
}

/// A mapping of zeroed memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) base: NonNull<c_void>,
    pub(crate) bytes: usize,
    pub(crate) text: String,
    /// Kept open as long as it is mapped, so that it can be passed on.
    _file: Option<OwnedFd>,
}

// SAFETY: a mapping is an address range; it belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: the fields do not change after mapping; access to the memory is `Region`'s concern.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes`, which is a multiple of [`HUGE_PAGE_BYTES`].
    pub(crate) fn new(bytes: usize, backing: &Backing) -> Result<Self, MapError> {
        let failed = |action, source| MapError::System { action, backing: backing.clone(), bytes, source };
        match backing {
            Backing::Auto => Self::hugetlb(bytes).or_else(|_| Self::private(bytes)),
            Backing::Hugetlb => Self::hugetlb(bytes),
            Backing::Private => Self::private(bytes),
            Backing::Memfd => fs::memfd_create("minos-region", MemfdFlags::CLOEXEC)
                .and_then(|file| Self::file(bytes, file, "a memfd".to_owned())),
            Backing::File(path) => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
                fs::open(path, flags, Mode::RUSR | Mode::WUSR)
                    .and_then(|file| Self::file(bytes, file, format!("file {}", path.display())))
            }
        }
        .map_err(|source| failed("map memory", source))
    }

    /// Reserved pages: they are taken from the pool at once, so that a fault cannot fail later.
    fn hugetlb(bytes: usize) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        let base = anonymous(bytes, flags)?;
        Self::mapped(base, bytes, "reserved huge pages of 2 MiB".to_owned(), None)
    }

    fn private(bytes: usize) -> Result<Self, Errno> {
        // One huge page more than asked for, because only aligned ranges get huge pages.
        let base = anonymous(bytes + HUGE_PAGE_BYTES, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        let base = trim_to_huge_page(base, bytes)?;
        // SAFETY: the range was mapped just now and holds nothing yet.
        let advised = unsafe { mm::madvise(base, bytes, Advice::LinuxHugepage) };
        let pages = match advised {
            Ok(()) if transparent_huge_pages() => "transparent huge pages of 2 MiB",
            _ => "pages of 4 KiB",
        };
        Self::mapped(base, bytes, format!("private memory in {pages}"), None)
    }

    fn file(bytes: usize, file: OwnedFd, name: String) -> Result<Self, Errno> {
        fs::ftruncate(&file, bytes as u64)?;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe {
            mm::mmap(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        }?;
        Self::mapped(base, bytes, format!("{name} in pages of 4 KiB"), Some(file))
    }

    fn mapped(base: *mut c_void, bytes: usize, text: String, file: Option<OwnedFd>) -> Result<Self, Errno> {
        let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
        Ok(Self { base, bytes, text, _file: file })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value, and every reference into it borrows from it.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr(), self.bytes) };
        if let Err(error) = unmapped {
            tracing::warn!(%error, "cannot unmap a region");
        }
    }
}

fn anonymous(bytes: usize, flags: MapFlags) -> Result<*mut c_void, Errno> {
    // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
    unsafe { mm::mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }
}

/// Unmaps what lies before the first huge page boundary, and after `bytes` from there.
fn trim_to_huge_page(base: *mut c_void, bytes: usize) -> Result<*mut c_void, Errno> {
    let before = base.addr().next_multiple_of(HUGE_PAGE_BYTES) - base.addr();
    let after = HUGE_PAGE_BYTES - before;
    let start = base.wrapping_byte_add(before);
    for (from, len) in [(base, before), (start.wrapping_byte_add(bytes), after)] {
        if len > 0 {
            // SAFETY: both ranges are parts of the mapping that was made just now, page aligned,
            // and nothing refers to them.
            unsafe { mm::munmap(from, len) }?;
        }
    }
    Ok(start)
}

fn transparent_huge_pages() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|modes| modes.contains("[always]") || modes.contains("[madvise]"))
}
