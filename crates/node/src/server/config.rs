//! The options of a server.

use std::{fmt, io, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use minos_base::{Clock, limits};
use minos_net::Address;
use minos_sched::{ConfigError, ControlConfig};

use super::settings;

use crate::access::Denials;
pub use crate::access::{ACCESS_TABLES, read_users};
pub use minos_access::Authority;
pub use minos_sched::{Design, LargeOrder};
pub use minos_tls::{Acceptor, Files as TlsFiles, LoadError as TlsError};

/// Links of other nodes for which there is room: each of their workers may have one.
const LINKS_MAX: usize = 4096;

/// Declares a struct of options and its defaults, which depend on one argument.
macro_rules! options {
    (
        $(#[$doc:meta])* $struct:ident, from $arg:ident: $arg_type:ty, $new_doc:literal:
        $($(#[$option_doc:meta])* $option:ident: $type:ty = $default:expr,)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $struct {
            $($(#[$option_doc])* pub $option: $type,)*
        }

        impl $struct {
            #[doc = $new_doc]
            pub fn new($arg: $arg_type) -> Self {
                Self { $($option: $default,)* }
            }
        }
    };
}

options! {
    /// The options of a server, besides its store.
    ServerConfig, from workers: usize, "The defaults for `workers` workers, without an address.":
    /// Addresses to listen on for memcached clients.
    memcached: Vec<Address> = Vec::new(),
    /// Addresses to listen on for Redis' clients.
    resp: Vec<Address> = Vec::new(),
    /// TLS at the TCP addresses of clients, if they speak it.
    tls: Option<TlsConfig> = None,
    /// The users, if clients must be one.
    access: Option<AccessConfig> = None,
    /// Called once all addresses are bound and before any client is served.
    after_bind: Option<AfterBind> = None,
    /// The number of workers, and how they share the requests.
    control: ControlConfig = ControlConfig::new(workers),
    /// The design in force at the start.
    dispatch: Design = Design::SizeAware,
    /// Workers that only hand requests on, with [`Design::HandOff`].
    handoff_workers: usize = 1,
    /// Length of a control epoch (Minos §5.2: one second).
    epoch: Duration = Duration::from_secs(1),
    /// True if idle workers take small requests: a large worker from its own RX queue, a small one from other
    /// workers' queues.
    steal: bool = true,
    /// Order in which a large worker serves its transfers.
    large_order: LargeOrder = LargeOrder::Shortest,
    /// Longest time that a transfer with a ready socket waits for a slice.
    large_wait_max: Duration = Duration::from_millis(100),
    /// Bytes of a large transfer served between two polls of the RX queues.
    slice_bytes: usize = limits::SLICE_BYTES,
    /// Transfers that may wait in a worker's ring.
    ring_capacity: usize = 1024,
    /// How an idle worker waits.
    poll: PollMode = PollMode::Adaptive,
    /// True if each worker is pinned to a processor.
    pin: bool = true,
    /// The NUMA nodes that workers run on; the domains of `control` are its domains then.
    placement: Placement = Placement::default(),
    /// Most connections open at a time.
    connections_max: usize = limits::CONNECTIONS_MAX_DEFAULT,
    /// Connections silent for this long are closed; `None` means never.
    idle_timeout: Option<Duration> = None,
    /// Time that a large transfer waits for its client before it is given up, beyond the time that bytes pay
    /// for.
    stall_timeout: Duration = Duration::from_secs(60),
    /// Bytes that pay for one second in which a large transfer waits for its client; with 0 any byte pays for
    /// the whole wait.
    rate_min: u64 = 16 << 10,
    /// Memory for large values that are still arriving over streams; `None` means an eighth of the store's.
    receive_memory_bytes: Option<u64> = None,
    /// Largest value a client may store, in bytes.
    value_bytes_max: u64 = limits::ITEM_BYTES_MAX_DEFAULT,
    /// Bytes buffered for one connection in one direction.
    buffer_bytes_max: usize = 256 << 10,
    /// Key prefixes that `stats detail` counts.
    detail_prefixes_max: usize = 512,
    /// Pairs of a key and a connection of Redis' clients that track keys.
    tracking_keys_max: usize = 100_000,
    /// What is observed of requests.
    watch: WatchConfig = WatchConfig::default(),
    /// True if a client may stop the server.
    allow_shutdown: bool = false,
    /// Time that a stopping server gives to transfers in progress.
    stop_timeout: Duration = Duration::from_secs(5),
    /// The clock by which items expire; that of the store, if the store existed before.
    clock: Clock = Clock::new(),
    /// Names and values in `stats settings` that the creator of the store supplies.
    store_settings: Vec<(&'static str, String)> = Vec::new(),
    /// The level of the log, which clients may change.
    verbosity: Arc<Verbosity> = Arc::default(),
    /// How reads from flash are gathered.
    gathering: Gathering = Gathering::default(),
    /// Time for which a request waits for room in memory while flash takes items; then a store refuses it, and a cache
    /// evicts what flash does not have. At most an hour; `None` for 1 s, and 200 ms above a cache.
    flash_wait: Option<Duration> = None,
    /// When an item that is read from flash comes to memory.
    promote: Promote = Promote::Second,
    /// The options of the native datagram protocol, if it is served.
    native: Option<NativeConfig> = None,
    /// The server's place in a rack, if it is one of its nodes.
    rack: Option<RackConfig> = None,
}

impl ServerConfig {
    /// Runs the workers, a domain for each node, where `placement` says.
    pub fn place(&mut self, placement: Placement) {
        self.control.domains = placement.domains();
        self.placement = placement;
    }

    /// The design in force at the start, with its parameter.
    pub fn choice(&self) -> DispatchChoice {
        DispatchChoice { dispatch: self.dispatch, handoff_workers: self.handoff_workers }
    }

    /// Links of other nodes for which there is room beside `connections_max`, so that clients keep no node out.
    pub(crate) fn links_max(&self) -> usize {
        if self.rack.is_some() { LINKS_MAX } else { 0 }
    }

    /// True if clients speak TLS at `address`.
    pub(crate) fn is_over_tls(&self, address: &Address) -> bool {
        let tls = self.tls.as_ref().filter(|_| matches!(address, Address::Tcp(_)));
        tls.is_some_and(|tls| !tls.plain.contains(address))
    }

    /// Checks that all values are within their bounds.
    ///
    /// # Errors
    /// The first option whose value is out of its bounds.
    pub fn check(&self) -> Result<(), InvalidOption> {
        self.control.check().map_err(InvalidOption::Control)?;
        settings::check(self)?;
        bound("--tracking-table-max-keys", self.tracking_keys_max as u64, 1, 1 << 30)?;
        bound("--ring-size", self.ring_capacity as u64, 2, 1 << 20)?;
        self.watch.check()?;
        self.gathering.check()?;
        let wait_ms = self.flash_wait.map_or(0, |wait| wait.as_millis());
        bound("--flash-wait", u64::try_from(wait_ms).unwrap_or(u64::MAX), 0, 3_600_000)?;
        self.rack.as_ref().map_or(Ok(()), RackConfig::check)?;
        self.native.as_ref().map_or(Ok(()), NativeConfig::check)
    }
}

/// The options of TLS. Unix sockets are plain in any case.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Certificate and key.
    pub acceptor: Arc<Acceptor>,
    /// TCP addresses, as configured, at which clients do not speak TLS.
    pub plain: Vec<Address>,
    /// Handshakes under way at a time; the oldest is given up for one more.
    pub handshakes_max: usize,
    /// Time for a handshake.
    pub handshake_timeout: Duration,
}

/// What is done between the binding of addresses and the service of clients, such as to drop privileges. An error ends the
/// start.
#[derive(Clone)]
pub struct AfterBind(pub Arc<dyn Fn() -> io::Result<()> + Send + Sync>);

impl fmt::Debug for AfterBind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AfterBind")
    }
}

/// The options of users.
#[derive(Clone, Debug)]
pub struct AccessConfig {
    /// The users in force.
    pub authority: Arc<Authority>,
    /// The file that they come from.
    pub file: PathBuf,
    /// Connections whose passwords may wait to be checked at a time.
    pub waiting_max: usize,
    /// What clients were refused.
    pub(crate) denials: Arc<Denials>,
}

impl AccessConfig {
    /// The users in force, from `file`; at most `waiting_max` connections wait for the check of a password.
    pub fn new(authority: Arc<Authority>, file: PathBuf, waiting_max: usize) -> Self {
        Self { authority, file, waiting_max, denials: Arc::default() }
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
mod log;
mod native;
mod placement;
mod watch;

#[cfg(feature = "ucx")]
pub use crate::rack::config::UcxMemory;
pub use crate::rack::{
    config::{Acknowledge, Managed, NODES_MAX, RackConfig, RackFabric, RackNode},
    uniques::uniques,
};
pub use gathering::{Gathering, Promote, VectorWidth};
pub use log::{LogLevel, Verbosity};
pub use native::{NativeConfig, TRANSFERS_PER_WORKER};
pub use placement::Placement;
pub use watch::WatchConfig;

/// A value that is out of its bounds.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidOption {
    /// The value of an option.
    #[error("{option}: {value} is not allowed; it must be between {min} and {max}")]
    OutOfBounds {
        /// Its name on the command line.
        option: &'static str,
        /// The value given.
        value: u64,
        /// The smallest value allowed.
        min: u64,
        /// The largest value allowed.
        max: u64,
    },
    /// An option of the policy.
    #[error(transparent)]
    Control(ConfigError),
    /// Only the simulator has the design.
    #[error(
        "--dispatch {0} is only simulated: see minos sim dispatch --dispatch {0}; a server runs one of {served}",
        served = Design::SERVED.map(Design::name).join(", ")
    )]
    OnlySimulated(Design),
    /// Where partitions belong to workers, this does not go.
    #[error("--access erew and crew: {0}")]
    Owned(&'static str),
}

/// Checks that a value is within its bounds.
pub(crate) fn bound(option: &'static str, value: u64, min: u64, max: u64) -> Result<(), InvalidOption> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(InvalidOption::OutOfBounds { option, value, min, max })
}

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
