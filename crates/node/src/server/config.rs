//! The options of a server.

use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use minos_base::{Clock, VALUE_BYTES_MAX, limits};
use minos_net::Address;
use minos_sched::{ControlConfig, Options, Standby};

mod bounds;

use bounds::bound;
pub use minos_sched::{Design, LargeOrder};

/// Bytes reserved for the longest reply composed at once: a copied value and the line before it.
const REPLY_BYTES_MAX: usize = 20 << 10;

/// The log level that clients set with `verbosity`. The owner of the log reads it.
#[derive(Debug, Default)]
pub struct Verbosity(pub(super) AtomicU32);

impl Verbosity {
    /// The level last set; 0 is the quietest.
    pub fn level(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The options of a server, besides its store.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Addresses to listen on for memcached clients.
    pub memcached: Vec<Address>,
    /// The number of workers, and how they share the requests.
    pub control: ControlConfig,
    /// The design in force at the start.
    pub dispatch: Design,
    /// Workers that only hand requests on, with [`Design::HandOff`].
    pub handoff_workers: usize,
    /// Length of a control epoch (Minos §5.2: one second).
    pub epoch: Duration,
    /// True if idle workers take small requests: a large worker from its own RX queue, a small one from other
    /// workers' queues.
    pub steal: bool,
    /// Order in which a large worker serves its transfers.
    pub large_order: LargeOrder,
    /// Longest time that a transfer with a ready socket waits for a slice.
    pub large_wait_max: Duration,
    /// Bytes of a large transfer served between two polls of the RX queues.
    pub slice_bytes: usize,
    /// Transfers that may wait in a worker's ring.
    pub ring_capacity: usize,
    /// How an idle worker waits.
    pub poll: PollMode,
    /// Longest time a worker spins before it sleeps, with [`PollMode::Adaptive`].
    pub spin_max: Duration,
    /// True if each worker is pinned to a processor.
    pub pin: bool,
    /// Most connections open at a time.
    pub connections_max: usize,
    /// Connections silent for this long are closed; `None` means never.
    pub idle_timeout: Option<Duration>,
    /// Time that a large transfer waits for its client before it is given up, beyond the time that bytes pay
    /// for.
    pub stall_timeout: Duration,
    /// Bytes that pay for one second in which a large transfer waits for its client; with 0 any byte pays for
    /// the whole wait.
    pub rate_min: u64,
    /// Memory for large values that are still arriving over streams; `None` means an eighth of the store's.
    pub receive_memory_bytes: Option<u64>,
    /// Largest value a client may store, in bytes.
    pub value_bytes_max: u64,
    /// Bytes buffered for one connection in one direction.
    pub buffer_bytes_max: usize,
    /// Key prefixes that `stats detail` counts.
    pub detail_prefixes_max: usize,
    /// True if a client may stop the server.
    pub allow_shutdown: bool,
    /// Time that a stopping server gives to transfers in progress.
    pub stop_timeout: Duration,
    /// The clock by which items expire; that of the store, if the store existed before.
    pub clock: Clock,
    /// Names and values in `stats settings` that the creator of the store supplies.
    pub store_settings: Vec<(&'static str, String)>,
    /// The log level that clients set; the owner of the log reads it.
    pub verbosity: Arc<Verbosity>,
    /// How reads from flash are gathered.
    pub gathering: Gathering,
    /// When an item that is read from flash comes to memory.
    pub promote: Promote,
    /// The options of the native datagram protocol, if it is served.
    pub native: Option<NativeConfig>,
}

impl ServerConfig {
    /// The defaults for `workers` workers, without an address.
    pub fn new(workers: usize) -> Self {
        Self {
            memcached: Vec::new(),
            control: ControlConfig::new(workers),
            dispatch: Design::SizeAware,
            handoff_workers: 1,
            epoch: Duration::from_secs(1),
            steal: true,
            large_order: LargeOrder::Shortest,
            large_wait_max: Duration::from_millis(100),
            slice_bytes: limits::SLICE_BYTES,
            ring_capacity: 1024,
            poll: PollMode::Adaptive,
            spin_max: Duration::from_micros(50),
            pin: true,
            connections_max: limits::CONNECTIONS_MAX_DEFAULT,
            idle_timeout: None,
            stall_timeout: Duration::from_secs(60),
            rate_min: 16 << 10,
            receive_memory_bytes: None,
            value_bytes_max: limits::ITEM_BYTES_MAX_DEFAULT,
            buffer_bytes_max: 256 << 10,
            detail_prefixes_max: 512,
            allow_shutdown: false,
            stop_timeout: Duration::from_secs(5),
            clock: Clock::new(),
            store_settings: Vec::new(),
            verbosity: Arc::default(),
            gathering: Gathering::default(),
            promote: Promote::default(),
            native: None,
        }
    }

    /// The design in force at the start, with its parameter.
    pub fn choice(&self) -> DispatchChoice {
        DispatchChoice { dispatch: self.dispatch, handoff_workers: self.handoff_workers }
    }

    /// The options of the design of `choice`. A worker on standby polls its RX queue between slices: with few
    /// workers, too much of the server would otherwise serve only requests just above the threshold.
    pub(crate) fn options(&self, choice: DispatchChoice) -> Options {
        Options { handoff_workers: choice.handoff_workers, steal: self.steal, standby: Standby::Slices }
    }

    /// Bytes of composed replies after which they are sent before another request is executed. The next
    /// reply, however long, still fits the buffer.
    pub(crate) fn replies_bytes_max(&self) -> usize {
        self.slice_bytes.min(self.buffer_bytes_max.saturating_sub(REPLY_BYTES_MAX))
    }

    /// Checks that all values are within their bounds.
    ///
    /// # Errors
    /// The first option whose value is out of its bounds.
    pub fn check(&self) -> Result<(), InvalidOption> {
        self.control.check().map_err(InvalidOption::Control)?;
        bound("--max-connections", self.connections_max as u64, 1, 1 << 20)?;
        bound("--max-item-size", self.value_bytes_max, 1, VALUE_BYTES_MAX)?;
        // At least a copied value and the line before it.
        bound("--max-buffer", self.buffer_bytes_max as u64, 32 << 10, 1 << 30)?;
        bound("--detail-prefixes", self.detail_prefixes_max as u64, 0, 1 << 20)?;
        bound("--slice", self.slice_bytes as u64, 4 << 10, 1 << 30)?;
        bound("--ring-size", self.ring_capacity as u64, 2, 1 << 20)?;
        bound("--stall-timeout", self.stall_timeout.as_millis() as u64, 1, 1 << 40)?;
        bound("--epoch", self.epoch.as_millis() as u64, 1, 3_600_000)?;
        self.gathering.check()?;
        self.native.as_ref().map_or(Ok(()), NativeConfig::check)
    }
}

/// Declares an option with a few named values: the enum, its parser and its names.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// The names of all values, as options take them.
            pub const NAMES: &'static [&'static str] = &[$($text),*];
            /// All values, in the order of their names.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(format!("expected one of {}", Self::NAMES.join(", "))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)* })
            }
        }
    };
}

// After the macro that it uses.
mod gathering;
mod native;

pub use bounds::InvalidOption;
pub use gathering::{Gathering, Promote, VectorWidth};
pub use native::{AccessAdvice, NativeConfig, SESSIONS_PER_SOURCE, TRANSFERS_PER_WORKER};

/// A design and its parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchChoice {
    /// The design.
    pub dispatch: Design,
    /// Workers that only hand requests on, with [`Design::HandOff`]: 1 to
    /// [`HANDOFF_WORKERS_MAX`](minos_sched::HANDOFF_WORKERS_MAX).
    pub handoff_workers: usize,
}

choice! {
    /// How an idle worker waits.
    PollMode {
        /// Spin while work is likely to come soon, then sleep.
        Adaptive = "adaptive",
        /// Never sleep.
        Busy = "busy",
        /// Sleep at once.
        Sleep = "sleep",
    }
}
