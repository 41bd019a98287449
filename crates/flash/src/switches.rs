//! Safeguards that a test turns off to see its checks fail. A product build has none of these branches.

minos_base::safeguards! {
    /// Checksums depend on life and place.
    Seed,
    /// Writes are made durable.
    Flush,
    /// A segment is used again only after the lanes have passed.
    Epoch,
    /// Deleted and overwritten records stay dead after a crash.
    Tombstones,
    /// So does a record that was forgotten with another key's.
    Places,
    /// What is being copied is not used again.
    Held,
}
