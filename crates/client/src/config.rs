//! Options of a client.

use std::{str::FromStr, time::Duration};

use minos_proto::native::{
    DATAGRAM_BYTES_DEFAULT, DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, SealKey, SealKeys, Secret,
};

use crate::Error;

/// Most unfinished operations of one client: their numbers are 16 bits.
pub const OPERATIONS_MAX: usize = 1 << 16;

/// Which queue a request is sent to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueBy {
    /// Writes to the key's queue (Minos §3.1); reads to any, unless the server's access mode is EREW (MICA §4.1.2). Where
    /// partitions belong to workers, that is the owner's.
    #[default]
    Access,
    /// Any queue for all operations. The server executes them nevertheless.
    Random,
    /// The key's queue for all operations.
    Key,
    /// The port next to the right one, so that the server must hand each datagram to another worker. Only for
    /// measuring that cost (MICA §5.3, table 1).
    Wrong,
}

/// The operations that the server executes once even if they arrive several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnceFor {
    /// All operations that write. 128 of them are unanswered at most; further ones wait. One that was sent twice to a server
    /// that has forgotten the session, or to one that has restarted, ends with [`Error::OutcomeUnknown`].
    #[default]
    AllWrites,
    /// Operations that are not idempotent: incr, decr, append, prepend, compare, add, delete and flush.
    ///
    /// A put, replace or touch whose answer was lost, or is late, is sent again, and may then be executed a second time
    /// after later, acknowledged writes of the same key: of other clients, and of this one, since copies may wait in
    /// different queues. The older value is back then, for good. In exchange no session is needed, more than 128 of them
    /// may be unanswered, and in a rack they go on at the node that replaces a silent one.
    NotIdempotent,
}

/// Which node of the owner's unit reads an item (RackOut §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadBy {
    /// Any, as likely as the rack's weights say (RackOut §5.2); each as likely as the others if there are none.
    #[default]
    Weighted,
    /// Any, each as likely as the others.
    Uniform,
    /// The one of two, drawn at random, that has fewer unfinished operations of this client.
    TwoChoices,
    /// Any, or a node of another unit that has a copy, each as likely as the others. A copy may be as old as its node's
    /// `--read-copies` says.
    Copies,
}

impl FromStr for ReadBy {
    type Err = Error;

    /// By the names `weighted`, `uniform`, `two-choices` and `copies`.
    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "weighted" => Ok(Self::Weighted),
            "uniform" => Ok(Self::Uniform),
            "two-choices" => Ok(Self::TwoChoices),
            "copies" => Ok(Self::Copies),
            _ => Err(Error::Option("reads are weighted, uniform, two-choices or copies")),
        }
    }
}

/// Defines [`Config`]: the options with their types and defaults, and for each the function that sets it.
macro_rules! options {
    ($($(#[$doc:meta])+ $name:ident: $type:ty = $default:expr,)+) => {
        /// Options of a client. All have defaults that fit a local network.
        ///
        /// ```
        /// use std::time::Duration;
        /// use minos_client::Config;
        ///
        /// let config = Config::new().timeout(Duration::from_millis(500)).value_bytes_max(1 << 20);
        /// assert!(config.check().is_ok());
        /// ```
        #[derive(Clone, Debug)]
        pub struct Config {
            $(pub(crate) $name: $type,)+
            pub(crate) retry_min: Duration,
            pub(crate) retry_max: Duration,
            pub(crate) secret: Option<SealKeys>,
        }

        impl Default for Config {
            fn default() -> Self {
                Self {
                    $($name: $default,)+
                    retry_min: Duration::from_millis(5),
                    retry_max: Duration::from_secs(1),
                    secret: None,
                }
            }
        }

        impl Config {
            $(
                $(#[$doc])+
                #[must_use]
                pub fn $name(self, $name: $type) -> Self {
                    Self { $name, ..self }
                }
            )+
        }
    };
}

options! {
    /// Time-out of an operation, retries included; for a large value, the longest time without progress of
    /// its transfer, and of what waits for room, the longest time without an answer to anything. Default 2 s.
    timeout: Duration = Duration::from_secs(2),

    /// Largest datagram to send and to ask for, in bytes of UDP payload, 512 to 65 507. Default 8192.
    /// The server's limit and the path's MTU bound it further; over Ethernet it is a frame.
    datagram_bytes_max: usize = DATAGRAM_BYTES_DEFAULT,

    /// Largest value to accept, in bytes. Default 64 MiB. At most this much memory for each of
    /// [`transfers_max`](Self::transfers_max) is taken for values that are on their way, and 16 MiB for what comes
    /// unasked of further ones.
    value_bytes_max: u64 = 64 << 20,

    /// Operations that may be unfinished at once, 1 to [`OPERATIONS_MAX`]. Default 4096. Further ones wait.
    operations_max: usize = 4096,

    /// Datagrams that may be unanswered at once, at least 1. Default 64; the server may ask for less.
    in_flight_max: usize = 64,

    /// Large values that may be fetched at once, and as many that may be sent, at least 1. Default 4 each;
    /// the server may ask for less.
    transfers_max: usize = 4,

    /// How often the fetch of a large value restarts because the value was replaced, before the call fails
    /// with [`Error::Unstable`]. Default 8.
    refetches_max: u32 = 8,

    /// How long an operation may wait for others to share its datagram (vector interfaces §6.2). Default 0:
    /// operations are sent at once. A full datagram never waits.
    batch_delay: Duration = Duration::ZERO,

    /// Which queue requests go to. Default [`QueueBy::Access`].
    queue_by: QueueBy = QueueBy::default(),

    /// Which operations are executed exactly once. Default [`OnceFor::AllWrites`].
    once_for: OnceFor = OnceFor::default(),

    /// Which node of a rack gets a read. Default [`ReadBy::Weighted`].
    read_by: ReadBy = ReadBy::default(),

    /// Silence of a node after which another one of its unit gets its reads, and the client asks who has its keys by now.
    /// Default 50 ms.
    failover_after: Duration = Duration::from_millis(50),

    /// For load generators: each request is sent once and at once, however many are unanswered and whatever
    /// limit the server asks for. A request without an answer ends with the time-out, one that a busy server
    /// refuses with [`Error::Busy`]. Operations that wait for a transfer, a session or a busy worker are tried
    /// again as usual. Default off.
    open_loop: bool = false,
}

impl Config {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Shortest and longest time until an unanswered datagram is sent again. In between, it is estimated from
    /// earlier round trips and doubled for each try. Default 5 ms and 1 s.
    #[must_use]
    pub fn retry_between(self, least: Duration, longest: Duration) -> Self {
        Self { retry_min: least, retry_max: longest, ..self }
    }

    /// A secret shared with the server, as `minos secret` prints it: every datagram then carries a tag that
    /// authenticates the sender. Nothing is encrypted. Default none.
    #[must_use]
    pub fn secret(self, secret: &Secret) -> Self {
        Self { secret: Some(SealKeys::of(secret)), ..self }
    }

    /// [`Config::secret`] in its text form, for bindings to other languages.
    ///
    /// # Errors
    /// [`Error::Option`]: that is no secret.
    pub fn secret_text(self, text: &[u8]) -> Result<Self, Error> {
        let secret: Option<Secret> = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let secret = secret.ok_or(Error::Option("a secret is ID:HEX, as `minos secret` prints it"))?;
        Ok(self.secret(&secret))
    }

    /// The key that seals datagrams to the server.
    pub(crate) fn seal(&self) -> Option<&SealKey> {
        self.secret.as_ref().map(|keys| &keys.to_server)
    }

    /// Checks the values of all options.
    ///
    /// # Errors
    /// [`Error::Option`] describes an invalid one.
    pub fn check(&self) -> Result<(), Error> {
        let datagrams = DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX;
        let rules = [
            (!self.timeout.is_zero(), TIMEOUT_ZERO),
            (!self.retry_min.is_zero(), "the least time until a retry must not be zero"),
            (!self.failover_after.is_zero(), "the time until another node is asked must not be zero"),
            (self.retry_min <= self.retry_max, "the least time until a retry is longer than the longest"),
            (datagrams.contains(&self.datagram_bytes_max), "a datagram has 512 to 65507 bytes at most"),
            ((1..=OPERATIONS_MAX).contains(&self.operations_max), "1 to 65536 operations may be unfinished"),
            (self.in_flight_max > 0, "at least one datagram must be allowed in flight"),
            (self.transfers_max > 0, "at least one transfer must be allowed"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(Error::Option(rule)),
            None => Ok(()),
        }
    }
}

/// The error for a time-out of zero.
pub(crate) const TIMEOUT_ZERO: &str = "the time-out must not be zero";

/// A duration in nanoseconds, as the core counts time.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_cannot_be_are_named() {
        let wrong = [
            Config::new().timeout(Duration::ZERO),
            Config::new().retry_between(Duration::from_secs(2), Duration::from_secs(1)),
            Config::new().failover_after(Duration::ZERO),
            Config::new().datagram_bytes_max(511),
            Config::new().datagram_bytes_max(65_508),
            Config::new().operations_max(0),
            Config::new().operations_max(OPERATIONS_MAX + 1),
            Config::new().in_flight_max(0),
            Config::new().transfers_max(0),
        ];
        for config in wrong {
            assert!(matches!(config.check(), Err(Error::Option(_))), "{config:?}");
        }
        assert_eq!(Config::new().check(), Ok(()));
        assert_eq!(["two-choices", "copies"].map(str::parse), [Ok(ReadBy::TwoChoices), Ok(ReadBy::Copies)]);
        assert!("any".parse::<ReadBy>().is_err());
    }
}
