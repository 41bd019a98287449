//! A device: opened once, shared by its lanes.

use std::{
    fmt, io,
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

#[cfg(feature = "faulty")]
use crate::faulty::{FaultyLane, FaultyMedium};
use crate::{
    FileOptions, Geometry, Lane, LaneOptions, MemoryOptions, OpenError,
    backend::{Backend, Done, Job},
    buffer::Pool,
    file::{self, FileMedium, RingLane, ThreadLane},
    geometry::Room,
    memory::{MemoryLane, MemoryMedium},
};

/// A device. Clones are the same device, which closes with the last of them and of its lanes.
#[derive(Clone, Debug)]
pub struct Device {
    shared: Arc<Shared>,
}

/// How a device transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// By io_uring, with a ring a lane. Completions are handled when the lane's thread asks for them (Linux 6.1).
    Ring,
    /// By io_uring, with a ring a lane. Completions are handled whenever the lane's thread is in the kernel (Linux 5.19).
    CooperativeRing,
    /// By threads that block in pread and pwrite.
    Threads,
    /// Within this process's memory.
    Memory,
    /// By a faulty twin, for tests.
    #[cfg(feature = "faulty")]
    Faulty,
}

impl Driver {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "io_uring",
            Self::CooperativeRing => "io_uring (cooperative)",
            Self::Threads => "threads",
            Self::Memory => "memory",
            #[cfg(feature = "faulty")]
            Self::Faulty => "faulty twin",
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a device was opened, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// How it transfers.
    pub driver: Driver,
    /// The reason for threads instead of io_uring.
    pub why_threads: Option<String>,
    /// The reason for transfers through the page cache, if it is not bypassed. A flush makes writes durable all the
    /// same.
    pub why_buffered: Option<String>,
    /// The file was missing or empty, and has got its blocks now.
    pub was_created: bool,
}

impl Facts {
    fn without_file(driver: Driver) -> Self {
        Self { driver, why_threads: None, why_buffered: None, was_created: false }
    }
}

/// Parts of a device that its lanes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) geometry: Geometry,
    pub(crate) room: Room,
    pub(crate) read_only: bool,
    pub(crate) medium: Medium,
    pub(crate) opened: Instant,
    /// Lanes handed out, for the engine that each uses.
    lanes: AtomicUsize,
}

/// The bytes of a device.
#[derive(Debug)]
pub(crate) enum Medium {
    File(FileMedium),
    Memory(MemoryMedium),
    #[cfg(feature = "faulty")]
    Faulty(FaultyMedium),
}

impl Medium {
    pub(crate) fn memory(&self) -> Option<&MemoryMedium> {
        match self {
            Self::Memory(memory) => Some(memory),
            _ => None,
        }
    }

    pub(crate) fn fd(&self) -> Option<&OwnedFd> {
        match self {
            Self::File(file) => Some(&file.fd),
            _ => None,
        }
    }
}

impl Device {
    /// Opens a file or block device, and locks it against other processes until the last clone and lane are dropped.
    ///
    /// # Errors
    /// It is missing, in use, too small, or refused by the operating system.
    pub fn open(path: &Path, options: &FileOptions) -> Result<Self, OpenError> {
        let (geometry, medium) = file::open(path, options)?;
        Ok(Self::new(geometry, Medium::File(medium), options.read_only))
    }

    /// A device in memory.
    ///
    /// # Panics
    /// The block size is no power of two of at least 512, or nothing may be in flight.
    pub fn in_memory(options: &MemoryOptions) -> Self {
        let MemoryOptions { block_bytes, in_flight_max, capacity_bytes, .. } = *options;
        assert!(block_bytes.is_power_of_two() && block_bytes >= 512 && in_flight_max > 0);
        let geometry = Geometry::new(block_bytes, capacity_bytes, in_flight_max);
        Self::new(geometry, Medium::Memory(MemoryMedium::new(options)), false)
    }

    pub(crate) fn new(geometry: Geometry, medium: Medium, read_only: bool) -> Self {
        let (room, opened, lanes) = (Room::default(), Instant::now(), AtomicUsize::new(0));
        Self { shared: Arc::new(Shared { geometry, room, read_only, medium, opened, lanes }) }
    }

    /// Its shape.
    pub fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    /// How it was opened.
    pub fn facts(&self) -> Facts {
        match &self.shared.medium {
            Medium::File(file) => file.facts.clone(),
            Medium::Memory(_) => Facts::without_file(Driver::Memory),
            #[cfg(feature = "faulty")]
            Medium::Faulty(_) => Facts::without_file(Driver::Faulty),
        }
    }

    /// A new lane. Options beyond their bounds are brought within them.
    ///
    /// # Errors
    /// No descriptor, no thread or no memory is left, or the kernel does not map a pool that must be registered.
    pub fn lane(&self, options: &LaneOptions) -> io::Result<Lane> {
        let options = options.clamped();
        let pool = Pool::new(options.pool_bytes, self.shared.geometry.block_bytes);
        let backend = match &self.shared.medium {
            Medium::File(file) if file.facts.driver == Driver::Threads => {
                InnerLane::Threads(ThreadLane::open(&self.shared, options.threads)?)
            }
            Medium::File(file) => {
                let lane = RingLane::open(&self.shared, file, &pool, options.depth)?;
                if let Some(why) = lane.why_unregistered().filter(|_| options.must_register) {
                    return Err(io::Error::other(format!(
                        "the kernel does not register a lane's buffers: {why}"
                    )));
                }
                InnerLane::Ring(Box::new(lane))
            }
            Medium::Memory(_) => {
                let number = self.shared.lanes.fetch_add(1, Relaxed);
                InnerLane::Memory(MemoryLane::open(&self.shared, number)?)
            }
            #[cfg(feature = "faulty")]
            Medium::Faulty(twin) => InnerLane::Faulty(FaultyLane::open(twin)?),
        };
        Ok(Lane::new(backend, Arc::clone(&self.shared), pool, options.depth))
    }
}

/// The lane of an implementation. An enum and no trait object, so that the choice is a branch that is always right.
#[derive(Debug)]
pub(crate) enum InnerLane {
    Ring(Box<RingLane>),
    Threads(ThreadLane),
    Memory(MemoryLane),
    #[cfg(feature = "faulty")]
    Faulty(FaultyLane),
}

/// Calls the same method of whichever implementation it is.
macro_rules! each {
    ($lane:expr, $inner:ident => $call:expr) => {
        match $lane {
            InnerLane::Ring($inner) => $call,
            InnerLane::Threads($inner) => $call,
            InnerLane::Memory($inner) => $call,
            #[cfg(feature = "faulty")]
            InnerLane::Faulty($inner) => $call,
        }
    };
}

impl InnerLane {
    pub(crate) fn why_unregistered(&self) -> Option<&str> {
        match self {
            Self::Ring(lane) => lane.why_unregistered(),
            _ => None,
        }
    }
}

impl Backend for InnerLane {
    fn start(&mut self, job: Job) {
        each!(self, lane => lane.start(job))
    }

    fn submit(&mut self) -> io::Result<()> {
        each!(self, lane => lane.submit())
    }

    fn wait(&mut self, least: usize, timeout: Duration) -> io::Result<()> {
        each!(self, lane => lane.wait(least, timeout))
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        each!(self, lane => lane.reap(done))
    }

    fn prepare(&mut self) -> io::Result<()> {
        each!(self, lane => lane.prepare())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        each!(self, lane => lane.descriptor())
    }

    fn abandon(&mut self) {
        each!(self, lane => lane.abandon())
    }
}

/// Transfers at once and without a lane, for the faulty twin.
#[cfg(feature = "faulty")]
impl Device {
    pub(crate) fn read_now(&self, offset: u64, bytes: &mut [u8]) -> rustix::io::Result<()> {
        match &self.shared.medium {
            Medium::Memory(memory) => memory.read(offset, bytes),
            Medium::File(file) => {
                let buffer = &mut *self.aligned(bytes.len());
                rustix::io::pread(&file.fd, &mut *buffer, offset)?;
                bytes.copy_from_slice(buffer);
            }
            Medium::Faulty(_) => unreachable!("a faulty twin wraps a device that has no faults of its own"),
        }
        Ok(())
    }

    pub(crate) fn write_now(&self, offset: u64, bytes: &[u8]) -> rustix::io::Result<()> {
        match &self.shared.medium {
            Medium::Memory(memory) => memory.write(offset, bytes),
            Medium::File(file) => {
                let mut buffer = self.aligned(bytes.len());
                buffer.copy_from_slice(bytes);
                rustix::io::pwrite(&file.fd, &buffer, offset)?;
            }
            Medium::Faulty(_) => unreachable!("a faulty twin wraps a device that has no faults of its own"),
        }
        Ok(())
    }

    fn aligned(&self, bytes: usize) -> crate::Buffer {
        let pool = Pool::new(bytes, self.shared.geometry.block_bytes);
        pool.take(bytes).expect("a new pool is free")
    }
}
