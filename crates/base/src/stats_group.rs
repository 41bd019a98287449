//! Groups of statistics.

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
            _ => return None,
        })
    }
}
