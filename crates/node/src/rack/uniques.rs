//! The CAS uniques of nodes.
//!
//! Items move between nodes, and outlive their owner's memory in copies. So no two nodes may give the same unique, and none
//! may give one again after it has lost its memory.

use std::{ops::Range, time::Duration};

/// Where the number of a node is. Clients may take uniques for signed: all are below 2^63.
const NODE_SHIFT: u32 = 57;
/// Below it, uniques count on from a time that is of this many to a microsecond. What a node gives with new memory is
/// above all that it has given before, unless that was more than 128 million a second ever since it began. Each of 256
/// partitions counts in steps of so many, so half a million writes a second into one of them come to that.
const UNIQUES_PER_US: u64 = 128;
/// The start of 2026, from which that time is counted. In 2061 it begins again, when nothing is left of the first round.
const ZERO: Duration = Duration::from_secs(1_767_225_600);

/// The uniques that a node may give which begins at this time since 1970: no other node gives them, and it has given none
/// of them before.
pub fn uniques(node: usize, unix: Duration) -> Range<u64> {
    let us = unix.saturating_sub(ZERO).as_micros() as u64;
    let time = us.wrapping_mul(UNIQUES_PER_US) & ((1 << NODE_SHIFT) - 1);
    let first = (node as u64) << NODE_SHIFT;
    first | time..first + (1 << NODE_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::{super::config::NODES_MAX, *};

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    #[test]
    fn a_node_that_has_lost_its_memory_gives_no_unique_again() {
        for began in [ZERO, ZERO + YEAR, ZERO + 34 * YEAR] {
            for lived in [Duration::from_millis(1), Duration::from_secs(1), YEAR] {
                let given = 128 * lived.as_micros() as u64;
                let (old, new) = (uniques(1, began), uniques(1, began + lived));
                assert!(old.start + given <= new.start && new.end == old.end, "{began:?} {lived:?}");
            }
        }
    }

    #[test]
    fn no_two_nodes_give_the_same_unique() {
        // Whatever their clocks show.
        for unix in [Duration::ZERO, ZERO, ZERO + 35 * YEAR, ZERO + 40 * YEAR, Duration::MAX] {
            for node in 0..NODES_MAX {
                let uniques = uniques(node, unix);
                assert!(!uniques.is_empty() && uniques.start >= (node as u64) << NODE_SHIFT, "{unix:?}");
                assert!(uniques.end <= 1 << 63 && uniques.end <= (node as u64 + 1) << NODE_SHIFT, "{unix:?}");
            }
        }
    }
}
