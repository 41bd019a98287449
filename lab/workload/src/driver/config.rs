//! What a run is to do, how far it is, and why it failed.

use std::{io, time::Duration};

use minos_client::QueueBy;

use super::{schedule::Pace, target::Target};

/// How a server is driven.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The server.
    pub target: Target,
    /// When requests are sent.
    pub arrivals: Arrivals,
    /// The driver's behaviour while it has nothing to do.
    pub pace: Pace,
    /// Length of the measured window.
    pub duration: Duration,
    /// Length of the warm-up before the window, which is not measured.
    pub warmup: Duration,
    /// How long answers are waited for after the window.
    pub drain: Duration,
    /// Driver threads, at least 1.
    pub threads: usize,
    /// Connections, or sockets for datagrams, of each stream that does not say its own number, at least 1.
    pub connections: u32,
    /// Keys asked for in one GET, operations of one vector of the native protocol, at least 1.
    pub keys_per_get: u32,
    /// True if every byte of every value is compared. Files are always compared.
    pub check_contents: bool,
    /// Processors that driver threads are pinned to, in turn; none: where the system puts them.
    pub cpus: Vec<usize>,
    /// The server's process, if it is known; else it is looked for by its port.
    pub server_pid: Option<u32>,
    /// Bytes of room for what arrives on a TCP connection; as many as the system gives it, if this is none.
    pub receive_buffer: Option<usize>,
    /// Options for datagrams.
    pub datagrams: DatagramOptions,
}

/// Options for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramOptions {
    /// Time after sending from which on a request without an answer is lost.
    pub timeout: Duration,
    /// Which queue of the server a request is sent to.
    pub queue_by: QueueBy,
}

impl Default for DatagramOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_millis(500), queue_by: QueueBy::Access }
    }
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// By time, independent of the server: Poisson arrivals (Minos §5.4).
    Open {
        /// Requests per second of all streams that do not say their own rate.
        rate: f64,
    },
    /// As soon as the last ones are answered.
    Closed {
        /// Requests on each connection at a time, sent in one write.
        pipeline: usize,
    },
}

/// How far a run or a load is.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Time since the start, the warm-up included.
    pub elapsed: Duration,
    /// Answers so far, in datagrams one for each operation; of a run, within the measured window.
    pub answered: u64,
}

/// Most requests a second of an open loop.
pub const RATE_MAX: f64 = 1e8;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server cannot be reached.
    #[error("cannot connect to {target}: {error}")]
    Connect {
        /// The server.
        target: Target,
        /// Why.
        error: io::Error,
    },
    /// The rate of an open loop is out of bounds.
    #[error("an open loop of {0} requests a second: expected more than 0, and at most {RATE_MAX:.0}")]
    Rate(f64),
    /// A system call that the driver needs failed.
    #[error("the driver cannot go on: {0}")]
    Driver(#[from] io::Error),
    /// A driver thread panicked.
    #[error("a driver thread panicked")]
    Panicked,
}
