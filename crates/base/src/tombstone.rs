//! Tombstones: what must be written so that records on flash stay dead after a power loss.

use crate::{FlashPlace, KeyHash};

/// Bits of a bucket's number that keys have in common if a slot may be either's: no index has fewer.
const COMMON_BUCKET_BITS: u32 = (1 << 6) - 1;

/// The records of a hash up to a sequence are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// The key's hash.
    pub hash: KeyHash,
    /// Not lower than those of the dead records, lower than those of later ones. 0: only the record at the place
    /// is dead.
    pub sequence: u64,
    /// The record for which it is due.
    pub place: FlashPlace,
    /// True if the index forgot that record, so that its bytes are dead, whatever its hash: in a table that may
    /// lose items it may be another key's whose slot looks the same. Otherwise the index names it still, and
    /// hides it behind an item in memory: a table that may lose nothing makes the item durable first, because
    /// a power loss between the two would take both.
    pub is_forgotten: bool,
}

/// True if a slot that names a record of the one hash may look like a slot of the other.
#[inline]
pub fn may_look_alike(one: KeyHash, other: KeyHash) -> bool {
    one.tag() == other.tag() && (one.bucket_bits() ^ other.bucket_bits()) & COMMON_BUCKET_BITS == 0
}
