//! Numbers by which a test runs more often, or elsewhere, than usual.

use std::env;

/// The number in an environment variable, or the `usual` one if it is not set.
///
/// # Panics
/// If it is set to something else.
pub fn number_from(variable: &str, usual: u64) -> u64 {
    let Some(text) = env::var_os(variable) else { return usual };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| panic!("{variable}: {text:?} is no number"))
}
