//! Memory that a keeper's process has as well, so that it outlives the process of its region.

use std::{fmt, io, os::fd::OwnedFd, path::Path, sync::Arc};

/// One memory of a keeper, as the process sees it that has it alone.
///
/// Errors are sentences for the user.
pub trait MemoryKeeper: fmt::Debug + Send + Sync {
    /// What the memory is called in messages.
    fn name(&self) -> &Path;

    /// The memory that an earlier process has left; `None` if there is none. From now on no other process gets it.
    ///
    /// # Errors
    /// Another process has it, or the keeper cannot be asked.
    fn open(&self) -> Result<Option<OwnedFd>, String>;

    /// New memory of `bytes` zeros: a memfd that is sealed against shrinking and growing. It is lost with this process
    /// until [`MemoryKeeper::publish`].
    ///
    /// # Errors
    /// There is some already, another process has it, or the keeper has no room or cannot be asked.
    fn create(&self, bytes: u64) -> Result<OwnedFd, String>;

    /// Lets new memory outlive this process.
    ///
    /// # Errors
    /// There is none, or the keeper cannot be asked.
    fn publish(&self) -> Result<(), String>;

    /// Empties the memory, also for those who have it mapped, and forgets it.
    ///
    /// # Errors
    /// The keeper cannot be asked.
    fn remove(&self) -> Result<(), String>;

    /// A descriptor that becomes readable when the keeper has ended.
    ///
    /// # Errors
    /// Nothing was asked for yet, or no descriptor is left.
    fn end(&self) -> io::Result<OwnedFd>;
}

/// A memory of a keeper.
#[derive(Clone, Debug)]
pub struct Kept(Arc<dyn MemoryKeeper>);

impl Kept {
    /// The memory that this keeper has.
    pub fn by(keeper: Arc<dyn MemoryKeeper>) -> Self {
        Self(keeper)
    }

    /// As [`MemoryKeeper::end`].
    ///
    /// # Errors
    /// As [`MemoryKeeper::end`].
    pub fn end(&self) -> io::Result<OwnedFd> {
        self.0.end()
    }

    pub(crate) fn keeper(&self) -> &dyn MemoryKeeper {
        &*self.0
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Kept {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backing, FileError, Geometry, Image, MapError, Memory, OpenError, Opened};
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use std::sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    };

    const GEOMETRY: Geometry = Geometry {
        memory_bytes: 3 << 20,
        partitions: 2,
        partition_words: 20,
        settled_bytes: 1 << 20,
        layout: 77,
        hash_seed: 123,
        micro_shards: 11,
    };

    /// A keeper that gives its memory to anybody.
    #[derive(Debug, Default)]
    struct Careless {
        memory: Mutex<Option<OwnedFd>>,
        is_published: AtomicBool,
        is_unsealed: bool,
    }

    impl MemoryKeeper for Careless {
        fn name(&self) -> &Path {
            Path::new("keeper:test")
        }

        fn open(&self) -> Result<Option<OwnedFd>, String> {
            Ok(self.memory.lock().unwrap().as_ref().map(|fd| fd.try_clone().unwrap()))
        }

        fn create(&self, bytes: u64) -> Result<OwnedFd, String> {
            let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, bytes).unwrap();
            if !self.is_unsealed {
                fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
            }
            *self.memory.lock().unwrap() = Some(fd.try_clone().unwrap());
            Ok(fd)
        }

        fn publish(&self) -> Result<(), String> {
            self.is_published.store(true, Relaxed);
            Ok(())
        }

        fn remove(&self) -> Result<(), String> {
            *self.memory.lock().unwrap() = None;
            Ok(())
        }

        fn end(&self) -> io::Result<OwnedFd> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn backing() -> (Arc<Careless>, Backing) {
        let keeper = Arc::new(Careless::default());
        (Arc::clone(&keeper), Backing::Kept(Kept::by(keeper)))
    }

    fn create(backing: &Backing) -> Memory {
        let mut memory = Memory::create(GEOMETRY, backing).unwrap();
        memory.publish().unwrap();
        memory
    }

    #[test]
    fn kept_memory_is_opened_as_a_file_is() {
        let (keeper, backing) = backing();
        assert!(matches!(Memory::open(&backing, &GEOMETRY), Err(OpenError::Absent { .. })));
        let memory = create(&backing);
        assert!(keeper.is_published.load(Relaxed) && memory.is_lasting());
        let image = Image::from_descriptor(memory.region().descriptor_to_read().unwrap()).unwrap();
        assert!(image.is_kept());
        memory.close().unwrap();
        let Opened::Clean(memory) = Memory::open(&backing, &GEOMETRY).unwrap() else {
            panic!("it was closed")
        };
        memory.forsake();
        assert!(!image.is_kept() && !memory.is_lasting());
        drop(memory);
        let Opened::Unclean { mut memory, same_boot: true } = Memory::open(&backing, &GEOMETRY).unwrap()
        else {
            panic!("it was not closed")
        };
        memory.rebuild(&[]).unwrap();
        memory.mark_repaired().unwrap();
        assert!(memory.is_lasting() && image.is_kept(), "it has a keeper again");
        let other = Geometry { memory_bytes: 4 << 20, ..GEOMETRY };
        drop(memory);
        let error = Memory::open(&backing, &other).unwrap_err();
        assert!(matches!(error, OpenError::Differs { what: "memory bytes", .. }), "{error}");
        assert_eq!(Memory::replace(GEOMETRY, &backing).unwrap().starts(), 1);
    }

    #[test]
    fn memory_that_is_mapped_is_not_opened_whatever_its_keeper_does() {
        let (_, backing) = backing();
        let memory = create(&backing);
        let locked = |error: &_| matches!(error, OpenError::File { reason: FileError::Locked, .. });
        assert!(locked(&Memory::open(&backing, &GEOMETRY).unwrap_err()));
        drop(memory);
        assert!(Memory::open(&backing, &GEOMETRY).is_ok());
    }

    #[test]
    fn memory_that_is_not_complete_is_removed() {
        let (keeper, backing) = backing();
        drop(Memory::create(GEOMETRY, &backing).unwrap());
        assert!(keeper.memory.lock().unwrap().is_none());
        drop(create(&backing));
        assert!(keeper.memory.lock().unwrap().is_some());
    }

    #[test]
    fn memory_that_may_shrink_is_refused() {
        let keeper = Arc::new(Careless { is_unsealed: true, ..Careless::default() });
        let error = Memory::create(GEOMETRY, &Backing::Kept(Kept::by(keeper))).unwrap_err();
        assert!(matches!(error, MapError::File { reason: FileError::Unsealed, .. }), "{error}");
    }
}
