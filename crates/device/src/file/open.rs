//! Opening a file or block device as a device.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        self, Advice, AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, Stat,
        StatxFlags,
    },
    io::{Errno, retry_on_intr},
};

use super::{FileMedium, queue::Queue, ring};
use crate::{Buffer, Driver, Facts, Geometry, buffer::Pool, geometry::SECTOR_BYTES};

/// Bytes of a write that fills a new file.
const FILL_BYTES: usize = 1 << 20;

/// How a file or block device is opened. Nothing that exists is ever truncated, extended or formatted: only a file that
/// is missing or empty gets blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Bytes to use, from the front; by default all there are. Needed to create a file.
    pub size_bytes: Option<u64>,
    /// Creates the file if it is missing, or gives an empty one its size.
    pub create: bool,
    /// Writes zeros over a file that was created, so that no later write has to turn reserved blocks into written
    /// ones, which costs the kernel a thread and a journal entry each.
    pub prefill: bool,
    /// Refuses writes, and opens the file so.
    pub read_only: bool,
    /// A power of two of at least 512.
    pub block_bytes: u32,
    /// Requests in flight; by default three quarters of what the kernel's queue holds.
    pub in_flight_max: Option<u32>,
    /// How to transfer.
    pub driver: DriverChoice,
}

/// The choice of a [`Driver`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverChoice {
    /// io_uring, or threads where the kernel refuses that. [`Facts`] has the reason.
    #[default]
    Auto,
    /// io_uring only.
    Ring,
    /// io_uring only, as on kernels before Linux 6.1.
    CooperativeRing,
    /// Threads only.
    Threads,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            size_bytes: None,
            create: false,
            prefill: false,
            read_only: false,
            block_bytes: 4096,
            in_flight_max: None,
            driver: DriverChoice::Auto,
        }
    }
}

/// A file or block device that cannot be opened as a device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file, and none is to be created.
    #[error("{path} does not exist, and no size is given to make it")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A link leads to no file; none is made there.
    #[error("{path} is a symbolic link to a file that does not exist")]
    DanglingLink {
        /// The link.
        path: PathBuf,
    },
    /// It is a directory, a socket or the like.
    #[error("{path} is neither a file nor a block device")]
    NotADevice {
        /// The file.
        path: PathBuf,
    },
    /// Another process, or this one, has it open as a device, or it is mounted.
    #[error("{path} is in use")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// It has fewer bytes than are to be used.
    #[error("{path} has {have} bytes and needs {wanted}; no file grows that has any")]
    TooSmall {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        have: u64,
        /// The bytes to be used, at least a block.
        wanted: u64,
    },
    /// The block size is no power of two of at least 512, or smaller than the device transfers.
    #[error("{path} does not transfer blocks of {block_bytes} bytes; the least is {least}")]
    BlockSize {
        /// The file.
        path: PathBuf,
        /// The block size asked for.
        block_bytes: u32,
        /// The least that it takes.
        least: u32,
    },
    /// io_uring alone was asked for.
    #[error("io_uring is refused: {reason}")]
    NoRing {
        /// The kernel's reason.
        reason: io::Error,
    },
    /// The operating system refused.
    #[error("cannot {action} {path}: {reason}")]
    System {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        reason: Errno,
    },
}

/// Opens a file or block device.
pub(crate) fn open(path: &Path, options: &FileOptions) -> Result<(Geometry, FileMedium), OpenError> {
    let opening = Opening { path, options };
    opening.check_block_size(512)?;
    opening.check_size()?;
    let (fd, stat, is_new) = opening.open()?;
    opening.lock(&fd)?;
    let was_created = opening.create(&fd, &stat).inspect_err(|_| {
        if is_new {
            // Nobody else has a use for it.
            let _ = fs::unlink(path);
        }
    })?;
    let size = opening.size(&fd)?;
    let why_buffered = opening.go_direct(&fd)?;
    let (driver, why_threads) = opening.driver()?;
    let is_block = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let queue = Queue::of(if is_block { stat.st_rdev } else { stat.st_dev });
    let in_flight_max = options.in_flight_max.unwrap_or_else(|| queue.in_flight_max()).max(1);
    let mut geometry = Geometry::new(options.block_bytes, size, in_flight_max);
    geometry.read_block_bytes = opening.least_read(&fd);
    geometry.request_bytes_max = queue.request_bytes_max.max(options.block_bytes);
    Ok((geometry, FileMedium { fd, facts: Facts { driver, why_threads, why_buffered, was_created } }))
}

struct Opening<'a> {
    path: &'a Path,
    options: &'a FileOptions,
}

impl Opening<'_> {
    /// True if a file that is missing or empty may get blocks.
    fn may_create(&self) -> bool {
        self.options.create && self.options.size_bytes.is_some() && !self.options.read_only
    }

    fn path(&self) -> PathBuf {
        self.path.to_owned()
    }

    fn failed(&self, action: &'static str) -> impl Fn(Errno) -> OpenError {
        move |reason| OpenError::System { action, path: self.path(), reason }
    }

    fn check_block_size(&self, least: u32) -> Result<(), OpenError> {
        let block_bytes = self.options.block_bytes;
        if block_bytes.is_power_of_two() && block_bytes >= least {
            return Ok(());
        }
        Err(OpenError::BlockSize { path: self.path(), block_bytes, least })
    }

    /// Before a file of fewer bytes than a block is created.
    fn check_size(&self) -> Result<(), OpenError> {
        let least = u64::from(self.options.block_bytes);
        match self.options.size_bytes.filter(|&size| size < least) {
            Some(have) => Err(OpenError::TooSmall { path: self.path(), have, wanted: least }),
            None => Ok(()),
        }
    }

    /// Opens it, buffered at first: a file system without direct transfers would refuse after it had created the file.
    /// True if this made the file.
    fn open(&self) -> Result<(OwnedFd, Stat, bool), OpenError> {
        // Looked at before it is opened: opening some kinds has effects.
        let mut flags = OFlags::CLOEXEC | if self.options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        match fs::stat(self.path).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::RegularFile) => {}
            // The kernel refuses one that is mounted.
            Ok(FileType::BlockDevice) => flags |= OFlags::EXCL,
            Ok(_) => return Err(OpenError::NotADevice { path: self.path() }),
            Err(Errno::NOENT) if fs::lstat(self.path).is_ok() => {
                return Err(OpenError::DanglingLink { path: self.path() });
            }
            Err(Errno::NOENT) if self.may_create() => {
                flags |= OFlags::CREATE | OFlags::EXCL;
            }
            Err(Errno::NOENT) => return Err(OpenError::Missing { path: self.path() }),
            Err(error) => return Err(self.failed("look at")(error)),
        }
        let fd = fs::open(self.path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| match error {
            Errno::BUSY => OpenError::InUse { path: self.path() },
            error => self.failed("open")(error),
        })?;
        let stat = fs::fstat(&fd).map_err(self.failed("look at"))?;
        Ok((fd, stat, flags.contains(OFlags::CREATE)))
    }

    fn lock(&self, fd: &OwnedFd) -> Result<(), OpenError> {
        fs::flock(fd, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => OpenError::InUse { path: self.path() },
            error => self.failed("lock")(error),
        })
    }

    /// Gives a file that is empty its blocks, if it may; returns true if it did.
    fn create(&self, fd: &OwnedFd, stat: &Stat) -> Result<bool, OpenError> {
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let Some(size) = self.options.size_bytes.filter(|_| is_file && self.may_create()) else {
            return Ok(false);
        };
        if self.end(fd)? > 0 {
            return Ok(false);
        }
        self.allocate(fd, size).inspect_err(|_| {
            // It was empty and is ours: what was reserved in vain is given back.
            let _ = fs::ftruncate(fd, 0);
        })?;
        Ok(true)
    }

    /// The bytes to use.
    fn size(&self, fd: &OwnedFd) -> Result<u64, OpenError> {
        let have = self.end(fd)?;
        let wanted = self.options.size_bytes.unwrap_or(have).max(u64::from(self.options.block_bytes));
        if have < wanted {
            return Err(OpenError::TooSmall { path: self.path(), have, wanted });
        }
        Ok(wanted)
    }

    fn end(&self, fd: &OwnedFd) -> Result<u64, OpenError> {
        fs::seek(fd, SeekFrom::End(0)).map_err(self.failed("measure"))
    }

    fn allocate(&self, fd: &OwnedFd, size: u64) -> Result<(), OpenError> {
        match fs::fallocate(fd, FallocateFlags::empty(), 0, size) {
            // This file system reserves nothing; the file is sparse.
            Err(Errno::OPNOTSUPP) => fs::ftruncate(fd, size).map_err(self.failed("extend"))?,
            result => result.map_err(self.failed("reserve the blocks of"))?,
        }
        if self.options.prefill {
            let zeros = vec![0; FILL_BYTES];
            let mut at = 0;
            while at < size {
                let len = (size - at).min(FILL_BYTES as u64) as usize;
                let filled = retry_on_intr(|| rustix::io::pwrite(fd, &zeros[..len], at));
                at += filled.map_err(self.failed("fill"))? as u64;
            }
        }
        fs::fsync(fd).map_err(self.failed("fill"))?;
        // Direct transfers would look for these pages. It is only advice.
        let _ = fs::fadvise(fd, 0, None, Advice::DontNeed);
        self.keep_name()
    }

    /// Makes the name of a new file durable.
    fn keep_name(&self) -> Result<(), OpenError> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let flags = OFlags::CLOEXEC | OFlags::RDONLY | OFlags::DIRECTORY;
        match fs::open(folder, flags, Mode::empty()).and_then(fs::fsync) {
            // This file system has no such thing.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(self.failed("make durable the name of")(error)),
        }
    }

    /// Turns the page cache off; returns the reason where that is refused.
    fn go_direct(&self, fd: &OwnedFd) -> Result<Option<String>, OpenError> {
        let flags = fs::fcntl_getfl(fd).map_err(self.failed("look at"))?;
        if let Err(error) = fs::fcntl_setfl(fd, flags | OFlags::DIRECT) {
            return Ok(Some(format!("the file system refuses O_DIRECT: {error}")));
        }
        match rustix::io::pread(fd, &mut *self.block(), 0) {
            Ok(_) => Ok(None),
            Err(Errno::INVAL) => {
                if let Some(least) = direct_alignment(fd).filter(|&least| least > self.options.block_bytes) {
                    self.check_block_size(least)?;
                }
                fs::fcntl_setfl(fd, flags).map_err(self.failed("look at"))?;
                Ok(Some("the file system refuses direct reads".to_owned()))
            }
            Err(error) => Err(self.failed("read")(error)),
        }
    }

    /// The least read: a sector, or a block if the device does not read sectors.
    ///
    /// The kernel is asked, and a read tried: not every file system tells, nor does each refuse where nothing was written.
    fn least_read(&self, fd: &OwnedFd) -> u32 {
        let may_read = direct_alignment(fd).is_none_or(|least| least <= SECTOR_BYTES);
        let sector = SECTOR_BYTES as usize;
        let mut block = self.block();
        let reads = block
            .get_mut(sector..2 * sector)
            .is_some_and(|second| rustix::io::pread(fd, second, sector as u64).is_ok());
        if may_read && reads { SECTOR_BYTES } else { self.options.block_bytes }
    }

    fn block(&self) -> Buffer {
        let block_bytes = self.options.block_bytes;
        Pool::new(block_bytes as usize, block_bytes).take(1).expect("a new pool has a free block")
    }

    fn driver(&self) -> Result<(Driver, Option<String>), OpenError> {
        let ring = match self.options.driver {
            DriverChoice::Threads => return Ok((Driver::Threads, Some("threads were asked for".to_owned()))),
            DriverChoice::Auto | DriverChoice::Ring => ring::best(),
            DriverChoice::CooperativeRing => {
                let driver = Driver::CooperativeRing;
                ring::build(driver, 1).map(|_| driver)
            }
        };
        match (ring, self.options.driver) {
            (Ok(driver), _) => Ok((driver, None)),
            (Err(reason), DriverChoice::Auto) => {
                Ok((Driver::Threads, Some(format!("io_uring is refused: {reason}"))))
            }
            (Err(reason), _) => Err(OpenError::NoRing { reason }),
        }
    }
}

/// The least direct transfer, if the kernel tells.
fn direct_alignment(fd: &OwnedFd) -> Option<u32> {
    let statx = fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    (statx.stx_dio_offset_align > 0).then_some(statx.stx_dio_offset_align)
}
