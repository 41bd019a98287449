//! Kinds of stores.

/// The condition for storing a value, and the way: as a whole or as a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Always.
    Set,
    /// If there is no such item.
    Add,
    /// If there is such an item.
    Replace,
    /// Behind the value that is there.
    Append,
    /// Before the value that is there.
    Prepend,
    /// If the item is still the one that the client has seen.
    Compare,
}
