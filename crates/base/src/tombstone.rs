//! Tombstones: what must be written so that records on flash stay dead after a power loss.

use crate::{FlashPlace, KeyHash};

/// Bits of a bucket's number that keys have in common if a slot may be either's: no index has fewer.
pub const ALIKE_BUCKET_BITS: u32 = 6;

/// The records of a hash up to a sequence are dead.
///
/// In a table that may lose nothing it is written when the item of this hash that memory held at that time is durable
/// or gone: a power loss between the two would take the old value with the new one.
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
    /// an item in memory hides it.
    pub is_forgotten: bool,
}

/// True if a slot that names a record of the one hash may look like a slot of the other.
#[inline]
pub fn may_look_alike(one: KeyHash, other: KeyHash) -> bool {
    let common = (1 << ALIKE_BUCKET_BITS) - 1;
    one.tag() == other.tag() && (one.bucket_bits() ^ other.bucket_bits()) & common == 0
}
