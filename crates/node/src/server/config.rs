//! What a server is told when it starts.

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use minos_base::{Clock, VALUE_BYTES_MAX, limits};
use minos_net::Address;
use minos_sched::{ConfigError, ControlConfig, Options, Standby};

use super::verbosity::Verbosity;
pub use minos_sched::{Design, LargeOrder};

/// Room for the longest reply that is composed at once: a value that is copied, and the line before it.
const REPLY_BYTES_MAX: usize = 20 << 10;

/// Everything a server is told beside its store.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where memcached clients are listened to.
    pub memcached: Vec<Address>,
    /// Workers, and how requests are shared among them.
    pub control: ControlConfig,
    /// The design that shares them, at the start.
    pub dispatch: Design,
    /// Workers that do nothing but hand requests on, with [`Design::HandOff`].
    pub handoff_workers: usize,
    /// Length of a control epoch (Minos §5.2: one second).
    pub epoch: Duration,
    /// Whether a worker that has nothing to do takes small requests: a large one from its own RX queue, a small one
    /// from those of others.
    pub steal: bool,
    /// Order in which a large worker serves what it holds.
    pub large_order: LargeOrder,
    /// Longest time for which a transfer that could move waits for a slice.
    pub large_wait_max: Duration,
    /// Bytes of a large transfer served between two looks at the RX queues.
    pub slice_bytes: usize,
    /// Transfers that may wait in a worker's ring.
    pub ring_capacity: usize,
    /// What a worker does when it has nothing to do.
    pub poll: PollMode,
    /// Longest time a worker spins before it sleeps, with [`PollMode::Adaptive`].
    pub spin_max: Duration,
    /// Whether each worker is bound to a processor.
    pub pin: bool,
    /// Connections at a time.
    pub connections_max: usize,
    /// Silence after which a connection is closed; none means never.
    pub idle_timeout: Option<Duration>,
    /// Time for which a large transfer waits for its client before it is given up, if no bytes make up for it.
    pub stall_timeout: Duration,
    /// Bytes a second by which the client of a large transfer makes up for the time that it lets the server wait;
    /// with 0, each byte does for all.
    pub rate_min: u64,
    /// Memory for large values that are still arriving over streams; none means an eighth of the store's.
    pub receive_memory_bytes: Option<u64>,
    /// Largest value a client may store, in bytes.
    pub value_bytes_max: u64,
    /// Bytes buffered for one connection in one direction.
    pub buffer_bytes_max: usize,
    /// Prefixes of keys that `stats detail` counts.
    pub detail_prefixes_max: usize,
    /// Whether a client may stop the server.
    pub allow_shutdown: bool,
    /// Time that a stopping server gives to what is under way.
    pub stop_timeout: Duration,
    /// The clock by which items expire: that of the store, if it was there before.
    pub clock: Clock,
    /// What `stats settings` tells of the store that only those know who made it, as names and values.
    pub store_settings: Vec<(&'static str, String)>,
    /// What clients ask to be logged, where the owner of the log sees it.
    pub verbosity: Arc<Verbosity>,
    /// The native datagram protocol, if it is served.
    pub native: Option<NativeConfig>,
}

impl ServerConfig {
    /// The defaults for `workers` workers and no address.
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
            native: None,
        }
    }

    /// The design at the start.
    pub fn choice(&self) -> DispatchChoice {
        DispatchChoice { dispatch: self.dispatch, handoff_workers: self.handoff_workers }
    }

    /// What the design of `choice` is told. A standby stays small: with few workers too much of the server would serve
    /// nothing but requests just above the threshold.
    pub(crate) fn options(&self, choice: DispatchChoice) -> Options {
        Options { handoff_workers: choice.handoff_workers, steal: self.steal, standby: Standby::Slices }
    }

    /// Bytes of replies after which they are sent before another request is executed: whatever that one's reply
    /// is, no more is kept than may be buffered.
    pub(crate) fn replies_bytes_max(&self) -> usize {
        self.slice_bytes.min(self.buffer_bytes_max.saturating_sub(REPLY_BYTES_MAX))
    }

    /// Says what is wrong with the values, by the name of their option.
    ///
    /// # Errors
    /// The first value that is out of its bounds.
    pub fn check(&self) -> Result<(), InvalidOption> {
        self.control.check().map_err(InvalidOption::Control)?;
        bound("--max-connections", self.connections_max as u64, 1, 1 << 20)?;
        bound("--max-item-size", self.value_bytes_max, 1, VALUE_BYTES_MAX)?;
        // At the least, a value that is copied and the line before it.
        bound("--max-buffer", self.buffer_bytes_max as u64, 32 << 10, 1 << 30)?;
        bound("--detail-prefixes", self.detail_prefixes_max as u64, 0, 1 << 20)?;
        bound("--slice", self.slice_bytes as u64, 4 << 10, 1 << 30)?;
        bound("--ring-size", self.ring_capacity as u64, 2, 1 << 20)?;
        bound("--stall-timeout", self.stall_timeout.as_millis() as u64, 1, 1 << 40)?;
        bound("--epoch", self.epoch.as_millis() as u64, 1, 3_600_000)?;
        self.native.as_ref().map_or(Ok(()), NativeConfig::check)
    }
}

/// A value that is out of its bounds.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidOption {
    /// The value of an option.
    #[error("{option}: {value} is not allowed; it must be between {min} and {max}")]
    OutOfBounds {
        /// Its name on the command line.
        option: &'static str,
        /// What was given.
        value: u64,
        /// The smallest value allowed.
        min: u64,
        /// The largest value allowed.
        max: u64,
    },
    /// A value of the policy.
    #[error(transparent)]
    Control(ConfigError),
    /// Only the simulator has the design.
    #[error(
        "--dispatch {0} is only simulated: see minos sim dispatch --dispatch {0}; a server runs one of {served}",
        served = Design::SERVED.map(Design::name).join(", ")
    )]
    OnlySimulated(Design),
}

fn bound(option: &'static str, value: u64, min: u64, max: u64) -> Result<(), InvalidOption> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(InvalidOption::OutOfBounds { option, value, min, max })
}

/// Declares an option with a few named values: the enum, how it reads and how it prints.
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

// Behind the macro that it uses.
mod native;

pub use native::{AccessAdvice, NativeConfig, SESSIONS_PER_SOURCE, TRANSFERS_PER_WORKER};

/// A design and what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchChoice {
    /// The design.
    pub dispatch: Design,
    /// Workers that do nothing but hand requests on, with [`Design::HandOff`]: 1 to
    /// [`HANDOFF_WORKERS_MAX`](minos_sched::HANDOFF_WORKERS_MAX).
    pub handoff_workers: usize,
}

choice! {
    /// What a worker does when it has nothing to do.
    PollMode {
        /// Spin while that is likely to be rewarded soon, then sleep.
        Adaptive = "adaptive",
        /// Never sleep.
        Busy = "busy",
        /// Sleep at once.
        Sleep = "sleep",
    }
}
