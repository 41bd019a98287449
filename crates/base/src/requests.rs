//! Words of requests that all protocols know.

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

/// A group of counters or settings that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsGroup {
    /// The server's counters.
    General,
    /// The server's options.
    Settings,
    /// Items by size.
    Items,
    /// Memory by size.
    Slabs,
    /// The histogram of item sizes, which is off.
    Sizes,
    /// The connections.
    Connections,
    /// Set the counters to zero.
    Reset,
    /// The inputs and decisions of the size-aware policy.
    Minos,
    /// The tier below memory.
    Flash,
    /// The nodes of the rack.
    Rack,
    /// The keys with most requests.
    HotKeys,
    /// The keys with the largest values.
    LargeKeys,
    /// The latest slow requests.
    Slow,
}

impl StatsGroup {
    /// The group named `name`, as after `stats` of memcached.
    pub fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"" => Self::General,
            b"settings" => Self::Settings,
            b"items" => Self::Items,
            b"slabs" => Self::Slabs,
            b"sizes" => Self::Sizes,
            b"conns" => Self::Connections,
            b"reset" => Self::Reset,
            b"minos" => Self::Minos,
            b"flash" => Self::Flash,
            b"rack" => Self::Rack,
            b"hotkeys" => Self::HotKeys,
            b"largekeys" => Self::LargeKeys,
            b"slow" => Self::Slow,
            _ => return None,
        })
    }
}
