//! The level of the log, which its owner applies.

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};

choice! {
    /// The least important lines that are logged.
    LogLevel {
        /// As at the start.
        Start = "start",
        /// None.
        Off = "off",
        /// Errors.
        Error = "error",
        /// Warnings.
        Warn = "warn",
        /// What an operator wants to know.
        Info = "info",
        /// What a developer wants to know.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

/// Applies a level to the log.
type Apply = Box<dyn Fn(LogLevel) + Send + Sync>;

/// The level of the log. Its owner says how a change is applied.
pub struct Verbosity {
    /// Position in [`LogLevel::ALL`].
    level: AtomicUsize,
    /// memcached's number, as last set.
    number: AtomicU32,
    apply: Apply,
}

impl Verbosity {
    /// The level at the start. `apply` is called with each other one.
    pub fn new(apply: impl Fn(LogLevel) + Send + Sync + 'static) -> Self {
        Self { level: AtomicUsize::new(0), number: AtomicU32::new(0), apply: Box::new(apply) }
    }

    /// The level in force.
    pub fn log_level(&self) -> LogLevel {
        LogLevel::ALL[self.level.load(Ordering::Relaxed)]
    }

    /// The number that memcached's clients see; 0 is the quietest.
    pub(crate) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Applies a level.
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.number.store(
            u32::from(level == LogLevel::Debug) + 2 * u32::from(level == LogLevel::Trace),
            Ordering::Relaxed,
        );
        self.set(level);
    }

    /// Applies the level of a number of memcached's `verbosity`.
    pub(crate) fn set_number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
        self.set(match number {
            0 => LogLevel::Start,
            1 => LogLevel::Debug,
            _ => LogLevel::Trace,
        });
    }

    fn set(&self, level: LogLevel) {
        let position = LogLevel::ALL.iter().position(|&each| each == level).unwrap_or_default();
        self.level.store(position, Ordering::Relaxed);
        (self.apply)(level);
    }
}

impl Default for Verbosity {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Verbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verbosity").field(&self.log_level()).finish()
    }
}
