//! Bounds on the values of options.

use minos_sched::{ConfigError, Design};

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
}

/// Checks that a value is within its bounds.
pub(super) fn bound(option: &'static str, value: u64, min: u64, max: u64) -> Result<(), InvalidOption> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(InvalidOption::OutOfBounds { option, value, min, max })
}
