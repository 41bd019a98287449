//! What the parent asks of a contestant's process, and the answers: a line of JSON each.

use crate::workload::Mix;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};

/// A contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Peer {
    /// Minos' tier as a store.
    MinosStore,
    /// Minos' tier as a cache.
    MinosCache,
    /// foyer, a cache, with threads for I/O, as by default.
    Foyer,
    /// foyer with io_uring.
    FoyerUring,
    /// fjall, a tree of sorted runs.
    Fjall,
    /// fjall with large values apart.
    FjallBlobs,
    /// RocksDB, a tree of sorted runs.
    #[cfg(feature = "rocksdb")]
    Rocksdb,
    /// RocksDB with large values apart.
    #[cfg(feature = "rocksdb")]
    RocksdbBlobs,
}

impl Peer {
    /// The name on the command line and in the report.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// True if it may lose items.
    pub(super) fn is_cache(self) -> bool {
        matches!(self, Self::MinosCache | Self::Foyer | Self::FoyerUring)
    }
}

/// The first line: the contestant, and what is the same for all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) peer: Peer,
    /// Where it keeps its files; it does not exist yet.
    pub(crate) folder: PathBuf,
    pub(crate) items: u64,
    pub(crate) value_bytes: usize,
    /// Memory for index, caches and buffers together.
    pub(crate) memory_bytes: u64,
}

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// All items are stored.
    Load,
    /// Uniformly random gets.
    Get {
        /// Keys of a vector.
        width: usize,
    },
    /// Nine gets to one put, by Zipf's law.
    Mixed {
        /// Keys of a vector.
        width: usize,
    },
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load => f.write_str("load"),
            Self::Get { width } => write!(f, "uniform gets, width {width}"),
            Self::Mixed { width } => write!(f, "zipf 0.99, 90 % gets, width {width}"),
        }
    }
}

/// A piece of work.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Stores all items, and waits until nothing is written any more.
    Load,
    /// A closed loop of vectors.
    Run(Run),
}

/// A closed loop of one thread.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Popularity, and share of gets; each vector has gets or puts only.
    pub(crate) mix: Mix,
    /// Keys of a vector.
    pub(crate) width: usize,
    /// Time that is measured; a quarter of it goes before.
    pub(crate) seconds: f64,
    /// Determines the keys.
    pub(crate) seed: u64,
}

/// The results of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Wall time.
    pub(crate) seconds: f64,
    /// Processor time of all threads.
    pub(crate) processor_s: f64,
    /// Keys read.
    pub(crate) gets: u64,
    /// Those with a value.
    pub(crate) found: u64,
    /// Keys stored.
    pub(crate) puts: u64,
    /// Bytes read from the device.
    pub(crate) read_bytes: u64,
    /// Bytes written to the device, or that will be.
    pub(crate) written_bytes: u64,
    /// Most memory of the process so far, its program included, the kernel's pages of files not.
    pub(crate) peak_bytes: u64,
}

impl Outcome {
    /// Keys a second.
    pub(crate) fn rate(&self) -> f64 {
        (self.gets + self.puts) as f64 / self.seconds
    }

    /// Processor time of a key in microseconds.
    pub(crate) fn processor_us(&self) -> f64 {
        self.processor_s * 1e6 / (self.gets + self.puts).max(1) as f64
    }
}
