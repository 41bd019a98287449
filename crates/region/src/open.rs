//! Going on with a region that a process before this one has left on a file.

use crate::{
    backing::{Backing, MapError, Mapping},
    file::{FileError, MAGIC, Words},
    header::{self, CLEAN, DAMAGED, Header, IN_USE, KEYS_OF_MICRO_SHARDS, LAYOUT_VERSION, boot_id},
    layout::{Geometry, Layout},
    memory::Memory,
    region::Region,
    sums::BLOCK_BYTES,
};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// A region that was there already.
#[derive(Debug)]
pub enum Opened {
    /// It was closed by [`Memory::mark_clean`] and passed every check; it is in use from now on.
    Clean(Memory),
    /// Its last user stopped without closing it, perhaps before the engine wrote anything. Only
    /// [`Memory::region`] may be used before [`Memory::rebuild`]; until
    /// [`Memory::mark_repaired`], it stays unclean.
    Unclean {
        /// The region as it was left.
        memory: Memory,
        /// True if the machine has not rebooted since, so that every write is present. Otherwise the file may
        /// hold any mixture of old and new pages, and only starting empty is safe.
        same_boot: bool,
    },
}

/// Why a region on a file cannot be gone on with. The file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no region yet; the caller may create one.
    #[error("{} holds no region yet", path.display())]
    Absent {
        /// Where it should be.
        path: PathBuf,
    },
    /// The file cannot be used.
    #[error("cannot use {} for a region: {reason}", path.display())]
    File {
        /// Where the file is.
        path: PathBuf,
        /// The reason.
        reason: FileError,
    },
    /// It was written by a machine with another order of bytes.
    #[error("the region was written by a machine with another order of bytes")]
    ByteOrder,
    /// It was written by a version of this program with another layout.
    #[error("the region has layout version {found}, this program reads version {expected}")]
    Version {
        /// The file's.
        found: u64,
        /// This program's.
        expected: u64,
    },
    /// It was made for other parameters.
    #[error("the region has {what} {found}, but {expected} is asked for")]
    Differs {
        /// Which parameter.
        what: &'static str,
        /// The file's.
        found: u64,
        /// The caller's.
        expected: u64,
    },
    /// The file is too short or too long for its header.
    #[error("the region's file has {found} bytes instead of {expected}")]
    Length {
        /// Bytes of the file.
        found: u64,
        /// Bytes that it should have.
        expected: u64,
    },
    /// It was closed, but has changed since; or it was found inconsistent.
    #[error("the region is damaged: {what}")]
    Damaged {
        /// The reason.
        what: String,
    },
    /// The operating system refused.
    #[error("cannot write to the region's file: {source}")]
    Sync {
        /// The operating system's reason.
        source: Errno,
    },
}

impl Memory {
    /// Maps the region that a process has left in a file or at a keeper, and checks it.
    ///
    /// `expected` is the geometry of its creation, except the seed of the key hash, which is the region's own
    /// and is found in [`Memory::geometry`] afterwards. Reads all memory that is not free.
    ///
    /// # Errors
    /// If there is no region, if its geometry differs, if it is open elsewhere,
    /// or if it was closed and is damaged.
    pub fn open(backing: &Backing, expected: &Geometry) -> Result<Opened, OpenError> {
        let path = backing.lasting_name().unwrap_or(Path::new("memory"));
        let failed = file_error(path);
        let file = backing.open().map_err(&failed)?;
        let words = file.header().map_err(&failed)?;
        identify(&words, path)?;
        file.narrow().map_err(&failed)?;
        let geometry = header::geometry_of(&words);
        compare(&geometry, expected)?;
        let layout = Layout::new(&geometry).map_err(|_| damaged("its sizes fit nowhere"))?;
        let (found, expected) = (file.len().map_err(&failed)?, file.bytes_for(geometry.memory_bytes));
        if found != expected {
            return Err(OpenError::Length { found, expected });
        }
        let mapping = Mapping::file(geometry.memory_bytes, file).map_err(failed)?;
        let region = Region::of(mapping, geometry.memory_bytes);
        let memory = Self::on(region, geometry, layout);
        let state = header::state_of(&words);
        if state != CLEAN {
            // Before anything is repaired: readers may still have it mapped.
            memory.end_ownership();
        }
        match state {
            CLEAN => memory.take_over().map(Opened::Clean),
            IN_USE => {
                let same_boot = Header::of(memory.region()).is_of_boot(boot_id());
                Ok(Opened::Unclean { memory, same_boot })
            }
            DAMAGED => Err(damaged("it contradicts itself")),
            state => Err(damaged(&format!("its state is {state:#x}"))),
        }
    }

    /// Removes the region of a file or keeper, which must not be in use, and makes a new one in its place as
    /// [`Memory::create`] does. Existing mappings of the old one stay valid; that of a keeper is empty then.
    ///
    /// # Errors
    /// If there is no region, if it is in use, or if the operating system refuses the memory.
    pub fn replace(geometry: Geometry, backing: &Backing) -> Result<Self, MapError> {
        // First, because there may not be room for two.
        backing.remove()?;
        Self::create(geometry, backing)
    }

    /// Writes everything to the file, then marks it as complete. To be called last: if the region is written
    /// afterwards, the next open finds it damaged. Readers read on ([`Memory::freeze_ownership`]).
    ///
    /// # Errors
    /// If the operating system cannot write to the file; the region stays unclean then.
    pub fn mark_clean(&self) -> Result<(), OpenError> {
        self.freeze_ownership();
        self.layout
            .sums
            .put(self.region(), self.layout.zones())
            .map_err(|what| OpenError::Damaged { what })?;
        let header = Header::of(self.region());
        header.set_checksum(header::checksum(self.region(), self.layout.chunks_start));
        self.region().sync().map_err(sync_error)?;
        // Not before all of it has reached the disk.
        header.set_state(CLEAN);
        self.region().sync_header().map_err(sync_error)
    }

    /// [`Memory::mark_clean`], then unmaps it and unlocks its file.
    ///
    /// # Errors
    /// As [`Memory::mark_clean`].
    pub fn close(self) -> Result<(), OpenError> {
        self.mark_clean()
    }

    /// Marks a region that was [`Opened::Unclean`] as intact again, so that the next unclean stop in this
    /// boot of the machine can be repaired as well.
    ///
    /// # Errors
    /// If the operating system cannot write to the file.
    pub fn mark_repaired(&self) -> Result<(), OpenError> {
        let header = Header::of(self.region());
        self.region().sync().map_err(sync_error)?;
        header.set_boot(boot_id());
        header.set_kept(self.region().is_kept());
        header.count_start();
        self.region().sync_header().map_err(sync_error)
    }

    /// Gives all micro-shards up and marks the region as inconsistent, so that no process reopens it.
    ///
    /// # Errors
    /// If the operating system cannot write to the file.
    pub fn mark_damaged(&self) -> Result<(), OpenError> {
        self.end_ownership();
        Header::of(self.region()).set_state(DAMAGED);
        self.region().sync_header().map_err(sync_error)
    }

    /// How often the region was put into use, creating it included.
    pub fn starts(&self) -> u64 {
        Header::of(self.region()).starts()
    }

    /// Checks a closed region, and marks its file as in use before any other write.
    fn take_over(self) -> Result<Self, OpenError> {
        let header = Header::of(self.region());
        if header.checksum() != header::checksum(self.region(), self.layout.chunks_start) {
            return Err(damaged("the checksum of its tables is wrong"));
        }
        let wrong = self.layout.sums.wrong(self.region(), &self.layout.chunks());
        if let Some(first) = wrong.first() {
            let (count, at) = (wrong.len(), first * BLOCK_BYTES);
            return Err(damaged(&format!(
                "{count} blocks of 64 KiB are not as they were written, from byte {at} on"
            )));
        }
        self.verify().map_err(|what| OpenError::Damaged { what })?;
        self.end_ownership();
        header.set_state(IN_USE);
        self.region().sync_header().map_err(sync_error)?;
        header.set_boot(boot_id());
        header.set_kept(self.region().is_kept());
        header.count_start();
        self.region().sync_header().map_err(sync_error)?;
        Ok(self)
    }
}

pub(crate) fn file_error(path: &Path) -> impl Fn(FileError) -> OpenError {
    move |reason| match reason {
        FileError::Missing => OpenError::Absent { path: path.to_owned() },
        reason => OpenError::File { path: path.to_owned(), reason },
    }
}

/// Checks that these are the first words of a region that this program can read.
pub(crate) fn identify(words: &Words, path: &Path) -> Result<(), OpenError> {
    match words[0] {
        MAGIC => {}
        swapped if swapped == MAGIC.swap_bytes() => return Err(OpenError::ByteOrder),
        _ => return Err(OpenError::File { path: path.to_owned(), reason: FileError::Foreign }),
    }
    match header::version_of(words) {
        LAYOUT_VERSION => {}
        found => return Err(OpenError::Version { found, expected: LAYOUT_VERSION }),
    }
    match header::keys_of(words) {
        None | Some(KEYS_OF_MICRO_SHARDS) => Ok(()),
        Some(found) => {
            Err(OpenError::Differs { what: "keys of micro-shards", found, expected: KEYS_OF_MICRO_SHARDS })
        }
    }
}

fn compare(found: &Geometry, expected: &Geometry) -> Result<(), OpenError> {
    let pairs = [
        ("engine layout", found.layout, expected.layout),
        ("memory bytes", found.memory_bytes, expected.memory_bytes),
        ("partitions", found.partitions, expected.partitions),
        ("words per partition", found.partition_words, expected.partition_words),
        ("bytes reserved for large values", found.settled_bytes, expected.settled_bytes),
        ("micro-shards", found.micro_shards, expected.micro_shards),
    ];
    let other = pairs.into_iter().find(|(_, found, expected)| found != expected);
    other.map_or(Ok(()), |(what, found, expected)| Err(OpenError::Differs { what, found, expected }))
}

pub(crate) fn damaged(what: &str) -> OpenError {
    OpenError::Damaged { what: what.to_owned() }
}

fn sync_error(source: Errno) -> OpenError {
    OpenError::Sync { source }
}
