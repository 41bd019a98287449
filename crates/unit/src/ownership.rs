//! The word in the owner's memory that says whether its copy of a micro-shard is the valid one.

/// A number of directories. Each change of the directory has a higher one.
pub type Epoch = u32;

/// What a node's word says of its copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// Not valid.
    #[default]
    None,
    /// Valid, and the node writes.
    Owned,
    /// Valid, and writes wait.
    Frozen,
}

/// A micro-shard's word in a node's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// Of [`Holding::None`]: the items are complete as of this epoch; zero if there are none, or not all. Otherwise
    /// the epoch in which the node became the owner.
    pub epoch: Epoch,
    /// Its state.
    pub holding: Holding,
}

impl Ownership {
    /// No valid copy, nor a complete one.
    pub const VOID: Self = Self { epoch: 0, holding: Holding::None };

    /// Owned since `epoch`.
    pub fn owned(epoch: Epoch) -> Self {
        Self { epoch, holding: Holding::Owned }
    }

    /// The same epoch, withdrawn.
    pub fn withdrawn(self) -> Self {
        Self { holding: Holding::None, ..self }
    }

    /// The same epoch, frozen.
    pub fn frozen(self) -> Self {
        Self { holding: Holding::Frozen, ..self }
    }

    /// True if readers may use the copy.
    pub fn is_valid(self) -> bool {
        self.holding != Holding::None
    }
}
