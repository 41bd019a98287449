//! The source of a region's memory, and its pages.

use crate::{
    file::{FileError, HUGE_PAGE_BYTES, Pages, RegionFile, failed, no_space},
    kept::Kept,
    lent::Lent,
};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    mm::{self, Advice, MapFlags, MsyncFlags, ProtFlags},
};
use std::{
    ffi::c_void,
    fmt, io,
    path::{Path, PathBuf},
    ptr::{self, NonNull},
};

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
    /// Private anonymous memory in 4 KiB pages (`MADV_NOHUGEPAGE`), to measure the gain of huge ones.
    SmallPages,
    /// A memfd, which another process can map.
    Memfd,
    /// A file, which is kept when the process ends. It must not exist yet:
    /// [`crate::Memory::open`] reopens one.
    File(PathBuf),
    /// A memfd that a keeper has, too, so that it outlives the process. [`crate::Memory::open`] reopens it.
    Kept(Kept),
    /// Memory that somebody else maps, such as a fabric that must allocate what it registers.
    Lent(Lent),
}

/// Why a region could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The size is too small to hold anything, or too large for the layout.
    #[error("a region of {bytes} bytes is not possible: it must have {min} to {max} bytes")]
    Size {
        /// The size requested, in bytes.
        bytes: u64,
        /// The least that is possible, in bytes.
        min: u64,
        /// The most that is possible, in bytes.
        max: u64,
    },
    /// The file cannot be used.
    #[error("cannot use {} for a region: {reason}", path.display())]
    File {
        /// Where the file is.
        path: PathBuf,
        /// The reason.
        reason: FileError,
    },
    /// The operating system refused.
    #[error("cannot {action} for a region of {bytes} bytes ({backing}): {source}")]
    System {
        /// The attempted action.
        action: &'static str,
        /// Where the memory should have come from.
        backing: Backing,
        /// Size of the region in bytes.
        bytes: usize,
        /// The operating system's reason.
        source: Errno,
    },
}

impl Backing {
    /// What it is called in messages if it outlives the process.
    pub fn lasting_name(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Kept(kept) => Some(kept.keeper().name()),
            _ => None,
        }
    }

    /// The region that a process before this one has left.
    pub(crate) fn open(&self) -> Result<RegionFile, FileError> {
        match self {
            Self::File(path) => RegionFile::open(path),
            Self::Kept(kept) => RegionFile::open_kept(kept),
            _ => Err(FileError::Missing),
        }
    }

    /// Removes the region that a process has left, if it is not in use.
    ///
    /// # Errors
    /// There is none, it is in use or something else, or the operating system or the keeper refuses.
    pub fn remove(&self) -> Result<(), MapError> {
        match self {
            Self::File(path) => RegionFile::remove(path),
            Self::Kept(kept) => RegionFile::remove_kept(kept),
            _ => Err(FileError::Missing),
        }
        .map_err(MapError::file(self.lasting_name().unwrap_or(Path::new("memory"))))
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Hugetlb => f.write_str("hugetlb"),
            Self::Private => f.write_str("private"),
            Self::SmallPages => f.write_str("small-pages"),
            Self::Memfd => f.write_str("memfd"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Kept(kept) => write!(f, "{}", kept.keeper().name().display()),
            Self::Lent(_) => f.write_str("lent"),
        }
    }
}

impl MapError {
    /// For the file of this name.
    pub(crate) fn file(name: &Path) -> impl Fn(FileError) -> Self {
        move |reason| Self::File { path: name.to_owned(), reason }
    }
}

/// A mapping of memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) base: NonNull<c_void>,
    pub(crate) bytes: usize,
    pub(crate) text: String,
    /// Kept open as long as it is mapped: it carries the lock, and can be passed on.
    file: Option<RegionFile>,
    /// Whose memory it is, if it is not this value's.
    lent: Option<Lent>,
}

// SAFETY: a mapping is an address range; it belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: the fields do not change after mapping; access to the memory is `Region`'s concern.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of zeros, rounded up to whole huge pages.
    pub(crate) fn new(bytes: u64, backing: &Backing) -> Result<Self, MapError> {
        let rounded = (bytes as usize).next_multiple_of(HUGE_PAGE_BYTES);
        match backing {
            Backing::Auto => Self::hugetlb(rounded).or_else(|_| Self::private(rounded)),
            Backing::Hugetlb => Self::hugetlb(rounded),
            Backing::Private => Self::private(rounded),
            Backing::SmallPages => Self::small_pages(rounded),
            Backing::Memfd => {
                let file = RegionFile::memfd().and_then(|file| Self::cleared_file(bytes, file));
                return file.map_err(MapError::file(Path::new("a memfd")));
            }
            Backing::File(path) => {
                let file = RegionFile::create(path).and_then(|file| Self::cleared_file(bytes, file));
                return file.map_err(MapError::file(path));
            }
            Backing::Kept(kept) => {
                let file = RegionFile::create_kept(kept, bytes).and_then(|file| Self::file(bytes, file));
                return file.map_err(MapError::file(kept.keeper().name()));
            }
            Backing::Lent(lent) => Self::lent(bytes as usize, lent),
        }
        .map_err(|source| MapError::System {
            action: "map memory",
            backing: backing.clone(),
            bytes: rounded,
            source,
        })
    }

    /// Empties a file that no process has mapped, and maps it.
    fn cleared_file(bytes: u64, file: RegionFile) -> Result<Self, FileError> {
        file.clear(file.bytes_for(bytes))?;
        Self::file(bytes, file)
    }

    /// Maps `file`, which is long enough, and reserves all of it.
    pub(crate) fn file(bytes: u64, file: RegionFile) -> Result<Self, FileError> {
        let bytes = file.bytes_for(bytes) as usize;
        let is_reserved = file.reserve(bytes as u64)?;
        let base = map_file(bytes, &file, ProtFlags::READ | ProtFlags::WRITE).map_err(failed("map"))?;
        let mapping = Self::mapped(base, bytes, file.text(), Some(file)).map_err(failed("map"))?;
        if !is_reserved {
            mapping.populate().map_err(no_space(bytes as u64))?;
        }
        Ok(mapping)
    }

    /// Maps the `bytes` of `file`, all of which are there, to be read only.
    pub(crate) fn to_read(bytes: usize, file: RegionFile) -> Result<Self, FileError> {
        let base = map_file(bytes, &file, ProtFlags::READ).map_err(failed("map"))?;
        Self::mapped(base, bytes, file.text(), Some(file)).map_err(failed("map"))
    }

    /// A descriptor of the file, which can only be read.
    pub(crate) fn descriptor_to_read(&self) -> io::Result<OwnedFd> {
        let none = || io::Error::new(io::ErrorKind::Unsupported, "the memory is no file");
        Ok(self.file.as_ref().ok_or_else(none)?.descriptor_to_read()?)
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_ref()?.path()
    }

    /// True if a keeper has it, too.
    pub(crate) fn is_kept(&self) -> bool {
        self.file.as_ref().is_some_and(RegionFile::is_kept)
    }

    /// What its file is called in messages.
    pub(crate) fn name(&self) -> &Path {
        self.file.as_ref().map_or(Path::new("memory"), RegionFile::name)
    }

    /// Gives a new file its name, if there is a file.
    pub(crate) fn publish(&mut self) -> Result<(), MapError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.publish().map_err(MapError::file(file.name()))
    }

    /// Writes the first `bytes` back to the file, if there is one.
    pub(crate) fn sync(&self, bytes: usize) -> Result<(), Errno> {
        if self.file.is_none() {
            return Ok(());
        }
        // SAFETY: the range is mapped; writing it back changes nothing in memory.
        unsafe { mm::msync(self.base.as_ptr(), bytes.min(self.bytes), MsyncFlags::SYNC) }
    }

    /// Touches every page as a write would, without changing anything.
    pub(crate) fn populate(&self) -> Result<(), Errno> {
        // SAFETY: the range is mapped, and its contents stay.
        unsafe { mm::madvise(self.base.as_ptr(), self.bytes, Advice::LinuxPopulateWrite) }
    }

    /// Reserved pages: they are taken from the pool at once, so that a fault cannot fail later.
    fn hugetlb(bytes: usize) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        let base = anonymous(bytes, flags)?;
        Self::mapped(base, bytes, "reserved huge pages of 2 MiB".to_owned(), None)
    }

    fn private(bytes: usize) -> Result<Self, Errno> {
        let base = aligned(bytes, HUGE_PAGE_BYTES, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        // SAFETY: the range was mapped just now and holds nothing yet.
        let advised = unsafe { mm::madvise(base, bytes, Advice::LinuxHugepage) };
        let pages = match advised {
            Ok(()) if transparent_huge_pages() => "transparent huge pages of 2 MiB",
            _ => "pages of 4 KiB",
        };
        Self::mapped(base, bytes, format!("private memory in {pages}"), None)
    }

    fn small_pages(bytes: usize) -> Result<Self, Errno> {
        let base = anonymous(bytes, MapFlags::PRIVATE | MapFlags::NORESERVE)?;
        // SAFETY: the range was mapped just now and is empty. A kernel that refuses has no huge pages.
        let _ = unsafe { mm::madvise(base, bytes, Advice::LinuxNoHugepage) };
        Self::mapped(base, bytes, "private memory in pages of 4 KiB".to_owned(), None)
    }

    /// Memory of a lender, to be read.
    pub(crate) fn lent_to_read(lent: &Lent) -> Result<Self, Errno> {
        Self::of_lender(lent.take_to_read()?, lent)
    }

    fn lent(bytes: usize, lent: &Lent) -> Result<Self, Errno> {
        Self::of_lender(lent.take(bytes)?, lent)
    }

    fn of_lender(memory: NonNull<[u8]>, lent: &Lent) -> Result<Self, Errno> {
        let (base, text) = (memory.as_ptr().cast(), "pages of a lender".to_owned());
        let mut mapping = Self::mapped(base, memory.len(), text, None)?;
        mapping.lent = Some(lent.clone());
        Ok(mapping)
    }

    fn mapped(
        base: *mut c_void,
        bytes: usize,
        text: String,
        file: Option<RegionFile>,
    ) -> Result<Self, Errno> {
        let base = NonNull::new(base).ok_or(Errno::NOMEM)?;
        Ok(Self { base, bytes, text, file, lent: None })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.lent.is_some() {
            return;
        }
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

/// Maps a file at an address that suits its pages.
fn map_file(bytes: usize, file: &RegionFile, protection: ProtFlags) -> Result<*mut c_void, Errno> {
    let align = if let Pages::Reserved(page_bytes) = file.pages { page_bytes } else { HUGE_PAGE_BYTES };
    let place = aligned(bytes, align.max(HUGE_PAGE_BYTES), MapFlags::PRIVATE | MapFlags::NORESERVE)?;
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: it takes the place of a mapping of the same size that was made just now for it.
    let mapped = unsafe { mm::mmap(place, bytes, protection, flags, file, 0) };
    match mapped {
        Ok(base) if file.pages == Pages::Advised => {
            // SAFETY: the range was mapped just now. Refused, it has small pages, which work as well.
            let _ = unsafe { mm::madvise(base, bytes, Advice::LinuxHugepage) };
            Ok(base)
        }
        Ok(base) => Ok(base),
        Err(error) => {
            // SAFETY: nothing refers to the range that was to be replaced.
            unsafe { mm::munmap(place, bytes) }?;
            Err(error)
        }
    }
}

/// Maps `bytes` at a multiple of `align`, because only aligned ranges get huge pages.
fn aligned(bytes: usize, align: usize, flags: MapFlags) -> Result<*mut c_void, Errno> {
    let base = anonymous(bytes.checked_add(align).ok_or(Errno::NOMEM)?, flags)?;
    let before = base.addr().next_multiple_of(align) - base.addr();
    let after = align - before;
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
