//! The error for a parameter that is out of bounds.

use std::fmt::Display;

/// A parameter that is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {value} is not allowed; allowed is {allowed}")]
pub struct BadParameter {
    /// The parameter, as on the command line.
    pub name: &'static str,
    /// The given value.
    pub value: String,
    /// The allowed values.
    pub allowed: String,
}

impl BadParameter {
    /// An error for `value` of `name`.
    pub fn new(name: &'static str, value: impl Display, allowed: impl Display) -> Self {
        Self { name, value: value.to_string(), allowed: allowed.to_string() }
    }

    /// `value`, if it is a share.
    ///
    /// # Errors
    /// It is not within 0 to 1.
    pub fn unless_share(name: &'static str, value: f64) -> Result<f64, Self> {
        if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(Self::new(name, value, "0 to 1")) }
    }

    /// `value`, if it is finite and above zero.
    ///
    /// # Errors
    /// It is not.
    pub fn unless_positive(name: &'static str, value: f64) -> Result<f64, Self> {
        let positive = value.is_finite() && value > 0.0;
        if positive { Ok(value) } else { Err(Self::new(name, value, "above 0")) }
    }
}
