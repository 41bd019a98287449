//! The results of opening and closing a table.

use crate::config::CreateError;
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// How a table came about that may have been there already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening {
    /// There was none.
    Created,
    /// It was closed, and is unchanged.
    Warm {
        /// Items that it holds.
        items: u64,
    },
    /// It was not closed, because its process was killed, and keeps its intact items.
    Repaired {
        /// Items that it holds.
        items: u64,
        /// Items that were lost, because they or their neighbours in the index were just being written.
        dropped: u64,
    },
    /// There was a cache, but nothing of it could be relied on. It was removed.
    StartedEmpty {
        /// Why not.
        reason: String,
    },
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => write!(f, "new"),
            Self::Warm { items } => write!(f, "warm: {items} items"),
            Self::Repaired { items, dropped } => {
                write!(f, "repaired after an unclean stop: {items} items, {dropped} dropped")
            }
            Self::StartedEmpty { reason } => write!(f, "started empty: {reason}"),
        }
    }
}

/// The reason why a table cannot be opened. The file stays unchanged.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A new one cannot be made, or the configuration is not possible.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The file holds another table than the one requested, or cannot be used.
    #[error(transparent)]
    Region(#[from] minos_region::OpenError),
    /// It holds a store that is damaged, or that was not closed before the machine stopped.
    #[error("the store in {} cannot be relied on: {reason}. Nothing was removed: move it away to begin anew", path.display())]
    Unreliable {
        /// Where it is.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// It holds a table in another mode, or of another version of this program.
    #[error("the region was made for {found}, but {expected} is asked for")]
    Layout {
        /// Mode and version of the table in the file.
        found: String,
        /// Mode and version that are asked for.
        expected: String,
    },
}

/// Why a table could not be closed. It will be opened as one that was not.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// It is in use: by a thread that shares it, a [`crate::Pinned`] item, a
    /// [`crate::Reservation`], or an owner.
    #[error("the table is still in use")]
    InUse,
    /// The file cannot be written.
    #[error(transparent)]
    Region(#[from] minos_region::OpenError),
}

/// Replaces the region's layout numbers by the names of modes.
pub(crate) fn named(error: minos_region::OpenError) -> OpenError {
    match error {
        minos_region::OpenError::Differs { what: "engine layout", found, expected } => {
            let [found, expected] = [found, expected].map(layout_name);
            OpenError::Layout { found, expected }
        }
        error => error.into(),
    }
}

/// The options for a layout, and its name, which it has as a number (see [`crate::mode::Parts::LAYOUT`]).
fn layout_name(layout: u64) -> String {
    let [text @ .., more] = layout.to_le_bytes();
    let options = match &text {
        b"cache 2" => "--engine cache",
        b"store 2" => "--engine store",
        b"tiered1" => "--flash",
        _ => "another version",
    };
    format!("{options} (layout {} {more})", text.escape_ascii())
}

pub(super) fn report(path: &Path, opening: &Opening) {
    let path = path.display();
    match opening {
        Opening::Created | Opening::Warm { .. } => tracing::info!(%path, "{opening}"),
        Opening::Repaired { .. } | Opening::StartedEmpty { .. } => tracing::warn!(%path, "{opening}"),
    }
}
