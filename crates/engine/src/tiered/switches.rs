//! Safeguards that a test turns off to see its checks fail. A product build has none of these branches.

minos_base::safeguards! {
    /// A written copy counts only if its item is unchanged.
    Written,
    /// A record comes back only if the index still names it, and nothing newer.
    Promotion,
    /// An item in memory hides records on flash.
    Memory,
    /// Deleted and replaced records stay dead after a power loss.
    Tombstones,
}
