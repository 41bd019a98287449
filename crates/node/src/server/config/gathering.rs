//! How reads from flash are gathered to vectors.

use std::{fmt, str::FromStr, time::Duration};

use super::{InvalidOption, bound};

/// Most reads of a vector.
const WIDTH_MAX: usize = 1024;

/// How a worker's reads from flash are gathered to vectors (Vector Interfaces §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// Reads of a vector.
    pub width: VectorWidth,
    /// Longest time that a read waits for others.
    pub delay: Duration,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { width: VectorWidth::Queue { min: 1, max: WIDTH_MAX }, delay: Duration::from_micros(20) }
    }
}

impl Gathering {
    /// Checks that all values are within their bounds.
    pub(super) fn check(&self) -> Result<(), InvalidOption> {
        bound("--flash-delay", self.delay.as_micros() as u64, 0, 1_000_000)
    }
}

choice! {
    /// When an item that is read from flash comes to memory, if others would leave it for that.
    Promote {
        /// With the first read.
        First = "first",
        /// With the second in a while, so that items that are seldom read displace no others. A read that needs only a
        /// small item's value is answered from flash.
        Second = "second",
    }
}

/// Reads of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorWidth {
    /// The direct pattern: those of one request or datagram.
    Direct,
    /// The intermediate queue: those of all that wait. With a `min` of 1 the width follows the load: what
    /// comes while reads are under way waits for one of them to end.
    Queue {
        /// Fewer wait for others.
        min: usize,
        /// More become several vectors.
        max: usize,
    },
}

impl FromStr for VectorWidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "direct" {
            return Ok(Self::Direct);
        }
        let (min, max) = text.split_once(':').unwrap_or((text, text));
        let number = |text: &str| text.parse().ok().filter(|width| (1..=WIDTH_MAX).contains(width));
        match (number(min), number(max)) {
            (Some(min), Some(max)) if min <= max => Ok(Self::Queue { min, max }),
            _ => Err(format!("expected direct, WIDTH or MIN:MAX, from 1 to {WIDTH_MAX}")),
        }
    }
}

impl fmt::Display for VectorWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Queue { min, max } => write!(f, "{min}:{max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_read_as_they_are_written() {
        for text in ["direct", "1:1024", "8:8"] {
            assert_eq!(text.parse::<VectorWidth>().map(|width| width.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("32".parse(), Ok(VectorWidth::Queue { min: 32, max: 32 }));
        for text in ["", "0", "2:1", "1:1025", "1:", "1:2:3"] {
            assert!(text.parse::<VectorWidth>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_delay_out_of_bounds_is_named() {
        let delay = Duration::from_secs(2);
        let error = Gathering { delay, ..Gathering::default() }.check().unwrap_err();
        assert!(error.to_string().starts_with("--flash-delay: 2000000"), "{error}");
    }
}
