//! Memory above flash (Vector Interfaces §3): items that leave memory go to a log on flash, and the same index
//! names both.
//!
//! A bucket may hold an item of a key in memory and records on flash that have the key's tag and eight more
//! bits of its hash. **Memory hides flash**: only where no key in memory is equal are the records *candidates*,
//! of which the one with the right key and the highest sequence counts. So a store over a key on flash reads
//! nothing. What may be stale is forgotten later, by reads and by compaction, and a [`Tombstone`] for it is due.
//!
//! The tag of an entry in the log says what is known of its copy on flash: none, one that is being written, or
//! the place of one that is the same. Changing an item clears it.
//!
//! The head of a log passes a segment only when it is *settled*: each entry is dead, or its slot names a record
//! on flash, or it was given up. [`walk`] does this ahead of the head. No I/O happens here: the caller copies an
//! item into a write buffer, and says when it is written.

mod behind;
mod cold;
mod forget;
mod look;
mod promote;
mod room;
mod stats;
mod switches;
mod tier;
mod walk;
mod written;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use crate::{position::Wide, store::Engine};
use minos_sync::Crcw;

pub use forget::Standing;
pub use promote::{Cold, Promotion};
pub(crate) use room::FlashRoom;
pub use room::{Tombstone, Tombstones};
pub use stats::TierStats;
pub(crate) use tier::Tier;
pub use tier::{Flash, LogMode, MemoryOnly};
pub use walk::{Choice, Due, FlashSpace, Need, Ticket, Walked};
pub use written::Written;

/// Items that leave memory go to flash, and come back when they are read.
pub type TieredMode = LogMode<Wide, Flash>;

/// A table above flash.
pub type Tiered<A = Crcw> = Engine<TieredMode, A>;

/// Records of one hash that a bucket may name: more would make reads long.
const CANDIDATES_MAX: usize = 4;
