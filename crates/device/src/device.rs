//! A device: opened once, shared by its lanes.

use std::{io, path::Path, sync::Arc};

#[cfg(feature = "faulty")]
use crate::faulty::{FaultyLane, FaultyMedium};
use crate::{
    Driver, Facts, FileOptions, Geometry, Lane, LaneOptions, MemoryOptions, OpenError,
    buffer::Pool,
    file::{self, FileMedium, RingLane, ThreadLane},
    geometry::{Room, Shared},
    inner::InnerLane,
    memory::{MemoryLane, MemoryMedium},
};

/// A device. Clones are the same device, which closes with the last of them and of its lanes.
#[derive(Clone, Debug)]
pub struct Device {
    shared: Arc<Shared>,
    medium: Medium,
}

/// The bytes of a device.
#[derive(Clone, Debug)]
pub(crate) enum Medium {
    File(Arc<FileMedium>),
    Memory(Arc<MemoryMedium>),
    #[cfg(feature = "faulty")]
    Faulty(FaultyMedium),
}

impl Device {
    /// Opens a file or block device, and locks it against other processes until the last clone and lane are dropped.
    ///
    /// # Errors
    /// It is missing, in use, too small, or refused by the operating system.
    pub fn open(path: &Path, options: &FileOptions) -> Result<Self, OpenError> {
        let (geometry, medium) = file::open(path, options)?;
        Ok(Self::new(geometry, Medium::File(Arc::new(medium)), options.read_only))
    }

    /// A device in memory.
    ///
    /// # Panics
    /// The block size is no power of two of at least 512, or nothing may be in flight.
    pub fn in_memory(options: &MemoryOptions) -> Self {
        let MemoryOptions { block_bytes, in_flight_max, capacity_bytes, .. } = *options;
        assert!(block_bytes.is_power_of_two() && block_bytes >= 512 && in_flight_max > 0);
        let geometry = Geometry::new(block_bytes, capacity_bytes, in_flight_max);
        Self::new(geometry, Medium::Memory(Arc::new(MemoryMedium::new(options))), false)
    }

    pub(crate) fn new(geometry: Geometry, medium: Medium, read_only: bool) -> Self {
        Self { shared: Arc::new(Shared { geometry, room: Room::default(), read_only }), medium }
    }

    /// Its shape.
    pub fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    /// How it was opened.
    pub fn facts(&self) -> Facts {
        match &self.medium {
            Medium::File(file) => file.facts.clone(),
            Medium::Memory(_) => Facts::without_file(Driver::Memory),
            #[cfg(feature = "faulty")]
            Medium::Faulty(_) => Facts::without_file(Driver::Faulty),
        }
    }

    /// True if its file has no name any more: what is written there is lost with the last process that has it open.
    pub fn is_removed(&self) -> bool {
        match &self.medium {
            Medium::File(file) => rustix::fs::fstat(&file.fd).is_ok_and(|stat| stat.st_nlink == 0),
            _ => false,
        }
    }

    /// A new lane. Options beyond their bounds are brought within them.
    ///
    /// # Errors
    /// No descriptor, no thread or no memory is left, or the kernel does not map a pool that must be registered.
    pub fn lane(&self, options: &LaneOptions) -> io::Result<Lane> {
        let options = options.clamped();
        let pool = Pool::new(options.pool_bytes, self.shared.geometry.block_bytes);
        let backend = match &self.medium {
            Medium::File(file) if file.facts.driver == Driver::Threads => {
                InnerLane::Threads(ThreadLane::open(file, options.threads)?)
            }
            Medium::File(file) => {
                let lane = RingLane::open(file, &pool, options.depth)?;
                if let Some(why) = lane.why_unregistered().filter(|_| options.must_register) {
                    return Err(io::Error::other(format!(
                        "the kernel does not register a lane's buffers: {why}"
                    )));
                }
                InnerLane::Ring(Box::new(lane))
            }
            Medium::Memory(memory) => InnerLane::Memory(MemoryLane::open(memory)?),
            #[cfg(feature = "faulty")]
            Medium::Faulty(twin) => InnerLane::Faulty(FaultyLane::open(twin)?),
        };
        Ok(Lane::new(backend, Arc::clone(&self.shared), pool, options.depth))
    }
}

/// Transfers at once and without a lane, for the faulty twin.
#[cfg(feature = "faulty")]
impl Device {
    pub(crate) fn read_now(&self, offset: u64, bytes: &mut [u8]) -> rustix::io::Result<()> {
        match &self.medium {
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
        match &self.medium {
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
